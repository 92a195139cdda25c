"""Bounds on what groups of synopses may take together, within a budget of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from allocator.allocate import Allocation, describe, exceeded
from allocator.demands import Booleans, Budget, Demands, Integers
from allocator.errors import NothingFits
from allocator.prices import Prices

_MORE = 1 + 1e-9  # times: sums are rounded

Solve = Callable[[Integers, Budget], Allocation]


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """An allocation, and whose bound was in the way.

    held: bool [groups]; whether a group would have got more without its bound.
    """

    allocation: Allocation
    held: Booleans


def bounded(
    demands: Demands, budget: Budget, group: Integers, bound_bytes: Integers, solve: Solve
) -> Bounded:
    """Divide a budget so that no group takes more than its bound.

    A group that takes more than its bound is solved alone, within its bound and with no more CPU
    than it had. The other groups share the rest. They get no less by that, so the loop ends after
    at most as many rounds as there are groups.

    Args:
      demands: n synopses.
      budget: bytes and ns of all groups together.
      group: int64 [n]; group of each synopsis.
      bound_bytes: int64 [groups]; if it is below the least of a group's synopses, also below 0, the
        group gets that least.
      solve: function that allocates some rows within a budget.

    Returns:
      An allocation. A group takes more than its bound only where its least is more, and then that.
      Its `bound` is that of the problem without bounds of groups, so it holds.

    Raises:
      NothingFits: not even the least of all fits.
    """
    choice = demands.present.copy()
    held = np.zeros(len(bound_bytes), bool)
    free = np.ones(len(group), bool)
    left_bytes, left_ns, least_loss = budget.size_bytes, budget.cost_ns, None
    while True:
        rows = np.flatnonzero(free)
        found = solve(rows, Budget(left_bytes, left_ns))
        least_loss = found.bound if least_loss is None else least_loss
        taken = np.zeros(len(bound_bytes), np.int64)
        np.add.at(taken, group[rows], found.size_bytes)
        over = np.flatnonzero((taken > bound_bytes) & (taken > 0))
        if not len(over):
            choice[rows] = found.choice
            prices = Prices(found.per_byte, found.per_ns, least_loss, None)
            return Bounded(describe(demands, budget, choice, prices), held)
        for one in over.tolist():
            mine = np.flatnonzero(group == one)
            had_ns = float(found.cost_ns[group[rows] == one].sum())
            most_ns = had_ns if np.isfinite(budget.cost_ns) else np.inf
            chosen, size_bytes, cost_ns = _alone(
                demands.only(mine), Budget(max(int(bound_bytes[one]), 0), most_ns), mine, solve
            )
            choice[mine], held[one], free[mine] = chosen, True, False
            left_bytes -= size_bytes
            if cost_ns > left_ns * _MORE or left_bytes < 0:
                raise exceeded(demands, budget)
            left_ns = max(0.0, left_ns - cost_ns)


def _alone(
    demands: Demands, budget: Budget, rows: Integers, solve: Solve
) -> tuple[Integers, int, float]:
    """The best of a group within its bound, or else its least; and what that takes.

    demands: of these rows. budget: its bound, and the ns that it had without one.
    """
    try:
        choice = solve(rows, budget).choice
    except NothingFits:
        options = demands.options
        size = np.where(np.isfinite(options.error), options.size_bytes, np.iinfo(np.int64).max)
        cost = np.where(size == size.min(1)[:, None], options.cost_ns, np.inf)
        choice = cost.argmin(1)
    size_bytes, cost_ns = demands.options.taken(choice)
    return choice, int(size_bytes.sum()), float(cost_ns.sum())
