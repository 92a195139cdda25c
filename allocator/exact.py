"""The exact optimum of a small problem, and of a large one's core, by HiGHS' branch and bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocator.demands import Budget, Floats, Integers, Options
from allocator.prices import Prices

OPTIONS_MAX = 300  # of all synopses together: some milliseconds
_NODES_MAX = 2_000  # Nodes, not seconds: the same problem has the same answer on any machine.
_CORE_NODES_MAX = 30
_CORE_OPTIONS_MAX = 200
_TOLERANCE = 1e-9  # of the budget: HiGHS takes a row that is over by a little,
_ROW_TOLERANCE = 1e-6  # namely by as much, in the row's unit.
_BYTES = 1 << 19  # The largest unit of bytes of which that much is less than one.


def optimum(
    objective: Floats, options: Options, budget: Budget, nodes_max: int = _NODES_MAX
) -> Integers | None:
    """The choice with the least objective.

    Args:
      objective: [n, k], >= 0, inf where there is no option.
      options: [n, k]. budget: what there is.
      nodes_max: of the search tree; after them, the best choice found so far is taken.

    Returns:
      choice, int64 [n], or None when nothing fits.
    """
    # A tenth of what opening an engine takes, and nothing is chosen before a query asks.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    if not len(options):
        return np.zeros(0, np.int64)
    rows, columns = np.nonzero(np.isfinite(objective))
    if len(np.unique(rows)) < len(options):
        return None
    ones = np.ones(len(rows))
    one_each = csr_array((ones, (rows, np.arange(len(rows)))), shape=(len(options), len(rows)))
    limits = [LinearConstraint(one_each, 1, 1)]
    # Bytes are whole: a quarter of one above the budget is as good as none.
    unit = float(min(max(budget.size_bytes, 1), _BYTES))
    share = options.size_bytes[rows, columns] / unit
    limits.append(LinearConstraint(share[None], ub=(budget.size_bytes + 0.25) / unit))
    if np.isfinite(budget.cost_ns):
        unit = max(budget.cost_ns, 1e-9)
        share = options.cost_ns[rows, columns] / unit
        limits.append(LinearConstraint(share[None], ub=budget.cost_ns / unit - _TOLERANCE))
    value = objective[rows, columns]
    found = milp(
        value / max(float(value.max()), 1e-300),
        integrality=np.ones(len(rows), np.int64),
        bounds=Bounds(0, 1),
        constraints=limits,
        options={"mip_rel_gap": 0.0, "node_limit": nodes_max},
    )
    if found.x is None:
        return None
    taken = np.flatnonzero(found.x > 0.5)
    choice = np.empty(len(options), np.int64)
    choice[rows[taken]] = columns[taken]
    if int(options.size_bytes[np.arange(len(options)), choice].sum()) > budget.size_bytes:
        # Shares of a synopsis, rounded: there is room for what that can come to.
        less = int(budget.size_bytes * (1 - 2 * _ROW_TOLERANCE))
        return optimum(objective, options, replace(budget, size_bytes=less), nodes_max)
    return choice


def improve_core(
    objective: Floats, options: Options, budget: Budget, prices: Prices, choice: Integers
) -> Integers:
    """Choose anew, exactly, among the options that are nearest to being best at the prices.

    An option whose payment exceeds its synopsis' least one by more than the gap between the
    choice and the dual bound is in no better choice at all. Of the others the nearest are tried.
    Source: Balas & Zemel 1980, Oper. Res. 28(5), the core of a knapsack problem.
    """
    rows = np.arange(len(choice))
    payment = objective + prices.per_byte * options.size_bytes + prices.per_ns * options.cost_ns
    above = payment - payment.min(1)[:, None]
    gap = float(objective[rows, choice].sum()) - prices.bound
    near = np.flatnonzero(above.ravel() <= gap)
    if len(near) > _CORE_OPTIONS_MAX:
        near = near[np.argpartition(above.ravel()[near], _CORE_OPTIONS_MAX)[:_CORE_OPTIONS_MAX]]
    candidate = np.zeros(above.shape, bool)
    candidate.ravel()[near] = True
    candidate[rows, choice] = True
    core = np.flatnonzero(candidate.sum(1) > 1)
    spent = options.size_bytes[rows, choice]
    rest = np.setdiff1d(rows, core)
    free = Budget(
        budget.size_bytes - int(spent[rest].sum()),
        budget.cost_ns - float(options.cost_ns[rest, choice[rest]].sum()),
    )
    goal = np.where(candidate[core], objective[core], np.inf)
    found = optimum(goal, options.only(core), free, _CORE_NODES_MAX)
    if found is None or _of(goal, found) >= _of(goal, choice[core]):
        return choice
    better = choice.copy()
    better[core] = found
    return better


def _of(objective: Floats, choice: Integers) -> float:
    return float(objective[np.arange(len(choice)), choice].sum())
