"""Lagrangian prices of the synopses that have several candidates: as `prices.py`, on fewer rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.candidates import Candidates, Pair
from allocator.demands import Budget, Floats, Integers
from allocator.mixture_lp import Mixture
from allocator.step_towards import that_free

_PLANES_MAX = 30
_GAP = 5e-4  # of the value
_BOX = 1.3  # prices may leave a guess by this factor at first
_DEARER = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # by a share


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """prices: of a byte and a ns. bound: of the whole objective; no choice is below it.

    best: int64 [r]; at these prices. fits: int64 [r]; of a choice within the budget, or None.
    """

    prices: Pair
    bound: float
    best: Integers
    fits: Integers | None


@dataclass(frozen=True, slots=True, eq=False)
class Few:
    """Candidates of the synopses that have several, and the budget that the others leave.

    some: [m], of [r] synopses.
    rest: int64 [n]; options of the other synopses.
    spent: objective of the other synopses.
    budget: bytes and ns that the other synopses leave.
    """

    some: Candidates
    rest: Integers
    spent: float
    budget: Pair

    @classmethod
    def of(cls, near: Candidates, count: int, budget: Budget) -> Few:
        """Of candidates of all synopses, which are so many."""
        most_ns = float(near.cost_ns.sum()) + 1.0  # More than that is no limit.
        left = float(budget.size_bytes), min(budget.cost_ns, most_ns)
        many = np.diff(near.start, append=len(near.row))
        alone = near.start[many == 1]
        rest = np.zeros(count, np.int64)
        rest[near.row[alone]] = near.option[alone]
        left = (
            left[0] - float(near.size_bytes[alone].sum()),
            left[1] - float(near.cost_ns[alone].sum()),
        )
        several = near.only(np.flatnonzero(np.repeat(many > 1, many)))
        return cls(several, rest, float(near.objective[alone].sum()), left)

    def decided(self, synopsis: int, option: int) -> Few:
        """With this one of the candidates given to the synopsis of this number."""
        some, rest = self.some, self.rest.copy()
        rest[some.row[option]] = some.option[option]
        return Few(
            some.without(synopsis),
            rest,
            self.spent + float(some.objective[option]),
            (
                self.budget[0] - float(some.size_bytes[option]),
                self.budget[1] - float(some.cost_ns[option]),
            ),
        )

    def solve(self, near: Pair, between: tuple[Pair, Pair]) -> Found | None:
        """The best prices between these, from some that are near them; None where nothing fits."""
        some = self.some
        if not self._can_fit():
            return None
        if not len(some.rows):
            none = np.zeros(0, np.int64)
            unspent = between[0][0] * self.budget[0] + between[0][1] * self.budget[1]
            return Found(near, self.spent - unspent, none, none)  # Others may take what is left.
        units = max(self.budget[0], 1.0), max(self.budget[1], 1e-9)
        lowest, highest = ((end[0] * units[0], end[1] * units[1]) for end in between)
        start = near[0] * units[0], near[1] * units[1]
        around = _around(start, lowest, highest)
        mixture = Mixture((1.0, 1.0), 0.0)
        mixture.between(*around)
        of_budget, bound, best_prices, best = start, -np.inf, start, some.start
        fits, least = None, np.inf
        for _ in range(_PLANES_MAX):
            at, paid = some.best(of_budget[0] / units[0], of_budget[1] / units[1])
            value, size, cost = self._spends(at)
            here = float(paid.sum()) - sum(of_budget)
            if here > bound:
                bound, best_prices, best = here, of_budget, at
            if value < least and size <= self.budget[0] and cost <= self.budget[1]:
                least, fits = value, at
            mixture.add(value, size / units[0], cost / units[1])
            of_budget, above = mixture.best()
            if above - bound > _GAP * (abs(bound) + self.spent):
                continue
            if around == (lowest, highest) or _is_inside(best_prices, around):
                break
            around = lowest, highest
            mixture.between(*around)
            of_budget, _ = mixture.best()
        best_prices = best_prices[0] / units[0], best_prices[1] / units[1]
        fits = self._fitting(best_prices, best, fits)
        return Found(best_prices, bound + self.spent, best, fits)

    def wavering(self, found: Found, loses: float) -> tuple[Floats, int | None]:
        """Find the synopsis with the largest step between options that are nearly as good.

        loses: a step counts for less by this many times its loss.

        Returns:
          what candidates pay more than the least of their synopsis, [m]; and the synopsis' number.
        """
        some, price = self.some, found.prices
        if not len(some.rows):
            return np.zeros(0), None
        size_paid, cost_paid = some.size_bytes * price[0], some.cost_ns * price[1]
        above = some.objective + size_paid + cost_paid
        own = found.best[self.some.place]
        above -= above[own]
        step = np.abs(size_paid - size_paid[own]) + np.abs(cost_paid - cost_paid[own])
        step -= loses * above
        most = int(step.argmax())
        return above, int(self.some.place[most]) if step[most] > 0 else None

    def whole(self, at: Integers) -> Integers:
        """What all have if these, [r], have what is chosen for them, [n]."""
        choice = self.rest.copy()
        choice[self.some.row[at]] = self.some.option[at]
        return choice

    def _can_fit(self) -> bool:
        some = self.some
        if min(self.budget) < 0:
            return False
        if not len(some.rows):
            return True
        size = np.minimum.reduceat(some.size_bytes, some.start).sum()
        cost = np.minimum.reduceat(some.cost_ns, some.start).sum()
        return bool(size <= self.budget[0] and cost <= self.budget[1])

    def _spends(self, at: Integers) -> tuple[float, float, float]:
        """The objective, bytes and ns of a choice."""
        some = self.some
        return (
            float(some.objective[at].sum()),
            float(some.size_bytes[at].sum()),
            float(some.cost_ns[at].sum()),
        )

    def _fitting(self, prices: Pair, best: Integers, fits: Integers | None) -> Integers | None:
        """A choice that fits, as near to the best prices' one as may be.

        fits: the best one that is known, or None.
        """
        size, cost = self._spends(best)[1:]
        over = size - self.budget[0], cost - self.budget[1]
        if max(over) <= 0:
            return best
        for more in _DEARER if fits is None else ():
            dearer = prices[0] * (1 + more), prices[1] * (1 + more)
            at = self.some.best(*dearer)[0]
            size, cost = self._spends(at)[1:]
            if size <= self.budget[0] and cost <= self.budget[1]:
                fits = at
                break
        if fits is None:
            return None
        some, changing = self.some, np.flatnonzero(best != fits)
        before, after = best[changing], fits[changing]
        freed = np.stack(
            [
                some.size_bytes[before] - some.size_bytes[after],
                some.cost_ns[before] - some.cost_ns[after],
            ]
        )
        lost = some.objective[after] - some.objective[before] - np.array(prices) @ freed
        changed = that_free(lost, freed, np.array(over))
        if changed is None:
            return fits
        between = best.copy()
        between[changing[changed]] = after[changed]
        return between if self._spends(between)[0] < self._spends(fits)[0] else fits


def _around(prices: Pair, lowest: Pair, highest: Pair) -> tuple[Pair, Pair]:
    """A small box around prices, within a large one."""
    ends = [
        (max(price / _BOX, low), min(price * _BOX, high) if price > 0 else high)
        for price, low, high in zip(prices, lowest, highest, strict=True)
    ]
    return (ends[0][0], ends[1][0]), (ends[0][1], ends[1][1])


def _is_inside(prices: Pair, box: tuple[Pair, Pair]) -> bool:
    return all(
        low == high or low * (1 + 1e-9) <= price <= high * (1 - 1e-9)
        for price, low, high in zip(prices, *box, strict=True)
    )
