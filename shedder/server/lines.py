"""Lines: of the calls that wait for room in a stream, who came first tries first."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Lines:
    """One lock per stream that somebody waits for; asyncio's locks are given in order of asking.

    Without them whoever asks at the right moment gets the room, and one of many may never.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, stream: str) -> asyncio.Lock:
        """The lock of a stream; who holds it is the first in line."""
        lock = self._locks.get(stream)
        if lock is None:
            lock = self._locks[stream] = asyncio.Lock()
        return lock
