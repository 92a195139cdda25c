"""Requests of one call, each of which must arrive within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from shedder.errors import Draining, InvalidRequest, ShedderError


def parser(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a deserializer that raises InvalidRequest for bytes that are no request."""

    def parsed(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            problem = f"the request cannot be read: {error} ({len(data):,} bytes)"
        del data  # Else the traceback keeps the bytes.
        raise InvalidRequest(problem)

    return parsed


class Arriving:
    """Iterator over the requests of a call. `end` ends a read that waits.

    read: receives the next request, or `grpc.aio.EOF`; nothing is received before it is called.
    late: makes the error of a read that took too long, from its seconds.
    limit_s: time for each request to arrive; None means no limit.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Any]],
        late: Callable[[float], ShedderError],
        limit_s: float | None,
    ) -> None:
        self._read = read
        self._late = late
        self._limit_s = limit_s
        self._wait: asyncio.Timeout | None = None
        self._since_s = 0.0

    def __aiter__(self) -> Arriving:
        """Return itself."""
        return self

    async def __anext__(self) -> Any:
        """Return the next request.

        Raises:
          InvalidRequest: its bytes are no request.
          ShedderError: it did not arrive in time, or the call was ended meanwhile.
        """
        self._since_s = asyncio.get_running_loop().time()
        self._wait = wait = asyncio.timeout(self._limit_s)
        try:
            async with wait:
                request = await self._read()
        except TimeoutError:
            if not wait.expired():
                raise
            raise self._late(self.waited_s) from None
        finally:
            self._wait = None
        if request is grpc.aio.EOF:  # type: ignore[attr-defined]  # the stubs lack it
            raise StopAsyncIteration
        return request

    async def only(self) -> Any:
        """Return the request of a call that has one.

        Raises:
          InvalidRequest: the call has none, or as `__anext__`.
        """
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise InvalidRequest("the call has no request; this method takes one") from None

    @property
    def waited_s(self) -> float:
        """Time since the present read began."""
        return asyncio.get_running_loop().time() - self._since_s

    @property
    def is_waiting(self) -> bool:
        """Return whether a read waits for a request."""
        return self._wait is not None and not self._wait.expired()

    def end(self) -> None:
        """Let the read that waits raise what it raises at its limit."""
        if self._wait is not None and not self._wait.expired():
            self._wait.reschedule(asyncio.get_running_loop().time())


def late_request(waited_s: float) -> ShedderError:
    """Return the error of a request that did not arrive."""
    return InvalidRequest(f"no request arrived within {waited_s:.0f} s")


def idle_stream(waited_s: float) -> ShedderError:
    """Return the error that ends an idle AppendStream; clients open the next one by themselves."""
    return Draining(
        f"no batch arrived for {waited_s:.0f} s; open the stream again for the next one"
    )
