"""Some demands change: they choose at the present prices, and as few others as possible yield."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from allocator.allocate import Allocation, describe, exceeded
from allocator.demands import Budget, Demands, Floats, Integers, Options
from allocator.prices import Prices, best_response

_ROUNDS_MAX = 64
_AT_ONCE = 128  # Synopses that are asked together what they would lose.
_ASKED_ENOUGH = 512  # After so many at random, those of them who lose least are good enough.
_NEAR = 1.1  # Times the price of a byte or ns: who loses no more than that is as good as any.


def change(demands: Demands, changed: Integers, last: Allocation, budget: Budget) -> Allocation:
    """Fit changed (or new) demands in at the last prices.

    At the optimum nobody loses less per byte than its price is. So not all are asked who might
    yield: some at random are, until those who lose hardly more than the price free enough, or until
    the best of some hundreds are known.

    Args:
      demands: all of them; `present` is what the others have, and stays theirs unless they yield.
      changed: int64 [c]; rows that choose anew.
      last: whose prices hold still.
      budget: what there is.

    Returns:
      an allocation within the budget. The others moved only as far as the budget forced them, in
      the order of the error lost per byte or ns; a full solution later may do better.

    Raises:
      BudgetExceeded: one after the other, nobody can yield any more.
    """
    choice = demands.present.copy()
    changing = demands.only(changed)
    options, penalty = demands.options, demands.penalty()
    choice[changed], _ = best_response(
        changing.ranked_loss(penalty), changing.options, last.per_byte, last.per_ns
    )
    ways = _Ways(demands, choice, penalty)
    for resource, column, there_is, price in (
        (0, options.size_float, float(budget.size_bytes), last.per_byte),
        (1, options.cost_ns, budget.cost_ns, last.per_ns),
    ):
        spent = _spent(column, choice)
        for _ in range(_ROUNDS_MAX):
            over = spent - there_is
            if over <= 0:
                break
            able = ways.to_free(resource, column, over, price)
            if not len(able):
                raise exceeded(demands, budget)
            spent -= float(column[able, choice[able]].sum())
            choice[able] = ways.option[able, resource]
            spent += float(column[able, choice[able]].sum())
            if spent <= there_is:  # As near as adding and taking away can tell.
                spent = _spent(column, choice)
            ways.moved(able)
        else:
            raise exceeded(demands, budget)
    prices = Prices(last.per_byte, last.per_ns, last.bound, choice)
    return describe(demands, budget, choice, prices)


@dataclass(slots=True, eq=False)
class _Ways:
    """Each synopsis' cheapest way to give something up, of as many as were asked.

    choice: what they have; option: int64 [n, 2], what each would become to free bytes, and to free
    CPU; loss: float64 [n, 2], weighted error lost per byte, per ns; inf where nothing can be freed,
    or nobody asked. penalty: of a broken promise.
    """

    demands: Demands
    choice: Integers
    penalty: float
    option: Integers = field(init=False)
    loss: Floats = field(init=False)
    _order: Integers = field(init=False)
    _asked: int = 0
    _again: list[Integers] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.choice)
        self.option, self.loss = np.zeros((n, 2), np.int64), np.full((n, 2), np.inf)
        self._order = np.random.default_rng(0).permutation(n)  # Or the first would always yield.

    def look(self, rows: Integers) -> None:
        """Ask some of them."""
        some = self.demands.only(rows)
        objective = some.ranked_loss(self.penalty)
        self.option[rows], self.loss[rows] = _ways(objective, some.options, self.choice[rows])

    def moved(self, rows: Integers) -> None:
        """These have something else now; they are asked again before anybody yields."""
        self._again.append(rows)

    def to_free(self, resource: int, column: Floats, over: float, price: float) -> Integers:
        """Who yields, so that so much is freed; all who can, where that is not enough."""
        if self._again:
            self.look(np.unique(np.concatenate(self._again)))
            self._again.clear()
        while self._asked < len(self._order):
            most = _NEAR * price if self._asked < _ASKED_ENOUGH else np.finfo(np.float64).max
            near = np.flatnonzero(self.loss[:, resource] <= most)
            freed = column[near, self.choice[near]] - column[near, self.option[near, resource]]
            if freed.sum() >= over:
                break
            self.look(self._order[self._asked : self._asked + _AT_ONCE])
            self._asked += _AT_ONCE
        option, loss = self.option[:, resource], self.loss[:, resource]
        return _first_that_free(column, self.choice, option, loss, over)


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
