"""A standing query on a server, for the running event loop."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from functools import partial

from shedder.client.aio_connection import AsyncConnection
from shedder.client.drivers import perform_async
from shedder.client.query_operations import QueryOperations, RegisteredQuery, next_slide
from shedder.client.steps import OpenCall
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Receipt
from shedder.v1 import query_pb2


class AsyncQuery(RegisteredQuery):
    """As `RemoteQuery`, with `await`."""

    def __init__(self, connection: AsyncConnection, described: query_pb2.StandingQuery) -> None:
        super().__init__(described)
        self._connection = connection
        self._perform = partial(perform_async, connection)
        self._operations = QueryOperations(described.name)

    async def answer(self, after: Receipt | None = None, timeout_s: float | None = None) -> Answer:
        """Return the present answer. Args, Raises: as `RemoteQuery.answer`."""
        return await self._perform(self._operations.answer(after, timeout_s))

    async def latest(self) -> Answer | None:
        """Return the last answer that was computed, at once; None before the first."""
        return await self._perform(self._operations.latest())

    async def subscribe(self, after: str | None = None) -> _AsyncSlides:
        """Return the answers of all slides, or of all rows, from now on.

        `async for answer in await query.subscribe()`. Args, Raises: as `RemoteQuery.subscribe`.
        """
        call = await self._perform(self._operations.subscribe(after))
        return _AsyncSlides(self._connection, call)

    async def explain(self) -> str:
        """Return source, bytes, thinning and predicted error of every aggregate."""
        return await self._perform(self._operations.explain())

    async def drop(self) -> None:
        """Unregister it."""
        await self._perform(self._operations.drop())


class _AsyncSlides(AsyncIterator[Answer]):
    """A subscription; it ends with its reader, also when nothing was ever read."""

    def __init__(self, connection: AsyncConnection, call: OpenCall) -> None:
        self._perform = partial(perform_async, connection)
        self._call = call
        self._end = weakref.finalize(self, call.cancel)
        self._end.atexit = False

    async def __anext__(self) -> Answer:
        if not self._end.alive:
            raise StopAsyncIteration
        try:
            answer = await self._perform(next_slide(self._call))
            if answer is None:
                raise StopAsyncIteration
            return answer
        except BaseException:
            self._end()
            raise

    async def aclose(self) -> None:
        """End the subscription; nothing more comes."""
        self._end()
