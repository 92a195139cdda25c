"""Wait queues: calls that wait for room in a stream retry in the order of their arrival."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

RECENT_S = 2.0  # At least so long a line is held to be as long as it was: it empties in bursts.


class Line:
    """Queue of the calls that wait for room in one stream; asyncio's locks are fair.

    Without a queue the call that retries at the right moment gets the room, and other calls starve.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """clock_s: never goes back."""
        self._clock_s = clock_s
        self._lock = asyncio.Lock()
        self._waiting = self._longest = self._longest_before = 0
        self._since_s = clock_s()

    @property
    def is_empty(self) -> bool:
        """Return whether no call waits."""
        return not self._waiting

    @property
    def length(self) -> int:
        """Return the most calls that waited at once in the last one to two times RECENT_S."""
        self._look_at_the_clock()
        return max(self._longest, self._longest_before)

    @asynccontextmanager
    async def first(self) -> AsyncIterator[None]:
        """Stand in line; inside, the caller is the first of it."""
        self._waiting += 1
        self._look_at_the_clock()
        self._longest = max(self._longest, self._waiting)
        try:
            async with self._lock:
                yield
        finally:
            self._waiting -= 1

    def _look_at_the_clock(self) -> None:
        now_s = self._clock_s()
        if now_s - self._since_s > RECENT_S:
            is_next = now_s - self._since_s <= 2 * RECENT_S
            self._longest_before = self._longest if is_next else 0
            self._longest, self._since_s = self._waiting, now_s


class Lines:
    """One queue per stream, which exists while a call holds it."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """clock_s: returns the monotonic time in seconds."""
        self._clock_s = clock_s
        self._lines: WeakValueDictionary[str, Line] = WeakValueDictionary()

    def of(self, stream: str) -> Line:
        """The line of a stream."""
        line = self._lines.get(stream)
        if line is None:
            line = self._lines[stream] = Line(self._clock_s)
        return line
