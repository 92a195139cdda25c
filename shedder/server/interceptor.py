"""Boundary of every call: authenticates the caller, maps errors to statuses, hides internals.

gRPC knows every method as one that streams its requests. So gRPC receives no request before the
boundary asks for it, and the boundary asks once the caller's identity is known.

Inside the boundary a servicer raises the errors of `shedder.errors`, which become statuses here.
Any other exception is a bug: it is logged with a correlation id, and the client gets the id.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, cast

import grpc
import structlog

from shedder.archive.files.shortage import shortage_in
from shedder.errors import InternalError, ShedderError, StorageFailed, Unauthenticated
from shedder.errors import PermissionDenied as Denied
from shedder.server.anonymous_calls import AnonymousCalls
from shedder.server.arrival import (
    RequestReader,
    ResponseWriter,
    Wait,
    idle_stream,
    late_request,
    parser,
)
from shedder.server.authentication import caller
from shedder.server.authorization import ANONYMOUS, SCOPES, Gate
from shedder.server.call_context import CALL_LIMITS, CallLimits
from shedder.server.call_slots import Places, StreamPlaces
from shedder.server.connections import Connections
from shedder.server.log_limit import LogLimit
from shedder.server.metrics import Metrics
from shedder.wire.batches import read_append, read_append_stream
from shedder.wire.status import to_abort

STAYS_OPEN = frozenset(
    {
        "/shedder.v1.Ingest/AppendStream",
        "/shedder.v1.Query/Subscribe",
        "/shedder.v1.Control/Watch",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)

# These bring tuples, and wait for the disk; where the policy is to block, for room, too.
BRINGS = frozenset(
    {
        "/shedder.v1.Ingest/Append",
        "/shedder.v1.Synopses/Merge",
        "/shedder.v1.Synopses/MergeInParts",
    }
)

# What gets an operator out of an overload.
CONTROLS = frozenset(
    {"/shedder.v1.Control/Get", "/shedder.v1.Control/Set", "/shedder.v1.Control/Watch"}
)

# Requests that are not read as Protobuf does it.
READERS: Mapping[str, Callable[[bytes], Any]] = MappingProxyType(
    {
        "/shedder.v1.Ingest/Append": read_append,
        "/shedder.v1.Ingest/AppendStream": read_append_stream,
    }
)

# Behaviours that read their one request themselves, once they have looked at the call's metadata.
READS_LATE = frozenset({"/shedder.v1.Ingest/Append"})

# Open calls whose batches arrive until the client is done.
STREAMS_IN = frozenset({"/shedder.v1.Ingest/AppendStream"})

# Responses that are bytes already.
AS_BYTES = frozenset({"/shedder.v1.Query/Invoke"})

_log = structlog.get_logger("shedder.server")

Context = grpc.aio.ServicerContext[Any, Any]
Behaviour = Callable[[Any, Context], Any]
Crossing = Callable[[Any, Context, ResponseWriter], Awaitable[Any]]
Result = TypeVar("Result")


class Boundary(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic when it runs
    """Wraps every method: admission, identity, errors, metrics, one log line per call."""

    def __init__(
        self,
        gate: Gate,
        metrics: Metrics,
        connections: Connections,
        limits: CallLimits = CALL_LIMITS,
    ) -> None:
        self._gate = gate
        self._metrics = metrics
        self._connections = connections
        self._limits = limits
        self._soon = Places(limits.calls_max, "calls")
        self._brings = Places(limits.calls_max, "appends")
        self._subscribed = StreamPlaces(
            limits.calls_max, "subscriptions", idle_s_min=limits.idle_s_min
        )
        self._streams = StreamPlaces(
            limits.calls_max, "append streams", idle_s_min=limits.idle_s_min
        )
        self._anonymous = AnonymousCalls(limits.anonymous)
        self._log_limit = LogLimit()
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}  # of the methods called
        self._debug = _log.bind().debug  # Looked up once: at most levels it does nothing.

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Put the boundary around a method's behaviour; unknown methods have none."""
        method = handler_call_details.method
        wrapped = self._handlers.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                self._metrics.handled.labels("other", "UNIMPLEMENTED").inc()
                return handler
            wrapped = self._handlers[method] = self._wrapped(handler, method)
        return wrapped

    def _wrapped(self, handler: Any, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        codec = {
            "request_deserializer": parser(READERS.get(method, handler.request_deserializer)),
            "response_serializer": None if method in AS_BYTES else handler.response_serializer,
        }
        reads_itself = handler.request_streaming or method in READS_LATE
        if handler.response_streaming:
            behaviour = _responding(handler.stream_stream or handler.unary_stream)
            called = self._called(behaviour, method, reads_itself=reads_itself)
            return grpc.stream_stream_rpc_method_handler(called, **codec)
        behaviour = _answering(handler.stream_unary or handler.unary_unary)
        called = self._called(behaviour, method, reads_itself=reads_itself)
        return grpc.stream_unary_rpc_method_handler(called, **codec)

    def _called(self, behaviour: Crossing, method: str, *, reads_itself: bool) -> Behaviour:
        """Put the boundary around a behaviour that takes one request, or all as an iterator."""
        is_anonymous = SCOPES.get(method) == ANONYMOUS
        stays_open = reads_itself and method in STAYS_OPEN
        late, limit_s = late_request, self._limits.request_s_max
        if stays_open:
            late, limit_s = idle_stream, self._limits.idle_s_max
        take_s = self._limits.receipt_s_max if method in STREAMS_IN else None

        async def answer(
            reader: RequestReader, writer: ResponseWriter, wait: Wait, context: Context
        ) -> Any:
            if is_anonymous:
                return await self._anonymously(behaviour, reader, context)
            with self._let_in(method, context, wait):
                request = reader if reads_itself else await reader.only()
                return await behaviour(request, context, writer)

        async def call(_: AsyncIterator[Any], context: Context) -> Any:
            reader = RequestReader(context.read, late, limit_s)
            writer = ResponseWriter(context.write, take_s)
            wait = reader.wait if method in STREAMS_IN else writer.wait
            work = partial(answer, reader, writer, wait, context)
            close = partial(self._connections.close, context.peer())
            finish = partial(writer.finish, self._limits.unread_s_max, close)
            try:
                return await self._cross(method, context, work, finish)
            finally:  # See `_cross`: the error of an aborted call has this frame.
                del _, context, reader, writer, wait, work, finish

        return call

    async def _anonymously(
        self, behaviour: Crossing, reader: RequestReader, context: Context
    ) -> Any:
        """Serve a call of a method that needs no identity."""
        peer = context.peer()
        async with self._anonymous.taken(peer):
            async with self._anonymous.turn(peer):
                request = await reader.only()
            return await behaviour(request, context, ResponseWriter(context.write))

    async def _cross(
        self,
        method: str,
        context: Context,
        work: Callable[[], Awaitable[Result]],
        finish: Callable[[], Awaitable[None]],
    ) -> Result:
        """Return the result of the work. An error of it ends the call with a status.

        finish: waits for the response that is being sent; the status follows it.
        """
        began = time.perf_counter()
        code = grpc.StatusCode.OK
        try:
            return await work()
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.AbortError:
            code = _code_in(context)
            del context, work
            raise
        except Exception as error:  # Bugs are reported here and nowhere else.
            # A local variable with the error would be a cycle, by its traceback and this frame,
            # which keeps the request until the collector comes: 16 MiB, if it was large.
            end = to_abort(_reported(error, method))
            code = end[0]
        finally:
            seconds = time.perf_counter() - began
            self._metrics.call(method, code.name, None if method in STAYS_OPEN else seconds)
            self._debug("call", method=method, code=code.name, dur_ms=round(seconds * 1e3, 3))
        # A call's state refers to the error that `abort` raises, and the error to the frames that
        # it passes. With the context in one of them this is a cycle, which is never collected.
        del work
        await finish()
        aborting = context.abort(*end)
        del context
        return await aborting

    def _let_in(self, method: str, context: Context, wait: Wait) -> AbstractContextManager[None]:
        """Identify the caller, and give the call a place.

        Raises:
          Unauthenticated, PermissionDenied. Overloaded: there is no place, once it is entered.
        """
        metadata = cast(Any, context.invocation_metadata()) or ()
        try:
            identity = self._gate.identify(metadata, context.auth_context())
            self._gate.check(method, identity)
        except (Unauthenticated, Denied) as error:
            self._metrics.turned_away.labels(type(error).reason).inc()
            if (left_out := self._log_limit.allow()) is not None:
                _log.warning(
                    "turned_away",
                    method=method,
                    peer=context.peer(),
                    error=str(error),
                    left_out=left_out,
                )
            raise
        caller.set(identity)
        self._connections.show(context.peer())
        if method in CONTROLS:
            return nullcontext()
        if method in STAYS_OPEN:
            places = self._streams if method in STREAMS_IN else self._subscribed
            return places.taken(identity.tenant, wait)
        return self._places(method).taken(identity.tenant)

    def _places(self, method: str) -> Places:
        return self._brings if method in BRINGS else self._soon


def _answering(behaviour: Behaviour) -> Crossing:
    """Return a behaviour that returns its one response, for the boundary."""

    async def respond(request: Any, context: Context, _: ResponseWriter) -> Any:
        return await behaviour(request, context)

    return respond


def _responding(behaviour: Behaviour) -> Crossing:
    """Return a behaviour that writes the responses of another one, if that yields them."""

    async def respond(request: Any, context: Context, writer: ResponseWriter) -> None:
        responses = behaviour(request, context)
        if hasattr(responses, "__aiter__"):
            async with aclosing(responses):  # Also if the client has disconnected.
                async for response in responses:
                    await writer.write(response)
        else:
            await responses

    return respond


def _reported(error: Exception, method: str) -> ShedderError:
    """Return the error as the client may see it."""
    named = error if isinstance(error, ShedderError) else None
    if isinstance(named, InternalError):
        named = None
    if named is not None and not isinstance(named, StorageFailed):
        return named
    short = shortage_in(error)
    if short is None:
        return _bug(error, method) if named is None else named
    _log.error("resources_short", method=method, error=str(short))
    return short


def _bug(error: BaseException, method: str) -> InternalError:
    request_id = secrets.token_hex(8)
    _log.error("bug", method=method, request_id=request_id, exc_info=error)
    return InternalError(f"internal error {request_id}; the server's log has more about it")


def _code_in(context: Context) -> grpc.StatusCode:
    """The code of a servicer that aborted by itself (health, reflection)."""
    number = context.code()
    for code in grpc.StatusCode:
        if number in (code, code.value[0]):
            return code
    return grpc.StatusCode.UNKNOWN
