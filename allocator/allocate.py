"""Allocation of a budget: meet every target at the least cost, then lower the weighted error."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from allocator.branch_and_bound import decided
from allocator.candidates import blocks
from allocator.demands import Booleans, Budget, Demands, Floats, Integers, Options
from allocator.errors import NothingFits
from allocator.exact_dp import OPTIONS_MAX, optimum
from allocator.prices import Prices, find_prices, is_over, largest, least, that_fit
from allocator.rounding import fill

_TIES = 1e-6  # the share that the loss has where broken promises are counted
_NO_GAP = 1e-9  # of the bound: what is to be exact differs in less than what broken promises count
_FALL = 1.5  # the power with which prices fall as there is more
_NEAR = 1.25  # times: a budget that is more or less than the last one by so much is another one
_SCARCE_FROM = 9e-3  # above the bound: from there on, single steps keep a choice from it
_BROKEN_FROM = 2e-3  # so where promises are weighed

Solution = tuple[Integers, Prices]


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """The option chosen for each synopsis, and the price of more memory and CPU.

    choice: int64 [n]; the option of each synopsis.
    size_bytes, cost_ns, error: [n]; of that option.
    met: bool [m]; whether a reader's target is kept; True for those without one.
    reachable: bool [m]; whether any option would meet it; True for those without one.
    loss: of all readers together, with what moving costs.
    bound: no allocation that keeps as many promises has a smaller one; if all targets are kept, no
      allocation that keeps them. After `change` and `describe`, of the problem that was solved in
      full before.
    per_byte, per_ns: prices, in loss.
    free_bytes, free_ns: part of the budget that no synopsis can use.
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

    def prices_near(self, budget: Budget) -> Prices | None:
        """What prices might be within another budget of the same demands, or of much the same.

        Errors fall as bytes^-1/2 or faster, by thinning as ns^-1/2: so prices as the budget^-3/2.
        None: where the present prices say little, so that guessing anew is faster.
        """
        bytes_times = _times(int(self.size_bytes.sum()) + self.free_bytes, budget.size_bytes)
        ns_times = _times(float(self.cost_ns.sum()) + self.free_ns, budget.cost_ns)
        if not np.isfinite(self.bound) or max(self.per_byte, self.per_ns) <= 0:
            return None
        if max(bytes_times, 1 / bytes_times, ns_times, 1 / ns_times) > _NEAR:
            return None
        of_byte, of_ns = self.per_byte * bytes_times**_FALL, self.per_ns * ns_times**_FALL
        return Prices(of_byte, of_ns, self.bound, None)


def _times(before: float, now: float) -> float:
    """Return how often there was what there is; 1 where there is no limit, or was none."""
    known = 0 < before < np.inf and 0 < now < np.inf
    return before / now if known else 1.0


def allocate(demands: Demands, budget: Budget, last: Allocation | None = None) -> Allocation:
    """Divide a budget among synopses.

    If all targets fit, the allocation meets them and spends the rest where it lowers the loss most.
    If not, it keeps as much weight of promised targets as fits. Then it minimizes the loss, in
    which a missed target counts its forfeit. The result is exact for small problems (300 options
    in all) except adversarial ones; else it is near the bound that is returned.

    Args:
        demands: synopses, their options and their readers.
        budget: bytes and ns that can be given.
        last: a solution of similar demands, perhaps within another budget. The search for prices
          starts around the prices of `last`, which takes less time. If it finds none there, it
          searches elsewhere, so the bound is as good.

    Raises:
      NothingFits: no choice of options is within the budget.
    """
    loss = demands.loss()
    few = len(loss) <= OPTIONS_MAX and np.isfinite(loss).sum() <= OPTIONS_MAX
    near = None if last is None else last.prices_near(budget)
    task = _Task(loss, demands.options, budget, few, least(loss, demands.options), near)
    found = task.solved(*demands.missed())
    if found is None:
        rows, broken = demands.missed_promises()
        found = task.solved(rows, broken)
        if found is None and broken.any():
            most, known = task.least_broken(rows, broken)
            found = task.solved(rows, broken > most[:, None], known)
    if found is None:
        raise exceeded(demands, budget)
    return describe(demands, budget, *found)


def describe(
    demands: Demands,
    budget: Budget,
    choice: Integers,
    prices: Prices,
    taken: tuple[Integers, Floats] | None = None,
) -> Allocation:
    """A choice, and what follows from it.

    taken: the bytes and ns of each, [n], where they are known.
    """
    options, readers = demands.options, demands.readers
    size, cost = options.taken(choice) if taken is None else taken
    error = options.error[np.arange(len(options)), choice]
    return Allocation(
        choice=choice,
        size_bytes=size,
        cost_ns=cost,
        error=error,
        met=error[readers.synopsis] * readers.scale <= readers.target,
        reachable=demands.reachable() | np.isinf(readers.target),
        loss=demands.loss_of(choice, error),
        bound=prices.bound,
        per_byte=prices.per_byte,
        per_ns=prices.per_ns,
        free_bytes=budget.size_bytes - int(size.sum()),
        free_ns=budget.cost_ns - float(cost.sum()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """What is to be minimised, within what.

    loss: [n, k]. few: whether options are so few that it is done exactly.
    needed: the least that each synopsis can do with, [2, n]. near: where prices may be.
    far: of the bound; a choice so far above it is not good enough.
    """

    loss: Floats
    options: Options
    budget: Budget
    few: bool
    needed: Floats
    near: Prices | None = None
    far: float = _SCARCE_FROM

    def solved(
        self, rows: Integers, barred: Floats | Booleans, known: Integers | None = None
    ) -> Solution | None:
        """The best choice without the options that are barred, [r, k], of some rows.

        known: one that fits, where prices alone might find none.
        """
        part = np.where(barred > 0, np.inf, self.loss[rows])
        needed = self.needed.copy()
        needed[:, rows] = least(part, self.options, rows)
        if is_over(needed, self.budget):
            return None
        goal = self.loss.copy()
        goal[rows] = part
        if self.few:
            return _exactly(goal, self.options, self.budget, needed)
        return _nearly(goal, self.options, self.budget, needed, known, self.near, self.far)

    def least_broken(self, rows: Integers, broken: Floats) -> tuple[Floats, Integers | None]:
        """Return the promises that must be broken, if the least weight of them is broken.

        Of many rows, a row without a promise takes the least, if one option is the least of both
        resources.

        Args:
          rows, broken: the weight of broken promises of these rows' options, [r, k].

        Returns:
          of these rows, [r], what is broken; and a choice that fits, or None where there is none.
        """
        asks = np.zeros(len(self.loss), np.bool_)
        asks[rows] = True
        known = np.zeros(len(self.loss), np.int64)
        if self.few:
            asks[:] = True
        else:
            known, has_one = self._thrifty()
            asks |= ~has_one
        undecided, rest = np.flatnonzero(asks), np.flatnonzero(~asks)
        goal = self.loss[undecided]
        goal *= _TIES / max(float(largest(goal).max(initial=0.0)), 1e-300)
        goal[np.searchsorted(undecided, rows)] += broken / broken.max()
        rest_bytes, rest_ns = self.needed[:, rest].sum(1).tolist()
        left = Budget(
            max(0, self.budget.size_bytes - int(rest_bytes)),
            max(0.0, self.budget.cost_ns - rest_ns),
        )
        options = self.options.only(undecided)
        task = _Task(goal, options, left, self.few, self.needed[:, undecided], None, _BROKEN_FROM)
        found = task.solved(undecided[:0], goal[:0])
        if found is None:
            return np.full(len(rows), np.inf), None
        known[undecided] = found[0]
        return broken[np.arange(len(rows)), known[rows]], known

    def _thrifty(self) -> tuple[Integers, Booleans]:
        """An option that takes the least of both resources, [n], and whether there is one."""
        choice, has_one = np.empty(len(self.loss), np.int64), np.empty(len(self.loss), np.bool_)
        size_bytes, cost_ns = self.needed
        for part in blocks(self.loss):
            thrifty = self.options.size_float[part] == size_bytes[part, None]
            thrifty &= self.options.cost_ns[part] == cost_ns[part, None]
            thrifty &= np.isfinite(self.loss[part])
            choice[part], has_one[part] = thrifty.argmax(1), thrifty.any(1)
        return choice, has_one


def _exactly(loss: Floats, options: Options, budget: Budget, needed: Floats) -> Solution | None:
    """The best of all choices.

    The prices are those of all options: what does not fit as things are is what more would buy.
    """
    prices = find_prices(loss, options, budget, gap=_NO_GAP, needed=needed)
    fitting, near = that_fit(loss, options, budget, needed), prices
    if np.isinf(fitting).all(1).any():
        return None  # Any option of some synopsis leaves the others less than they need.
    if not np.array_equal(fitting, loss):
        near = find_prices(fitting, options, budget, gap=_NO_GAP, needed=needed)
    known = near.choice
    if known is not None:
        known = fill(fitting, options, budget, near, known)
    found = optimum(fitting, options, budget, near, known)
    if found.choice is None:
        return None
    return found.choice, replace(prices, bound=found.bound)


def _nearly(
    loss: Floats,
    options: Options,
    budget: Budget,
    needed: Floats,
    known: Integers | None,
    near: Prices | None,
    far: float,
) -> Solution | None:
    """A choice near the bound; from a known one that fits, where prices alone find none.

    far: of the bound; a choice so far above it is worth decisions.
    """
    prices = find_prices(loss, options, budget, needed=needed, near=near)
    choice = known if prices.choice is None else prices.choice
    if choice is None:
        return None
    choice = fill(loss, options, budget, prices, choice)
    if _of(loss, choice) <= prices.bound * (1 + far):
        return choice, prices
    best = decided(loss, options, budget, needed, prices, choice, far)
    return best.choice, replace(prices, bound=best.bound)


def _of(objective: Floats, choice: Integers) -> float:
    return float(objective[np.arange(len(choice)), choice].sum())


def exceeded(demands: Demands, budget: Budget) -> NothingFits:
    """Return why nothing fits."""
    possible = np.isfinite(demands.options.error)
    size = np.where(possible, demands.options.size_bytes, np.iinfo(np.int64).max)
    cost = np.where(possible, demands.options.cost_ns, np.inf)
    return NothingFits(
        least_bytes=sum(size.min(1).tolist()),
        budget_bytes=budget.size_bytes,
        least_ns=float(cost.min(1).sum()),
        budget_ns=budget.cost_ns,
    )
