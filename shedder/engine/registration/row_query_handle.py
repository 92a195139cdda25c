"""Handle of a standing row query: its newest rows, subscriptions and DROP."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Protocol, TypeVar

from shedder.engine.dataflow.row_queries import StandingRowQueries
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_status import relations_of
from shedder.engine.engine_state import EngineState
from shedder.errors import BadSetting, DeadlineExceeded, UnknownQuery
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Receipt

Result = TypeVar("Result")

BATCH_BYTES_MAX = 1 << 20  # Of rows in one answer of a subscription.


class RowRegistry(Protocol):
    """What keeps row queries, as a handle of one of them uses it."""

    @property
    def core(self) -> EngineState:
        """The live state that the queries are part of."""

    def explain_rows(self, query: RowQuery) -> str:
        """Return what a query reads and holds."""

    def expected_precision(self, query: RowQuery) -> dict[str, str]:
        """Return what a query with ON OVERLOAD SHED is expected to get, by name."""

    def drop_query(self, name: str) -> None:
        """Unregister a query."""


class RowCursor:
    """Place of one subscriber in the rows of a query; it holds no rows."""

    def __init__(self, rows: StandingRowQueries, query: RowQuery, after: str | None) -> None:
        """rows: all row queries. after: `resume` of an answer; None: from now on.

        Raises:
          BadSetting: the token is not of this query. OutputDiscarded: its rows are not kept.
        """
        self._rows = rows
        self._query = query
        self._at = query.output.place(after)

    def take(self) -> Answer | None:
        """Return the next rows; None: there are none yet.

        Raises:
          OutputDiscarded: they are not kept any more. EOFError: the engine closes.
          UnknownQuery: the query was dropped. RowQueryFailed: it has failed.
        """
        taken = self._query.output.take(self._at, BATCH_BYTES_MAX)
        if taken is None:
            return None
        table, self._at, inputs = taken
        answer = self._query.answers.of_rows(table, self._at, inputs)
        return self._rows.noted(answer, self._query.streams)

    def wake_by(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call a function when there may be more to take; return what ends that."""
        return self._query.output.wake_by(wake)


class RowHandle:
    """A registered row query of an engine in this process. Safe from any thread."""

    def __init__(self, registry: RowRegistry, query: RowQuery) -> None:
        self._registry = registry
        self._query = query

    def __repr__(self) -> str:
        return f"<Query {self.name}: {self.text}>"

    @property
    def name(self) -> str:
        """The name it was registered under."""
        return self._query.name

    @property
    def text(self) -> str:
        """Its text, parameters bound."""
        return self._query.query.text

    @property
    def granted(self) -> Mapping[str, str]:
        """Its text, its streams, its tables, its limit of memory, and how precise its rows are."""
        limits = self._registry.core.rows.limits
        return {
            "text": self.text,
            **relations_of(self._query),
            "size_bytes_max": f"{limits.query_bytes_max:,} bytes",
            "kept_bytes_max": f"{limits.output_bytes_max:,} bytes",
            **self._registry.expected_precision(self._query),
        }

    def answer(self, after: Receipt | None = None, timeout_s: float | None = None) -> Answer:
        """Return the newest rows, of all tuples that are durable now and not newer than `as_of`.

        Raises:
          DeadlineExceeded: the receipt's tuples were not applied within timeout_s.
          RowQueryFailed: the message says why.
        """
        self._check_standing()
        executor = self._registry.core.executor
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            found = _result(executor.call(lambda: self._read_and_fresh(after)), ends_s)
            if isinstance(found, Future):
                _result(found, ends_s)
                found = _result(executor.call(lambda: self._fresh(after)), ends_s)
        except FutureTimeout:
            raise DeadlineExceeded(f"no answer of {self.name!r} within {timeout_s} s") from None
        assert isinstance(found, Answer)
        return self._noted(found)

    def latest(self) -> Answer | None:
        """Return the newest rows that were made; under overload, before what waits is applied."""
        self._check_standing()
        return self._noted(self._registry.core.look(self._query.answer))

    def subscribe(self, after: str | None = None) -> Iterator[Answer]:
        """Return an iterator of all rows from now on, in batches.

        Each answer's `resume` is a token: `subscribe(after=resume)` goes on behind the answer, also
        after a crash. The iterator ends when the engine closes.

        Args:
          after: a token; None: rows that are made from now on.

        Raises:
          OutputDiscarded: the rows after the token are not kept any more, at once or because the
            reader is too slow; the message has the token from which rows are kept.
          BadSetting: the token is not of this query.
        """
        return _Batches(self.cursor(after))

    def cursor(self, after: str | None = None) -> RowCursor:
        """Return the place of a subscriber that waits by its own means. Raises: as `subscribe`."""
        self._check_standing()
        return RowCursor(self._registry.core.rows, self._query, after)

    def explain(self) -> str:
        """Return its inputs, their progress, and the bytes that it holds."""
        return self._registry.explain_rows(self._query)

    def drop(self) -> None:
        """Unregister it."""
        self._registry.drop_query(self.name)

    def _noted(self, answer: Answer) -> Answer:
        return self._registry.core.rows.noted(answer, self._query.streams)

    def _check_standing(self) -> None:
        """Raise UnknownQuery when it was dropped; another one may have the name by now."""
        core = self._registry.core
        if core.rows.queries.get(self.name) is not self._query:
            raise UnknownQuery(self.name, core.names_beside(self._query))

    def _read_and_fresh(self, after: Receipt | None) -> Answer | Future[None]:
        """As `_fresh`; during a long step, the future after which that may be called."""
        read = self._query.when_read()
        return self._fresh(after) if read.done() else read

    def _fresh(self, after: Receipt | None) -> Answer:
        """On the apply thread: what was durable when this was asked has been applied."""
        if after is not None and not self._query.failed:
            of = [it for it in self._query.inputs if after.stream in ("", it.stream)]
            if not of:
                reads = ", ".join(self._query.streams)
                reads = f"reads {reads}" if reads else "reads tables alone, and no stream"
                raise BadSetting(
                    f"the receipt is of stream {after.stream!r}, and query {self.name!r} {reads}"
                )
            read = max(each.position for each in of)
            if after.position > read:
                raise BadSetting(
                    f"the receipt is for position {after.position:,}, and query {self.name!r} has "
                    f"read {read:,} tuples of the stream"
                )
        return self._query.answer()


def _result(future: Future[Result], ends_s: float | None) -> Result:
    """Return a result that comes in time; otherwise its caller has stopped waiting."""
    try:
        return future.result(None if ends_s is None else max(0.0, ends_s - time.monotonic()))
    except FutureTimeout:
        future.cancel()
        raise


class _Batches(Iterator[Answer]):
    """A subscription; it ends with its reader, also when nothing was ever read."""

    def __init__(self, cursor: RowCursor) -> None:
        self._cursor = cursor
        self._more = threading.Event()
        self._end = weakref.finalize(self, cursor.wake_by(self._more.set))

    def __next__(self) -> Answer:
        try:
            while (answer := self._next()) is None:
                self._more.wait()
                self._more.clear()
        except EOFError:
            self.close()
            raise StopIteration from None
        except BaseException:
            self.close()
            raise
        return answer

    def _next(self) -> Answer | None:
        if not self._end.alive:
            raise EOFError
        return self._cursor.take()

    def close(self) -> None:
        """End the subscription; nothing more comes."""
        self._end()
