"""A standing query on a server, for the running event loop."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from typing import Any

from shedder.client.aio_connection import AsyncConnection
from shedder.client.described import Described
from shedder.client.failures import deadline_s
from shedder.client.standing import invoke_request, slide
from shedder.errors import CorruptData
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Receipt
from shedder.v1 import query_pb2
from shedder.wire.cached_answer import LastAnswer


class AsyncQuery(Described):
    """As `RemoteQuery`, with `await`."""

    def __init__(self, connection: AsyncConnection, described: query_pb2.StandingQuery) -> None:
        super().__init__(described)
        self._connection = connection
        self._last = LastAnswer()

    async def answer(self, after: Receipt | None = None, timeout_s: float | None = None) -> Answer:
        """The present answer; with `after`, one that the receipt's tuples are in.

        Raises:
          DeadlineExceeded: the tuples were not applied in time.
          PrecisionUnavailable: the contract is FAIL and a value misses its target.
        """
        request = invoke_request(self.name, after, timeout_s)
        response = await self._connection.call(
            self._connection.invoke, request, deadline_s(timeout_s)
        )
        answer = self._last.read(response)
        if answer is None:
            raise CorruptData(f"the server sent no answer of {self.name!r}")
        return answer

    async def latest(self) -> Answer | None:
        """The last answer that was computed, at once; None before the first."""
        request = query_pb2.InvokeRequest(name=self.name, latest=True)
        return self._last.read(await self._connection.call(self._connection.invoke, request))

    async def subscribe(self) -> _AsyncSlides:
        """Every slide's answer from now on: `async for answer in await query.subscribe()`."""
        request = query_pb2.SubscribeRequest(name=self.name)
        call = self._connection.open(self._connection.query.Subscribe, request)
        await call.initial_metadata()  # Sent when the server has begun to listen.
        return _AsyncSlides(self._connection, call)

    async def explain(self) -> str:
        """Source, bytes, thinning and predicted error of every aggregate."""
        request = query_pb2.DescribeRequest(name=self.name)
        response = await self._connection.call(self._connection.query.Describe, request)
        return str(response.explanation)

    async def drop(self) -> None:
        """Unregister it."""
        request = query_pb2.UnregisterRequest(name=self.name)
        await self._connection.call(self._connection.query.Unregister, request)


class _AsyncSlides(AsyncIterator[Answer]):
    """A subscription; it ends with its reader, also when nothing was ever read."""

    def __init__(self, connection: AsyncConnection, call: Any) -> None:
        self._connection = connection
        self._call = call
        self._end = weakref.finalize(self, call.cancel)
        self._end.atexit = False

    async def __anext__(self) -> Answer:
        if not self._end.alive:
            raise StopAsyncIteration
        try:
            response = await self._connection.read(self._call)
            if response is None:
                raise StopAsyncIteration
            return slide(response)
        except BaseException:
            self._end()
            raise

    async def aclose(self) -> None:
        """End the subscription; nothing more comes."""
        self._end()
