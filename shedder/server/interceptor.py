"""The boundary that every call crosses: who is it, how did it end, and nothing of ours leaks.

Inside of it a servicer raises our errors as they are; here they become statuses. Anything else
that is raised is a bug: it is logged with a correlation id, and the client gets the id.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from types import MappingProxyType
from typing import Any, TypeVar, cast

import grpc
import structlog

from shedder.errors import InternalError, ShedderError, Unauthenticated
from shedder.errors import PermissionDenied as Denied
from shedder.server.authentication import caller
from shedder.server.authorization import ANYBODY, SCOPES, Gate
from shedder.server.call_context import CALL_LIMITS, CallLimits
from shedder.server.call_slots import Places
from shedder.server.metrics import Metrics
from shedder.wire.batches import read_append, read_append_stream
from shedder.wire.status import code_of, to_abort

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
BRINGS = frozenset({"/shedder.v1.Ingest/Append", "/shedder.v1.Synopses/Merge"})

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

# Responses that are bytes already.
AS_BYTES = frozenset({"/shedder.v1.Query/Invoke"})

_log = structlog.get_logger("shedder.server")

Context = grpc.aio.ServicerContext[Any, Any]
Behaviour = Callable[[Any, Context], Any]
Result = TypeVar("Result")


class Boundary(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic when it runs
    """Wraps every method: admission, identity, errors, metrics, one log line per call."""

    def __init__(self, gate: Gate, metrics: Metrics, limits: CallLimits = CALL_LIMITS) -> None:
        self._gate = gate
        self._metrics = metrics
        self._soon = Places(limits.calls_max, "calls")
        self._brings = Places(limits.calls_max, "appends")
        self._open = Places(limits.calls_max, "open calls")
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
            "request_deserializer": READERS.get(method, handler.request_deserializer),
            "response_serializer": None if method in AS_BYTES else handler.response_serializer,
        }
        if handler.request_streaming:
            if not handler.response_streaming:
                behaviour = self._unary(handler.stream_unary, method)
                return grpc.stream_unary_rpc_method_handler(behaviour, **codec)
            behaviour = self._streaming(handler.stream_stream, method)
            return grpc.stream_stream_rpc_method_handler(behaviour, **codec)
        if handler.response_streaming:
            behaviour = self._streaming(handler.unary_stream, method)
            return grpc.unary_stream_rpc_method_handler(behaviour, **codec)
        behaviour = self._unary(handler.unary_unary, method)
        if method in READS_LATE:
            return grpc.stream_unary_rpc_method_handler(behaviour, **codec)
        return grpc.unary_unary_rpc_method_handler(behaviour, **codec)

    def _unary(self, behaviour: Behaviour, method: str) -> Behaviour:
        async def call(request: Any, context: Context) -> Any:
            return await self._cross(method, context, lambda: behaviour(request, context))

        return call

    def _streaming(self, behaviour: Behaviour, method: str) -> Behaviour:
        async def respond(request: Any, context: Context) -> None:
            responses = behaviour(request, context)
            if hasattr(responses, "__aiter__"):
                async with aclosing(responses):  # Also when the client has gone.
                    async for response in responses:
                        await context.write(response)
            else:
                await responses

        async def call(request: Any, context: Context) -> None:
            await self._cross(method, context, lambda: respond(request, context))

        return call

    async def _cross(
        self, method: str, context: Context, work: Callable[[], Awaitable[Result]]
    ) -> Result:
        """What the work returns, if it is let in."""
        began = time.perf_counter()
        code = grpc.StatusCode.OK
        try:
            with self._let_in(method, context):
                return await work()
        except ShedderError as error:
            shown = _reported(error, method)
            code = code_of(type(shown))
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.AbortError:
            code = _code_in(context)
            raise
        except Exception as error:  # A bug, whatever it is: reported here and nowhere else.
            shown = _bug(error, method)
            code = code_of(type(shown))
        finally:
            seconds = time.perf_counter() - began
            self._metrics.call(method, code.name, None if method in STAYS_OPEN else seconds)
            self._debug("call", method=method, code=code.name, dur_ms=round(seconds * 1e3, 3))
        return await context.abort(*to_abort(shown))

    def _let_in(self, method: str, context: Context) -> AbstractContextManager[None]:
        """Who calls may, and has a place while it does.

        Raises:
          Unauthenticated, PermissionDenied. Overloaded: there is no place, once it is entered.
        """
        if SCOPES.get(method) == ANYBODY:
            return nullcontext()
        metadata = cast(Any, context.invocation_metadata()) or ()
        try:
            identity = self._gate.identify(metadata, context.auth_context())
            self._gate.check(method, identity)
        except (Unauthenticated, Denied) as error:
            self._metrics.turned_away.labels(type(error).reason).inc()
            _log.warning("turned_away", method=method, peer=context.peer(), error=str(error))
            raise
        caller.set(identity)
        if method in CONTROLS:
            return nullcontext()
        return self._places(method).taken(identity.tenant)

    def _places(self, method: str) -> Places:
        if method in STAYS_OPEN:
            return self._open
        return self._brings if method in BRINGS else self._soon


def _reported(error: ShedderError, method: str) -> ShedderError:
    """The error as the client may see it."""
    return _bug(error, method) if isinstance(error, InternalError) else error


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
