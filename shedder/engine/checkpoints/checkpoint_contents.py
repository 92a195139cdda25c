"""Checkpoint contents: the state that a restart begins with instead of the whole log.

A checkpoint is the closed panes, the open ones, levels in force, samples, watermarks, producers'
sequences, what audits have come to, and the log's sequence up to which all of these are complete.
It is one catalog transaction. What may change is made bytes at one moment; closed panes, which do
not change, may be made bytes later, a few at a time. Rows of samples and the progress of producers
do not change either: the thread that writes the checkpoint makes bytes of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from shedder.archive.archive_store import Store
from shedder.archive.catalog.catalog import Catalog
from shedder.engine.checkpoints.changed_tables import ChangedTables
from shedder.engine.dataflow.row_state import RowState
from shedder.engine.ingest.expected_rows import ExpectedRows
from shedder.engine.ingest.known_producers import ProducerState
from shedder.engine.panes.late_tuples import LatePanes
from shedder.engine.runtime.quotas import Tenants
from shedder.engine.standing_queries.dropped_tuples import Drops
from shedder.engine.standing_queries.lost_tuples import LostTuples
from shedder.engine.standing_queries.pane_deletions import PaneDeletions
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.window_state.pane_store_writer import PanesToStore
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import DiskFull
from shedder.queries.certification.certification import Certification
from shedder.streams.ipc import table_bytes
from shedder.streams.live_sample import SampleImage, StreamSample

ROW_LIMIT = "row limit"  # The part with the limit of a row query that an operator has set.
BUDGET = "budget"  # The part that says what an operator has set of the budget,
TENANTS = "tenants"  # ... and this of tenants' quotas.
EVICTED = "evicted"  # Begins the part with the numbers of producers that were evicted.
FORGOTTEN = "forgotten"  # Begins the part with the bounds of producers that were forgotten.
_ALL_TIME = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class SampleToStore:
    """A stream's sample as it was at one position."""

    stream: Stream
    sample: StreamSample
    position: int
    image: SampleImage


@dataclass(frozen=True, slots=True, eq=False)
class StreamToStore:
    """A stream's state at one moment; never changed. state: JSON of all but the producers."""

    state: bytes
    producers: ProducerState

    def to_bytes(self) -> bytes:
        """Return the state as JSON."""
        producers = json.dumps(self.producers.to_json()).encode()
        return self.state[:-1] + b", " + producers[1:]


@dataclass(slots=True, eq=False)
class Checkpoint:
    """All live state as of a log sequence, but for closed panes that are not bytes yet.

    sequence: every record of the log below it has been applied.
    parts: what every checkpoint of this state has to write again: all but closed panes, samples and
      the states of streams.
    kept: parts that stay as the checkpoint before had them.
    samples, streams: by key of their parts; `store` makes bytes of them, on its own thread. There
      may be a hundred thousand producers in the state of a stream.
    tables: those that have changed since their image was written.
    rows: states of row queries, which are among the parts.
    """

    sequence: int
    parts: dict[str, bytes]
    kept: dict[str, Stream]
    samples: dict[str, SampleToStore]
    streams: dict[str, StreamToStore]
    tables: ChangedTables
    _panes: list[tuple[QueryState, PanesToStore]]
    rows: Mapping[str, RowState]
    _sample_bytes: dict[str, int] = field(default_factory=dict, init=False)  # Stored,
    _stream_bytes: int = field(default=0, init=False)  # ... and so are the states of streams.

    @classmethod
    def of(
        cls,
        streams: Mapping[str, Stream],
        producers: Mapping[str, ProducerState],
        sequence: int,
        tables: ChangedTables,
        *,
        synopsis_bytes: int | None = None,
        row_query_bytes: int | None = None,
        tenants: Tenants | None = None,
        rows: Mapping[str, RowState] = MappingProxyType({}),
    ) -> Checkpoint:
        """Begin one, on the thread that applies; then `store` it, or say that it `failed`.

        Producers may be ahead of the applied state (they are numbered when they are durable);
        replay brings the rest there too, and a producer's progress never goes back.

        Args:
          streams, producers: the state, by stream name.
          sequence: every record of the log below it has been applied.
          tables: those that have changed since their image was written.
          synopsis_bytes: the budget of synopses that an operator has set; None: that of the
            settings.
          row_query_bytes: the limit of a row query that an operator has set, as `synopsis_bytes`.
          tenants: with quotas that an operator has set; None: there are none.
          rows: states of row queries, by name.
        """
        parts = {f"query/{name}": state.to_bytes() for name, state in rows.items()}
        kept: dict[str, Stream] = {}
        samples: dict[str, SampleToStore] = {}
        states: dict[str, StreamToStore] = {}
        standings = []
        for name, stream in streams.items():
            state = StreamToStore(_stream_state(stream), producers[name])
            states[f"stream/{stream.id}"] = state
            if producers[name].evicted:
                parts[f"{EVICTED}/{stream.id}"] = producers[name].evicted
            if producers[name].forgotten:
                parts[f"{FORGOTTEN}/{stream.id}"] = producers[name].forgotten
            key = f"sample/{stream.id}"
            if stream.sample_is_stored:  # It is as large as all the rest.
                kept[key] = stream
            else:
                sample = stream.sample
                samples[key] = SampleToStore(stream, sample, sample.position, sample.image())
            for standing_query in stream.queries.values():
                if not standing_query.failed:  # What broke may be in its panes.
                    standings.append(standing_query.state)
                parts |= query_parts(standing_query)
        if synopsis_bytes is not None:
            parts[BUDGET] = json.dumps({"synopsis_bytes": synopsis_bytes}).encode()
        if row_query_bytes is not None:
            parts[ROW_LIMIT] = json.dumps({"row_query_bytes": row_query_bytes}).encode()
        if tenants is not None and tenants.overrides:
            parts[TENANTS] = tenants.to_bytes()
        found = [(query_state, query_state.to_store()) for query_state in standings]
        panes = [(query_state, each) for query_state, each in found if each is not None]
        return cls(sequence, parts, kept, samples, states, tables, panes, rows)

    @property
    def waiting_panes(self) -> int:
        """The number of closed panes that are not bytes yet."""
        return sum(len(panes.waiting) for _, panes in self._panes)

    @property
    def waiting_bytes(self) -> int:
        """What the closed panes hold that are not bytes yet."""
        waiting = (pane for _, panes in self._panes for _, pane in panes.waiting)
        return sum(sum(pane.part_bytes) for pane in waiting)

    def encode_while(self, goes_on: Callable[[], bool]) -> bool:
        """Make bytes of closed panes, of one at least; whether all are. As `of`."""
        for _, panes in self._panes:
            while panes.waiting:
                panes.encode_one()
                if not goes_on():
                    return False
        return True

    def store(self, catalog: Catalog) -> None:
        """Write it, in one transaction. On any thread, once all panes are bytes; else as `of`.

        Raises:
          DiskFull, StorageFailed: nothing was stored.
        """
        samples = {key: each.image.to_bytes() for key, each in self.samples.items()}
        self._sample_bytes = {key: len(data) for key, data in samples.items()}
        states = {key: each.to_bytes() for key, each in self.streams.items()}
        self._stream_bytes = sum(map(len, states.values()))
        histories = self.tables.histories
        parts = self.parts | states | samples | histories.parts()
        try:
            self.tables.write()
            with catalog.transaction():
                self.tables.put(catalog)
                for _, panes in self._panes:
                    panes.put(catalog)
                catalog.write_checkpoint(self.sequence, parts, {*self.kept, *histories.kept})
        except DiskFull:
            self.tables.discard()
            raise

    def stored(self) -> int:
        """It is written. As `of`.

        Returns:
          How many bytes every checkpoint of this state has to write again.
        """
        for key, each in self.samples.items():
            size_bytes = self._sample_bytes[key]
            each.stream.note_stored_sample(each.sample, each.position, size_bytes)
        for _, panes in self._panes:
            panes.forget()
        unchanged = sum(stream.sample_stored_bytes for stream in self.kept.values())
        written = sum(len(part) for part in self.parts.values()) + sum(self._sample_bytes.values())
        return unchanged + written + self._stream_bytes + self.tables.stored()

    def failed(self) -> None:
        """It could not be written: the next one stores all of it. As `of`."""
        for query_state, panes in self._panes:
            query_state.store_writer.note_failed(panes)
            panes.forget()


def _stream_state(stream: Stream) -> bytes:
    state: dict[str, Any] = {
        "position": stream.position,
        "applied": stream.applied,
        "late": stream.late,
        "built": stream.built,
        "to_follow": stream.expected_rows.rows,
        "owed": stream.expected_rows.to_json(),
        "takes_summaries": stream.takes_summaries,
        "drops": stream.drops.to_json() if stream.drops.rows else None,
        "lost": stream.lost.to_json() if stream.lost else None,
        "watermark_us": stream.watermark_us,
    }
    return json.dumps(state).encode()


def query_parts(standing_query: StandingQuery) -> dict[str, bytes]:
    """The parts of a standing query: its counts, its open panes, its groups."""
    name, keys = standing_query.state.name, standing_query.state.keys
    parts = {f"query/{name}": _query_state(standing_query)}
    return parts if keys is None else parts | {f"groups/{name}": keys.to_bytes()}


def _query_state(standing_query: StandingQuery) -> bytes:
    """Counts as JSON in the schema's metadata; the open panes as rows."""
    query_state = standing_query.state
    state = {
        "read": query_state.timely,
        "late": query_state.late,
        "levels": query_state.levels,
        "forced": sorted(query_state.forced),
        "thinned": query_state.thinned,
        "take_all": query_state.take_all.to_json(),
        "sizes": [part.size for part in query_state.plan.parts],
        "group_bytes": query_state.sizes.part_bytes_max,
        **query_state.late_panes.to_json(),
        "emitted_to": standing_query.emitted_to,
        "folded_to_us": query_state.panes.folded_to_us,
        "weight": standing_query.weight,
        "active": standing_query.active,
        "feed": _feed_state(query_state),
        "failed": standing_query.failed,
        "certification": asdict(standing_query.audits.certification),
        "audited": standing_query.audits.audited,
        "bet_to_us": standing_query.audits.bet_to_us,
        "lost": standing_query.lost.to_json() if standing_query.lost else None,
        "deleted": standing_query.deleted.to_json(),
    }
    panes = [] if standing_query.failed else query_state.panes.open_numbers()
    fields: list[pa.Field[Any]] = [pa.field("pane", pa.int64()), pa.field("data", pa.binary())]
    schema = pa.schema(fields, metadata={"state": json.dumps(state)})
    blobs = [query_state.panes.to_bytes(pane) for pane in panes]
    table = pa.table([pa.array(panes, pa.int64()), pa.array(blobs, pa.binary())], schema=schema)
    return table_bytes(table)


def restore_budget(parts: Mapping[str, bytes]) -> int | None:
    """The budget of synopses that an operator has set."""
    data = parts.get(BUDGET)
    return None if data is None else int(json.loads(data)["synopsis_bytes"])


def restore_row_limit(parts: Mapping[str, bytes]) -> int | None:
    """The limit of a row query that an operator has set."""
    data = parts.get(ROW_LIMIT)
    return None if data is None else int(json.loads(data)["row_query_bytes"])


def _feed_state(query_state: QueryState) -> list[str | int] | None:
    provider, feed = query_state.provider, query_state.feed
    if provider is None or feed is None:
        return None
    return [provider.name, feed.from_pane, feed.next_pane]


def restore_stream(stream: Stream, data: bytes, evicted: bytes, forgotten: bytes) -> ProducerState:
    """Set a stream's counters from its part; returns how far its producers were.

    evicted, forgotten: the parts with such producers; b"": there is none.
    """
    state = json.loads(data)
    built = state.get("built", 0)  # Written since streams take summaries.
    stream.restore(
        position=state["position"],
        applied=state["applied"],
        late=state["late"],
        built=built,
        # Absent before streams could drop.
        drops=Drops.from_json(state["drops"]) if state.get("drops") else Drops(),
        # Absent before what damage took was told.
        lost=LostTuples.from_json(state["lost"]) if state.get("lost") else LostTuples(),
        expected_rows=ExpectedRows.from_json(state.get("owed"), state.get("to_follow", 0)),
        takes_summaries=state.get("takes_summaries", built > 0),
        watermark_us=state["watermark_us"],
    )
    return ProducerState.from_json(state, evicted, forgotten)


def restore_query(
    store: Store, standing_query: StandingQuery, parts: Mapping[str, bytes]
) -> tuple[str, int, int] | None:
    """Set a standing query's groups, panes and counters from the pane store and its parts.

    Returns:
      The name of the query that reads for it, and how far that had come; None: it reads by itself.
    """
    query_state = standing_query.state
    data, groups = (parts.get(f"{kind}/{query_state.name}") for kind in ("query", "groups"))
    state: dict[str, Any] = {}
    panes = []
    if data is not None:
        table = pa.ipc.open_stream(data).read_all()
        state, panes = json.loads(table.schema.metadata[b"state"]), table.to_pylist()
        if "levels" in state:  # Written since queries can be thinned.
            query_state.set_levels(state["levels"], state.get("forced", ()))
        query_state.restore(
            timely=state["read"],
            late=state["late"],
            thinned=state["thinned"] if "levels" in state else None,
            late_panes=LatePanes.from_json(state),
        )
        # Absent before there were such rows.
        query_state.take_all.restore(state.get("take_all", {}))
        if "sizes" in state:  # Written since synopses can be resized.
            query_state.resizer.set_sizes(state["sizes"], state["group_bytes"])
        standing_query.restore(
            emitted_to=state["emitted_to"],
            weight=state.get("weight", standing_query.weight),
            active=state.get("active", True),
            failed=state["failed"],
            # Absent before what damage took was told.
            lost=LostTuples.from_json(state["lost"]) if state.get("lost") else None,
            # Absent in versions that did not rebuild panes after a DELETE.
            deleted=PaneDeletions.from_json(state["deleted"]) if "deleted" in state else None,
        )
        if "certification" in state:  # Written since audits outlive the service.
            standing_query.audits.restore(
                Certification.restored(state["certification"]),
                None if state["audited"] is None else tuple(state["audited"]),
                state["bet_to_us"],
            )
    if standing_query.failed:
        query_state.fail()
        return None
    if query_state.keys is not None and groups is not None:
        query_state.keys.restore(groups)
    width = query_state.grid.width_us
    if state.get("folded_to_us") is not None:  # Absent before there was COLLAPSE.
        query_state.fold(state["folded_to_us"])
    if width is not None:
        for pane in store.catalog.panes(query_state.name, *_ALL_TIME):
            query_state.panes.adopt(pane.start_us // width, pane.blob, closed=True)
    for row in panes:
        query_state.panes.adopt(row["pane"], row["data"], closed=False)
    query_state.resizer.look_for_larger()  # The checkpoint came while panes were being shrunk.
    query_state.resizer.shrink_all()
    feed = state.get("feed")  # Absent before panes were shared.
    return None if feed is None else (feed[0], feed[1], feed[2])
