"""The engine in this process: every word of the database, over one data directory."""

from __future__ import annotations

import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import structlog

from shedder.archive.exact import ExactWorker
from shedder.archive.store import Store
from shedder.cql.limits import Limits
from shedder.cql.parse import parse
from shedder.cql.query import StreamSchema
from shedder.cql.remainders import compile_remainders
from shedder.cql.statement import CreateStream, Select
from shedder.engine import describe
from shedder.engine.core import Core
from shedder.engine.handle import Query
from shedder.engine.ledger import ledger_of
from shedder.engine.listeners import Latest
from shedder.engine.one_time import OneTime
from shedder.engine.producer import Producer
from shedder.engine.published import Published
from shedder.engine.push import push
from shedder.engine.recovery import recover
from shedder.engine.registration import Registrar
from shedder.engine.statements import execute
from shedder.engine.stream import Stream
from shedder.engine.thinning import levels_of
from shedder.errors import (
    BadSetting,
    Draining,
    QueryExists,
    ShedderError,
    StreamExists,
    StreamInUse,
    UnknownQuery,
    UnknownStream,
)
from shedder.queries.answer import Answer
from shedder.queries.database import Ledger, Params, Receipt
from shedder.settings import Settings
from shedder.streams.batches import BatchLimits
from shedder.streams.sample import StreamSample
from synopses.warm import compile_kernels, compile_question_kernels


class Engine:
    """A database of streams in this process. Make it with `shedder.open`. Safe from any thread."""

    def __init__(self, core: Core, exact: ExactWorker) -> None:
        self.core = core
        self._exact = exact
        self._one_time = OneTime(core, exact)
        self._registrar = Registrar(core)
        self._mailboxes: set[Latest] = set()
        self._ddl = threading.RLock()
        self._limits = _limits(core.settings)
        self._closed = False

    @classmethod
    def open(
        cls,
        directory: str | Path,
        settings: Settings | None = None,
        *,
        clock_us: Callable[[], int] | None = None,
        **overrides: Any,
    ) -> Self:
        """Open or create a data directory, and recover what it holds.

        Args:
          directory: made when missing.
          settings: all options; None reads them from the environment.
          clock_us: the present time, microseconds UTC; the machine's clock when None.
          overrides: single options, as in `Settings`.

        Raises:
          DirectoryLocked: another process has it open. NewerFormat, CorruptData, BadSetting.
        """
        _be_quiet()
        settings = settings or Settings.load(**overrides)
        compile_kernels()
        compile_question_kernels()
        compile_remainders()
        store = Store.open(Path(directory), log_segment_bytes=settings.log_segment_bytes)
        try:
            core = Core(store, settings, clock_us or _now_us)
            exact = ExactWorker(
                store.directory / "tmp" / "exact",
                memory_bytes=settings.exact_memory_bytes,
                threads=settings.exact_threads,
                timeout_s=settings.exact_timeout_s,
            )
            engine = cls(core, exact)
            core.go_exact = engine._one_time.answer_window
            recover(core)
            core.start()
        except BaseException:
            store.close()
            raise
        return engine

    # --- statements ----------------------------------------------------------------------------

    def execute(
        self, sql: str, params: Params | None = None, *, timeout_s: float | None = None
    ) -> Answer:
        """Run one statement; a query is answered once, other statements with their status."""
        self._check_open()
        began = time.monotonic()
        answer = execute(self, parse(sql, params, self._limits), timeout_s)
        return describe.with_elapsed(answer, began)

    def ask(self, select: Select, timeout_s: float | None) -> Answer:
        """Answer a query once."""
        return self._one_time.answer(self.core.stream(select.stream), select, timeout_s)

    def explain_once(self, select: Select) -> str:
        """How a query would be answered once."""
        return self._one_time.explain(self.core.stream(select.stream), select)

    # --- streams -------------------------------------------------------------------------------

    def create_stream(self, statement: CreateStream) -> bool:
        """Create a stream; False when an equal one exists.

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
            schema = StreamSchema(
                name=statement.name,
                columns=statement.columns,
                time_column=statement.time_column,
                lateness_us=statement.lateness_us,
                retain_us=statement.retain_us,
                layout=statement.layout,
                seed=secrets.randbits(64),
            )
            stream_id = self.core.store.create_stream(schema).id
            sample = StreamSample(schema, rows=self.core.settings.sample_rows)
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
                self.core.store.drop_stream(stream.id)
                del self.core.streams[name]
                del self.core.intakes[name]

            self.core.actor.call(forget).result()

    @property
    def limits(self) -> BatchLimits:
        """How large one batch may be."""
        return self.core.limits

    def schema(self, stream: str) -> StreamSchema:
        """A stream's definition."""
        return self.core.stream(stream).schema

    def append(
        self, stream: str, payload: bytes, *, producer: str, epoch: int, sequence: int | None
    ) -> Future[Receipt]:
        """Append one encoded batch; the future's receipt says that it is durable.

        Raises:
          what `Intake.append` raises, and UnknownStream.
        """
        return self.core.intake(stream).append(
            payload, producer=producer, epoch=epoch, sequence=sequence
        )

    def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """(epoch, sequence) of the last durable batch of a producer; None: it has none."""
        intake = self.core.intakes.get(stream)
        if intake is None:
            raise UnknownStream(stream, list(self.core.intakes))
        progress = intake.progress(producer)
        return None if progress is None else (progress.epoch, progress.sequence)

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
        return core.actor.call(
            lambda: ledger_of(core.stream(stream), core.intakes[stream])
        ).result()

    # --- standing queries ----------------------------------------------------------------------

    def register(self, name: str, sql: str, params: Params | None = None) -> Query:
        """Make a query standing; one of the same name and text is returned as it is.

        Raises:
          BadQuery, UnknownColumn, UnknownStream; QueryExists: another text has this name;
          PrecisionUnavailable: contract FAIL and the target cannot be promised.
        """
        self._check_open()
        statement = parse(sql, params, self._limits)
        if not isinstance(statement, Select):
            raise BadSetting(f"only a SELECT can be registered, not {type(statement).__name__}")
        return self.register_select(name, statement)

    def register_select(self, name: str, select: Select) -> Query:
        """Make a parsed query standing."""
        with self._ddl:
            stream = self.core.stream(select.stream)
            for other in list(self.core.streams.values()):
                if name in other.queries:
                    published = other.queries[name]
                    if published.standing.query.text == select.text:
                        return Query(self, other, published)
                    raise QueryExists(
                        f"query {name!r} exists with another text: {published.standing.query.text}"
                    )
            published = self._registrar.register(name, stream, select)
            return Query(self, stream, published)

    def query(self, name: str) -> Query:
        """A standing query by name."""
        stream, published = self.core.published(name)
        return Query(self, stream, published)

    def drop_query(self, name: str) -> None:
        """Unregister a standing query."""
        with self._ddl:
            stream, published = self.core.published(name)

            def forget() -> None:
                self.core.store.catalog.drop_query(name)
                del stream.queries[name]
                published.listeners.tell(UnknownQuery(name, sorted(stream.queries)))

            self.core.actor.call(forget).result()

    def listen(
        self, name: str, listener: Callable[[Answer | ShedderError], None]
    ) -> Callable[[], None]:
        """Be told of every new answer, on the apply thread; returns how to stop that."""
        return self.core.published(name)[1].listeners.add(listener)

    def subscribe(self, published: Published, mailbox: Latest) -> Callable[[], None]:
        """Put a query's new answers into a mailbox until it is removed or the engine closes."""
        stop = published.listeners.add(mailbox.put)
        self._mailboxes.add(mailbox)

        def remove() -> None:
            stop()
            self._mailboxes.discard(mailbox)

        return remove

    def explain_standing(self, stream: Stream, published: Published) -> str:
        """What a standing query keeps and predicts."""
        return self.core.actor.call(lambda: describe.standing(stream, published)).result()

    def set_thinning(self, name: str, level: int) -> None:
        """From now on the query's synopses read the share 2^-level of the tuples; 0: all of them.

        Raises:
          UnknownQuery. BadSetting: the level is not 0 to 20. Unimplemented: one of its
          aggregates cannot be thinned. DiskFull, StorageFailed: nothing has changed.
        """
        self._check_open()
        with self._ddl:
            stream, published = self.core.published(name)
            self.core.change_levels(stream, name, levels_of(published.standing, level))

    # --- control -------------------------------------------------------------------------------

    def control(self) -> pa.Table:
        """The control table of every entity: entity, name, key, value."""
        return self.core.actor.call(lambda: describe.control(self.core)).result()

    def set_control(self, entity: str, name: str, key: str, value: str) -> None:
        """Change what can be changed: ('stream', name, 'seal', '').

        Raises:
          BadSetting: no such control.
        """
        if (entity, key) != ("stream", "seal"):
            raise BadSetting(f"no control {entity}.{key} = {value!r}; there is stream.seal")
        self.seal(name)

    def close(self) -> None:
        """Stop, leaving everything durable and checkpointed."""
        if self._closed:
            return
        self._closed = True
        for mailbox in list(self._mailboxes):
            mailbox.close()
        self._one_time.close()
        self._exact.close()
        self.core.close()

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


def _be_quiet() -> None:
    """A library talks on stderr, and only of what went wrong, unless its host says otherwise."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        )


def _limits(settings: Settings) -> Limits:
    return Limits(
        text_bytes_max=settings.query_text_bytes_max,
        depth_max=settings.query_depth_max,
        nodes_max=settings.query_nodes_max,
        panes_max=settings.panes_max,
    )


def _now_us() -> int:
    return time.time_ns() // 1000
