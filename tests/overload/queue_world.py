"""A world of one queue in virtual time: what arrives, what it costs, and the controller's ticks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from shedder.overload.controller import NORMAL, TICK_S, ControllerState, step
from shedder.overload.load import Load
from shedder.overload.measured_costs import Factors
from shedder.overload.shedding_steps import Steps, Unit

BATCH = 2_000
BYTES = 30
LEVELS = 2.0 ** -np.arange(11)
MODEL_NS = [
    10.0 * np.r_[cost, always + cost * LEVELS[1:]]
    for cost, always in [(30.0, 2.0), (18.0, 1.0), (9.0, 2.0), (25.0, 0.5), (2.0, 3.0)]
]
FULL_NS = sum(cost[0] for cost in MODEL_NS)
OVERHEAD_NS = 60.0
CAPACITY = 1e9 / (FULL_NS + OVERHEAD_NS)
"""Tuples/s that can be applied when everything is read, where the model is right."""


@dataclass
class World:
    """Batches arrive at a rate that is a function of time; one server applies them in order.

    truth: times the modelled cost that each synopsis takes. stalls: stretches in which nothing is
    applied. answers_share: of the core, what answers take. ages, levels, states: by tick.
    """

    rate: Callable[[float], float]
    truth: float = 1.0
    thinned_truth: float = 1.0
    stalls: tuple[tuple[float, float], ...] = ()
    seed: int | None = None
    answers_share: float = 0.0
    ages: list[float] = field(default_factory=list)
    levels: list[list[int]] = field(default_factory=list)
    states: list[ControllerState] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    refused: int = 0

    def run(self, seconds: float) -> World:
        """Live so long; a fresh world every time."""
        rng = None if self.seed is None else np.random.default_rng(self.seed)
        queue: deque[float] = deque()
        factors = [Factors()] * len(MODEL_NS)
        levels = [0] * len(MODEL_NS)
        state, rate_seen, refused_seen = NORMAL, 0.0, 0.0
        arriving = tokens = 0.0
        busy_to = 0.0
        for tick in range(round(seconds / TICK_S)):
            start, end = tick * TICK_S, (tick + 1) * TICK_S
            mean = self.rate(start) * TICK_S / BATCH
            arriving += mean if rng is None else float(rng.poisson(mean))
            coming = int(arriving)
            arriving -= coming
            times = start + (np.arange(coming) + 0.5) / max(coming, 1) * TICK_S
            tokens = min(tokens, 0.0) + state.admit_bytes_per_s * TICK_S
            let_in = coming if tokens == float("inf") else min(coming, int(tokens / BATCH / BYTES))
            self.refused += coming - let_in
            queue.extend(times[:let_in].tolist())
            cost_s = BATCH * (OVERHEAD_NS + self._synopses_ns(levels)) / 1e9
            applied = 0
            busy_to = max(busy_to, start)
            while queue and (begin := self._free(max(busy_to, queue[0]))) + cost_s <= end:
                busy_to = begin + cost_s
                queue.popleft()
                applied += 1
            rate_seen += 0.5 * (let_in * BATCH / TICK_S - rate_seen)
            refused_seen += 0.5 * ((coming - let_in) * BATCH * BYTES / TICK_S - refused_seen)
            if applied:
                factors = [
                    known.learn(
                        level=level,
                        measured_ns=self._cost(model, level),
                        modelled_ns=float(model[level]),
                    )
                    for known, model, level in zip(factors, MODEL_NS, levels, strict=True)
                ]
            load = Load(
                at_s=end,
                tuples_per_s=rate_seen,
                bytes_per_s=rate_seen * BYTES,
                refused_bytes_per_s=refused_seen,
                queue_tuples=len(queue) * BATCH,
                queue_bytes=len(queue) * BATCH * BYTES,
                age_ms=(end - queue[0]) * 1e3 if queue else 0.0,
                overhead_ns_per_tuple=OVERHEAD_NS,
                answers_share=self.answers_share,
            )
            steps = Steps.of(
                [
                    Unit("q", (at,), 1.0, known.corrected(model), 1e6, 1.0)
                    for at, (known, model) in enumerate(zip(factors, MODEL_NS, strict=True))
                ]
            )
            state = step(state, load, steps.ends)
            levels = steps.levels(state.budget_ns).tolist()
            self.ages.append(load.age_ms)
            self.levels.append(levels)
            self.states.append(state)
            self.loads.append(load)
        return self

    def _cost(self, model: np.ndarray, level: int) -> float:
        return float(model[level]) * (self.thinned_truth if level else self.truth)

    def _synopses_ns(self, levels: list[int]) -> float:
        return sum(self._cost(model, at) for model, at in zip(MODEL_NS, levels, strict=True))

    def _free(self, moment: float) -> float:
        for start, end in self.stalls:
            if start <= moment < end:
                return end
        return moment

    def between(self, start: float, end: float) -> slice:
        """The ticks of a stretch of time."""
        return slice(round(start / TICK_S), round(end / TICK_S))
