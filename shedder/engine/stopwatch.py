"""A stopwatch: what each synopsis of a standing query takes, measured while it reads."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    """Laps of one thread.

    clock_ns: the thread's CPU time, so that who waits for the core, or for the interpreter, is not
    found to be dearer than it is. ns: by part of the plan, ever. tuples: of the stream, that were
    there to read.
    """

    __slots__ = ("_at", "clock_ns", "ns", "tuples")

    def __init__(self, parts: int, clock_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self.clock_ns = clock_ns
        self.ns = [0] * parts
        self.tuples = 0
        self._at = 0

    def start(self) -> None:
        """What comes until the next lap is the next part's."""
        self._at = self.clock_ns()

    def lap(self, part: int, tuples: int, level: int = 0) -> None:
        """A part has prepared, or read, so many tuples at a level since the last lap."""
        del tuples, level  # A virtual clock moves by them.
        now = self.clock_ns()
        self.ns[part] += now - self._at
        self._at = now
