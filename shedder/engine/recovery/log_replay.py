"""Recovery: from catalog, checkpoint and log to the state before the stop."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from shedder.archive.files.data_directory import FORMAT_FIRST, FORMAT_LOAD, format_of
from shedder.archive.log.log_segment import Record
from shedder.archive.log.records import (
    DROPPED,
    Batch,
    Built,
    Heartbeat,
    Kind,
    Level,
    LevelFrom,
    Sizes,
)
from shedder.archive.log.setting_changes import alteration_from_body
from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.archive.metadata.position_gaps import lost_text
from shedder.cql.binding.bind import bind
from shedder.engine.allocation.negotiation import group_bytes
from shedder.engine.checkpoints.checkpoint_contents import (
    EVICTED,
    FORGOTTEN,
    TENANTS,
    restore_budget,
    restore_query,
    restore_stream,
)
from shedder.engine.checkpoints.query_commit import joined_sample
from shedder.engine.engine_state import Core
from shedder.engine.ingest.known_producers import KnownProducers, ProducerState
from shedder.engine.ingest.producer_sequences import is_newer, progress_after
from shedder.engine.recovery.damaged_log_records import uncounted
from shedder.engine.remote_summaries.validation import Checked
from shedder.engine.remote_summaries.wire_format import Summaries
from shedder.engine.standing_queries.lost_tuples import UNCOUNTED
from shedder.engine.standing_queries.pane_deletions import PaneDeletions
from shedder.engine.standing_queries.standing_query import Published
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.synopsis_plans.allocation_request import Given
from shedder.engine.synopsis_plans.stored_query_text import read_stored
from shedder.engine.synopsis_plans.synopsis_plan import plan, sizes_from_json
from shedder.engine.window_state.pane_sharing import take_from
from shedder.engine.window_state.query_state import Standing
from shedder.errors import CorruptData
from shedder.streams.batches import decode_stored
from shedder.streams.dropped_counts import Dropped
from shedder.streams.live_sample import StreamSample
from synopses.model.errors import OtherLayout

_log = structlog.get_logger("shedder.recovery")

Producers = dict[str, KnownProducers]


def recover(core: Core) -> None:
    """Bring a core, not started yet, to the state of everything durable.

    The store has verified its files and made the tail of every stream again; here the checkpoint
    is read and the log after it applied, exactly as it was applied the first time.
    """
    producers, joining = _read_checkpoint(core)
    core.share_samples()
    start = core.store.catalog.checkpoint_sequence()
    core.applied_sequence = start
    positions = {name: core.store.end_position(s.id) for name, s in core.streams.items()}
    names = {stream.id: name for name, stream in core.streams.items()}
    last_stream = core.store.catalog.last_stream_id()
    held_to: dict[str, int] = {}
    replayed = 0
    reads_load = (format_of(core.store.directory) or FORMAT_FIRST) >= FORMAT_LOAD
    by_load = _levels_by_load(core, start) if reads_load else deque[LevelFrom]()
    for record in core.store.log.read(core.store.log.first_sequence):
        while joining and joining[0].sequence <= record.sequence:
            joining.popleft().join()
        while by_load and by_load[0].from_sequence <= record.sequence:
            core.apply_level(by_load.popleft())
        match record.kind:
            case Kind.BATCH:
                header = Batch.from_bytes(record.header)
                name = names.get(header.stream)
                if name is None:
                    _refuse_unknown(core, header.stream, record, last_stream)
                    continue
                stream = core.streams[name]
                batch = decode_stored(bytes(record.body), stream.schema)
                core.store.add(stream.id, header.first_position, batch, sequence=record.sequence)
                positions[name] = max(positions[name], header.end_position)
                held_to[name] = record.sequence
                _advance(producers[name], header)
                if record.sequence >= start:
                    core.apply(stream, header, batch, dropped=_dropped(header, record))
                    replayed += header.rows
            case Kind.BUILT:
                built = Built.from_bytes(record.header)
                name = names.get(built.stream)
                if name is None:
                    _refuse_unknown(core, built.stream, record, last_stream)
                    continue
                _advance(producers[name], built)
                if record.sequence >= start:
                    core.apply_built(built, Checked(Summaries.from_bytes(bytes(record.body))))
            case Kind.HEARTBEAT if record.sequence >= start:
                core.apply_heartbeat(Heartbeat.from_bytes(record.header))
            case Kind.LEVEL if record.sequence >= start:
                core.apply_level(Level.from_bytes(record.header))
            case Kind.LEVEL_FROM if not reads_load:
                raise CorruptData(
                    f"{core.store.directory / 'FORMAT'} is lower than {FORMAT_LOAD}, but the log "
                    f"has a record of that format, with sequence {record.sequence}"
                )
            case Kind.SIZES if record.sequence >= start:
                core.apply_sizes([Sizes.from_bytes(record.header)])
            case Kind.ALTERED if record.sequence >= start:
                core.apply_alteration(alteration_from_body(bytes(record.body)))
        core.applied_sequence = max(start, record.sequence + 1)
    for one in joining:
        one.join()
    for late in by_load:
        core.apply_level(late)
    for name in core.store.catalog.left():
        stream, published = core.published(name)
        core.forget_query(stream, published)
        core.checkpoints.left[name] = stream.id
    for name, intake in core.intakes.items():
        stream = core.streams[name]
        position = max(positions[name], stream.position)
        intake.restore(position, producers[name], stream.owed, stream.watermark)
        intake.accepted = stream.accepted = stream.applied
    for damage in _damages(core, held_to):
        _log.error("damaged", what=damage)
    for stream in core.streams.values():
        for published in stream.queries.values():
            published.guard(partial(published.refresh, stream))
            if published.failed:
                published.refresh(stream)
    _log.info("recovered", streams=len(core.streams), replayed_tuples=replayed)


def _damages(core: Core, held_to: Mapping[str, int]) -> tuple[str, ...]:
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
    return (*map(str, core.store.recovery.log.damages), *lost)


def _refuse_unknown(core: Core, stream: int, record: Record, last_stream: int) -> None:
    """Refuse a catalog that never gave a stream's id. A dropped stream's id was given.

    Raises:
      CorruptData.
    """
    if stream > last_stream:
        raise CorruptData(
            f"the log's record {record.sequence} is of stream {stream}, which "
            f"{core.store.catalog.path} does not know: the catalog is older than the log"
        )


def _dropped(header: Batch, record: Record) -> Dropped | None:
    return Dropped.read(bytes(record.body)) if header.flags & DROPPED else None


def _levels_by_load(core: Core, start: int) -> deque[LevelFrom]:
    """What load has set since the checkpoint, in the order in which it was in force.

    The records stand behind the batches that were read so, and are looked for before these are
    applied. The checkpoint has what was in force before it.
    """
    found = [
        LevelFrom.from_bytes(record.header)
        for record in core.store.log.read(core.store.log.first_sequence)
        if record.kind == Kind.LEVEL_FROM
    ]
    late = (header for header in found if header.from_sequence >= start)
    return deque(sorted(late, key=lambda header: header.from_sequence))


@dataclass(frozen=True, slots=True, eq=False)
class _Joining:
    """What came after the checkpoint, before a record of the log: a query, or a sample with one."""

    sequence: int
    stream: Stream
    published: Published | None = None
    sample: StreamSample | None = None

    def join(self) -> None:
        """All records before it have been applied."""
        if self.sample is not None:
            self.sample.limit(self.stream.sample.size_bytes_max)
            self.stream.sample = self.sample
        if self.published is not None:
            self.stream.queries[self.published.standing.name] = self.published
            self.stream.share_panes()


def _read_checkpoint(core: Core) -> tuple[Producers, deque[_Joining]]:
    """The state as of the checkpoint, and what came after it, in order."""
    catalog = core.store.catalog
    parts = catalog.checkpoint_parts()
    core.synopsis_bytes_set = restore_budget(parts)
    core.tenants.restore(parts.get(TENANTS))
    producers: Producers = {}
    joining: list[_Joining] = []
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
            joining.append(_Joining(joined[0], stream, sample=joined[1]))
    late = catalog.joined()
    feeds: list[tuple[Stream, Standing, tuple[str, int, int]]] = []
    for stored in catalog.queries():
        published, feed = _restored(core, stored, parts)
        stream = core.stream(published.standing.query.schema.name)
        if feed is not None:
            feeds.append((stream, published.standing, feed))
        if stored.name in late:
            joining.append(_Joining(late[stored.name], stream, published))
            continue
        stream.queries[stored.name] = published
    for stream, standing, (feeder, *feed_from) in feeds:
        core.checkpoints.feeders.add(feeder)
        take_from(standing, stream.queries[feeder].standing, (feed_from[0], feed_from[1]))
    return producers, deque(sorted(joining, key=lambda one: one.sequence))


def _restored(
    core: Core, stored: QueryEntry, parts: Mapping[str, bytes]
) -> tuple[Published, tuple[str, int, int] | None]:
    """A standing query as the checkpoint has it, and who reads for it, as restore_query says.

    One whose summaries are in a layout that is not read any more fails, and it alone: the archive
    has its past.
    """
    published = _published(core, stored)
    try:
        return published, restore_query(core.store, published, parts)
    except OtherLayout as error:
        reason = (
            f"query {stored.name!r} was stored by another version ({error}); drop it and register "
            "it again: its panes are made anew from the archive"
        )
        _log.error("query_failed", query=stored.name, reason=reason)
        published = _published(core, stored)  # Without what was read until then.
        published.fail(reason)
        return published, None


def _published(core: Core, stored: QueryEntry) -> Published:
    """A standing query that has seen nothing yet."""
    select = read_stored(stored.text)
    stream = core.stream(select.stream)
    query = bind(select, stream.schema)
    sizes, granted = sizes_from_json(query, stored.parameters)
    standing = Standing(
        stored.name,
        query,
        plan(query, sizes),
        part_bytes_max=group_bytes(granted, core.settings.group_bytes_max),
    )
    standing.watch = core.machine.stopwatch(
        stored.name, standing.plan, grouped=standing.keys is not None
    )
    return Published(
        standing,
        from_position=stored.from_position,
        granted=granted,
        go_exact=core.go_exact,
        limits=_limits(standing, stored),
        deleted=PaneDeletions.registered_at(stream.deletions(), stored.from_position),
    )


def _limits(standing: Standing, stored: QueryEntry) -> Given | None:
    """What a query may be given at most; it was not stored always, and what it was granted was."""
    if standing.query.costing is None:
        return None
    limits = json.loads(stored.parameters).get("limits")
    if limits is None:
        return Given(standing.plan.sizes, standing.part_bytes_max)
    return Given.stored(limits)


def _advance(producers: KnownProducers, header: Batch | Built) -> None:
    """A checkpoint's producers may be ahead of its tuples; progress never goes back."""
    if not header.producer:
        return
    known = producers.get(header.producer)
    if is_newer(header, known):
        producers.note(header.producer, progress_after(known, header), header.arrival_us)
