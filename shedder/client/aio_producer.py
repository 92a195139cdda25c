"""A producer for the running event loop."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any, Self

from shedder.client.aio_connection import AsyncConnection
from shedder.client.append_session import AppendSession, SessionView
from shedder.client.drivers import perform_async
from shedder.queries.answers.database_api import Receipt


class AsyncProducer(SessionView):
    """As `Producer`, with `await`. For one task. Made by `AsyncClient.producer`."""

    def __init__(
        self,
        connection: AsyncConnection,
        stream: str,
        name: str,
        *,
        patience_s: float,
        thinning: str = "1",
    ) -> None:
        super().__init__(AppendSession(stream, name, patience_s=patience_s, thinning=thinning))
        self._perform = partial(perform_async, connection)

    async def begin(self, epoch: int | None) -> Self:
        """Look up the stream, and where this producer has stopped.

        Raises:
          StaleEpoch: a newer incarnation has written.
        """
        await self._perform(self._session.begin(epoch))
        return self

    async def push(self, data: Any, *, sequence: int | None = None) -> int:
        """Send rows; returns when all are on their way, not when they are durable.

        Args, Returns, Raises: as `Producer.push`.
        """
        return await self._perform(self._session.push(data, sequence))

    async def flush(self) -> Receipt:
        """Wait until everything is durable; the last push's receipt (rows 0: there was none)."""
        return await self._perform(self._session.flush())

    async def close(self) -> None:
        """Flush and end."""
        await self._perform(self._session.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            self._session.disconnect()
