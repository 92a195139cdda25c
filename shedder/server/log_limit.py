"""Rate limit for log lines of refused calls."""

from __future__ import annotations

import time
from collections.abc import Callable


class LogLimit:
    """Allows a few lines in each second, and counts the lines that are left out."""

    def __init__(
        self, lines_per_s_max: int = 10, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines_per_s_max = lines_per_s_max
        self._clock_s = clock_s
        self._since_s = clock_s()
        self._lines = 0
        self._left_out = 0

    def allow(self) -> int | None:
        """Return how many lines were left out before this one; None leaves this one out, too."""
        now_s = self._clock_s()
        if now_s - self._since_s >= 1.0:
            self._since_s, self._lines = now_s, 0
        if self._lines >= self._lines_per_s_max:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
