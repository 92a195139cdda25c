"""Bounds on what groups of synopses may take together, within a budget of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from allocator.allocate import Allocation, describe
from allocator.demands import Booleans, Budget, Demands, Integers
from allocator.errors import BudgetExceeded
from allocator.prices import Prices

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
    """Share out a budget so that no group takes more than its bound.

    Whoever takes more than his bound is given the best of it, alone; what he leaves goes to the
    others. These get no less by that, so it ends after as many rounds as there are groups.

    Args:
      demands: n synopses. budget: of all of them.
      group: int64 [n]; whose each is.
      bound_bytes: int64 [groups]; may be below 0: then he gets the least that his synopses can be.
      solve: an allocation of some rows within a budget.

    Returns:
      An allocation. A group takes more than its bound only where its least is more, and then that.
      Its `bound` is that of the problem without bounds of groups, so it holds.

    Raises:
      BudgetExceeded: not even the least of all fits.
    """
    choice = demands.present.copy()
    held = np.zeros(len(bound_bytes), bool)
    free = np.ones(len(group), bool)
    left_bytes, least_loss = budget.size_bytes, None
    while True:
        rows = np.flatnonzero(free)
        found = solve(rows, Budget(left_bytes, budget.cost_ns))
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
            choice[mine], size_bytes = _alone(demands, mine, int(bound_bytes[one]), solve)
            left_bytes -= size_bytes
            held[one], free[mine] = True, False


def _alone(demands: Demands, rows: Integers, bound: int, solve: Solve) -> tuple[Integers, int]:
    """The best of a group within its bound, or else its least; and what that takes."""
    try:
        found = solve(rows, Budget(max(bound, 0)))
    except BudgetExceeded:
        options = demands.only(rows).options
        size = np.where(np.isfinite(options.error), options.size_bytes, np.iinfo(np.int64).max)
        least: Integers = size.argmin(1)
        return least, int(options.size_bytes[np.arange(len(rows)), least].sum())
    return found.choice, int(found.size_bytes.sum())
