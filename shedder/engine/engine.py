"""The engine in this process: a facade over the services of one data directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from shedder.archive.archive_store import Store
from shedder.archive.operations.backup import Copied
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import Statement
from shedder.cql.statements.table_schema import RelationSchema
from shedder.engine.administration import show_and_describe as describe
from shedder.engine.administration.control_table import control_table, set_control
from shedder.engine.administration.ledger import ledger_of
from shedder.engine.administration.statement_executor import execute, execute_batches
from shedder.engine.admission.batch_push import push
from shedder.engine.admission.local_producer import LocalProducer
from shedder.engine.admission.summary_ingest import append_summaries, plans_of
from shedder.engine.ingest.producer_memory import ProducerLimits
from shedder.engine.ingest.producer_sequences import check_named_producer, check_producer
from shedder.engine.precompile import compile_all
from shedder.engine.registration.query_handle import Query
from shedder.engine.registration.row_query_handle import RowHandle
from shedder.engine.remote_summaries.wire_format import NO_PRODUCERS
from shedder.engine.runtime.background_tasks import Watch
from shedder.engine.runtime.caller import OPERATOR, Caller
from shedder.engine.runtime.environment import Environment
from shedder.engine.services import Services
from shedder.engine.startup import build, drain, start
from shedder.errors import BadQuery, ShedderError
from shedder.logging_defaults import be_quiet
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.answer_batches import AnswerBatches
from shedder.queries.answers.database_api import Ledger, Params, Receipt
from shedder.settings import Settings
from shedder.streams.push_parts import WHOLE, Part


class Engine:
    """A database of streams in this process. Make it with `shedder.open`. Safe from any thread.

    It is a facade: each attribute is one of its services, with operations of its own.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.core = services.core
        self.tasks = services.tasks
        self.checkpoints = services.checkpoints
        self.indexer = services.indexer
        self.relayouts = services.relayouts
        self.cutter = services.cutter
        self.sharing = services.sharing
        self.admission = services.admission
        self.ingest = services.ingest
        self.append = services.ingest.append
        self.blocks = services.ingest.blocks
        self.backfills = services.backfills
        self.repair = services.repair
        self.overload = services.overload
        self.housekeeping = services.housekeeping
        self.audit = services.audit
        self.files = services.files
        self.thinning = services.thinning
        self.budgets = services.budgets
        self.quotas = services.quotas
        self.table_pushes = services.table_pushes

    @classmethod
    def open(
        cls,
        directory: str | Path,
        settings: Settings | None = None,
        *,
        clock_us: Callable[[], int] | None = None,
        machine: Environment | None = None,
        producer_limits: ProducerLimits | None = None,
        compiles_ahead: bool = True,
        **overrides: Any,
    ) -> Self:
        """Open or create a data directory, and recover what it holds.

        Args:
          directory: made when missing.
          settings: all options; None reads them from the environment.
          clock_us: the present time, microseconds UTC; the machine's clock when None.
          machine: clocks, files and threads; this machine when None, with clock_us as its clock.
          producer_limits: memory for known producers; None: by the settings.
          compiles_ahead: load all kernels now, so that no batch waits for one. False loads each
            kernel when it is first called, for a process that ends after a statement.
          overrides: single options, as in `Settings`.

        Raises:
          DirectoryLocked: another process has it open. NewerFormat, CorruptData, BadSetting.
        """
        be_quiet()
        settings = settings or Settings.load(**overrides)
        if compiles_ahead:
            compile_all()
        machine = machine or Environment(clock_us)
        store = Store.open(
            Path(directory), files=machine.files, log_segment_bytes=settings.log_segment_bytes
        )
        try:
            services = build(store, settings, machine, producer_limits)
        except BaseException:
            store.close()
            raise
        start(services)
        return cls(services)

    # --- statements ----------------------------------------------------------------------------

    def execute(
        self,
        sql: str | Statement,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
        watch: Watch | None = None,
        caller: Caller = OPERATOR,
    ) -> Answer:
        """Run one statement; a query is answered once, other statements with their status.

        Args:
          sql: its text, or the statement that `parse` returned.
          params: values for the `?`, `$1` or `:name` of a text.
          timeout_s: how long it may take.
          watch: is told of the progress of a statement that takes long, and may cancel it.
          caller: whose names it may use; streams that it makes are this tenant's.
        """
        self.services.lifetime.check_open()
        began = time.monotonic()
        answer = execute(self.services, self._parsed(sql, params), timeout_s, watch, caller)
        return describe.with_elapsed(answer, began)

    def execute_batches(
        self,
        sql: str | Statement,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
        watch: Watch | None = None,
        caller: Caller = OPERATOR,
    ) -> AnswerBatches:
        """Run one statement; rows of streams come batch by batch, while they are read.

        Args: as `execute`.
        """
        self.services.lifetime.check_open()
        statement = self._parsed(sql, params)
        if isinstance(statement, RelationalSelect):
            return execute_batches(self.services, statement, timeout_s, watch, caller)
        answer = self.execute(statement, timeout_s=timeout_s, watch=watch, caller=caller)
        return AnswerBatches.of(answer)

    @staticmethod
    def gives_rows(statement: Statement) -> bool:
        """Return whether the answer to a statement is rows of streams, which can be many."""
        return isinstance(statement, RelationalSelect)

    def parse(self, sql: str, params: Params | None = None) -> Statement:
        """Return the statement of a text, which `execute` and `register` take instead of it.

        Raises:
          BadQuery, Unimplemented: it is no statement.
        """
        return self.services.statements.parse(sql, params)

    def _parsed(self, sql: str | Statement, params: Params | None) -> Statement:
        if isinstance(sql, str):
            return self.parse(sql, params)
        if params:
            raise BadQuery(f"the parameters {params!r} come too late: the statement is parsed")
        return sql

    # --- standing queries ----------------------------------------------------------------------

    def register(
        self,
        name: str,
        sql: str | Statement,
        params: Params | None = None,
        *,
        caller: Caller = OPERATOR,
        timeout_s: float | None = None,
    ) -> Query | RowHandle:
        """As `Database.register`.

        Raises:
          as `QueryRegistry.register`.
        """
        self.services.lifetime.check_open()
        statement, queries = self._parsed(sql, params), self.services.queries
        return queries.register(name, statement, caller=caller, timeout_s=timeout_s)

    def query(self, name: str, caller: Caller = OPERATOR) -> Query | RowHandle:
        """Return a standing query by name."""
        return self.services.queries.query(name, caller)

    def drop_query(self, name: str) -> None:
        """Unregister a standing query.

        Raises:
          UnknownQuery. DiskFull, StorageFailed: it stands.
        """
        self.services.queries.drop_query(name)

    def listen(
        self, name: str, listener: Callable[[Answer | ShedderError], None]
    ) -> Callable[[], None]:
        """Call a function with every new answer, on the apply thread; returns what ends that."""
        return self.services.queries.listen(name, listener)

    # --- streams -------------------------------------------------------------------------------

    def push(
        self,
        stream: str,
        data: Any,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
    ) -> Receipt:
        """Append rows and return when they are durable; waits while there is no room.

        stream: or a table, where each row replaces the one with its key: see `TablePushes.push`.
        """
        self.services.lifetime.check_open()
        if stream in self.core.tables:
            return self.table_pushes.push(stream, data)
        check_producer(producer or "", epoch)
        return push(
            self.ingest, stream, data, producer=producer or "", epoch=epoch, sequence=sequence
        )

    def producer(self, stream: str, name: str, *, epoch: int | None = None) -> LocalProducer:
        """A producer that keeps batches in flight and goes on where it stopped.

        Args:
          stream: to append to.
          name: the producer's; stable over restarts.
          epoch: its incarnation; None goes on in the newest one.

        Raises:
          StaleEpoch: a newer incarnation has written.
        """
        self.services.lifetime.check_open()
        check_named_producer(name, epoch)
        return LocalProducer(self.ingest, stream, name, epoch=epoch)

    def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """Return (epoch, sequence) of a producer's last durable push; None: it has none."""
        return self.ingest.producers.last_sequence(stream, producer)

    def heartbeat(self, stream: str, watermark_us: int) -> None:
        """Promise that no tuple with an event time below watermark_us will follow.

        Returns when the windows that this closes have been answered.
        """
        self.admission.intake(stream).heartbeat(watermark_us).result()
        self.core.executor.call(lambda: None).result()

    def seal(self, stream: str) -> None:
        """Write the stream's tail into a run, so that other readers of the archive see it."""
        self.cutter.seal(stream)

    def ledger(self, stream: str) -> Ledger:
        """Return where every tuple of the stream went, after all durable records."""
        core = self.core

        def look() -> Ledger:
            of = core.stream(stream)
            kept = core.store
            backfilled, lost = kept.backfills.rows(of.id), kept.lost(of.id)
            return ledger_of(of, core.intakes[stream], backfilled=backfilled, lost=lost)

        return core.executor.call(look).result()

    def schema(self, stream: str) -> StreamSchema:
        """Return a stream's definition."""
        return self.ingest.schema(stream)

    def relation(self, name: str) -> RelationSchema:
        """Return the definition of a stream or table."""
        table = self.core.tables.get(name)
        return self.schema(name) if table is None else table.schema

    def plans(self, stream: str) -> str:
        """The description from which a client builds the stream's summaries: JSON of Plans."""
        return plans_of(self.core, stream).to_json()

    def merge(
        self,
        stream: str,
        summaries: bytes,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
        tuples_follow: bool = False,
        bytes_max: int | None = None,
        after: Mapping[str, tuple[int, int]] = NO_PRODUCERS,
        part: Part = WHOLE,
    ) -> Receipt:
        """Merge summaries into the stream's standing queries; returns when answers know them.

        bytes_max: as many as they may have; None: as a batch. part: their place in the push.

        Raises:
          as `append_summaries`.
        """
        self.services.lifetime.check_open()
        receipt = append_summaries(
            self.core,
            self.admission,
            stream,
            summaries,
            producer=producer or "",
            epoch=epoch,
            sequence=sequence,
            tuples_follow=tuples_follow,
            bytes_max=bytes_max,
            after=after,
            part=part,
        ).result()
        self.core.executor.call(lambda: None).result()
        return receipt

    # --- control -------------------------------------------------------------------------------

    def control(self, entity: str = "", name: str = "") -> pa.Table:
        """The control table: entity, name, key, value; all rows where a word is empty.

        What is not asked for is not looked up: what synopses have, and what more would buy, takes
        far longer than the rest (entities tenant, budget, synopsis).
        """
        return control_table(self.services, entity, name)

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
        set_control(self.services, entity, name, key, value)

    def backup(
        self,
        target: str | Path,
        *,
        link: bool = True,
        timeout_s: float | None = None,
        watch: Watch | None = None,
    ) -> Copied:
        """Make a second data directory that holds what is durable now; the engine goes on.

        Raises:
          as `FileControls.backup`.
        """
        return self.files.backup(target, link=link, timeout_s=timeout_s, watch=watch)

    def close(self, within_s: float = inf) -> None:
        """Stop, leaving everything durable and checkpointed.

        within_s: what is not applied by then stays in the log, and the next start applies it.
        """
        if self.services.lifetime.end():
            drain(self.services, within_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
