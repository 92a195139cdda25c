"""Between two solutions: levels of thinning follow the CPU that there is, along known steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.allocate import Allocation
from allocator.demands import Booleans, Demands, Floats, Integers


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """How synopses of fixed sizes are thinned as CPU gets scarce: one step after the other.

    Each synopsis has the options of its size that lie on the lower convex hull of (cost, weighted
    error): on it each further step saves less CPU per error than the one before, so that the steps
    of all of them, sorted by error per ns saved, are the best order for every budget at once.

    cheapest: int64 [n]; the option at the ladder's foot. saves: the steps from the foot up.
    synopsis, option: int64 [steps]; what a step up makes of whom.
    cost_ns: float64 [steps + 1], rising; what all cost together after so many steps.
    """

    cheapest: Integers
    synopsis: Integers
    option: Integers
    cost_ns: Floats

    @classmethod
    def of(cls, demands: Demands, allocation: Allocation) -> Ladder:
        """The ladder at the sizes of an allocation; steps that keep a promise come first."""
        options = demands.options
        same = options.size_bytes == allocation.size_bytes[:, None]
        return cls.of_curves(np.where(same, options.cost_ns, np.inf), demands.ranked_loss())

    @classmethod
    def of_curves(cls, cost_ns: Floats, loss: Floats) -> Ladder:
        """The ladder of n synopses with k options each, of which some are barred.

        Args:
          cost_ns, loss: float64 [n, k]; of an option. inf in either: it is none. Each synopsis has
            one.
        """
        there = np.isfinite(cost_ns) & np.isfinite(loss)
        cost = np.where(there, cost_ns, np.inf)
        width = max(int(there.sum(1).max(initial=0)), 1)
        rung = np.lexsort((loss, cost), axis=1)[:, :width]
        cost = np.take_along_axis(cost, rung, 1)
        error = np.where(np.isfinite(cost), np.take_along_axis(loss, rung, 1), np.inf)
        hull = _lower_hull(cost, error)
        return cls._of_hull(rung, cost, error, hull)

    @classmethod
    def _of_hull(cls, rung: Integers, cost: Floats, error: Floats, hull: Booleans) -> Ladder:
        rows, columns = np.nonzero(hull)
        first = np.r_[True, rows[1:] != rows[:-1]] if len(rows) else np.zeros(0, bool)
        foot = np.flatnonzero(first)
        up = np.flatnonzero(~first)
        more = cost[rows[up], columns[up]] - cost[rows[up - 1], columns[up - 1]]
        gain = error[rows[up - 1], columns[up - 1]] - error[rows[up], columns[up]]
        worth = np.full(hull.shape, -np.inf)
        worth[rows[up], columns[up]] = -gain / more
        # On a straight line the next step may be the better one by a last bit, and comes after.
        np.maximum.accumulate(worth, axis=1, out=worth)
        order = np.argsort(worth[rows[up], columns[up]], kind="stable")
        start = cost[rows[foot], columns[foot]].sum()
        return cls(
            cheapest=rung[rows[foot], columns[foot]],
            synopsis=rows[up][order],
            option=rung[rows[up], columns[up]][order],
            cost_ns=start + np.r_[0.0, np.cumsum(more[order])],
        )

    def choice(self, budget_ns: float) -> Integers:
        """The options, int64 [n], within a CPU budget; the foot where not even that fits."""
        steps = max(int(np.searchsorted(self.cost_ns, budget_ns, "right")) - 1, 0)
        choice = self.cheapest.copy()
        choice[self.synopsis[:steps]] = self.option[:steps]  # later steps of one come later
        return choice


def _lower_hull(cost: Floats, error: Floats) -> Booleans:
    """Return which points of each row, sorted by cost, are on the falling part of its lower hull.

    From the cheapest point along the steepest descent, again and again (Jarvis' march), all rows
    at once.
    """
    n, k = cost.shape
    hull = np.zeros((n, k), bool)
    hull[:, 0] = np.isfinite(cost[:, 0])
    last = np.zeros(n, np.int64)
    rows = np.arange(n)
    for _ in range(k - 1):
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = (error - error[rows, last][:, None]) / (cost - cost[rows, last][:, None])
        slope[~(cost > cost[rows, last][:, None]) | ~np.isfinite(slope)] = 0.0
        best = slope.argmin(1)
        goes_down = slope[rows, best] < 0
        if not goes_down.any():
            break
        last = np.where(goes_down, best, last)
        hull[rows[goes_down], last[goes_down]] = True
    return hull
