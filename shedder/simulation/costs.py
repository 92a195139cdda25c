"""What applying costs in virtual time: the profiles' costs, corrected by what was measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shedder.engine.costs import costs_ns
from shedder.engine.plan import Plan
from shedder.engine.standing import Standing
from shedder.engine.stopwatch import Stopwatch
from shedder.overload.meter import Meter
from shedder.simulation.scenario import Costs, Machine
from synopses.profile import CHOOSING_NS

Spend = Callable[[float], None]


class CostModel:
    """Nanoseconds of virtual time.

    base_ns: of one tuple beside the synopses. answer_ns: of one answer.
    """

    def __init__(self, costs: Costs, machine: Machine) -> None:
        self._factors = costs.factor
        self._times = machine.scale / machine.core_share
        self.base_ns = self._times * costs.base_ns
        self.answer_ns = 1e3 * machine.answer_us / machine.core_share

    def parts_ns(self, query: str, plan: Plan, *, grouped: bool) -> NDArray[np.float64]:
        """Of one tuple in each synopsis of a plan at each level: float64 [parts, levels]."""
        costs = np.array([costs_ns(part, grouped=grouped) for part in plan.parts])
        return self._times * self._factors.get(query, 1.0) * costs

    def choosing_ns(self, query: str) -> float:
        """Of one tuple, for each level in use: whether it is kept."""
        return self._times * self._factors.get(query, 1.0) * CHOOSING_NS

    def in_full_ns(self, standing: Standing) -> float:
        """Of one tuple in a standing query that reads everything."""
        grouped = standing.keys is not None
        return float(self.parts_ns(standing.name, standing.plan, grouped=grouped)[:, 0].sum())


class VirtualStopwatch(Stopwatch):
    """Says what the model says, and has it spent.

    Laps that come before the first one of no tuples, and those of no tuples, are of preparations,
    which the model counts with the reading. chosen: the levels for which it has been chosen which
    rows of this batch are kept; that is done once for all queries.
    """

    __slots__ = ("_choosing_ns", "_chosen", "_parts_ns", "_reads", "_spend")

    def __init__(
        self,
        parts_ns: NDArray[np.float64],
        choosing_ns: float,
        spend: Spend,
        chosen: set[int],
    ) -> None:
        super().__init__(len(parts_ns), lambda: 0)
        self._parts_ns = parts_ns
        self._choosing_ns = choosing_ns
        self._spend = spend
        self._reads = False
        self._chosen = chosen

    def start(self) -> None:
        """As of any stopwatch."""
        self._reads = False

    def lap(self, part: int, tuples: int, level: int = 0) -> None:
        """As of any stopwatch."""
        if not tuples:
            self._reads = True
        elif self._reads:
            ns = tuples * float(self._parts_ns[part, level])
            if level and level not in self._chosen:
                self._chosen.add(level)
                ns += tuples * self._choosing_ns
            self.ns[part] += round(ns)
            self._spend(ns)


class VirtualMeter(Meter):
    """Lets the time pass that a batch takes, before it says that it is done."""

    def __init__(
        self,
        clock_ns: Callable[[], int],
        base_ns: float,
        spend: Spend,
        wait: Callable[[], None],
        chosen: set[int],
    ) -> None:
        super().__init__(clock_ns)
        self._base_ns = base_ns
        self._spend = spend
        self._wait = wait
        self._chosen = chosen

    def begin(self) -> None:
        """As of any meter."""
        self._chosen.clear()
        super().begin()

    def applied(self, tuples: int, synopses_ns: int) -> None:
        """As of any meter."""
        self._spend(tuples * self._base_ns)
        self._wait()
        super().applied(tuples, synopses_ns)
