"""Some demands change: they choose at the present prices, and as few others as possible yield."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from allocator.allocate import Allocation, allocate, describe
from allocator.demands import Budget, Demands, Floats, Integers, Penalty
from allocator.kernels import cheapest_ways
from allocator.prices import Prices, best_response

_ROUNDS_MAX = 64  # Rounds of yielding; after more of them a new solution takes no longer.
_COMPUTED_FIRST = 128  # Synopses whose loss is computed together, before any others.
_COMPUTED_ENOUGH = 256  # Of this many random synopses, those that lose least are good enough.
_FEW = 512  # Up to this many synopses, the losses of all are computed at once.
_NEAR = 1.1  # Times the price of a byte or ns; a loss within it is as good as any.

Column = Floats | Integers


def change(demands: Demands, changed: Integers, last: Allocation, budget: Budget) -> Allocation:
    """Fit changed (or new) demands in at the last prices.

    At the optimum no synopsis loses less per byte than the price of a byte. So the search does not
    look at all synopses that might yield. It looks at random ones until those that lose hardly more
    than the price free enough, or until the best of some hundreds are known.

    Args:
      demands: all of them; `present` is what the others have, and stays theirs unless they yield.
      changed: int64 [c]; rows that choose anew.
      last: whose prices hold still.
      budget: what there is.

    Returns:
        An allocation within the budget. The other synopses move only as far as the budget forces
        them, in the order of the error lost per byte or ns; a full solution later may do better. If
        the last solution kept all targets, a synopsis that would break one yields after all others.
        If no synopsis can yield any more, or many small steps would follow each other, the whole
        problem is solved anew.

    Raises:
      NothingFits: no choice of options is within the budget.
    """
    choice = demands.present.copy()
    options, penalty = demands.options, demands.penalty()
    ways = _Ways(demands, choice, penalty, all_kept=bool((last.met | ~last.reachable).all()))
    changing, objective = ways.objective(changed)
    choice[changed], _ = best_response(objective, changing.options, last.per_byte, last.per_ns)
    size_bytes, cost_ns = options.taken(choice)
    for resource, column, taken, there_is, price in (
        (0, options.size_bytes, size_bytes, budget.size_bytes, last.per_byte),
        (1, options.cost_ns, cost_ns, budget.cost_ns, last.per_ns),
    ):
        for _ in range(_ROUNDS_MAX):
            over = float(taken.sum() - there_is)
            if over <= 0:
                break
            able = ways.to_free(resource, column, over, price)
            if not len(able):
                return allocate(demands, budget, last)
            choice[able] = ways.option[able, resource]
            size_bytes[able] = options.size_bytes[able, choice[able]]
            cost_ns[able] = options.cost_ns[able, choice[able]]
            ways.moved(able)
        else:
            return allocate(demands, budget, last)
    prices = Prices(last.per_byte, last.per_ns, last.bound, choice)
    return describe(demands, budget, choice, prices, (size_bytes, cost_ns))


@dataclass(slots=True, eq=False)
class _Ways:
    """Each synopsis' cheapest way to free bytes or CPU, of the synopses looked at so far.

    choice: option that each synopsis has.
    option: int64 [n, 2]; the option that it would change to, to free bytes and to free CPU.
    loss: float64 [n, 2]; weighted error lost per byte and per ns; inf if nothing can be freed or
      the synopsis was not looked at.
    penalty: loss of a broken promise.
    all_kept: whether every target is to be kept.
    """

    demands: Demands
    choice: Integers
    penalty: Penalty
    all_kept: bool
    option: Integers = field(init=False)
    loss: Floats = field(init=False)
    _order: Integers = field(init=False)
    _computed: int = 0
    _again: list[Integers] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.choice)
        self.option, self.loss = np.zeros((n, 2), np.int64), np.full((n, 2), np.inf)
        self._order = _order(n)

    def objective(self, rows: Integers) -> tuple[Demands, Floats]:
        """The demands of some of them, and what their options lose, [r, k]."""
        some = self.demands.only(rows)
        return some, some.ranked_loss(self.penalty, all_kept=self.all_kept)

    def look(self, rows: Integers) -> None:
        """Ask some of them, ascending."""
        some, objective = self.objective(rows)
        has, options = self.choice[rows], some.options
        option, loss = cheapest_ways(objective, options.size_bytes, options.cost_ns, has)
        self.option[rows], self.loss[rows] = option, loss

    def moved(self, rows: Integers) -> None:
        """Note rows whose option changed; their losses are computed again before any row yields."""
        self._again.append(rows)

    def to_free(self, resource: int, column: Column, over: float, price: float) -> Integers:
        """Return the rows that yield to free `over`; all that can, if they do not free enough."""
        if self._again:
            self.look(np.unique(np.concatenate(self._again)))
            self._again.clear()
        while self._computed < len(self._order):
            most = _NEAR * price if self._computed < _COMPUTED_ENOUGH else np.finfo(np.float64).max
            near = np.flatnonzero(self.loss[:, resource] <= most)
            freed = column[near, self.choice[near]] - column[near, self.option[near, resource]]
            if freed.sum() >= over:
                break
            is_first, count = not self._computed, len(self._order)
            upto = count if count <= _FEW else _COMPUTED_FIRST if is_first else 2 * self._computed
            self.look(np.sort(self._order[self._computed : upto]))
            self._computed = upto
        option, loss = self.option[:, resource], self.loss[:, resource]
        return _first_that_free(column, self.choice, option, loss, over)


@lru_cache(maxsize=4)
def _order(count: int) -> Integers:
    """Return a random order of rows; in row order the same rows would always yield first."""
    order: Integers = np.random.default_rng(0).permutation(count)
    order.setflags(write=False)
    return order


def _first_that_free(
    column: Column, choice: Integers, option: Integers, loss: Floats, over: float
) -> Integers:
    """Of the rows that lose least and together free what is over, the fewest that do."""
    able = np.flatnonzero(np.isfinite(loss))
    order = able[np.argsort(loss[able], kind="stable")]
    freed = column[order, choice[order]] - column[order, option[order]]
    enough = int(np.searchsorted(np.cumsum(freed), over)) + 1
    order, freed = order[:enough], freed[:enough]
    largest = np.argsort(-freed, kind="stable")
    return order[largest[: int(np.searchsorted(np.cumsum(freed[largest]), over)) + 1]]
