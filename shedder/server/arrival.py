"""Requests and responses of one call, and time limits for its client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from shedder.errors import Draining, InvalidRequest, Overloaded, ShedderError


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


class Wait:
    """A wait for a client, one at a time, which another task may end."""

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None
        self._since_s = 0.0

    def begin(self, limit_s: float | None) -> asyncio.Timeout:
        """Return the timeout to wait in; `None`: until it is ended."""
        self._since_s = asyncio.get_running_loop().time()
        self._timeout = asyncio.timeout(limit_s)
        return self._timeout

    def finish(self) -> None:
        """Mark the wait as over."""
        self._timeout = None

    @property
    def waited_s(self) -> float:
        """Time since the present wait began."""
        return asyncio.get_running_loop().time() - self._since_s

    @property
    def is_waiting(self) -> bool:
        """Return whether the client is waited for."""
        return self._timeout is not None and not self._timeout.expired()

    def expire(self) -> None:
        """End the present wait as if its limit were reached."""
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())


class RequestReader:
    """Iterator over the requests of a call.

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
        self.wait = Wait()

    def __aiter__(self) -> RequestReader:
        """Return itself."""
        return self

    async def __anext__(self) -> Any:
        """Return the next request.

        Raises:
          InvalidRequest: its bytes are no request.
          ShedderError: it did not arrive in time, or the call was ended meanwhile.
        """
        timeout = self.wait.begin(self._limit_s)
        try:
            async with timeout:
                request = await self._read()
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self._late(self.wait.waited_s) from None
        finally:
            self.wait.finish()
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


class ResponseWriter:
    """Responses of a call, which `wait.expire` ends while the client takes none.

    write: sends a response, as far as the client takes it.
    limit_s: time for the client to take each response; None means no limit.

    A write that is cancelled leaves gRPC without a way to send the status: a client that reads
    again would never see the end of its call. So a write goes on when its time is over.
    """

    def __init__(
        self, write: Callable[[Any], Awaitable[None]], limit_s: float | None = None
    ) -> None:
        self._write = write
        self._limit_s = limit_s
        self._sending: asyncio.Future[None] | None = None
        self.wait = Wait()

    async def write(self, response: Any) -> None:
        """Send a response.

        Raises:
          InvalidRequest: the client did not take the response in time.
          Overloaded: the call was ended for another one.
        """
        self._sending = asyncio.ensure_future(self._write(response))
        timeout = self.wait.begin(self._limit_s)
        try:
            async with timeout:
                await asyncio.shield(self._sending)
        except TimeoutError:
            if not timeout.expired():
                raise
            problem = f"the client took no response for {self.wait.waited_s:.0f} s"
            if self._limit_s is not None:
                raise InvalidRequest(problem) from None
            raise Overloaded(f"{problem}, and another call needs the place") from None
        except asyncio.CancelledError:  # The client has gone.
            self._sending.cancel()
            raise
        finally:
            self.wait.finish()

    async def finish(self, limit_s: float, close: Callable[[], None]) -> None:
        """Return when the client has taken the last response, or is gone.

        limit_s: time for the client to take the last response.
        close: called at the limit; has the connection of the client closed.
        """
        if self._sending is None:
            return
        timer = asyncio.get_running_loop().call_later(limit_s, close)
        try:
            with suppress(Exception):  # What failed is the connection.
                await self._sending
        finally:
            timer.cancel()


def late_request(waited_s: float) -> ShedderError:
    """Return the error of a request that did not arrive."""
    return InvalidRequest(f"no request arrived within {waited_s:.0f} s")


def idle_stream(waited_s: float) -> ShedderError:
    """Return the error that ends an idle AppendStream. Clients open a new one."""
    return Draining(
        f"no batch arrived for {waited_s:.0f} s; open the stream again for the next one"
    )
