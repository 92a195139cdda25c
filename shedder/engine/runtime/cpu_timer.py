"""CPU timer: CPU time of each synopsis of a standing query, measured while it reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from shedder.overload.measured_costs import CALL_NS


class CpuTimer:
    """Laps of one thread.

    ns: CPU time by part of the plan since the start. Waits for a core or for the interpreter do not
      count, so they do not make a part look dearer.
    tuples: tuples of the stream that could be read.
    runs: number of runs in which they came.
    call_ns: fixed cost of reading a run of a thinned part, whatever its length.

    CPU time is looked up once per batch: asking for it takes twenty times as long as for the time
    that passes, of which each part's laps have their share.
    """

    __slots__ = ("_at", "_began", "_cpu_at", "_cpu_ns", "_laps", "clock_ns", "ns", "runs", "tuples")

    call_ns: ClassVar[float] = CALL_NS

    def __init__(
        self,
        parts: int,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        cpu_ns: Callable[[], int] | None = None,
    ) -> None:
        """clock_ns: never goes back. cpu_ns: CPU time of the thread that calls; None: the same."""
        self.clock_ns = clock_ns
        self._cpu_ns = clock_ns if cpu_ns is None else cpu_ns
        self.ns = [0] * parts
        self._laps = [0] * parts
        self.tuples = self.runs = 0
        self._at = self._began = self._cpu_at = 0

    def start(self) -> None:
        """What comes until the next lap is the next part's."""
        self._laps = [0] * len(self.ns)
        self._cpu_at = self._cpu_ns()
        self._at = self._began = self.clock_ns()

    def lap(self, part: int, tuples: int, level: int = 0) -> None:
        """A part has prepared, or read, so many tuples at a level since the last lap."""
        del tuples, level  # A virtual clock moves by them.
        now = self.clock_ns()
        self._laps[part] += now - self._at
        self._at = now

    def stop(self, tuples: int) -> None:
        """A batch has been read, of so many tuples of the stream."""
        passed_ns = self._at - self._began
        share = min((self._cpu_ns() - self._cpu_at) / passed_ns, 1.0) if passed_ns > 0 else 1.0
        self.ns = [ns + round(share * lap) for ns, lap in zip(self.ns, self._laps, strict=True)]
        self.tuples += tuples
        self.runs += 1
