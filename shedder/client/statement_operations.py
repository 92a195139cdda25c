"""Operations that run statements: execution, registration, the control table."""

from __future__ import annotations

from collections.abc import Callable

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


def execute(
    sql: str,
    params: Params | None,
    timeout_s: float | None,
    watch: Callable[[Progress], None] | None,
) -> Steps[Answer]:
    """Run one statement: see `Client.execute`."""
    request = query_pb2.ExecuteRequest(
        sql=sql,
        parameters=parameters_to_wire(params),
        timeout_s=timeout_s,
        progress_period_s=None if watch is None else PROGRESS_PERIOD_S,
    )
    opened: OpenCall = yield Open(lambda stubs: stubs.query.Execute, request, deadline_s(timeout_s))
    response = None
    try:
        with Watched(watch, opened.cancel) as watched:
            while (news := (yield Read(opened))) is not None:
                if news.HasField("progress"):
                    watched.told(news.progress)
                else:
                    response = news
    except BaseException:
        opened.cancel()  # After Ctrl-C or a cancelled task the server need not go on, either.
        raise
    if response is None:
        raise InternalError("the server ended the call before its answer")
    return answer_from_wire(response.answer)


def register(name: str, sql: str, params: Params | None) -> Steps[query_pb2.StandingQuery]:
    """Make a query standing; one of the same name and text is returned as it is."""
    request = query_pb2.RegisterRequest(name=name, sql=sql, parameters=parameters_to_wire(params))
    registered: query_pb2.RegisterResponse = yield from call(
        lambda stubs: stubs.query.Register, request
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
