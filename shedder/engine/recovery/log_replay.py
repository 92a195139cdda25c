"""Recovery: from catalog, checkpoint and log to the state before the stop."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import structlog

from shedder.archive.files.data_directory import FORMAT_FIRST, FORMAT_LOAD, format_of
from shedder.archive.log.log_segment import Record
from shedder.archive.log.records import Batch, Built, LevelFrom, RecordType
from shedder.archive.log.setting_changes import (
    Alteration,
    RowLimitAltered,
    alteration_from_body,
)
from shedder.archive.log.table_changes import TableChange
from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.archive.metadata.position_gaps import lost_text
from shedder.cql.binding.bind import bind
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.engine.allocation.negotiation import group_bytes
from shedder.engine.apply.record_handler import KINDS, RecordHandler, RecordKind, Timing
from shedder.engine.checkpoints.checkpoint_contents import (
    EVICTED,
    FORGOTTEN,
    TENANTS,
    restore_budget,
    restore_query,
    restore_row_limit,
    restore_stream,
)
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.checkpoints.query_commit import joined_sample
from shedder.engine.dataflow.row_state import RowState
from shedder.engine.engine_state import EngineState
from shedder.engine.ingest.arrived_record import PendingRecord
from shedder.engine.ingest.known_producers import KnownProducers, ProducerState
from shedder.engine.ingest.producer_sequences import is_newer, progress_after
from shedder.engine.rebuild.row_query_factory import RowParameters, bound_rows, rows_of_table
from shedder.engine.rebuild.row_query_past import restored_row_query
from shedder.engine.recovery.damaged_log_records import lost_changes, uncounted
from shedder.engine.standing_queries.lost_tuples import UNCOUNTED
from shedder.engine.standing_queries.pane_deletions import PaneDeletions
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.synopsis_plans.allocation_request import SynopsisSizes
from shedder.engine.synopsis_plans.stored_query_text import parse_stored, read_stored
from shedder.engine.synopsis_plans.synopsis_plan import plan, sizes_from_json
from shedder.engine.tables.live_tables import LiveTable
from shedder.engine.tables.stored_history import PLACES, restored_history
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import CorruptData
from shedder.streams.live_sample import StreamSample
from shedder.streams.windows import Span
from synopses.model.errors import OtherLayout

_log = structlog.get_logger("shedder.recovery")

Producers = dict[str, KnownProducers]


def recover(
    core: EngineState,
    checkpoints: Checkpoints,
    handler: RecordHandler,
    answer_exactly: Callable[[StandingQuery, Span], None],
) -> None:
    """Bring the state of an engine, not started yet, to that of everything durable.

    The store has verified its files and made the tail of every stream again; here the checkpoint
    is read and the log after it applied, exactly as it was applied the first time.
    """
    producers, joining = _read_checkpoint(core, checkpoints, answer_exactly)
    core.share_samples()
    replay = _Replay(core, handler, producers, joining)
    replay.run()
    for name, changes in lost_changes(core.store, core.tables, replay.changed_at).items():
        core.tables[name].note_lost(changes)
    for table in core.tables.values():
        table.end_replay()
    left: dict[str, int] = {}
    entries = {each.name: each for each in core.store.catalog.queries()}
    for name in core.store.catalog.left():
        left[name] = entries[name].stream_id
        if RowParameters.of(entries[name]) is None:
            core.forget_query(*core.standing_query(name))
    checkpoints.restore(providers=(), left=left)
    for name, intake in core.intakes.items():
        stream = core.streams[name]
        position = max(replay.positions[name], stream.position)
        stream.note_accepted(stream.applied)
        intake.restore(
            position,
            producers[name],
            stream.expected_rows,
            stream.watermark,
            accepted=stream.accepted,
        )
    for damage in _damages(core, replay.held_to):
        _log.error("damaged", what=damage)
    for stream in core.streams.values():
        for standing_query in stream.queries.values():
            standing_query.guard(partial(standing_query.refresh, stream.facts()))
            if standing_query.failed:
                standing_query.refresh(stream.facts())
    _log.info("recovered", streams=len(core.streams), replayed_tuples=replay.rows)


class _Replay:
    """Applies the log after the checkpoint, and fills the tails and producers from all of it.

    positions: where the rows of each stream end. held_to: the last record of each stream's rows.
    changed_at: the last record of each table, by the table's id.
    rows: that were applied.
    """

    def __init__(
        self,
        core: EngineState,
        handler: RecordHandler,
        producers: Producers,
        joining: _Joins,
    ) -> None:
        self.positions = {name: core.store.end_position(s.id) for name, s in core.streams.items()}
        self.held_to: dict[str, int] = {}
        self.changed_at: dict[int, int] = {}
        self.rows = 0
        self._core = core
        self._handler = handler
        self._producers = producers
        self._joining = joining
        self._start = core.store.catalog.checkpoint_sequence()
        self._last_stream = core.store.catalog.last_stream_id()
        self._last_table = core.store.catalog.tables.last_id()
        self._names = {stream.id: name for name, stream in core.streams.items()}

    def run(self) -> None:
        """Apply every record, each in its turn.

        Raises:
          CorruptData: the log does not belong to this catalog, or to this format.
        """
        core = self._core
        core.note_applied(self._start)
        reads_load = (format_of(core.store.directory) or FORMAT_FIRST) >= FORMAT_LOAD
        early = self._beforehand() if reads_load else deque[_Early]()
        for record in core.store.log.read(core.store.log.first_sequence):
            while self._joining and self._joining[0].sequence <= record.sequence:
                self._joining.popleft().join()
            while early and early[0].header.from_sequence <= record.sequence:
                self._apply_early(early.popleft())
            kind = KINDS.get(record.kind)
            if kind is not None and kind.timing is Timing.BEFOREHAND and not reads_load:
                raise CorruptData(
                    f"{core.store.directory / 'FORMAT'} is lower than {FORMAT_LOAD}, but the log "
                    f"has a record of that format, with sequence {record.sequence}"
                )
            if kind is None or kind.timing is Timing.BEFOREHAND or self._take(record, kind):
                core.note_applied(max(self._start, record.sequence + 1))
        for one in self._joining:
            one.join()
        for late in early:
            self._apply_early(late)
        core.note_applied(core.store.log.next_sequence)  # Damaged records at the end included.

    def _take(self, record: Record, kind: RecordKind) -> bool:
        """Apply a record where its turn comes; False: its stream was dropped."""
        applies = record.sequence >= self._start
        if not kind.has_tuples:
            if applies:
                header = kind.header(record)
                if isinstance(header, TableChange):
                    if header.table > self._last_table:
                        raise self._unknown(f"table {header.table}", record)
                    self.changed_at[header.table] = record.sequence
                self._handler.apply(record.kind, [kind.token(header, record, None)])
            return True
        header = kind.header(record)
        assert isinstance(header, Batch | Built)
        name = self._names.get(header.stream)
        if name is None:
            self._refuse_unknown(header.stream, record)
            return False
        stream = self._core.streams[name]
        _advance(self._producers[name], header)
        if applies or isinstance(header, Batch):
            token = kind.token(header, record, stream.schema)
            if isinstance(header, Batch):
                self._keep(name, stream, header, token, record.sequence)
            if applies:
                self._handler.apply(record.kind, [token])
                self.rows += header.rows if isinstance(header, Batch) else 0
        return True

    def _keep(self, name: str, stream: Stream, header: Batch, token: object, sequence: int) -> None:
        """Put rows into the tail of their stream, as far as no run has them."""
        assert isinstance(token, PendingRecord)
        assert isinstance(token.content, pa.RecordBatch)
        position = header.first_position
        self._core.store.add(stream.id, position, token.content, sequence=sequence)
        self.positions[name] = max(self.positions[name], header.end_position)
        self.held_to[name] = sequence

    def _refuse_unknown(self, stream: int, record: Record) -> None:
        """Refuse a catalog that never gave a stream's id. A dropped stream's id was given.

        Raises:
          CorruptData.
        """
        if stream > self._last_stream:
            raise self._unknown(f"stream {stream}", record)

    def _unknown(self, what: str, record: Record) -> CorruptData:
        """Say that the log has a record of something that the catalog never had."""
        return CorruptData(
            f"the log's record {record.sequence} is of {what}, which "
            f"{self._core.store.catalog.path} does not know: the catalog is older than the log"
        )

    def _beforehand(self) -> deque[_Early]:
        """What was in force before its record, since the checkpoint, in that order.

        The records stand behind the batches that were read so, and are looked for before these
        are applied. The checkpoint has what was in force before it.
        """
        log, found = self._core.store.log, list[_Early]()
        for record in log.read(log.first_sequence):
            kind = KINDS.get(record.kind)
            if kind is not None and kind.timing is Timing.BEFOREHAND:
                header = kind.header(record)
                assert isinstance(header, LevelFrom)
                if header.from_sequence >= self._start:
                    found.append(_Early(record.kind, header))
            elif record.kind == RecordType.ALTERED and record.sequence >= self._start:
                self._note_limit(alteration_from_body(bytes(record.body)))
        return deque(sorted(found, key=lambda one: one.header.from_sequence))

    def _note_limit(self, alteration: Alteration) -> None:
        """Have a limit of row queries in force before its record: batches may have had it."""
        if isinstance(alteration, RowLimitAltered):
            self._core.set_row_query_bytes(alteration.row_query_bytes)

    def _apply_early(self, one: _Early) -> None:
        self._handler.apply(one.kind, [one.header])


@dataclass(frozen=True, slots=True)
class _Early:
    """A record that took effect before it was written."""

    kind: int
    header: LevelFrom


def _damages(core: EngineState, held_to: Mapping[str, int]) -> tuple[str, ...]:
    """What recovery found damaged in the log, and which tuples are lost with it, in words.

    The streams that may have lost more than their positions tell are told so, for their answers.
    """
    lost = [
        f"stream {name!r}: {lost_text(hole)}"
        for name, stream in core.streams.items()
        for hole in core.store.find_holes(stream.id, stream.position)
    ]
    for name in uncounted(core.store, core.streams, held_to):
        stream = core.streams[name]
        stream.lost.doubt(stream.watermark.limit_us(core.clock_us()))
        lost.append(f"stream {name!r}: {UNCOUNTED}")
    for repair in core.store.recovery.repairs:
        at_us = core.clock_us() if repair.repaired_us is None else repair.repaired_us
        for stream in core.streams.values():
            if repair.covers(stream.id):
                stream.lost.repaired(stream.watermark.limit_us(at_us))
        lost += [f"a repair could not rebuild {what}" for what in repair.lost]
    lost += [
        f"table {name!r}: {table.rows.lost:,} changes are lost, or may be"
        for name, table in core.tables.items()
        if table.rows.lost
    ]
    return (*map(str, core.store.recovery.log.damages), *lost)


@dataclass(frozen=True, slots=True, eq=False)
class _JoiningQuery:
    """What came after the checkpoint, before a record of the log: a query, or a sample with one."""

    sequence: int
    stream: Stream
    standing_query: StandingQuery | None = None
    sample: StreamSample | None = None

    def join(self) -> None:
        """All records before it have been applied."""
        if self.sample is not None:
            self.sample.limit(self.stream.sample.size_bytes_max)
            self.stream.replace_sample(self.sample)
        if self.standing_query is not None:
            self.stream.queries[self.standing_query.state.name] = self.standing_query
            self.stream.share_panes()


@dataclass(frozen=True, slots=True, eq=False)
class _RowsJoining:
    """A row query, whose operators are made again from the tuples before a record of the log.

    sequence: of the checkpoint or, of a query that came later, of its registration.
    """

    sequence: int
    core: EngineState
    entry: QueryEntry
    data: bytes

    def join(self) -> None:
        """All records before it have been applied, and their tuples are in the tail."""
        select = rows_of_table(self.core, parse_stored(self.entry.text))
        assert isinstance(select, RelationalSelect), self.entry.text
        found = bound_rows(self.core, select)
        state = RowState.from_bytes(self.data)
        self.core.rows.add(*restored_row_query(self.core, self.entry, found, state))
        self.core.rows.note_stored({self.entry.name: state})


_Joins = deque[_JoiningQuery | _RowsJoining]


def _read_checkpoint(
    core: EngineState,
    checkpoints: Checkpoints,
    answer_exactly: Callable[[StandingQuery, Span], None],
) -> tuple[Producers, _Joins]:
    """The state as of the checkpoint, and what came after it, in order."""
    catalog = core.store.catalog
    parts = catalog.checkpoint_parts()
    core.set_synopsis_bytes(restore_budget(parts))
    core.set_row_query_bytes(restore_row_limit(parts))
    core.tenants.restore(parts.get(TENANTS))
    if PLACES in parts:
        core.table_histories.places.restore(json.loads(parts[PLACES]))
    for entry in catalog.tables.entries():
        version = -1 if entry.image is None else entry.image.version
        rows = core.store.tables.read(entry)
        history = restored_history(core.table_histories, parts, entry.id, rows)
        core.tables.add(LiveTable(entry.id, rows, stored_version=version, history=history))
    producers: Producers = {}
    joining: list[_JoiningQuery | _RowsJoining] = []
    for row in core.store.streams():
        data = parts.get(f"sample/{row.id}")
        if data is None:
            sample = StreamSample(row.schema, rows=core.settings.sample_rows)
        else:
            sample = StreamSample.from_bytes(row.schema, data)
        stream = core.add_stream(row.id, row.schema, sample)
        state = parts.get(f"stream/{row.id}")
        evicted = parts.get(f"{EVICTED}/{row.id}", b"")
        forgotten = parts.get(f"{FORGOTTEN}/{row.id}", b"")
        known = ProducerState()
        if state is not None:
            known = restore_stream(stream, state, evicted, forgotten)
        producers[row.schema.name] = KnownProducers(
            core.producer_memory, known, tenant=row.schema.tenant
        )
        joined = joined_sample(parts, row.id, row.schema)
        if joined is not None:
            joining.append(_JoiningQuery(joined[0], stream, sample=joined[1]))
    late, left = catalog.joined(), catalog.left()
    feeds: list[tuple[Stream, QueryState, tuple[str, int, int]]] = []
    for stored in catalog.queries():
        if RowParameters.of(stored) is not None:
            if stored.name not in left:
                sequence = late.get(stored.name, catalog.checkpoint_sequence())
                joining.append(_RowsJoining(sequence, core, stored, parts[f"query/{stored.name}"]))
            continue
        standing_query, feed = _restored(core, stored, parts, answer_exactly)
        stream = core.stream(standing_query.state.query.schema.name)
        if feed is not None:
            feeds.append((stream, standing_query.state, feed))
        if stored.name in late:
            joining.append(_JoiningQuery(late[stored.name], stream, standing_query))
            continue
        stream.queries[stored.name] = standing_query
    checkpoints.restore(providers=[provider for _, _, (provider, *_) in feeds], left={})
    for stream, query_state, (provider, *feed_from) in feeds:
        query_state.take_from(stream.queries[provider].state, (feed_from[0], feed_from[1]))
    return producers, deque(sorted(joining, key=lambda one: one.sequence))


def _restored(
    core: EngineState,
    stored: QueryEntry,
    parts: Mapping[str, bytes],
    answer_exactly: Callable[[StandingQuery, Span], None],
) -> tuple[StandingQuery, tuple[str, int, int] | None]:
    """Restore a standing query from its checkpoint, and return its provider as restore_query does.

    One whose summaries are in a layout that is not read any more fails, and it alone: the archive
    has its past.
    """
    standing_query = _standing_query(core, stored, answer_exactly)
    try:
        return standing_query, restore_query(core.store, standing_query, parts)
    except OtherLayout as error:
        reason = (
            f"query {stored.name!r} was stored by another version ({error}); drop it and register "
            "it again: its panes are made anew from the archive"
        )
        _log.error("query_failed", query=stored.name, reason=reason)
        standing_query = _standing_query(
            core, stored, answer_exactly
        )  # Without what was read until then.
        standing_query.fail(reason)
        return standing_query, None


def _standing_query(
    core: EngineState, stored: QueryEntry, answer_exactly: Callable[[StandingQuery, Span], None]
) -> StandingQuery:
    """A standing query that has seen nothing yet."""
    select = read_stored(stored.text)
    stream = core.stream(select.stream)
    query = bind(select, stream.schema)
    sizes, granted = sizes_from_json(query, stored.parameters)
    planned = plan(query, sizes)
    query_state = QueryState(
        stored.name,
        query,
        planned,
        part_bytes_max=group_bytes(granted, core.settings.group_bytes_max),
        cpu_timer=core.machine.cpu_timer(stored.name, planned, grouped=bool(query.groups)),
    )
    return StandingQuery(
        query_state,
        from_position=stored.from_position,
        granted=granted,
        answer_exactly=answer_exactly,
        limits=_limits(query_state, stored),
        deleted=PaneDeletions.registered_at(stream.deletions(), stored.from_position),
    )


def _limits(query_state: QueryState, stored: QueryEntry) -> SynopsisSizes | None:
    """What a query may be given at most; it was not stored always, and what it was granted was."""
    if query_state.query.costing is None:
        return None
    limits = json.loads(stored.parameters).get("limits")
    if limits is None:
        return SynopsisSizes(query_state.plan.sizes, query_state.sizes.part_bytes_max)
    return SynopsisSizes.stored(limits)


def _advance(producers: KnownProducers, header: Batch | Built) -> None:
    """A checkpoint's producers may be ahead of its tuples; progress never goes back."""
    if not header.producer:
        return
    known = producers.get(header.producer)
    if is_newer(header, known):
        producers.note(header.producer, progress_after(known, header), header.arrival_us)
