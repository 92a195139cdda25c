"""Pace of background work: short steps, each followed by a pause for other threads."""

from __future__ import annotations

from collections.abc import Callable

from shedder.archive.tasks.progress import LOOK_S, ProgressCallback, no_progress
from shedder.engine.runtime.environment import Environment

STEP_S = 0.01  # Target time of a step; other threads wait for the interpreter at most this long.
SHARE_MIN = 0.02  # Least share of a core, so that a pause ends even if the share is 0.
ROWS_MIN, ROWS_MAX = 1 << 11, 1 << 16


class Pace:
    """Of one thread's work. Not safe from several.

    rows: that the next step is to take.
    """

    def __init__(
        self, machine: Environment, share: Callable[[], float], *, share_min: float = SHARE_MIN
    ) -> None:
        """Begin with a small step.

        Args:
          machine: whose clock it is. share: of a core that the work may take now, 0 to 1; asked
            after each step.
          share_min: it takes no less than this; 0 where share is always above.
        """
        self._machine = machine
        self._share = share
        self._share_min = share_min
        self._rested_s = machine.monotonic_s()
        self.rows = ROWS_MIN

    def begin(self) -> None:
        """What follows is work; what was before it was not."""
        self._rested_s = self._machine.monotonic_s()

    def rest_if_due(self, on_progress: ProgressCallback = no_progress) -> None:
        """After a piece of work of any length: rest if the step that it ends took long enough."""
        if self._machine.monotonic_s() - self._rested_s >= STEP_S:
            self.rest(on_progress)

    def rest(self, on_progress: ProgressCallback = no_progress) -> None:
        """After a step: return when the share allows the next one.

        The time of a step is what passed since the last rest, waiting for others included, so that
        the work gives way twice where cores are short. However long it was, the rest is as long as
        the share asks; it ends when the share is 1.

        Args:
          on_progress: called now and then meanwhile; what it raises is raised.
        """
        took_s = self._machine.monotonic_s() - self._rested_s
        if took_s > 0:
            times = min(max(STEP_S / took_s, 0.5), 2.0)
            self.rows = int(min(max(self.rows * times, ROWS_MIN), ROWS_MAX))
        rested_s = 0.0
        while (left_s := took_s * (1 / self._share_now() - 1) - rested_s) > 0:
            on_progress()
            self._machine.rest(min(left_s, LOOK_S))
            rested_s += min(left_s, LOOK_S)
        self._rested_s = self._machine.monotonic_s()

    def _share_now(self) -> float:
        return min(max(self._share(), self._share_min), 1.0)
