"""Event queue in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from shedder.simulation.virtual_environment import VirtualEnvironment

Action = Callable[[], object]


class Agenda:
    """Actions at moments; of one moment, in the order in which they were put down."""

    def __init__(self, machine: VirtualEnvironment) -> None:
        self._machine = machine
        self._waiting: list[tuple[int, int, Action]] = []
        self._number = 0
        self.zero_us = machine.time_us

    @property
    def now_us(self) -> int:
        """Since the world began."""
        return self._machine.time_us - self.zero_us

    def at(self, time_us: int, action: Action) -> None:
        """Put down an action; what should have happened happens now."""
        heapq.heappush(self._waiting, (max(time_us, self.now_us), self._number, action))
        self._number += 1

    def after(self, pause_us: int, action: Action) -> None:
        """Put down an action for so long after now."""
        self.at(self.now_us + pause_us, action)

    def run(self, until_us: int) -> None:
        """Let everything happen up to a moment, and be there."""
        while self._waiting and self._waiting[0][0] <= until_us:
            time_us, _, action = heapq.heappop(self._waiting)
            self._machine.set_time(self.zero_us + time_us)
            action()
        self._machine.set_time(self.zero_us + until_us)
