"""Choice of levels: from a CPU budget to the level of each synopsis, on one ladder of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.cpu_interpolation import Ladder
from shedder.overload.controller import CostRange

FREE = -1  # Level of a unit without a forced level.
WORTH = 0.03  # Of its full cost: a level that saves less than this over the one before is no step.
_APART = 1e30  # Losses that are farther apart cannot be told from each other in a double.


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Synopses of one query that are thinned together.

    query, parts: whose, and which of its plan. weight: what a relative error of it counts.
    cost_ns: float64 [levels]; per tuple of its stream at each level, measured where it can be.
    tuples: of its stream that one value of its answers comes from, >= 1.
    spread: the error of one tuple that stands for all, in values: with n read of them, the error is
      spread / sqrt(n).
    forced: the level that the operator has set; FREE: the controller may choose.
    share: of all tuples that arrive, those that its stream has.
    promised: the largest error, relative or by rank as `spread` is, with which a promised target
      can be met; inf: nothing is promised.
    """

    query: str
    parts: tuple[int, ...]
    weight: float
    cost_ns: NDArray[np.float64]
    tuples: float
    spread: float
    forced: int = FREE
    share: float = 1.0
    promised: float = np.inf

    def cost_at(self, level: int) -> float:
        """In ns per tuple of its stream; below the last level nothing is saved any more."""
        return float(self.cost_ns[min(level, len(self.cost_ns) - 1)])


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The ladder of all units, and what it reaches.

    units: as they were given. ladder: its options are levels, its costs are ns per arriving tuple
    of all streams.
    """

    units: tuple[Unit, ...]
    ladder: Ladder

    @classmethod
    def of(cls, units: Sequence[Unit]) -> Steps:
        """Return the order in which units are thinned, for every budget at once.

        A unit that reads the share 2^-j of n tuples errs by spread * sqrt((2^j - 1) / n). Steps
        that save much and harm little come first: joins and wide sketches of many tuples. Steps
        that save little come last: sums and distinct counts of small groups. A level is no step if
        it costs as much as a lower one, or saves next to nothing: noise of the measured costs would
        make such levels swing. Levels that break a promise come after all others.
        """
        if not units:
            return cls((), Ladder.of_curves(np.zeros((0, 1)), np.zeros((0, 1))))
        cost = np.array([unit.share * unit.cost_ns for unit in units])
        levels = np.arange(cost.shape[1])
        each = np.array([unit.spread / np.sqrt(unit.tuples) for unit in units])
        error = each[:, None] * np.sqrt(2.0**levels - 1)
        loss = np.array([unit.weight for unit in units])[:, None] * error
        loss *= _promises_last(loss, cost, error > np.array([[u.promised] for u in units]))
        forced = np.array([unit.forced for unit in units])
        worth = WORTH * cost[:, :1]
        little = cost > cost[:, :1] - worth
        little[:, 0] = False
        little[:, 2:] |= cost[:, 1:-1] - cost[:, 2:] < worth
        barred = np.where(forced[:, None] == FREE, little, levels != forced[:, None])
        return cls(tuple(units), Ladder.of_curves(np.where(barred, np.inf, cost), loss))

    @property
    def ends(self) -> CostRange:
        """What everything costs, and what is left of it at the foot, in ns per arriving tuple."""
        return CostRange(float(self.ladder.cost_ns[-1]), float(self.ladder.cost_ns[0]))

    def levels(self, budget_ns: float) -> NDArray[np.int64]:
        """Decide the level of each unit within a budget, [units]; forced levels stay."""
        return self.ladder.choice(budget_ns)


def _promises_last(
    loss: NDArray[np.float64], cost_ns: NDArray[np.float64], broken: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the factor of each level's loss; levels that break a promise come after all others.

    Steps are sorted by loss per ns. One that breaks a promise loses no less than the least that
    does, and saves no more than all that its unit costs; any other loses no more than the most, and
    saves no less than `WORTH` of what its unit costs.

    Args:
      loss, cost_ns, broken: [units, levels]; weighted error, ns, and whether a promise is broken.
    """
    whole = cost_ns[:, :1]
    per_ns = np.divide(loss, whole, out=np.zeros_like(loss), where=whole > 0)
    broken = broken & (per_ns > 0)
    if not broken.any():
        return np.ones_like(loss)
    times = float(per_ns.max()) / WORTH / float(per_ns[broken].min())
    return np.where(broken, 1.0 + min(times, _APART), 1.0)
