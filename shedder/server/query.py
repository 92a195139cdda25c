"""The service Query."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from types import MappingProxyType
from typing import Any, cast

import grpc
import pyarrow as pa

from shedder.archive.tasks.progress import Progress
from shedder.cql.statements.statement import Explain, Statement
from shedder.engine.engine import Engine
from shedder.engine.registration.query_handle import Query as Standing
from shedder.engine.registration.row_query_handle import RowCursor, RowHandle
from shedder.engine.runtime.caller import Scope
from shedder.engine.tenants.statement_access import scope_of
from shedder.errors import (
    BadSetting,
    DeadlineExceeded,
    InvalidRequest,
    PermissionDenied,
    ResourceExhausted,
    ShedderError,
)
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.answer_batches import AnswerBatches
from shedder.queries.answers.database_api import QueryHandle, Receipt
from shedder.server.authentication import Identity, caller
from shedder.server.call_context import (
    CALL_LIMITS,
    Attention,
    CallLimits,
    Drain,
    Workers,
    time_left_s,
)
from shedder.server.mailbox import AsyncMailbox, AsyncWake
from shedder.server.statement_queue import STATEMENT_LIMITS, StatementLimits, StatementQueue
from shedder.server.written_answers import WrittenAnswers
from shedder.streams.ipc import table_bytes
from shedder.v1 import query_pb2
from shedder.v1.query_pb2_grpc import QueryServicer
from shedder.wire.answers import answer_to_wire
from shedder.wire.parameters import parameters_from_wire

SMALL_ROWS_BYTES = 1 << 16  # Rows that come in one response with their answer.
ROWS_MESSAGE_BYTES = 1 << 16  # Of a message of rows, for the schema and the padding of columns.
PERIOD_S_MIN = 0.05  # Between two reports of how far some work is.

_USES: Mapping[Scope, str] = MappingProxyType(
    {
        Scope.QUERY: "query, which runs statements",
        Scope.INGEST: "ingest, which inserts rows",
        Scope.DEFINE: (
            "define (or admin), which changes streams, thinning, weights, indexes, rollups, "
            "deletes or purges rows"
        ),
        Scope.ADMIN: "admin, which reads or copies all files (scrub, backups)",
    }
)

Context = grpc.aio.ServicerContext[Any, Any]


class QueryService(QueryServicer):
    """Answers questions; what blocks runs on threads."""

    def __init__(
        self,
        engine: Engine,
        *,
        workers: Workers,
        drain: Drain,
        limits: CallLimits = CALL_LIMITS,
        large: StatementLimits = STATEMENT_LIMITS,
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._large = StatementQueue(workers.run, limits=large)
        self._drain = drain
        self._limits = limits
        self._written = WrittenAnswers(self._message_of)

    async def Execute(
        self, request: query_pb2.ExecuteRequest, context: Context
    ) -> AsyncIterator[query_pb2.ExecuteResponse]:
        """Any statement; the last response is the answer, those before it may be rows of it."""
        requested_s = _timeout_s(request.timeout_s if request.HasField("timeout_s") else None)
        timeout_s = time_left_s(context, requested_s)
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        period_s = _period_s(request)
        params = parameters_from_wire(request.parameters)
        identity = caller.get()
        client = Attention()

        def parsed() -> Statement:
            statement = self._engine.parse(request.sql, params)
            check_scopes(identity, statement)
            return statement

        def answered(statement: Statement) -> Answer | AnswerBatches:
            options: dict[str, Any] = {
                "timeout_s": _left_s(ends_s),
                "watch": client.watch,
                "caller": identity.caller,
            }
            if not (request.in_parts and self._engine.gives_rows(statement)):
                return self._engine.execute(statement, **options)
            batches = self._engine.execute_batches(statement, **options)
            return batches.whole_within(SMALL_ROWS_BYTES) or batches

        if self._large.is_large(request.sql):
            statement = await self._large.run(parsed)
            # Planning is Python code, too.
            run = self._large.run if isinstance(statement, Explain) else self._workers.run
            answering = run(lambda: answered(statement))
        else:
            answering = self._workers.run(lambda: answered(parsed()))
        cast(Any, context).add_done_callback(lambda _: client.leave())  # The client is gone then.
        work = asyncio.ensure_future(answering)
        try:
            while not (await asyncio.wait({work}, timeout=period_s))[0]:
                for number, progress in client.updates():
                    yield query_pb2.ExecuteResponse(progress=_progress(number, progress))
            answer = await work
            if isinstance(answer, AnswerBatches):
                async for part in self._rows_of(answer):
                    yield query_pb2.ExecuteResponse(rows=part)
                answer = answer.answer
        except asyncio.CancelledError:  # The client has gone.
            client.leave()
            work.cancel()
            raise
        yield query_pb2.ExecuteResponse(answer=self._message_of(answer))

    async def Register(
        self, request: query_pb2.RegisterRequest, context: Context
    ) -> query_pb2.RegisterResponse:
        """Make a query standing."""
        params = parameters_from_wire(request.parameters)
        engine_caller = caller.get().caller
        requested_s = _timeout_s(request.timeout_s if request.HasField("timeout_s") else None)
        timeout_s = time_left_s(context, requested_s)
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s

        def parsed() -> Statement:
            return self._engine.parse(request.sql, params)

        def registered(statement: Statement) -> Standing | RowHandle:
            left_s = _left_s(ends_s)
            return self._engine.register(
                request.name, statement, caller=engine_caller, timeout_s=left_s
            )

        if self._large.is_large(request.sql):
            statement = await self._large.run(parsed)
            # It waits for other definitions.
            query = await self._large.run_aside(lambda: registered(statement))
        else:
            query = await self._workers.run(lambda: registered(parsed()))
        return query_pb2.RegisterResponse(query=_standing(query))

    async def Describe(
        self, request: query_pb2.DescribeRequest, context: Context
    ) -> query_pb2.DescribeResponse:
        """What a standing query is."""
        query = self._query(request.name)
        explanation = await self._workers.run(query.explain)
        return query_pb2.DescribeResponse(query=_standing(query), explanation=explanation)

    async def Invoke(  # type: ignore[override]  # the boundary takes this response as bytes
        self, request: query_pb2.InvokeRequest, context: Context
    ) -> bytes:
        """The present answer; the newest that was made is at hand without waiting."""
        query = self._query(request.name)
        at_hand = isinstance(query, Standing) and (
            request.latest or (query.slides and not request.HasField("after_position"))
        )
        answer = query.latest() if at_hand else await self._present(query, request, context)
        if answer is None:
            return b""
        if isinstance(query, RowHandle):  # Made for this call, of any size: it is not kept.
            return query_pb2.InvokeResponse(answer=self._message_of(answer)).SerializeToString()
        return self._written.of(request.name, answer).invoked

    async def Subscribe(
        self, request: query_pb2.SubscribeRequest, context: Context
    ) -> AsyncIterator[query_pb2.SubscribeResponse]:
        """Every slide's answer from now on, or the next rows of a row query."""
        name, query = request.name, self._query(request.name)
        if isinstance(query, RowHandle):
            after = request.after if request.HasField("after") else None
            async for rows in self._rows(query.cursor(after), context):
                yield rows
            return
        if request.HasField("after"):
            raise BadSetting(
                f"query {name!r} has no rows to resume after; its subscription begins with the "
                "next slide"
            )
        text = query.text
        mailbox = AsyncMailbox(asyncio.get_running_loop())
        stop = self._engine.listen(name, mailbox.put)
        try:
            await context.send_initial_metadata(())  # Now it listens; the client waits for this.
            while True:
                update = await self._drain.race(mailbox.get(), self._limits.quiet_look_s)
                if update is not None:
                    yield self._slide(name, *update)
                elif self._query(name).text != text:
                    return  # Dropped, and another one has the name; if none has, query() says so.
        finally:
            stop()

    async def _rows(
        self, cursor: RowCursor, context: Context
    ) -> AsyncIterator[query_pb2.SubscribeResponse]:
        """The next rows of a row query, until it is dropped or has failed."""
        wake = AsyncWake(asyncio.get_running_loop())
        stop = cursor.wake_by(wake)
        try:
            await context.send_initial_metadata(())  # Now it listens; the client waits for this.
            while True:
                answer = cursor.take()
                if answer is None:
                    await self._drain.race(wake.wait())
                else:
                    yield query_pb2.SubscribeResponse(answer=self._message_of(answer))
        except EOFError:
            return
        finally:
            stop()

    async def Unregister(
        self, request: query_pb2.UnregisterRequest, context: Context
    ) -> query_pb2.UnregisterResponse:
        """End a standing query."""
        await self._workers.run(self._query(request.name).drop)
        self._written.forget(request.name)
        return query_pb2.UnregisterResponse()

    def _query(self, name: str) -> Standing | RowHandle:
        """A standing query of the caller's."""
        return self._engine.query(name, caller.get().caller)

    async def _present(
        self, query: QueryHandle, request: query_pb2.InvokeRequest, context: Context
    ) -> Answer:
        after = None
        if request.HasField("after_position"):
            after = Receipt("", request.after_position, 0)
        requested_s = _timeout_s(request.timeout_s if request.HasField("timeout_s") else None)
        timeout_s = time_left_s(context, requested_s)
        return await self._workers.run(lambda: query.answer(after, timeout_s))

    def _slide(
        self, name: str, update: Answer | ShedderError, missed: int
    ) -> query_pb2.SubscribeResponse:
        if isinstance(update, ShedderError):
            failure = query_pb2.SubscribeResponse.Failure(
                reason=type(update).reason, message=str(update)
            )
            return query_pb2.SubscribeResponse(failure=failure)
        response = query_pb2.SubscribeResponse(answer=self._written.of(name, update).message)
        response.answer.missed = missed
        return response

    async def _rows_of(self, batches: AnswerBatches) -> AsyncIterator[bytes]:
        """The rows of an answer as Arrow IPC streams, each batch when the one before was taken.

        Raises:
          InvalidRequest: the client took no rows in time; what was read for it was dropped then.
        """
        limit_s = self._limits.receipt_s_max
        is_late = asyncio.Event()

        def drop() -> None:
            is_late.set()
            batches.close()

        with batches:
            while (rows := await self._workers.run(lambda: next(batches, None))) is not None:
                for part in self._parts_of(rows):
                    timer = asyncio.get_running_loop().call_later(limit_s, drop)
                    yield part  # Returns when the client has taken it.
                    timer.cancel()
                    if is_late.is_set():
                        raise InvalidRequest(f"the client took no rows for {limit_s:.0f} s")

    def _parts_of(self, rows: pa.RecordBatch) -> Iterator[bytes]:
        """Some rows as Arrow IPC streams, each of which fits into one message."""
        size, most = rows.nbytes, self._limits.answer_bytes_max - ROWS_MESSAGE_BYTES
        if size > most and rows.num_rows > 1:
            half = rows.num_rows // 2
            yield from self._parts_of(rows.slice(0, half))
            yield from self._parts_of(rows.slice(half))
            return
        if size > most:
            raise ResourceExhausted(f"a row has {size:,} bytes, one may have {most:,}")
        yield table_bytes(pa.Table.from_batches([rows]))

    def _message_of(self, answer: Answer) -> query_pb2.Answer:
        message = answer_to_wire(answer)
        size, most = message.ByteSize(), self._limits.answer_bytes_max
        if size > most:
            raise ResourceExhausted(
                f"the answer has {size} bytes, one may have {most}; ask with LIMIT"
            )
        return message


def check_scopes(identity: Identity, statement: Statement) -> None:
    """Check that the caller may run statements of this kind.

    Raises:
      PermissionDenied: the caller lacks a scope.
    """
    scope = scope_of(statement)
    if not identity.may(frozenset({scope})):
        raise PermissionDenied(f"{identity.name!r} lacks the scope {_USES[scope]}")


def _period_s(request: query_pb2.ExecuteRequest) -> float | None:
    if not request.HasField("progress_period_s"):
        return None
    period_s = request.progress_period_s
    if not (math.isfinite(period_s) and period_s >= PERIOD_S_MIN):
        raise BadSetting(f"a period of {period_s} s; at least {PERIOD_S_MIN} s")
    return period_s


def _progress(number: int, work: Progress) -> query_pb2.ExecuteResponse.Progress:
    return query_pb2.ExecuteResponse.Progress(
        number=number, what=work.what, unit=work.unit, done=work.done, total=work.total
    )


def _timeout_s(requested_s: float | None) -> float | None:
    if requested_s is None:
        return None
    if not (math.isfinite(requested_s) and requested_s >= 0):
        raise BadSetting(f"a timeout of {requested_s} s")
    if requested_s == 0:
        raise DeadlineExceeded("no time was given")
    return requested_s


def _left_s(ends_s: float | None) -> float | None:
    """Return the time that is left when the statement's turn has come."""
    return None if ends_s is None else _timeout_s(max(0.0, ends_s - time.monotonic()))


def _standing(query: QueryHandle) -> query_pb2.StandingQuery:
    return query_pb2.StandingQuery(name=query.name, text=query.text, granted=dict(query.granted))
