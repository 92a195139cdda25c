"""Some demands change: they choose at the present prices, and as few others as possible yield."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.allocate import Allocation, describe, exceeded
from allocator.demands import Budget, Demands, Floats, Integers, Options
from allocator.prices import Prices, best_response

_ROUNDS_MAX = 64


@dataclass(frozen=True, slots=True, eq=False)
class Yields:
    """Each synopsis' cheapest way to give something up, kept from a full solution.

    option: int64 [n, 2]; what it would become to free bytes, and to free CPU.
    loss: float64 [n, 2]; weighted error lost per byte, per ns; inf where nothing can be freed.
    penalty: of a broken promise, as it was then.
    """

    option: Integers
    loss: Floats
    penalty: float

    @classmethod
    def of(cls, demands: Demands, choice: Integers) -> Yields:
        """The ways of all synopses."""
        penalty = demands.penalty()
        found = _ways(demands.ranked_loss(penalty), demands.options, choice)
        return cls(*found, penalty)


def change(
    demands: Demands, changed: Integers, last: Allocation, yields: Yields, budget: Budget
) -> Allocation:
    """Fit changed (or new) demands in at the last prices.

    Args:
      demands: all of them; `present` is what the others have, and stays theirs unless they yield.
      changed: int64 [c]; rows that choose anew.
      last: whose prices hold still.
      yields: of a full solution of these rows; those of changed rows are not used.
      budget: what there is.

    Returns:
      an allocation within the budget. The others moved only as far as the budget forced them, in
      the order of the error lost per byte or ns; a full solution later may do better.

    Raises:
      BudgetExceeded: one after the other, nobody can yield any more.
    """
    choice = demands.present.copy()
    changing = demands.only(changed)
    options = demands.options
    choice[changed], _ = best_response(
        changing.ranked_loss(yields.penalty), changing.options, last.per_byte, last.per_ns
    )
    option, loss = yields.option.copy(), yields.loss.copy()

    def look_again(rows: Integers) -> None:
        some = demands.only(rows)
        objective = some.ranked_loss(yields.penalty)
        option[rows], loss[rows] = _ways(objective, some.options, choice[rows])

    look_again(changed)
    for resource, column, there_is in (
        (0, options.size_bytes.astype(np.float64), float(budget.size_bytes)),
        (1, options.cost_ns, budget.cost_ns),
    ):
        for _ in range(_ROUNDS_MAX):
            over = _spent(column, choice) - there_is
            if over <= 0:
                break
            able = _first_that_free(column, choice, option[:, resource], loss[:, resource], over)
            if not len(able):
                raise exceeded(demands, budget)
            choice[able] = option[able, resource]
            look_again(able)
        else:
            raise exceeded(demands, budget)
    prices = Prices(last.per_byte, last.per_ns, last.bound, choice)
    return describe(demands, budget, choice, prices)


def _ways(objective: Floats, options: Options, choice: Integers) -> tuple[Integers, Floats]:
    """The cheapest ways down: options [r, 2], weighted errors lost per unit [r, 2]."""
    now = (np.arange(len(choice)), choice)
    here = np.broadcast_to(objective[now][:, None], objective.shape)
    worse = objective > here  # Who has no bound already loses nothing by having none.
    lost = np.subtract(objective, here, out=np.zeros_like(objective), where=worse)
    found = []
    freed_bytes = options.size_bytes[now][:, None] - options.size_bytes
    freed_ns = options.cost_ns[now][:, None] - options.cost_ns
    for freed in (freed_bytes, freed_ns):
        down = (freed > 0) & (freed_bytes >= 0) & (freed_ns >= 0)
        loss = np.where(down, lost, np.inf) / np.where(down, freed, 1)
        best = loss.argmin(1)
        found.append((best, loss[now[0], best]))
    (by_bytes, loss_bytes), (by_ns, loss_ns) = found
    return np.stack([by_bytes, by_ns], 1), np.stack([loss_bytes, loss_ns], 1)


def _first_that_free(
    column: Floats, choice: Integers, option: Integers, loss: Floats, over: float
) -> Integers:
    """Of the rows that lose least and together free what is over, the fewest that do."""
    able = np.flatnonzero(np.isfinite(loss))
    order = able[np.argsort(loss[able], kind="stable")]
    freed = column[order, choice[order]] - column[order, option[order]]
    enough = int(np.searchsorted(np.cumsum(freed), over)) + 1
    order, freed = order[:enough], freed[:enough]
    largest = np.argsort(-freed, kind="stable")
    return order[largest[: int(np.searchsorted(np.cumsum(freed[largest]), over)) + 1]]


def _spent(column: Floats, choice: Integers) -> float:
    return float(column[np.arange(len(choice)), choice].sum())
