"""Mailbox and wake-up of subscribers that read on an event loop."""

from __future__ import annotations

import asyncio

from shedder.engine.runtime.mailbox import NewestAnswer
from shedder.engine.runtime.subscribers import AnswerUpdate


class AsyncMailbox:
    """Filled from any thread, read on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._filled = asyncio.Event()
        self._newest = NewestAnswer()

    def put(self, update: AnswerUpdate) -> None:
        """Replace the answer, and wake the reader."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, update)

    async def get(self) -> tuple[AnswerUpdate, int]:
        """Wait for an answer; return it, and how many were missed since the one before."""
        await self._filled.wait()
        self._filled.clear()
        taken = self._newest.take()
        assert taken is not None
        return taken

    def _put(self, update: AnswerUpdate) -> None:
        self._newest.put(update)
        self._filled.set()


class AsyncWake:
    """Wakes a reader on the event loop; called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken = asyncio.Event()

    def __call__(self) -> None:
        """Wake the reader."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self) -> bool:
        """Wait for a call since the last wait; return true."""
        await self._woken.wait()
        self._woken.clear()
        return True
