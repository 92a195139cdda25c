"""A subscriber's mailbox of one: a slow reader gets the newest answer and how many it missed."""

from __future__ import annotations

import asyncio

from shedder.errors import ShedderError
from shedder.queries.answers.answer import Answer

News = Answer | ShedderError


class Mailbox:
    """Filled from any thread, read on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._filled = asyncio.Event()
        self._news: News | None = None
        self._missed = 0

    def put(self, news: News) -> None:
        """A new answer is there. From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, news)

    async def get(self) -> tuple[News, int]:
        """The newest answer, and how many were missed since the one before."""
        await self._filled.wait()
        news, missed = self._news, self._missed
        assert news is not None
        self._news, self._missed = None, 0
        self._filled.clear()
        return news, missed

    def _put(self, news: News) -> None:
        self._missed += self._news is not None
        self._news = news
        self._filled.set()
