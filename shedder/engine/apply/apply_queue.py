"""Apply queue: records that are durable in the log, and not applied yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import inf
from threading import Lock

import structlog

from shedder.archive.log.log_queue import Entry
from shedder.archive.log.records import Batch, Heartbeat, RecordType
from shedder.cql.statements.overload_policy import Policy
from shedder.engine.apply.batch_coalescing import BatchGroup, batch_of
from shedder.engine.apply.load_levels import LoadLevels
from shedder.engine.apply.record_handler import KINDS, RecordHandler, Timing
from shedder.engine.engine_state import EngineState
from shedder.engine.ingest.arrived_record import PendingRecord
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import ShedderError

PASS_BY_MS = 250.0  # Of a stream with DROP OLDEST a batch waits so long to be read, or is not.

_log = structlog.get_logger("shedder.engine")


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Records that one fsync made durable, in the order of the log.

    waits: there is something to apply in them, and not only what the engine itself has noted: of
    levels that are in force already, of sizes to come. Load is what comes from outside.
    """

    entries: list[Entry]
    size_bytes: int
    tuples: int
    waits: bool


class _WaitingBatches:
    """Batches in the apply queue, by stream. The disk thread and the apply thread count them."""

    def __init__(self) -> None:
        """There are none yet."""
        self._lock = Lock()
        self._counts: dict[int, int] = {}

    @property
    def streams(self) -> Collection[int]:
        """Ids of the streams that have some, as a view that follows the queue."""
        return self._counts.keys()

    def came(self, stream_id: int) -> None:
        """Count one batch of a stream."""
        with self._lock:
            self._counts[stream_id] = self._counts.get(stream_id, 0) + 1

    def left(self, stream_id: int) -> None:
        """Count one batch less."""
        with self._lock:
            self._counts[stream_id] -= 1
            if not self._counts[stream_id]:
                del self._counts[stream_id]


class DurableQueue:
    """Groups of records that wait to be applied, the oldest first."""

    def __init__(
        self,
        core: EngineState,
        handler: RecordHandler,
        load_levels: LoadLevels,
        after_group: Callable[[int], None],
    ) -> None:
        """after_group: called with the bytes of the log that were applied together."""
        self._core = core
        self._handler = handler
        self._load_levels = load_levels
        self._after_group = after_group
        self._groups: deque[_Group] = deque()
        self._batches = _WaitingBatches()
        self._ends_s = inf

    def leave_after(self, at_s: float) -> None:
        """Apply nothing from this moment on: the next start reads what is left from the log.

        at_s: of the machine's monotonic clock.
        """
        self._ends_s = at_s

    def came(self, entries: list[Entry]) -> None:
        """On the disk thread: these are on disk; number them and queue them for application."""
        core = self._core
        size = tuples = dropped = 0
        waits = False
        for entry in entries:
            size += entry.size_bytes
            waits |= isinstance(entry.token, PendingRecord | Heartbeat)
            if isinstance(entry.token, PendingRecord):
                header = entry.token.header
                tuples += header.rows if isinstance(header, Batch) else 0
                if entry.kind == RecordType.BATCH:
                    self._batches.came(header.stream)
                intake = core.intake_of(header.stream)
                if intake is not None:
                    if intake.drops is not None and entry.token.dropped is not None:
                        dropped += entry.token.dropped.rows
                    intake.durable.note(entry.token)
            elif isinstance(entry.token, Heartbeat):
                intake = core.intake_of(entry.token.stream)
                if intake is not None:
                    intake.durable.note_promise(entry.token)
            elif KINDS[entry.kind].timing is Timing.WHEN_DURABLE:
                self._handler.apply(entry.kind, [entry.token])
        if waits:
            core.meter.came(tuples, size, dropped)
        group = _Group(entries, size, tuples, waits)
        self._groups.append(group)
        core.executor.post(partial(self._apply, group))

    def lost(self, entries: list[Entry], error: ShedderError) -> None:
        """On the disk thread: these will never be durable, and neither will what is in flight."""
        _log.error("log_write_failed", lost_records=len(entries), error=str(error))
        for intake in list(self._core.intakes.values()):
            intake.lost_in_flight()
        self._left(entries)

    def _left(self, entries: Iterable[Entry]) -> None:
        """What tenants had in the queue, and have not any more."""
        for entry in entries:
            if isinstance(entry.token, PendingRecord):
                self._core.queues.left(entry.token.tenant, entry.size_bytes)

    def _apply(self, group: _Group) -> None:
        """On the apply thread, once for each group."""
        if not self._groups or self._groups[0] is not group:
            return  # It was applied together with one before it.
        groups = self._next_groups()
        self._apply_entries([entry for each in groups for entry in each.entries])
        if not self._groups:
            self._core.rows.make_steps()
            self._core.meter.hold(0)
        for each in groups:
            self._left(each.entries)
            if each.waits:
                self._core.meter.done()
        self._after_group(sum(each.size_bytes for each in groups))

    def _next_groups(self) -> list[_Group]:
        """The oldest, and those behind it whose batches may be read with its own."""
        groups, rows_max = [self._groups.popleft()], self._core.rows_at_once
        tuples = groups[0].tuples
        while self._groups and tuples + self._groups[0].tuples <= rows_max:
            groups.append(self._groups.popleft())
            tuples += groups[-1].tuples
        return groups

    def _apply_entries(self, entries: list[Entry]) -> None:
        core, at = self._core, 0
        while at < len(entries):
            if core.machine.monotonic_s() >= self._ends_s:
                self._ends_s = -inf  # Later batches are left in the log, too.
                return
            entry, taken = entries[at], 1
            if entry.kind == RecordType.BATCH:
                arrived = entry.token
                assert isinstance(arrived, PendingRecord)
                name = core.stream_name(arrived.header.stream)
                if name is not None:
                    self._load_levels.take(entry.sequence)
                    taken = self._apply_run(core.streams[name], arrived, entries[at:])
                else:
                    self._batches.left(arrived.header.stream)
            elif KINDS[entry.kind].timing is Timing.IN_ORDER:
                tokens = _together(entries, at)
                self._handler.apply(entry.kind, tokens)
                taken = len(tokens)
            at += taken
            core.note_applied(entries[at - 1].sequence + 1)

    def _apply_run(self, stream: Stream, arrived: PendingRecord, entries: list[Entry]) -> int:
        """Apply the first of these, a batch, and those that are read with it; how many it was."""
        core, run, rows_max = self._core, BatchGroup((arrived,)), self._core.rows_at_once
        for entry in entries[1:] if rows_max else ():
            longer = run.with_next(stream, entry.token, rows_max)
            if longer is None:
                break
            run = longer
        before, header = stream.synopses_ns, run.header
        core.meter.begin(header.rows)
        for entry, each in zip(entries, run.arrived, strict=False):
            batch = batch_of(each)
            first_position = each.header.end_position - batch.num_rows
            core.store.add(stream.id, first_position, batch, sequence=entry.sequence)
            self._batches.left(stream.id)
            self._handler.read_rows(stream, each, more=self._batches.streams)
        core.meter.hold(core.rows.schedule.queue_bytes)
        too_old = stream.schema.on_overload.policy is Policy.DROP_OLDEST and self._too_old()
        self._handler.apply_batch(
            stream,
            header,
            run.batch,
            dropped=run.dropped,
            skipped=too_old,
            late_in_batch=run.late_in_batch,
        )
        stream.note_accepted(run.arrived[-1].accepted)
        core.meter.applied(header.rows, stream.synopses_ns - before)
        return len(run.arrived)

    def _too_old(self) -> bool:
        """Return whether the present batch has waited too long for DROP OLDEST to read it."""
        return self._core.sheds and self._core.meter.age_ms > PASS_BY_MS


def _together(entries: Sequence[Entry], at: int) -> list[object]:
    """Return the token of an entry, and of those right behind it that are applied with it."""
    tokens, kind = [entries[at].token], entries[at].kind
    if KINDS[kind].together:
        same = takewhile(lambda each: each.kind == kind, entries[at + 1 :])
        tokens += [each.token for each in same]
    return tokens
