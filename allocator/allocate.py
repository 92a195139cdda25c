"""Who gets what: the least that meets every target, then the rest where it lowers error most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from allocator.demands import Booleans, Budget, Demands, Floats, Integers
from allocator.errors import BudgetExceeded
from allocator.exact import OPTIONS_MAX, improve_core, optimum
from allocator.prices import Prices, find_prices, largest
from allocator.whole import fill

_TIES = 1e-6  # the share that the loss has where broken promises are counted
_CORE_FROM = 5e-3  # above the bound: from there on, trying exactly pays

Solution = tuple[Integers, Prices]
Solve = Callable[[Floats, Demands, Budget, Integers | None], Solution | None]


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """Who got what, and what more would buy.

    choice: int64 [n]; the option of each synopsis.
    size_bytes, cost_ns, error: [n]; of that option.
    met: bool [m]; whether a reader's target is kept; True for those without one.
    reachable: bool [m]; whether any option would meet it; True for those without one.
    loss: of all readers together, with what moving costs.
    bound: no allocation that keeps as many promises has a smaller one; if all targets are kept, no
      allocation that keeps them.
    per_byte, per_ns: prices, in loss.
    free_bytes, free_ns: what nobody could use.
    """

    choice: Integers
    size_bytes: Integers
    cost_ns: Floats
    error: Floats
    met: Booleans
    reachable: Booleans
    loss: float
    bound: float
    per_byte: float
    per_ns: float
    free_bytes: int
    free_ns: float


def allocate(demands: Demands, budget: Budget) -> Allocation:
    """Share out the budget.

    If all targets fit, they are kept, and what is left goes where it lowers the loss most. If not,
    as much weight of promised ones is kept as fits, and then the loss is the least in which a
    missed target counts its forfeit. Exactly so in small problems (300 options together), else
    near a bound that is returned.

    Raises:
      BudgetExceeded: no choice of options is within the budget.
    """
    loss = demands.loss()
    solve = _exactly if np.isfinite(loss).sum() <= OPTIONS_MAX else _nearly
    found = solve(np.where(demands.missed(), np.inf, loss), demands, budget, None)
    if found is None:
        broken = demands.missed_promises()
        found = solve(np.where(broken > 0, np.inf, loss), demands, budget, None)
        if found is None and broken.any():
            bearable, known = _keeping_most(loss, broken, solve, demands, budget)
            found = solve(bearable, demands, budget, known)
    if found is None:
        raise exceeded(demands, budget)
    return describe(demands, budget, *found)


def describe(demands: Demands, budget: Budget, choice: Integers, prices: Prices) -> Allocation:
    """A choice, and what follows from it."""
    options, readers = demands.options, demands.readers
    rows = np.arange(len(options))
    size, cost = options.size_bytes[rows, choice], options.cost_ns[rows, choice]
    error = options.error[rows, choice]
    return Allocation(
        choice=choice,
        size_bytes=size,
        cost_ns=cost,
        error=error,
        met=error[readers.synopsis] * readers.scale <= readers.target,
        reachable=demands.reachable() | np.isinf(readers.target),
        loss=demands.loss_of(choice),
        bound=prices.bound,
        per_byte=prices.per_byte,
        per_ns=prices.per_ns,
        free_bytes=budget.size_bytes - int(size.sum()),
        free_ns=budget.cost_ns - float(cost.sum()),
    )


def _keeping_most(
    loss: Floats, broken: Floats, solve: Solve, demands: Demands, budget: Budget
) -> tuple[Floats, Integers | None]:
    """The loss without the options that would break more promises than must be broken.

    Returns:
      that, and a choice that fits.
    """
    ties = _TIES / max(float(largest(loss).max(initial=0.0)), 1e-300)
    goal = loss * ties
    goal += broken / broken.max()
    found = solve(goal, demands, budget, None)
    if found is None:
        return loss, None
    most = broken[np.arange(len(loss)), found[0]]
    return np.where(broken > most[:, None], np.inf, loss), found[0]


def _exactly(
    loss: Floats, demands: Demands, budget: Budget, _known: Integers | None
) -> Solution | None:
    """The best of all choices."""
    choice = optimum(loss, demands.options, budget)
    if choice is None:
        return None
    prices = find_prices(loss, demands.options, budget)
    # What an inactive query loses is below the solver's tolerance: it gets what is left.
    choice = fill(loss, demands.options, budget, prices, choice)
    return choice, replace(prices, bound=_of(loss, choice))


def _nearly(
    loss: Floats, demands: Demands, budget: Budget, known: Integers | None
) -> Solution | None:
    """A choice near the bound; from a known one that fits, where prices alone find none."""
    prices = find_prices(loss, demands.options, budget)
    choice = known if prices.choice is None else prices.choice
    if choice is None:
        return None
    choice = fill(loss, demands.options, budget, prices, choice)
    if _of(loss, choice) > prices.bound * (1 + _CORE_FROM):
        choice = improve_core(loss, demands.options, budget, prices, choice)
    return choice, prices


def _of(objective: Floats, choice: Integers) -> float:
    return float(objective[np.arange(len(choice)), choice].sum())


def exceeded(demands: Demands, budget: Budget) -> BudgetExceeded:
    """Why nothing fits."""
    possible = np.isfinite(demands.options.error)
    size = np.where(possible, demands.options.size_bytes, np.iinfo(np.int64).max)
    cost = np.where(possible, demands.options.cost_ns, np.inf)
    return BudgetExceeded(
        least_bytes=sum(size.min(1).tolist()),
        budget_bytes=budget.size_bytes,
        least_ns=float(cost.min(1).sum()),
        budget_ns=budget.cost_ns,
    )
