"""The state of an engine: streams, queries, store, settings and load, with look-ups by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from shedder.archive.archive_store import Store
from shedder.archive.files.data_directory import FORMAT_DROPS
from shedder.cql.statements.bound_query import StreamSchema
from shedder.engine.dataflow.long_steps import StepThread
from shedder.engine.dataflow.row_limits import RowLimits
from shedder.engine.dataflow.row_queries import StandingRowQueries
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.scheduling.row_schedule import RowSchedule
from shedder.engine.ingest.drop_policy import DropPolicy
from shedder.engine.ingest.producer_memory import ProducerLimits, ProducerMemory
from shedder.engine.ingest.stream_intake import Intake
from shedder.engine.ingest.tenant_queues import TenantQueues
from shedder.engine.runtime.background_tasks import Tasks
from shedder.engine.runtime.caller import OPERATOR, Caller
from shedder.engine.runtime.environment import Environment
from shedder.engine.runtime.quotas import Tenants
from shedder.engine.standing_queries.sample_budget import SampleBudget
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.tables.live_tables import LiveTables
from shedder.engine.tables.table_history import HISTORY_SHARE, HistoryMemory
from shedder.errors import BadQuery, FailedPrecondition, StreamInUse, UnknownQuery, UnknownStream
from shedder.overload.admission_rate import Door
from shedder.overload.cpu_admission import CpuDoor
from shedder.overload.load_meter import ROWS_MAX
from shedder.overload.memory_pressure import NONE, Pressure
from shedder.settings import Settings
from shedder.streams.batches import BatchLimits
from shedder.streams.live_sample import StreamSample

LOOK_S = 0.25  # Under overload, a look waits at most this long for durable writes to be applied.
PRODUCERS_SHARE = 32  # Active producers take at most 1/32 of the memory budget.
SYNOPSIS_SHARE = 4  # A quarter of the memory budget is for the synopses of standing queries.
ROWS_SHARE = 8  # All row queries together take at most 1/8 of the memory budget.

Result = TypeVar("Result")


class EngineState:
    """Data and look-ups that every service of an engine has in common.

    Streams and queries change on the apply thread (`executor`), or before it starts.

    applied_sequence: the log's number of the next record to apply.
    row_query_bytes_set: the limit of a row query that is durable; None: that of the settings.
    synopsis_bytes_set: the budget of synopses that is durable; None: that of the settings.
    is_recovered: what was durable at the start is applied.
    sheds: whether work is shed by load.
    coalesces: batches that wait are read as one, where that makes no difference to what becomes of
      any tuple. So it is while work is shed: the fewer tuples a synopsis reads, the more of its
      time is calls. A replay reads batch by batch; what differs then is the order of additions.
    stretch: refresh periods are so many times as long.
    pressure: of memory.
    rows: standing queries whose result is rows; `streams` has the queries of aggregates.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        machine: Environment,
        producer_limits: ProducerLimits | None = None,
    ) -> None:
        """producer_limits: memory for known producers; None: by the settings."""
        self.store = store
        self.settings = settings
        self.limits = BatchLimits(settings.batch_rows_max, settings.batch_bytes_max)
        self.machine = machine
        self.clock_us = machine.now_us
        self.streams: dict[str, Stream] = {}
        self.tables = LiveTables()
        histories = settings.table_bytes // HISTORY_SHARE
        self.table_histories = HistoryMemory(
            self.clock_us,
            histories,
            lambda: {stream.id: stream.position for stream in list(self.streams.values())},
        )
        self.samples = SampleBudget(settings.memory_bytes)
        self.intakes: dict[str, Intake] = {}
        self.applied_sequence = 0
        self.executor = machine.executor()
        self.log_queue = machine.log_queue(settings.queue_bytes_max)
        self.tasks = Tasks()
        self.meter = machine.meter()
        self.door = Door()
        self.cpu_door = CpuDoor()
        self.tenants = Tenants(settings.tenants_file)
        self.queues = TenantQueues(lambda tenant: self.tenants.quota(tenant).weight)
        known_bytes = settings.memory_bytes // PRODUCERS_SHARE
        self.producer_memory = ProducerMemory(
            producer_limits
            or ProducerLimits(
                bytes_max=known_bytes,
                remembered_bytes_max=known_bytes,
                names_max=settings.producers_max,
            )
        )
        limits = RowLimits(
            query_bytes_max=settings.row_query_bytes_max,
            output_bytes_max=settings.row_output_bytes_max,
            all_bytes_max=settings.memory_bytes // ROWS_SHARE,
            read_bytes_max=2 * settings.row_output_bytes_max,
        )
        self.rows = StandingRowQueries(
            limits,
            StepThread(machine.pool("shedder-steps"), self.executor.post),
            RowSchedule(limits, cpu_ns=machine.cpu_ns, monotonic_s=machine.monotonic_s),
        )
        self.synopsis_bytes_set: int | None = None
        self.row_query_bytes_set: int | None = None
        self.is_recovered = False
        self.stretch = 1
        self.sheds = False
        self.coalesces = False
        self.pressure = NONE
        self._on_trial: tuple[int | None] | None = None  # A budget that is not durable yet.
        self._format_allowed = 0

    # --- load ----------------------------------------------------------------------------------

    def load(self) -> float:
        """Return the fill of the apply queue: 0 is idle, 1 refuses. From any thread."""
        return min(1.0, self.meter.queue_bytes / self.settings.queue_bytes_max)

    @property
    def rows_at_once(self) -> float:
        """Return the rows that may be read as one, so that records and levels wait little."""
        return min(ROWS_MAX, self.meter.tuples_at_once) if self.coalesces else 0.0

    def end_recovery(self) -> None:
        """Note that the state is that of everything durable."""
        self.is_recovered = True
        largest = self.rows.limits.query_bytes_max
        self.set_row_query_bytes(self.row_query_bytes_set)
        if self.rows.limits.query_bytes_max < largest:
            self.rows.fit()

    def set_sheds(self, *, sheds: bool) -> None:
        """Note whether a controller sheds work by load."""
        self.sheds = sheds

    def ease(self, *, stretch: int = 1, coalesces: bool = False) -> None:
        """Answer less often and read batches together, as the controller decides."""
        self.stretch, self.coalesces = stretch, coalesces

    def set_pressure(self, pressure: Pressure) -> None:
        """Note how short memory is."""
        self.pressure = pressure

    def look(self, work: Callable[[], Result]) -> Result:
        """Run work on the apply thread, after the records that are durable now.

        While load is shed and the backlog exceeds LOOK_S, work runs ahead of the backlog: a look
        must not wait for the end of an overload.
        """
        urgent = self.coalesces and self.meter.drain_ms(0) > 1e3 * LOOK_S
        seen = self.executor.call(work, urgent=urgent)
        while self.sheds and not urgent:
            try:
                return seen.result(LOOK_S)
            except TimeoutError:
                if seen.done():  # Just now; or the work itself says so.
                    break
                if self.coalesces and seen.cancel():  # Else it is being looked at.
                    return self.executor.call(work, urgent=True).result()
        return seen.result()

    # --- the budget of synopses ----------------------------------------------------------------

    @property
    def synopsis_bytes(self) -> int:
        """The budget of all synopses of standing queries; smaller while memory is short."""
        trial = self._on_trial
        budget = self.synopsis_bytes_set if trial is None else trial[0]
        whole = self.settings.memory_bytes // SYNOPSIS_SHARE if budget is None else budget
        return max(whole >> self.pressure.halvings, 1)

    def set_synopsis_bytes(self, synopsis_bytes: int | None) -> None:
        """Put a durable budget in force."""
        self.synopsis_bytes_set = synopsis_bytes

    @property
    def row_query_bytes(self) -> int:
        """The limit of the state of a row query, as it is durable."""
        limit = self.row_query_bytes_set
        return self.settings.row_query_bytes_max if limit is None else limit

    def set_row_query_bytes(self, size_bytes: int | None) -> None:
        """Put a durable limit in force for the next steps; None: that of the settings.

        The state of a query was within the limits that were in force one after the other. So in
        recovery, the largest of them is in force.
        """
        self.row_query_bytes_set = size_bytes
        limit = self.row_query_bytes
        if not self.is_recovered:
            limit = max(limit, self.rows.limits.query_bytes_max)
        self.rows.limits.set_query_bytes(limit)

    @contextmanager
    def trying_budget(self, synopsis_bytes: int | None) -> Iterator[None]:
        """Share out another budget, which no checkpoint knows of; the durable one afterwards."""
        self._on_trial = (synopsis_bytes,)
        try:
            yield
        finally:
            self._on_trial = None

    # --- streams and queries -------------------------------------------------------------------

    def add_stream(self, stream_id: int, schema: StreamSchema, sample: StreamSample) -> Stream:
        """Make a stream live. On the apply thread, or before it starts."""
        future = self.settings.future_us_max
        stream = Stream(
            stream_id,
            schema,
            sample,
            partial(self.store.deletions.entries, stream_id),
            future_us_max=future,
        )
        self.streams[schema.name] = stream
        self.intakes[schema.name] = Intake(
            stream_id,
            schema,
            self.log_queue,
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
        drops: DropPolicy | None = None
        if schema.on_overload.drops_at_the_door:
            seed = self.machine.random_bits(64)
            drops = DropPolicy(schema.on_overload, schema.time_column, seed)
            self.store.allow(FORMAT_DROPS)
        self.intakes[schema.name].drop_by(drops)

    def forget_stream(self, stream: Stream) -> None:
        """Drop a stream's state and end its intake. On the apply thread."""
        del self.streams[stream.schema.name]
        self.intakes.pop(stream.schema.name).close()
        self.queues.drop_stream(stream.schema.tenant)

    def forget_query(self, stream: Stream, standing_query: StandingQuery) -> None:
        """A query was dropped; those that took its panes go on with their own, or each other's."""
        provides = bool(standing_query.state.consumers)
        standing_query.state.detach()
        del stream.queries[standing_query.state.name]
        if provides:
            stream.share_panes()

    def share_samples(self) -> None:
        """Divide the memory of live samples among streams. On the apply thread."""
        self.samples.divide([stream.sample for stream in self.streams.values()])

    def allow(self, version: int) -> None:
        """As `Store.allow`; looks at the disk once for each version.

        Raises:
          DiskFull, StorageFailed: the format could not be raised.
        """
        if version > self._format_allowed:
            self.store.allow(version)
            self._format_allowed = version

    def note_applied(self, next_sequence: int) -> None:
        """Note that every record of the log before this one is applied."""
        self.applied_sequence = next_sequence

    # --- look-ups ------------------------------------------------------------------------------

    def stream(self, name: str) -> Stream:
        """A live stream by name."""
        stream = self.streams.get(name)
        if stream is None and name in self.tables:
            raise UnknownStream.from_message(f"{name!r} is a table, and a stream is needed here")
        if stream is None:
            raise UnknownStream(name, list(self.streams))
        return stream

    def standing_query(self, name: str, caller: Caller = OPERATOR) -> tuple[Stream, StandingQuery]:
        """Look up a standing query and its stream by name, if the caller may use it."""
        for stream in list(self.streams.values()):
            standing_query = stream.queries.get(name)
            if standing_query is not None and caller.owns(stream):
                return stream, standing_query
        if self.row_query(name, caller) is not None:
            raise BadQuery(
                f"query {name!r} returns rows: weights and ACTIVE are for aggregates, and thinning "
                "for these and for rows with ON OVERLOAD SHED"
            )
        raise UnknownQuery(name, self.query_names(caller))

    def row_query(self, name: str, caller: Caller = OPERATOR) -> RowQuery | None:
        """Look up a standing row query; None: there is none that the caller may use."""
        query = self.rows.queries.get(name)
        return query if query is not None and self.owns_rows(query, caller) else None

    def owns_rows(self, query: RowQuery, caller: Caller) -> bool:
        """Return whether a caller may use a row query: it owns all that it reads, or the view."""
        writer = self.rows.writers.get(query.name)
        into = [] if writer is None else [writer.target.stream]
        is_view = writer is not None and writer.target.is_view
        used = into if is_view else [*query.streams, *query.table_names, *into]
        relations = (self.streams.get(name) or self.tables.get(name) for name in used)
        return caller.sees_all or all(it is not None and caller.owns(it) for it in relations)

    def query_names(self, caller: Caller = OPERATOR) -> list[str]:
        """Return the names of the standing queries that a caller may use. From any thread."""
        own = [stream for stream in list(self.streams.values()) if caller.owns(stream)]
        names = [query for stream in own for query in list(stream.queries)]
        rows = list(self.rows.queries.values())
        return sorted(names + [each.name for each in rows if self.owns_rows(each, caller)])

    def names_beside(self, query: RowQuery) -> list[str]:
        """Return the names of standing queries that each user of a row query may use."""
        names = (*query.streams, *query.table_names)
        relations = [self.streams.get(name) or self.tables.get(name) for name in names]
        tenants = {relation.schema.tenant for relation in relations if relation is not None}
        known = [set(self.query_names(Caller(tenant))) for tenant in tenants]
        return sorted(set.intersection(*known)) if known else []

    def check_unread(self, stream: Stream, then: str) -> None:
        """Raise StreamInUse where standing row queries read a stream. then: ends the message."""
        readers = sorted(each.name for each in self.rows.of_stream(stream.id))
        if readers:
            raise StreamInUse(
                f"stream {stream.schema.name!r} has standing row queries: {', '.join(readers)}; "
                f"{then}"
            )

    def check_unused(self, stream: Stream, *, as_view: bool = False) -> None:
        """Raise StreamInUse, with all names, where queries read a stream or insert into it.

        as_view: the view's own query, which inserts into the stream, is dropped with it.
        """
        name, rows = stream.schema.name, self.rows
        readers = {it.name for it in rows.of_stream(stream.id)}
        writers = {it.query.name for it in rows.into(name)} - ({name} if as_view else set())
        users = {
            "standing queries": stream.queries,
            "standing row queries": readers,
            "queries that insert into it": writers,
        }
        used_by = [f"{kind}: {', '.join(sorted(each))}" for kind, each in users.items() if each]
        if rows.view(name) is not None and writers and not (stream.queries or readers):
            raise StreamInUse(f"{name!r} is a view; DROP VIEW drops it with its rows")
        if used_by:
            kind = "view" if as_view else "stream"
            then = rows.how_to_drop(readers | writers)
            raise StreamInUse(f"{kind} {name!r} has {'; '.join(used_by)}; {then}")

    def check_no_view(self, name: str) -> None:
        """Raise FailedPrecondition where a stream to be written to is a view."""
        view = self.rows.view(name)
        if view is not None:
            raise FailedPrecondition(
                f"{name!r} is a view, and all of its rows are of its query over "
                f"{', '.join(view.query.streams)}; no others can be pushed into it"
            )

    def query_of(self, stream_id: int, query: str) -> tuple[Stream, StandingQuery] | None:
        """A standing query that a record of the log names; None: it was dropped meanwhile."""
        name = self.stream_name(stream_id)
        standing_query = None if name is None else self.streams[name].queries.get(query)
        return (
            None if name is None or standing_query is None else (self.streams[name], standing_query)
        )

    def intake_of(self, stream_id: int) -> Intake | None:
        """The door of a stream; None once it is dropped. From any thread."""
        return next((i for i in list(self.intakes.values()) if i.stream_id == stream_id), None)

    def stream_name(self, stream_id: int) -> str | None:
        """None for a stream that was dropped while its records were on the way."""
        return next((n for n, s in list(self.streams.items()) if s.id == stream_id), None)
