"""The core: live state, and the thread that applies what the log has made durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TypeVar

import pyarrow as pa

from shedder.archive.archive_store import Store
from shedder.archive.files.data_directory import FORMAT_DROPS
from shedder.archive.log.records import Batch, Built, Heartbeat
from shedder.archive.tasks.interruptible_call import awaited
from shedder.archive.tasks.progress import Told, nobody
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.overload_policy import Policy
from shedder.engine.admission.admission_control import Admission
from shedder.engine.apply.apply_queue import DurableQueue
from shedder.engine.apply.level_records import LevelsInForce
from shedder.engine.apply.load_levels import LevelsByLoad
from shedder.engine.apply.setting_records import AlterationsInForce
from shedder.engine.apply.size_records import SizesInForce
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.ingest.drop_policy import DoorDrops
from shedder.engine.ingest.known_producers import ProducerLimits, ProducerMemory
from shedder.engine.ingest.stream_intake import Intake
from shedder.engine.ingest.tenant_queues import QueueShares
from shedder.engine.maintenance.index_builder import Indexer
from shedder.engine.maintenance.run_cutter import Cutter
from shedder.engine.remote_summaries.validation import Checked
from shedder.engine.runtime.background_tasks import Tasks
from shedder.engine.runtime.caller import OPERATOR, Asker
from shedder.engine.runtime.environment import Machine
from shedder.engine.runtime.quotas import Tenants
from shedder.engine.standing_queries.answer_scheduler import Answering
from shedder.engine.standing_queries.sample_budget import SampleBudget
from shedder.engine.standing_queries.standing_query import Published
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.window_state.pane_sharing import part
from shedder.errors import UnknownQuery, UnknownStream
from shedder.overload.admission_rate import Door
from shedder.overload.cpu_admission import CpuDoor
from shedder.overload.memory_pressure import NONE
from shedder.settings import Settings
from shedder.streams.batches import BatchLimits
from shedder.streams.dropped_counts import Dropped
from shedder.streams.frame import Frame
from shedder.streams.live_sample import StreamSample
from shedder.streams.positions import Positions
from shedder.streams.windows import Span

LOOK_S = 0.25  # Who looks at a flood waits so long to see his own writes.
PRODUCERS_SHARE = 32  # Active producers take at most 1/32 of the memory budget.
REFRESH_SECONDS = 0.1  # How old the answer of a window that does not slide gets under load.

Result = TypeVar("Result")


class Core(LevelsInForce, SizesInForce, AlterationsInForce):
    """Streams and standing queries in memory, the store below them, the threads that serve them.

    Threads: callers (intake), disk (group commit), apply (this object's actor: all of `streams`),
    background (writing runs), indexes.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        machine: Machine,
        producer_limits: ProducerLimits | None = None,
    ) -> None:
        """producer_limits: memory for known producers; None: by the settings."""
        self.store = store
        self.settings = settings
        self.limits = BatchLimits(settings.batch_rows_max, settings.batch_bytes_max)
        self.machine = machine
        self.clock_us = machine.now_us
        self.streams: dict[str, Stream] = {}
        self.samples = SampleBudget(settings.memory_bytes)
        self.intakes: dict[str, Intake] = {}
        self.applied_sequence = 0  # The log's number of the next record to apply.
        self.actor = machine.actor("shedder-apply", self._idle)
        self.durable = DurableQueue(self)
        self.commit = machine.commit(
            store.log, self.durable.came, self.durable.lost, bytes_max=settings.queue_bytes_max
        )
        self.go_exact: Callable[[Published, Span], None] = _no_exact
        self.go_vacuum: Callable[[str], None] = _no_vacuum
        self.go_share: Callable[[], None] = _no_sharing
        self._background = machine.pool("shedder-runs")
        self.tasks = Tasks()
        self.indexer = Indexer(self)
        self.cutter = Cutter(
            store,
            settings,
            self.streams,
            self.actor,
            self._background,
            self.indexer,
            self._lay_out_anew,
        )
        self.meter = machine.meter()
        self.door = Door()
        self.cpu_door = CpuDoor()
        self.tenants = Tenants(settings.tenants_file)
        self.queues = QueueShares(lambda tenant: self.tenants.quota(tenant).weight)
        known_bytes = settings.memory_bytes // PRODUCERS_SHARE
        self.producer_memory = ProducerMemory(
            producer_limits
            or ProducerLimits(
                bytes_max=known_bytes,
                remembered_bytes_max=known_bytes,
                names_max=settings.producers_max,
            )
        )
        self.admission = Admission(self)
        self.stretch = 1  # Refresh periods are so many times as long.
        self.answering = Answering(machine.monotonic_s)
        self.sheds = False  # Whether anything is shed by load.
        self.pressure = NONE  # Of memory.
        self.by_load = LevelsByLoad(self)
        self._format_allowed = 0
        self.checkpoints = Checkpoints(self)
        self._share_at = machine.monotonic_s() + settings.allocation_seconds
        self._refresh_at = 0.0

    def load(self) -> float:
        """How full the queue of what waits to be applied is: 0 idle, 1 refuses. From any thread."""
        return min(1.0, self.meter.queue_bytes / self.settings.queue_bytes_max)

    def _lay_out_anew(self, name: str) -> None:
        self.go_vacuum(name)  # Whoever that is by then.

    def look(self, work: Callable[[], Result]) -> Result:
        """What is to be seen on the apply thread, of all that was durable when it was asked.

        While work is shed by load, of what is applied, if the other cannot be had within LOOK_S:
        whoever looks at a flood must not wait for its end.
        """
        ahead = self.durable.together and self.meter.drain_ms(0) > 1e3 * LOOK_S
        seen = self.actor.call(work, ahead=ahead)
        while self.sheds and not ahead:
            try:
                return seen.result(LOOK_S)
            except TimeoutError:
                if seen.done():  # Just now; or the work itself says so.
                    break
                if self.durable.together and seen.cancel():  # Else it is being looked at.
                    return self.actor.call(work, ahead=True).result()
        return seen.result()

    # --- streams and queries -------------------------------------------------------------------

    def add_stream(self, stream_id: int, schema: StreamSchema, sample: StreamSample) -> Stream:
        """Make a stream live. On the apply thread, or before it starts."""
        future = self.settings.future_us_max
        stream = Stream(stream_id, schema, sample, future_us_max=future)
        stream.deletions = partial(self.store.deletions, stream_id)
        self.streams[schema.name] = stream
        self.intakes[schema.name] = Intake(
            stream_id,
            schema,
            self.commit,
            self.limits,
            self.clock_us,
            self.queues,
            memory=self.producer_memory,
            future_us_max=future,
        )
        self.queues.add_stream(schema.tenant)
        self.hold_policy(stream)
        return stream

    def hold_policy(self, stream: Stream) -> None:
        """Have the door of a stream do as its policy says."""
        schema = stream.schema
        drops: DoorDrops | None = None
        if schema.on_overload.drops_at_the_door:
            seed = self.machine.random_bits(64)
            drops = DoorDrops(schema.on_overload, schema.time_column, seed)
            self.store.allow(FORMAT_DROPS)
        self.intakes[schema.name].drops = drops

    def allow(self, version: int) -> None:
        """As `Store.allow`; looks at the disk once for each version.

        Raises:
          DiskFull, StorageFailed: the format could not be raised.
        """
        if version > self._format_allowed:
            self.store.allow(version)
            self._format_allowed = version

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
        self.admission.check_room()
        return intake

    def published(self, name: str, asker: Asker = OPERATOR) -> tuple[Stream, Published]:
        """A standing query by name, and its stream, if somebody may use it."""
        for stream in list(self.streams.values()):
            published = stream.queries.get(name)
            if published is not None and asker.owns(stream):
                return stream, published
        own = [stream for stream in list(self.streams.values()) if asker.owns(stream)]
        raise UnknownQuery(name, sorted(query for stream in own for query in list(stream.queries)))

    # --- from the log to the panes -------------------------------------------------------------

    def after_group(self, size_bytes: int) -> None:
        """On the apply thread: so much of the log has been applied; do what is due between."""
        self.cutter.cut_what_is_due()
        now = self.machine.monotonic_s()
        if now >= self._refresh_at:
            self._refresh_stale(now)
        self.checkpoints.go_on(now, size_bytes)
        self._share_if_due(now)

    def apply(
        self,
        stream: Stream,
        header: Batch,
        batch: pa.RecordBatch,
        *,
        dropped: Dropped | None = None,
        passed_by: bool = False,
        overtaken: int = 0,
    ) -> None:
        """Read one batch into everything in memory, and answer the windows it closes.

        dropped, passed_by, overtaken: as of `Stream.apply`.
        """
        positions = Positions(stream.schema.seed, header.first_position)
        frame = Frame(batch, stream.schema.time_column, positions=positions)
        if header.first_position != stream.sample.position:  # Damage has torn a hole.
            rows = self.settings.sample_rows
            stream.go_on_at(header.first_position, self.clock_us(), sample_rows=rows)
        samples = (each.sample for each in self.streams.values())
        self.samples.make_room(stream.sample, batch.nbytes, samples)
        stream.sample.update(header.first_position, frame)
        stream.apply(header, frame, dropped=dropped, passed_by=passed_by, overtaken=overtaken)
        self._after(stream)

    def apply_built(self, header: Built, checked: Checked) -> None:
        """Fold what was built of tuples elsewhere into panes, and answer the windows it closes."""
        name = self.stream_name(header.stream)
        if name is not None:
            stream = self.streams[name]
            stream.apply_built(header, checked)
            self._after(stream)

    def apply_heartbeat(self, header: Heartbeat) -> None:
        """Raise a watermark, and answer the windows that this closes."""
        name = self.stream_name(header.stream)
        if name is not None:
            stream = self.streams[name]
            stream.heartbeat(header.watermark_us, header.arrival_us)
            self._after(stream)

    def forget_query(self, stream: Stream, published: Published) -> None:
        """A query was dropped; those that took its panes go on with their own, or each other's."""
        fed = bool(published.standing.takers)
        part(published.standing)
        del stream.queries[published.standing.name]
        if fed:
            stream.share_panes()

    def _after(self, stream: Stream) -> None:
        thins = stream.schema.on_overload.policy is Policy.THIN
        for published in list(stream.queries.values()):
            published.guard(partial(published.standing.close, stream.watermark_us))
        spreads = thins and self.durable.together
        with self._answers():
            self.answering.after(stream, self.stretch if thins else 1, spreads=spreads)
        self.shrink_soon()

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Have it counted what answers take."""
        before_ns = self.machine.cpu_ns()
        yield
        self.meter.answered(self.machine.cpu_ns() - before_ns)

    def intake_of(self, stream_id: int) -> Intake | None:
        """The door of a stream; None once it is dropped. From any thread."""
        return next((i for i in list(self.intakes.values()) if i.stream_id == stream_id), None)

    def stream_name(self, stream_id: int) -> str | None:
        """None for a stream that was dropped while its records were on the way."""
        return next((n for n, s in list(self.streams.items()) if s.id == stream_id), None)

    # --- what happens beside -------------------------------------------------------------------

    def _idle(self) -> float | None:
        """Caught up: refresh what is stale, checkpoint when it is time."""
        with self._answers():
            more = self.answering.go_on(self.streams.values(), self.stretch)
        now, sheds = self.machine.monotonic_s(), self.durable.together
        if not sheds or now >= self._refresh_at:
            more |= self._refresh_stale(now, idle=True)
        self.cutter.cut_what_is_due()
        checkpoint_at = self.checkpoints.go_on(self.machine.monotonic_s())
        self._share_if_due(self.machine.monotonic_s())
        refresh_at = self._refresh_at if sheds else checkpoint_at
        next_at = 0.0 if more else min(checkpoint_at, refresh_at, self._share_at)
        return max(0.0, next_at - self.machine.monotonic_s())

    def share_samples(self) -> None:
        """Divide the memory of live samples among streams. On the apply thread."""
        self.samples.divide([stream.sample for stream in self.streams.values()])

    def _share_if_due(self, now: float) -> None:
        if now >= self._share_at:
            self._share_at = now + self.settings.allocation_seconds
            self.share_samples()
            if any(stream.queries for stream in self.streams.values()):
                self.go_share()

    def _refresh_stale(self, now: float, *, idle: bool = False) -> bool:
        self._refresh_at = now + REFRESH_SECONDS * self.stretch
        with self._answers():
            spreads = self.durable.together
            return self.answering.refresh(self.streams.values(), spreads=spreads, idle=idle)

    def seal(self, name: str, told: Told = nobody) -> None:
        """Write a stream's tail into a run. Waits for what is durable to be applied first.

        told: called now and then meanwhile; what it raises ends the waiting.
        """
        stream = self.stream(name)
        awaited(self.actor.call(lambda: None), told)
        self.cutter.seal(stream, told)

    def start(self) -> None:
        """Begin to apply."""
        self.actor.start()
        self.indexer.catch_up()

    def close(self, within_s: float = inf) -> None:
        """Drain the log and the queue, checkpoint, release the directory.

        within_s: batches that are not applied by then are left in the log, and the next start
          applies them. A last checkpoint that would take longer is left out. What has begun ends:
          a batch, a transaction, a run.
        """
        ends_s = self.machine.monotonic_s() + within_s
        try:
            self.durable.leave_after(ends_s)
            self.commit.close()
            if self.actor.is_alive():
                self.actor.call(partial(self.checkpoints.tidy, ends_s)).result()
            self.actor.close()
            self.checkpoints.close()
            self._background.shutdown(cancel_futures=within_s < inf)
            self.indexer.close()
        finally:
            self.store.close()


def _no_vacuum(stream: str) -> None:
    """Until the engine has a thread for it."""


def _no_sharing() -> None:
    """Until the engine has somebody who shares out memory."""


def _no_exact(published: Published, span: Span) -> None:
    """Until the engine says who answers exactly, nobody does."""
