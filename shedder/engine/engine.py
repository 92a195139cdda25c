"""The engine in this process: every word of the database, over one data directory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from shedder.archive.archive_store import Store
from shedder.archive.exact.client import ExactWorker
from shedder.archive.files.data_directory import FORMAT_DROPS, FORMAT_PUSHES, FORMAT_TENANTS
from shedder.archive.tasks.deadline import Deadline
from shedder.archive.tasks.progress import Progress
from shedder.cql.binding.new_names import check_new_stream
from shedder.cql.binding.statement_cache import StatementCache
from shedder.cql.expressions.expression_text import quoted
from shedder.cql.expressions.integer_division import compile_remainders
from shedder.cql.statements.bound_query import DEFAULT_TENANT, StreamSchema
from shedder.cql.statements.overload_policy import Policy
from shedder.cql.statements.statement import CreateStream, Select, Statement
from shedder.cql.text.size_limits import Limits
from shedder.engine.administration import show_and_describe as describe
from shedder.engine.administration.budget_controls import Budgets
from shedder.engine.administration.control_table import control_table
from shedder.engine.administration.file_controls import Upkeep
from shedder.engine.administration.ledger import ledger_of
from shedder.engine.administration.quota_controls import TenantQuotas
from shedder.engine.administration.statement_executor import execute
from shedder.engine.administration.thinning_controls import ToldLevels
from shedder.engine.admission.batch_push import push
from shedder.engine.admission.local_producer import Producer
from shedder.engine.admission.producer_progress import ProducersProgress
from shedder.engine.admission.summary_ingest import Merging
from shedder.engine.allocation.rebalancer import Sharing
from shedder.engine.audit.self_audit import Audit
from shedder.engine.engine_state import Core
from shedder.engine.ingest.known_producers import ProducerLimits
from shedder.engine.ingest.producer_sequences import check_named_producer, check_producer
from shedder.engine.load_shedding.controller_loop import Overload
from shedder.engine.maintenance.run_rewriter import Relayouts
from shedder.engine.maintenance.scrub_and_purge import Housekeeping
from shedder.engine.one_time_queries.executor import OneTime
from shedder.engine.rebuild.backfill import Backfilling
from shedder.engine.rebuild.pane_repair import Repair
from shedder.engine.recovery.log_replay import recover
from shedder.engine.registration.query_registry import Registered
from shedder.engine.registration.registrar import Registrar
from shedder.engine.runtime.background_tasks import Watch
from shedder.engine.runtime.caller import OPERATOR, Asker
from shedder.engine.runtime.environment import Machine
from shedder.engine.runtime.subscribers import Latest
from shedder.errors import BadSetting, Draining, StreamExists, StreamInUse
from shedder.gc_tuning import loading
from shedder.logging_defaults import be_quiet
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Ledger, Params, Receipt
from shedder.settings import Settings
from shedder.streams.batches import BatchLimits
from shedder.streams.column_bits import compile_words
from shedder.streams.dropped_counts import Dropped
from shedder.streams.live_sample import StreamSample
from shedder.streams.push_parts import WHOLE, Part
from shedder.streams.row_sizes import compile_row_sizes
from synopses.precompile import compile_kernels, compile_question_kernels


class Engine(
    Registered,
    Upkeep,
    Merging,
    ProducersProgress,
    Backfilling,
    ToldLevels,
    Budgets,
    TenantQuotas,
):
    """A database of streams in this process. Make it with `shedder.open`. Safe from any thread."""

    def __init__(self, core: Core, exact: ExactWorker) -> None:
        self.core = core
        self._exact = exact
        self._one_time = OneTime(core, exact)
        self._ddl = threading.RLock()
        self.sharing = Sharing(core, self._ddl)
        self._registrar = Registrar(core, self.sharing)
        self.tasks = core.tasks
        self.relayouts = Relayouts(core, self.tasks)
        self.housekeeping = Housekeeping(core, self.relayouts, self.tasks)
        self.overload = Overload(core)
        self.repair = Repair(
            core, self.tasks, lambda: self.overload.idle, lambda: self.overload.spare
        )
        self.overload.on_idle = self.repair.wake
        self.audit = Audit(core)
        self._mailboxes: set[Latest] = set()
        self._statements = StatementCache(_limits(core.settings))
        self._closed = False

    @classmethod
    def open(
        cls,
        directory: str | Path,
        settings: Settings | None = None,
        *,
        clock_us: Callable[[], int] | None = None,
        machine: Machine | None = None,
        producer_limits: ProducerLimits | None = None,
        **overrides: Any,
    ) -> Self:
        """Open or create a data directory, and recover what it holds.

        Args:
          directory: made when missing.
          settings: all options; None reads them from the environment.
          clock_us: the present time, microseconds UTC; the machine's clock when None.
          machine: clocks, files and threads; this machine when None, with clock_us as its clock.
          producer_limits: memory for known producers; None: by the settings.
          overrides: single options, as in `Settings`.

        Raises:
          DirectoryLocked: another process has it open. NewerFormat, CorruptData, BadSetting.
        """
        be_quiet()
        settings = settings or Settings.load(**overrides)
        _compile()
        machine = machine or Machine(clock_us)
        store = Store.open(
            Path(directory), files=machine.files, log_segment_bytes=settings.log_segment_bytes
        )
        try:
            core = Core(store, settings, machine, producer_limits)
            exact = ExactWorker(
                store.directory / "tmp" / "exact",
                memory_bytes=settings.exact_memory_bytes,
                threads=settings.exact_threads,
                timeout_s=settings.exact_timeout_s,
            )
            engine = cls(core, exact)
            core.go_exact = engine._one_time.answer_window
            core.go_vacuum = engine.relayouts.wake
            core.go_share = engine.sharing.soon
            recover(core)
            core.start()
            for name in core.streams:
                engine.relayouts.wake(name)
            engine.housekeeping.start()
            engine.overload.release()
            if settings.overload == "on":
                engine.overload.start()
            if settings.audit == "on":
                engine.audit.start()
        except BaseException:
            store.close()
            raise
        return engine

    # --- statements ----------------------------------------------------------------------------

    def execute(
        self,
        sql: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
        watch: Watch | None = None,
        asker: Asker = OPERATOR,
    ) -> Answer:
        """Run one statement; a query is answered once, other statements with their status.

        Args:
          sql: its text.
          params: values for its `?`, `$1` or `:name`.
          timeout_s: how long it may take.
          watch: is told of the progress of a statement that takes long, and may cancel it.
          asker: whose names it may use; streams that it makes are this tenant's.
        """
        self._check_open()
        began = time.monotonic()
        answer = execute(self, self.parse(sql, params), timeout_s, watch, asker)
        return describe.with_elapsed(answer, began)

    def parse(self, sql: str, params: Params | None = None) -> Statement:
        """Return the statement of a text, as `execute` reads it; a text is parsed once.

        Raises:
          BadQuery, Unimplemented: it is no statement.
        """
        return self._statements.parse(sql, params)

    def ask(self, select: Select, timeout_s: float | None, watch: Watch | None = None) -> Answer:
        """Answer a query once."""
        stream = self.core.stream(select.stream)
        progress = Progress(f"answer from {select.stream}", "tuples")
        with self.tasks.running(progress, watch=watch):
            return self._one_time.answer(stream, select, Deadline(timeout_s, progress))

    def explain_once(self, select: Select) -> str:
        """How a query would be answered once."""
        return self._one_time.explain(self.core.stream(select.stream), select)

    # --- streams -------------------------------------------------------------------------------

    def create_stream(self, statement: CreateStream, tenant: str = DEFAULT_TENANT) -> bool:
        """Create a stream, for a tenant; False when an equal one exists.

        Raises:
          StreamExists: there is one of this name with another definition.
        """
        with self._ddl:
            if statement.name in self.core.streams:
                schema = self.core.streams[statement.name].schema
                if statement.if_not_exists or describe.is_same(schema, statement):
                    return False
                raise StreamExists(
                    f"stream {statement.name!r} exists with another definition: "
                    f"{describe.definition(schema)}"
                )
            check_new_stream(statement)
            schema = StreamSchema(
                name=statement.name,
                columns=statement.columns,
                time_column=statement.time_column,
                lateness_us=statement.lateness_us,
                retain_us=statement.retain_us,
                layout=statement.layout,
                on_overload=statement.on_overload,
                seed=self.core.machine.random_bits(64),
                tenant=tenant,
            )
            if tenant != DEFAULT_TENANT:
                self.core.store.allow(FORMAT_TENANTS)
            stream_id = self.core.store.create_stream(schema).id
            fair_bytes = self.core.samples.fair_bytes(len(self.core.streams) + 1)
            rows = self.core.settings.sample_rows
            sample = StreamSample(schema, rows=rows, size_bytes_max=fair_bytes)
            self.core.actor.call(lambda: self.core.add_stream(stream_id, schema, sample)).result()
            return True

    def drop_stream(self, name: str) -> None:
        """Forget a stream and delete its data.

        Raises:
          UnknownStream; StreamInUse: standing queries need it.
        """
        with self._ddl:
            stream = self.core.stream(name)
            if stream.queries:
                raise StreamInUse(
                    f"stream {name!r} has standing queries: {', '.join(sorted(stream.queries))}; "
                    "drop them first"
                )

            def forget() -> None:
                self.core.checkpoints.forget_stream(stream.id)
                self.core.store.drop_stream(stream.id)
                del self.core.streams[name]
                self.core.intakes.pop(name).close()
                self.core.queues.drop_stream(stream.schema.tenant)

            self.core.checkpoints.end_begun()
            self.core.actor.call(forget).result()

    @property
    def limits(self) -> BatchLimits:
        """How large one batch may be."""
        return self.core.limits

    def schema(self, stream: str) -> StreamSchema:
        """A stream's definition."""
        return self.core.stream(stream).schema

    def append(
        self,
        stream: str,
        payload: bytes | memoryview,
        *,
        producer: str,
        epoch: int,
        sequence: int | None,
        rows: int | None = None,
        waits: bool = False,
        summarised: bool = False,
        left_out: Dropped | None = None,
        is_let_in: bool = False,
        part: Part = WHOLE,
    ) -> Future[Receipt]:
        """Append one encoded batch; the future's receipt says that it is durable.

        Args:
          stream: its name. payload, producer, epoch, sequence, part: as of `Intake.append`.
          rows: that it declares, and must have; they count as refused if it is refused undecoded.
            None: it does not say, and does not count.
          waits: whoever sends it tries again, so it is not refused for good.
          summarised: summaries of it came before; it is for the archive.
          left_out: what its producer has left out of it, by chance, and will not send.
          is_let_in: with just these rows and bytes, by `Admission.let_in`.

        Raises:
          what `Intake.append` and `Admission.admit` raise.
        """
        core, size_bytes = self.core, memoryview(payload).nbytes
        declared, for_good = rows or 0, rows is not None and not waits
        admission = core.admission
        if not is_let_in:
            admission.check_size(stream, declared, size_bytes)
        with admission.counted(stream, declared, size_bytes, for_good=for_good):
            if is_let_in:
                intake = core.intake(stream)
            else:
                intake = admission.admit(stream, declared, size_bytes, waits=waits)
            with admission.giving_back(stream, declared, size_bytes):
                if left_out is not None:
                    core.store.allow(FORMAT_DROPS)
                if producer:
                    core.allow(FORMAT_PUSHES)
                return intake.append(
                    payload,
                    producer=producer,
                    epoch=epoch,
                    sequence=sequence,
                    rows=rows,
                    summarised=summarised,
                    left_out=left_out,
                    part=part,
                )

    def blocks(self, stream: str) -> bool:
        """Whether whoever appends waits for room, however long (ON OVERLOAD BLOCK)."""
        known = self.core.streams.get(stream)
        return known is not None and known.schema.on_overload.policy is Policy.BLOCK

    def push(
        self,
        stream: str,
        data: Any,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
    ) -> Receipt:
        """Append rows and return when they are durable; waits while there is no room."""
        self._check_open()
        check_producer(producer or "", epoch)
        return push(self, stream, data, producer=producer or "", epoch=epoch, sequence=sequence)

    def producer(self, stream: str, name: str, *, epoch: int | None = None) -> Producer:
        """A producer that keeps batches in flight and goes on where it stopped.

        Args:
          stream: to append to.
          name: the producer's; stable over restarts.
          epoch: its incarnation; None goes on in the newest one.

        Raises:
          StaleEpoch: a newer incarnation has written.
        """
        self._check_open()
        check_named_producer(name, epoch)
        return Producer(self, stream, name, epoch=epoch)

    def heartbeat(self, stream: str, watermark_us: int) -> None:
        """Promise that no tuple with an event time below watermark_us will follow.

        Returns when the windows that this closes have been answered.
        """
        self.core.intake(stream).heartbeat(watermark_us).result()
        self.core.actor.call(lambda: None).result()

    def seal(self, stream: str) -> None:
        """Write the stream's tail into a run, so that other readers of the archive see it."""
        self.core.seal(stream)

    def ledger(self, stream: str) -> Ledger:
        """Where every tuple of the stream went, once all that is durable has been applied."""
        core = self.core

        def look() -> Ledger:
            of = core.stream(stream)
            kept = core.store
            backfilled, lost = kept.backfilled_rows(of.id), kept.lost(of.id)
            return ledger_of(of, core.intakes[stream], backfilled=backfilled, lost=lost)

        return core.actor.call(look).result()

    # --- control -------------------------------------------------------------------------------

    def control(self, entity: str = "", name: str = "") -> pa.Table:
        """The control table: entity, name, key, value; all rows where a word is empty.

        What is not asked for is not looked up: what synopses have, and what more would buy, takes
        far longer than the rest (entities tenant, budget, synopsis).
        """
        return control_table(self, entity, name)

    def set_control(self, entity: str, name: str, key: str, value: str) -> None:
        """Change what can be changed.

        ('stream', name, 'seal', ''), ('task', number, 'cancel', ''), and
        ('query', name, 'thinning', '1/8') or '1/8 FOR output, AVG(x)',
        ('query', name, 'weight', '3'), ('query', name, 'active', 'true' or 'false'),
        ('budget', 'synopses', 'bytes', '64MiB' or 'default'),
        ('tenant', name, 'rows_per_s', '1000', 'none' or 'default'), as of `Quota`, and
        ('overload', '', 'mode', 'on') or 'off'.

        Raises:
          BadSetting: no such control. UnknownQuery, BadQuery: of thinning.
        """
        match entity, key:
            case "stream", "seal":
                self.seal(name)
            case "task", "cancel":
                self.tasks.cancel(name)
            case "query", "thinning":
                self.execute(f"ALTER QUERY {quoted(name)} SET THINNING {value}")
            case "overload", "mode" if value in ("on", "off"):
                self._check_open()
                with self._ddl:
                    self.overload.start() if value == "on" else self.overload.stop()
            case "query", "weight":
                self.execute(f"ALTER QUERY {quoted(name)} SET WEIGHT {value}")
            case "query", "active" if value.lower() in ("true", "false"):
                self.set_active(name, active=value.lower() == "true")
            case "tenant", _:
                self.set_quota(name, key, value)
            case "budget", "bytes" if name == "synopses":
                self.budget_from(value)
            case _:
                raise BadSetting(
                    f"no control {entity}.{key} = {value!r}; there are stream.seal, task.cancel, "
                    "query.thinning, query.weight, query.active (true, false), budget.bytes "
                    "(of synopses), tenant quotas (SHOW TENANTS) and overload.mode (on or off)"
                )

    def close(self, within_s: float = inf) -> None:
        """Stop, leaving everything durable and checkpointed.

        within_s: what is not applied by then stays in the log, and the next start applies it.
        """
        if self._closed:
            return
        self._closed = True
        for mailbox in list(self._mailboxes):
            mailbox.close()
        self.overload.close()
        self.audit.close()
        self._one_time.close()
        self._exact.close()
        self.tasks.close()
        self.repair.close()
        self.housekeeping.close()
        self.relayouts.close()
        self.sharing.close()
        self.core.close(within_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Draining("the database is closed")


@cache
def _compile() -> None:
    """Once in a process."""
    with loading():
        compile_kernels()
        compile_question_kernels()
        compile_remainders()
        compile_words()
        compile_row_sizes()


def _limits(settings: Settings) -> Limits:
    return Limits(
        text_bytes_max=settings.query_text_bytes_max,
        depth_max=settings.query_depth_max,
        nodes_max=settings.query_nodes_max,
        panes_max=settings.panes_max,
    )
