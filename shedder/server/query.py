"""The service Query."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

import grpc

from shedder.cql.parse import parse
from shedder.cql.statement import AlterQuery, CreateStream, DropStream
from shedder.engine.engine import Engine
from shedder.errors import (
    BadSetting,
    DeadlineExceeded,
    PermissionDenied,
    ResourceExhausted,
    ShedderError,
)
from shedder.queries.answer import Answer
from shedder.queries.database import Params, Receipt, StandingQuery
from shedder.server.calls import SEND_BYTES_MAX, Drain, Workers, time_left_s
from shedder.server.identity import Identity, Scope, caller
from shedder.server.mailbox import Mailbox
from shedder.v1 import query_pb2
from shedder.v1.query_pb2_grpc import QueryServicer
from shedder.wire.answers import answer_to_wire
from shedder.wire.parameters import parameters_from_wire

MESSAGES_MAX = 256  # Answers kept as messages, so that one answer is encoded once for all readers.
ANSWER_BYTES_MAX = SEND_BYTES_MAX - (1 << 10)
LOOK_AGAIN_S = 2.0  # How soon a quiet subscription notices that its query was dropped.

Context = grpc.aio.ServicerContext[Any, Any]


class Query(QueryServicer):
    """Answers questions; what blocks runs on threads."""

    def __init__(self, engine: Engine, *, workers: Workers, drain: Drain) -> None:
        self._engine = engine
        self._workers = workers
        self._drain = drain
        self._messages: OrderedDict[str, tuple[Answer, query_pb2.Answer]] = OrderedDict()

    async def Execute(
        self, request: query_pb2.ExecuteRequest, context: Context
    ) -> AsyncIterator[query_pb2.ExecuteResponse]:
        """Any statement; the last response is the answer."""
        asked_s = _timeout_s(request.timeout_s if request.HasField("timeout_s") else None)
        timeout_s = time_left_s(context, asked_s)
        params = parameters_from_wire(request.parameters)
        identity = caller.get()
        if Scope.ADMIN not in identity.scopes:
            await self._workers.run(lambda: _check_statement(identity, request.sql, params))
        answer = await self._workers.run(
            lambda: self._engine.execute(request.sql, params, timeout_s=timeout_s)
        )
        yield query_pb2.ExecuteResponse(answer=_message_of(answer))

    async def Register(
        self, request: query_pb2.RegisterRequest, context: Context
    ) -> query_pb2.RegisterResponse:
        """Make a query standing."""
        params = parameters_from_wire(request.parameters)
        query = await self._workers.run(
            lambda: self._engine.register(request.name, request.sql, params)
        )
        return query_pb2.RegisterResponse(query=_standing(query))

    async def Describe(
        self, request: query_pb2.DescribeRequest, context: Context
    ) -> query_pb2.DescribeResponse:
        """What a standing query is."""
        query = self._engine.query(request.name)
        explanation = await self._workers.run(query.explain)
        return query_pb2.DescribeResponse(query=_standing(query), explanation=explanation)

    async def Invoke(
        self, request: query_pb2.InvokeRequest, context: Context
    ) -> query_pb2.InvokeResponse:
        """The present answer; the newest that was made is at hand without waiting."""
        query = self._engine.query(request.name)
        at_hand = request.latest or (query.slides and not request.HasField("after_position"))
        answer = query.latest() if at_hand else await self._present(query, request, context)
        if answer is None:
            return query_pb2.InvokeResponse()
        return query_pb2.InvokeResponse(answer=self._message(request.name, answer))

    async def Subscribe(
        self, request: query_pb2.SubscribeRequest, context: Context
    ) -> AsyncIterator[query_pb2.SubscribeResponse]:
        """Every slide's answer from now on."""
        name = request.name
        text = self._engine.query(name).text
        mailbox = Mailbox(asyncio.get_running_loop())
        stop = self._engine.listen(name, mailbox.put)
        try:
            await context.send_initial_metadata(())  # Now it listens; the client waits for this.
            while True:
                news = await self._drain.race(mailbox.get(), LOOK_AGAIN_S)
                if news is not None:
                    yield self._slide(name, *news)
                elif self._engine.query(name).text != text:
                    return  # Dropped, and another one has the name; if none has, query() says so.
        finally:
            stop()

    async def Unregister(
        self, request: query_pb2.UnregisterRequest, context: Context
    ) -> query_pb2.UnregisterResponse:
        """End a standing query."""
        await self._workers.run(self._engine.query(request.name).drop)
        self._messages.pop(request.name, None)
        return query_pb2.UnregisterResponse()

    async def _present(
        self, query: StandingQuery, request: query_pb2.InvokeRequest, context: Context
    ) -> Answer:
        after = None
        if request.HasField("after_position"):
            after = Receipt("", request.after_position, 0)
        asked_s = _timeout_s(request.timeout_s if request.HasField("timeout_s") else None)
        timeout_s = time_left_s(context, asked_s)
        return await self._workers.run(lambda: query.answer(after, timeout_s))

    def _slide(
        self, name: str, news: Answer | ShedderError, missed: int
    ) -> query_pb2.SubscribeResponse:
        if isinstance(news, ShedderError):
            failure = query_pb2.SubscribeResponse.Failure(
                reason=type(news).reason, message=str(news)
            )
            return query_pb2.SubscribeResponse(failure=failure)
        response = query_pb2.SubscribeResponse(answer=self._message(name, news))
        response.answer.missed = missed
        return response

    def _message(self, name: str, answer: Answer) -> query_pb2.Answer:
        """The answer as its message, made once per answer."""
        kept = self._messages.get(name)
        if kept is None or kept[0] is not answer:
            kept = (answer, _message_of(answer))
            self._messages[name] = kept
            if len(self._messages) > MESSAGES_MAX:
                self._messages.popitem(last=False)
        return kept[1]


def _check_statement(identity: Identity, sql: str, params: Params | None) -> None:
    """Whether the caller may run this statement: what changes streams or shares needs ADMIN."""
    if isinstance(parse(sql, params), CreateStream | DropStream | AlterQuery):
        raise PermissionDenied(
            f"{identity.name!r} lacks the scope admin, which changes streams and thinning"
        )


def _message_of(answer: Answer) -> query_pb2.Answer:
    message = answer_to_wire(answer)
    size = message.ByteSize()
    if size > ANSWER_BYTES_MAX:
        raise ResourceExhausted(
            f"the answer has {size} bytes, one may have {ANSWER_BYTES_MAX}; ask with LIMIT"
        )
    return message


def _timeout_s(asked_s: float | None) -> float | None:
    if asked_s is None:
        return None
    if not (math.isfinite(asked_s) and asked_s >= 0):
        raise BadSetting(f"a timeout of {asked_s} s")
    if asked_s == 0:
        raise DeadlineExceeded("no time was given")
    return asked_s


def _standing(query: StandingQuery) -> query_pb2.StandingQuery:
    return query_pb2.StandingQuery(name=query.name, text=query.text, granted=dict(query.granted))
