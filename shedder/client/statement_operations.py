"""Operations that run statements: execution, registration, the control table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from shedder.archive.tasks.progress import Progress
from shedder.client.failures import deadline_s
from shedder.client.progress_watch import PROGRESS_PERIOD_S, Watched
from shedder.client.steps import Open, OpenCall, Read, Steps, call
from shedder.errors import InternalError
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Params
from shedder.v1 import control_pb2, query_pb2
from shedder.wire import tables
from shedder.wire.answers import answer_from_wire
from shedder.wire.parameters import parameters_to_wire


class Execution:
    """One statement at the server: its rows part by part, and then its answer.

    answer: the answer without the rows that came before it; None: it has not come yet.
    """

    def __init__(
        self,
        sql: str,
        params: Params | None,
        timeout_s: float | None,
        watch: Callable[[Progress], None] | None,
    ) -> None:
        """Nothing is sent yet. Args: as `Client.execute`."""
        self._request = query_pb2.ExecuteRequest(
            sql=sql,
            parameters=parameters_to_wire(params),
            timeout_s=timeout_s,
            progress_period_s=None if watch is None else PROGRESS_PERIOD_S,
            in_parts=True,
        )
        self._timeout_s = timeout_s
        self._watch = watch
        self._opened: OpenCall | None = None
        self._watched: Watched | None = None
        self.answer: Answer | None = None

    def begin(self) -> Steps[None]:
        """Send the statement."""
        deadline = deadline_s(self._timeout_s)
        self._opened = yield Open(lambda stubs: stubs.query.Execute, self._request, deadline)
        self._watched = Watched(self._watch, self.cancel)

    def next_rows(self) -> Steps[pa.Table | None]:
        """Return the next rows; None: the answer has come, with the rows behind them."""
        assert self._opened is not None
        assert self._watched is not None
        try:
            while (response := (yield Read(self._opened))) is not None:
                if response.HasField("progress"):
                    self._watched.update(response.progress)
                elif response.rows:
                    return tables.from_bytes(response.rows)
                else:
                    self.answer = answer_from_wire(response.answer)
        except BaseException as error:
            self.cancel()  # After Ctrl-C or a cancelled task the server need not go on, either.
            self._watched.__exit__(type(error), error, error.__traceback__)  # Cancelled, perhaps.
            raise
        self._watched.__exit__(None, None, None)
        if self.answer is None:
            raise InternalError("the server ended the call before its answer")
        return None

    @property
    def rest(self) -> pa.Table:
        """The rows that came with the answer."""
        assert self.answer is not None
        return self.answer.table

    def without_rows(self) -> Answer:
        """Return the answer with no rows."""
        assert self.answer is not None
        return replace(self.answer, table=self.rest.slice(0, 0))

    def cancel(self) -> None:
        """End the call; a second time does nothing."""
        if self._opened is not None:
            self._opened.cancel()


def execute(
    sql: str,
    params: Params | None,
    timeout_s: float | None,
    watch: Callable[[Progress], None] | None,
) -> Steps[Answer]:
    """Run one statement: see `Client.execute`."""
    execution = Execution(sql, params, timeout_s, watch)
    yield from execution.begin()
    parts = []
    while (rows := (yield from execution.next_rows())) is not None:
        parts.append(rows)
    return replace(execution.without_rows(), table=pa.concat_tables([*parts, execution.rest]))


def register(
    name: str, sql: str, params: Params | None, timeout_s: float | None
) -> Steps[query_pb2.StandingQuery]:
    """Make a query standing: see `Client.register`."""
    request = query_pb2.RegisterRequest(
        name=name, sql=sql, parameters=parameters_to_wire(params), timeout_s=timeout_s
    )
    registered: query_pb2.RegisterResponse = yield from call(
        lambda stubs: stubs.query.Register, request, deadline_s(timeout_s)
    )
    return registered.query


def describe_query(name: str) -> Steps[query_pb2.DescribeResponse]:
    """Look up a standing query by name."""
    request = query_pb2.DescribeRequest(name=name)
    described: query_pb2.DescribeResponse = yield from call(
        lambda stubs: stubs.query.Describe, request
    )
    return described


def control(entity: str, name: str) -> Steps[pa.Table]:
    """Return the control table: see `Client.control`."""
    request = control_pb2.GetRequest(entity=entity, name=name)
    return tables.from_bytes((yield from call(lambda stubs: stubs.control.Get, request)).table)


def set_control(entity: str, name: str, key: str, value: str) -> Steps[None]:
    """Set one value of the control table."""
    request = control_pb2.SetRequest(entity=entity, name=name, key=key, value=value)
    yield from call(lambda stubs: stubs.control.Set, request)
