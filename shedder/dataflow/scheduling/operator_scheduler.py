"""Operator scheduler: picks the queue that is read next. It has no clock of its own.

Source: as of the package; the latency bound is ours. A chain's descent is its priority; a tie goes
to the oldest tuple, which is that of the operator furthest along in a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from shedder.dataflow.scheduling.progress_chart import Chain, OperatorRate, chains

DRIFT = 1.5  # A path's chart is drawn anew when a cost or a selectivity has changed by this factor.


class SchedulingPolicy(Enum):
    """Rule by which the next operator is picked."""

    FIFO = "fifo"  # The oldest tuple, to completion.
    GREEDY = "greedy"  # The operator that frees most memory in each unit of time.
    ROUND_ROBIN = "round_robin"  # Each operator that has input, in turn.
    CHAIN = "chain"  # The operator in the steepest segment of the lower envelopes.


@dataclass(frozen=True, slots=True)
class ReadyOperator:
    """An operator whose queue has input.

    path: name of its path. place: in the path; the first is 0. since: when the oldest tuple of the
    queue came, in the unit of the caller's clock.
    """

    path: str
    place: int
    since: float


class OperatorScheduler:
    """Paths with their rates, and the rule by which one of their ready operators is picked.

    policy: the rule. latency_bound: an operator whose oldest tuple has waited longer goes first, by
    any rule; in the unit of the caller's clock.
    """

    def __init__(
        self, policy: SchedulingPolicy = SchedulingPolicy.FIFO, latency_bound: float = inf
    ) -> None:
        self.policy = policy
        self.latency_bound = latency_bound
        self._rates: dict[str, tuple[OperatorRate, ...]] = {}
        self._chains: dict[str, tuple[Chain, ...]] = {}
        self._slopes: dict[str, tuple[float, ...]] = {}
        self._last: tuple[str, int] | None = None

    def set_policy(self, policy: SchedulingPolicy) -> None:
        """Pick by another rule."""
        self.policy = policy

    def set_latency_bound(self, latency_bound: float) -> None:
        """Have another latency bound."""
        self.latency_bound = latency_bound

    def set_rates(self, path: str, rates: Sequence[OperatorRate]) -> None:
        """Have measured rates of a path; its chart stays while none of them has drifted."""
        known = self._rates.get(path, ())
        pairs = zip(known, rates, strict=False)
        if len(known) == len(rates) and all(it.is_near(of, DRIFT) for it, of in pairs):
            return
        found = chains(rates)
        self._rates[path] = tuple(rates)
        self._chains[path] = tuple(found)
        self._slopes[path] = tuple(
            each.slope for each in found for _ in range(each.first, each.end)
        )

    def chains_of(self, path: str) -> tuple[Chain, ...]:
        """Return the chains of a path; none are known before it has rates."""
        return self._chains.get(path, ())

    def forget(self, path: str) -> None:
        """Forget a path."""
        for known in (self._rates, self._chains, self._slopes):
            known.pop(path, None)

    def pick(self, ready: Sequence[ReadyOperator], now: float) -> ReadyOperator:
        """Return the operator that runs next.

        Args:
          ready: at least one. A path without rates goes first.
          now: by the caller's clock.
        """
        waiting = [
            each
            for each in ready
            if now - each.since > self.latency_bound or each.path not in self._rates
        ]
        if waiting or self.policy is SchedulingPolicy.FIFO:
            picked = min(waiting or ready, key=_by_age)
        elif self.policy is SchedulingPolicy.ROUND_ROBIN:
            picked = self._next_in_turn(ready)
        else:
            picked = min(ready, key=lambda each: (-self._priority(each), *_by_age(each)))
        self._last = (picked.path, picked.place)
        return picked

    def _priority(self, each: ReadyOperator) -> float:
        if self.policy is SchedulingPolicy.CHAIN:
            return self._slopes[each.path][each.place]
        rates = self._rates[each.path]
        rate = rates[each.place]
        if each.place == len(rates) - 1:
            rate = OperatorRate(rate.cost, 0.0)  # Its output leaves memory.
        return rate.greed

    def _next_in_turn(self, ready: Sequence[ReadyOperator]) -> ReadyOperator:
        in_turn = sorted(ready, key=lambda each: (each.path, each.place))
        if self._last is None:
            return in_turn[0]
        last = self._last
        return next((it for it in in_turn if (it.path, it.place) > last), in_turn[0])


def _by_age(each: ReadyOperator) -> tuple[float, int, str]:
    return each.since, -each.place, each.path
