"""Cost model of applying in virtual time: the profiles' costs, corrected by measurements."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.runtime.cpu_timer import CpuTimer
from shedder.engine.synopsis_plans.cpu_costs import costs_ns, shared_ns
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan
from shedder.engine.window_state.query_state import QueryState
from shedder.overload.load_meter import Meter
from shedder.simulation.scenario import ScenarioCosts, ScenarioMachine

Spend = Callable[[float], None]
Shared = list[list[Mapping[Hashable, float]]]


class CostModel:
    """Nanoseconds of virtual time.

    base_ns: of one tuple beside the synopses. answer_ns: of one answer.
    """

    def __init__(self, costs: ScenarioCosts, machine: ScenarioMachine) -> None:
        self._factors = costs.factor
        self._times = machine.scale / machine.core_share
        self.base_ns = self._times * costs.base_ns
        self.answer_ns = 1e3 * machine.answer_us / machine.core_share

    def parts_ns(self, query: str, plan: SynopsisPlan, *, grouped: bool) -> NDArray[np.float64]:
        """Of one tuple in each synopsis of a plan at each level: float64 [parts, levels]."""
        costs = np.array([costs_ns(part, grouped=grouped, alone=False) for part in plan.parts])
        return self._times * self._factors.get(query, 1.0) * costs

    def shared_ns(self, query: str, plan: SynopsisPlan) -> Shared:
        """CPU per tuple of the work that several synopses share, in ns: [parts][levels]."""
        times = self._times * self._factors.get(query, 1.0)
        return [
            [
                {what: times * ns for what, ns in shared_ns(part, level).items()}
                for level in range(LEVEL_MAX + 1)
            ]
            for part in plan.parts
        ]

    def in_full_ns(self, query_state: QueryState) -> float:
        """Of one tuple in a standing query that reads everything."""
        grouped = query_state.keys is not None
        return float(self.parts_ns(query_state.name, query_state.plan, grouped=grouped)[:, 0].sum())


class VirtualCpuTimer(CpuTimer):
    """Says what the model says, and has it spent.

    Laps that come before the first one of no tuples, and those of no tuples, are of preparations,
    which the model counts with the reading; nothing is spent by call. done: what has been done with
    this batch that is done once for all queries.
    """

    __slots__ = ("_done", "_parts_ns", "_reads", "_shared_ns", "_spend")

    call_ns: ClassVar[float] = 0.0

    def __init__(
        self,
        parts_ns: NDArray[np.float64],
        shared_ns: Shared,
        spend: Spend,
        done: set[Hashable],
    ) -> None:
        super().__init__(len(parts_ns), lambda: 0)
        self._parts_ns = parts_ns
        self._shared_ns = shared_ns
        self._spend = spend
        self._reads = False
        self._done = done

    def start(self) -> None:
        """As of any CPU timer."""
        self._reads = False

    def lap(self, part: int, tuples: int, level: int = 0) -> None:
        """As of any CPU timer."""
        if not tuples:
            self._reads = True
        elif self._reads:
            ns = tuples * float(self._parts_ns[part, level])
            for what, shared_ns in self._shared_ns[part][level].items():
                if what not in self._done:
                    self._done.add(what)
                    ns += tuples * shared_ns
            self.ns[part] += round(ns)
            self._spend(ns)

    def stop(self, tuples: int) -> None:
        """As of any CPU timer."""
        self.tuples += tuples
        self.runs += 1


class VirtualMeter(Meter):
    """Lets the time pass that a batch takes, before it says that it is done."""

    def __init__(
        self,
        clock_ns: Callable[[], int],
        base_ns: float,
        spend: Spend,
        wait: Callable[[], None],
        done: set[Hashable],
    ) -> None:
        super().__init__(clock_ns)
        self._base_ns = base_ns
        self._spend = spend
        self._wait = wait
        self._done = done

    def begin(self, tuples: int) -> None:
        """As of any meter."""
        self._done.clear()
        super().begin(tuples)

    def applied(self, tuples: int, synopses_ns: int) -> None:
        """As of any meter."""
        self._spend(tuples * self._base_ns)
        self._wait()
        super().applied(tuples, synopses_ns)
