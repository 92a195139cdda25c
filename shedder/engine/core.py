"""The core: live state, and the thread that applies what the log has made durable."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pyarrow as pa
import structlog

from shedder.archive.commit import Entry, GroupCommit
from shedder.archive.entries import Run
from shedder.archive.records import Batch, Heartbeat, Kind, Level
from shedder.archive.store import Store
from shedder.cql.query import StreamSchema
from shedder.engine.actor import Actor
from shedder.engine.checkpoint import write_checkpoint
from shedder.engine.intake import Arrived, Intake
from shedder.engine.published import Published
from shedder.engine.stream import Stream
from shedder.errors import (
    BadSetting,
    Draining,
    InternalError,
    Overloaded,
    ShedderError,
    UnknownQuery,
    UnknownStream,
)
from shedder.scheduling import LATE, give_way
from shedder.settings import Settings
from shedder.streams.batches import BatchLimits
from shedder.streams.frame import Frame, Positions
from shedder.streams.sample import StreamSample
from shedder.streams.windows import Span

TAIL_SHARE = 16  # A tail becomes a run when it holds this part of the memory budget.
TAILS_SHARE = 4  # All tails together never hold more than this part.
REFRESH_SECONDS = 0.1  # How old the answer of a window that does not slide gets under load.

_log = structlog.get_logger("shedder.engine")


class Core:
    """Streams and standing queries in memory, the store below them, the threads that serve them.

    Threads: callers (intake), disk (group commit), apply (this object's actor: all of `streams`),
    background (writing runs).
    """

    def __init__(self, store: Store, settings: Settings, clock_us: Callable[[], int]) -> None:
        self.store = store
        self.settings = settings
        self.limits = BatchLimits(settings.batch_rows_max, settings.batch_bytes_max)
        self.clock_us = clock_us
        self.streams: dict[str, Stream] = {}
        self.intakes: dict[str, Intake] = {}
        self.applied_sequence = 0  # The log's number of the next record to apply.
        self.actor = Actor("shedder-apply", self._idle)
        self.commit = GroupCommit(
            store.log, self._durable, self._lost, bytes_max=settings.ingest_queue_bytes
        )
        self.go_exact: Callable[[Published, Span], None] = _no_exact
        self._background = ThreadPoolExecutor(
            1, thread_name_prefix="shedder-runs", initializer=partial(give_way, LATE)
        )
        self._cutting: set[str] = set()
        self._backlog_bytes = 0
        self._backlog_lock = threading.Lock()
        self._checkpoint_at = time.monotonic() + settings.checkpoint_seconds
        self._refresh_at = 0.0
        self._checkpointed = 0

    # --- streams and queries -------------------------------------------------------------------

    def add_stream(self, stream_id: int, schema: StreamSchema, sample: StreamSample) -> Stream:
        """Make a stream live. On the apply thread, or before it starts."""
        future = self.settings.future_us_max
        stream = Stream(stream_id, schema, sample, future_us_max=future)
        self.streams[schema.name] = stream
        self.intakes[schema.name] = Intake(
            stream_id, schema, self.commit, self.limits, self.clock_us
        )
        return stream

    def stream(self, name: str) -> Stream:
        """A live stream by name."""
        stream = self.streams.get(name)
        if stream is None:
            raise UnknownStream(name, list(self.streams))
        return stream

    def intake(self, name: str) -> Intake:
        """The door of a stream, if there is room behind it.

        Raises:
          UnknownStream, Overloaded.
        """
        intake = self.intakes.get(name)
        if intake is None:
            raise UnknownStream(name, list(self.intakes))
        if self._backlog_bytes > self.settings.ingest_queue_bytes:
            raise Overloaded(
                f"{self._backlog_bytes} bytes are durable and wait to be applied; "
                f"the limit is {self.settings.ingest_queue_bytes}"
            )
        tail_bytes = self.store.tail_bytes()
        if tail_bytes > self.settings.memory_bytes // TAILS_SHARE:
            raise Overloaded(f"{tail_bytes} bytes wait to be written into runs")
        return intake

    def published(self, name: str) -> tuple[Stream, Published]:
        """A standing query by name, and its stream."""
        for stream in list(self.streams.values()):
            published = stream.queries.get(name)
            if published is not None:
                return stream, published
        known = [list(stream.queries) for stream in list(self.streams.values())]
        raise UnknownQuery(name, sorted(query for queries in known for query in queries))

    # --- from the log to the panes -------------------------------------------------------------

    def _durable(self, entries: list[Entry]) -> None:
        """On the disk thread: these are on disk; number them and queue them for application."""
        size = 0
        for entry in entries:
            size += entry.size_bytes
            if isinstance(entry.token, Arrived):
                intake = self._intake_of(entry.token.header.stream)
                if intake is not None:
                    intake.made_durable(entry.token)
        with self._backlog_lock:
            self._backlog_bytes += size
        self.actor.post(lambda: self._apply_group(entries, size))

    def _lost(self, entries: list[Entry], error: ShedderError) -> None:
        """On the disk thread: these will never be durable, and neither will what is in flight."""
        _log.error("log_write_failed", lost_records=len(entries), error=str(error))
        for intake in list(self.intakes.values()):
            intake.lost_in_flight()

    def _apply_group(self, entries: list[Entry], size: int) -> None:
        for entry in entries:
            match entry.token:
                case Arrived(header, batch) as arrived:
                    name = self._stream_name(header.stream)
                    if name is not None:
                        stream = self.streams[name]
                        self.store.add(
                            stream.id, header.first_position, batch, sequence=entry.sequence
                        )
                        self.apply(stream, header, batch)
                        stream.accepted = arrived.accepted
                case Heartbeat() as header:
                    self.apply_heartbeat(header)
                case Level() as header:
                    self.apply_level(header)
            self.applied_sequence = entry.sequence + 1
        with self._backlog_lock:
            self._backlog_bytes -= size
        self._cut_what_is_due()
        now = time.monotonic()
        if now >= self._refresh_at:
            self._refresh_stale(now)
        self._checkpoint_if_due(now)

    def apply(self, stream: Stream, header: Batch, batch: pa.RecordBatch) -> None:
        """Read one batch into everything in memory, and answer the windows it closes."""
        positions = Positions(stream.schema.seed, header.first_position)
        frame = Frame(batch, stream.schema.time_column, positions=positions)
        if header.first_position != stream.sample.position:  # Damage has torn a hole.
            rows = self.settings.sample_rows
            stream.sample = StreamSample(stream.schema, rows=rows, first=header.first_position)
        stream.sample.update(header.first_position, frame)
        stream.apply(header, frame)
        self._after(stream)

    def apply_heartbeat(self, header: Heartbeat) -> None:
        """Raise a watermark, and answer the windows that this closes."""
        name = self._stream_name(header.stream)
        if name is not None:
            stream = self.streams[name]
            stream.heartbeat(header.watermark_us, header.arrival_us)
            self._after(stream)

    def apply_level(self, header: Level) -> None:
        """From the next batch on, a query's synopses read at these levels."""
        name = self._stream_name(header.stream)
        published = None if name is None else self.streams[name].queries.get(header.query)
        if published is not None and not published.failed:  # Else it was dropped meanwhile.
            published.standing.set_levels(header.levels)

    def change_levels(self, stream: Stream, query: str, levels: tuple[int, ...]) -> None:
        """Log the levels of a query's synopses; returns when they are durable and in force."""
        header = Level(stream.id, query, levels, self.clock_us())
        if not header.fits:
            raise BadSetting(f"the name of query {query[:40]!r}... is too long for a log record")
        self.store.allow_levels()
        self.commit.submit(Kind.LEVEL, [header.to_bytes()], header).result()
        self.actor.call(lambda: None).result()

    def _after(self, stream: Stream) -> None:
        for published in list(stream.queries.values()):
            published.guard(partial(published.standing.close, stream.watermark_us))
            published.guard(partial(published.windows_closed, stream))

    def _intake_of(self, stream_id: int) -> Intake | None:
        """The door of a stream; None once it is dropped. From any thread."""
        return next((i for i in list(self.intakes.values()) if i.stream_id == stream_id), None)

    def _stream_name(self, stream_id: int) -> str | None:
        """None for a stream that was dropped while its records were on the way."""
        return next((n for n, s in list(self.streams.items()) if s.id == stream_id), None)

    # --- what happens beside -------------------------------------------------------------------

    def _idle(self) -> float | None:
        """Caught up: refresh what is stale, checkpoint when it is time."""
        self._refresh_stale(time.monotonic())
        self._cut_what_is_due()
        self._checkpoint_if_due(time.monotonic())
        return max(0.0, self._checkpoint_at - time.monotonic())

    def _refresh_stale(self, now: float) -> None:
        for stream in self.streams.values():
            for published in list(stream.queries.values()):
                if published.stale:
                    published.guard(partial(published.refresh, stream))
        self._refresh_at = now + REFRESH_SECONDS

    def _cut_what_is_due(self) -> None:
        """Write long or large tails into runs; all together are held down by the largest."""
        sizes = {name: self.store.tail_bytes(s.id) for name, s in self.streams.items()}
        due = {
            name
            for name, stream in self.streams.items()
            if sizes[name] >= self.settings.memory_bytes // TAIL_SHARE
            or self.store.tail_rows(stream.id) >= self.settings.run_rows
        }
        if sum(sizes.values()) >= self.settings.memory_bytes // TAILS_SHARE // 2:
            due.add(max(sizes, key=lambda name: sizes[name]))
        for name in due - self._cutting:
            self._cut(self.streams[name])

    def _cut(self, stream: Stream) -> None:
        name = stream.schema.name
        self._cutting.add(name)

        def done(future: Future[Run | None]) -> None:
            self._cutting.discard(name)
            error = future.exception()
            if error is not None:
                _log.error("run_not_written", stream=name, error=str(error))
                return
            with suppress(Draining, InternalError):  # closed meanwhile
                self.actor.post(self._cut_what_is_due)

        self._background.submit(self.store.cut, stream.id).add_done_callback(done)

    def seal(self, name: str) -> None:
        """Write a stream's tail into a run. Waits for what is durable to be applied first."""
        stream_id = self.stream(name).id
        self.actor.call(lambda: None).result()
        while self._background.submit(self.store.cut, stream_id).result() is not None:
            pass  # A run ends before a hole that damage has torn; the next one begins after it.

    def checkpoint(self, also: Callable[[], None] | None = None) -> None:
        """Store closed panes, open panes, samples and producers, as of the applied sequence.

        Args:
          also: other changes of the catalog, in the same transaction.

        Raises:
          DiskFull, StorageFailed: nothing was stored, and the log keeps what is needed.
        """
        if also is None and self.applied_sequence == self._checkpointed:
            return
        producers = {name: intake.producers() for name, intake in self.intakes.items()}
        write_checkpoint(self.store, self.streams, producers, self.applied_sequence, also)
        self._checkpointed = self.applied_sequence

    def _checkpoint_if_due(self, now: float) -> None:
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + self.settings.checkpoint_seconds
            self._tidy()

    def _tidy(self) -> None:
        """Checkpoint, retire what is too old, trim the log. What fails is tried again later."""
        try:
            self.checkpoint()
            for stream in self.streams.values():
                retain_us, watermark_us = stream.schema.retain_us, stream.watermark_us
                if retain_us is not None and watermark_us is not None:
                    self.store.apply_retention(stream.id, watermark_us - retain_us)
            self.store.trim_log()
        except ShedderError as error:
            _log.error("checkpoint_failed", error=str(error))

    def start(self) -> None:
        """Begin to apply."""
        self.actor.start()

    def close(self) -> None:
        """Drain the log and the queue, checkpoint, release the directory."""
        try:
            self.commit.close()
            if self.actor.is_alive():
                self.actor.call(self._tidy).result()
            self.actor.close()
            self._background.shutdown()
        finally:
            self.store.close()


def _no_exact(published: Published, span: Span) -> None:
    """Until the engine says who answers exactly, nobody does."""
