"""A choice where single steps are large beside what is left: branch and bound at prices.

When the least sizes of all synopses take nearly the whole budget, one step of a synopsis is
percents of the rest. The best prices then take a fraction of such a step, which no choice can take.
The bound is then too low, and the choices near it do not fit. Only few steps are so large, so the
search decides them first, one way and the other, and finds new prices for the other synopses. Their
steps are small beside the rest of the budget. After some decisions the bound and a choice meet
(Land & Doig 1960, Econometrica 28(3); with Lagrangian bounds, Fisher 1981, Manag. Sci. 27(1)).
Options that leave other synopses less than they need are removed at the start, which alone raises
the bound. The search uses only the few options that can be best near the prices (`candidates.py`).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from allocator.candidate_prices import Few, Found
from allocator.candidates import Candidates, Pair
from allocator.demands import Budget, Floats, Integers, Options
from allocator.prices import Prices, least, that_fit
from allocator.rounding import spend

_WIDTH = 6.0  # times: how far decisions may move prices
_NARROW = 2.0  # ... where many have candidates: the step of one is little there
_MANY = 30_000  # candidates
_CHEAP = 0.03  # of the bound, for the whole budget: what a decision may make dear
_CENTRED_MAX = 4
_NEAR = 1.5  # times: candidates around prices are those around such
_LOSES = 5.0  # A step that loses more than a fifth of what it takes is not what prices waver about.
_WORTH = 2e-3  # Share of the bound. A row that loses more by a decision is decided later.
_WORK_MAX = 300_000  # candidates, once for each decision
_DECISIONS_MAX = 40


@dataclass(frozen=True, slots=True)
class BoundedChoice:
    """choice: int64 [n], of this value. bound: no choice that fits is below it."""

    choice: Integers
    value: float
    bound: float


def decided(
    objective: Floats,
    options: Options,
    budget: Budget,
    needed: Floats,
    prices: Prices,
    known: Integers,
    enough: float,
) -> BoundedChoice:
    """The best choice that few decisions lead to, and a bound that they raise.

    Args:
      objective: [n, k]. options: [n, k]. budget: what there is.
      needed: `least` of these. prices: near the best ones.
      known: int64 [n], a choice that fits.
      enough: of the bound; a choice so near it needs no more decisions.
    """
    fitting = that_fit(objective, options, budget, needed)
    search = _Search(fitting, options, budget, known)
    root, of, bound = None, (prices.per_byte, prices.per_ns), prices.bound
    width = _WIDTH
    for _ in range(_CENTRED_MAX):  # Without what does not fit, prices may be others.
        near, before = search.look_around(of, bound, width), of
        if width > _NARROW and len(near.row) > _MANY:
            width = _NARROW
            near = search.look_around(of, bound, width)
        few = Few.of(near, len(fitting), budget)
        found = few.solve(of, search.between)
        if found is None:
            break
        of, bound = found.prices, max(bound, found.bound)
        root = _OpenNode(bound, few, found)
        if all(a <= _NEAR * b and b <= _NEAR * a for a, b in zip(of, before, strict=True)):
            break
    if root is not None:
        search.run(root, enough)
    return BoundedChoice(
        search.choice, search.value, max(bound, search.bound if root is not None else bound)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _OpenNode:
    """Decisions that were made, and what the others choose from.

    bound: no choice with these decisions is below it. found: prices for the others, or of all but
    the last decision, which is then to be made: whose, and for which candidate.
    """

    bound: float
    few: Few
    found: Found
    last: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class _Search:
    """Decisions that are open, the least bound first.

    choice: the best one that fits yet, [n]; value: its objective.
    between: the lowest and the highest prices near which all candidates are known.
    """

    objective: Floats
    options: Options
    budget: Budget
    choice: Integers
    value: float = field(init=False)
    between: tuple[Pair, Pair] = field(init=False)
    _near: Candidates = field(init=False)
    _needed: Floats = field(init=False)
    _open: list[tuple[float, int, _OpenNode]] = field(default_factory=list)
    _closed: float = np.inf  # The least bound of what is not looked at.
    _count: int = 0
    _left: int = 0  # prices that may still be looked for

    def __post_init__(self) -> None:
        self.value = self._of(self.choice)
        self._needed = least(self.objective, self.options)

    @property
    def bound(self) -> float:
        """What no choice is below."""
        return min(self.value, self._closed, self._open[0][0] if self._open else np.inf)

    def look_around(self, prices: Pair, bound: float, width: float) -> Candidates:
        """Return the options that may be best at prices to which decisions may lead.

        bound: approximate value of the dual. width: factor by which prices may change.
        """
        whole = float(max(self.budget.size_bytes, 1)), max(self.budget.cost_ns, 1e-9)
        cheap = [_CHEAP * max(bound, 0.0) / there_is for there_is in whole]
        highest = [max(price, low) * width for price, low in zip(prices, cheap, strict=True)]
        lowest = [
            price / width if price > low else 0.0 for price, low in zip(prices, cheap, strict=True)
        ]
        self.between = (lowest[0], lowest[1]), (highest[0], highest[1])
        self._near = Candidates.near(self.objective, self.options, *self.between)
        return self._near

    def run(self, root: _OpenNode, enough: float) -> None:
        """Decide until the best choice is near the bound, or enough was decided.

        root: nothing is decided. enough: of the bound.
        """
        self._left = min(_DECISIONS_MAX, _WORK_MAX // max(1, len(root.few.some.row)) + 2)
        best = root if self._is_better(root) else None
        self._add(root)
        while self._left > 0 and self._open:
            if self.value <= self._open[0][0] * (1 + enough):
                break
            at = heapq.heappop(self._open)[2]
            ways = [at] if at.last is not None else self._ways(at, _WORTH * root.bound)
            for way in ways:
                made = self._solve(way)
                best = made if made is not None and self._is_better(made) else best
        if best is not None:
            self._spend(best)

    def _of(self, choice: Integers) -> float:
        return float(self.objective[np.arange(len(choice)), choice].sum())

    def _add(self, at: _OpenNode) -> None:
        self._count += 1
        if at.bound < self.value:
            heapq.heappush(self._open, (at.bound, self._count, at))

    def _solve(self, way: _OpenNode) -> _OpenNode | None:
        """Make the last decision, and find prices for the others; None where nothing fits."""
        assert way.last is not None
        self._left -= 1
        few = way.few.decided(*way.last)
        found = few.solve(way.found.prices, self.between)
        if found is None:
            if self._may_fit(few):
                self._closed = min(self._closed, way.bound)
            return None
        made = _OpenNode(max(way.bound, found.bound), few, found)
        self._add(made)
        return made

    def _may_fit(self, few: Few) -> bool:
        """Return whether the least of all options, of what is not decided, is within the budget."""
        near = self._near
        is_decided = np.zeros(len(self.choice), np.bool_)
        is_decided[near.row[near.start[np.diff(near.start, append=len(near.row)) > 1]]] = True
        is_decided[few.some.row] = False
        taken = np.where(is_decided, self.options.taken(few.rest), self._needed).sum(axis=1)
        return bool(taken[0] <= self.budget.size_bytes and taken[1] <= self.budget.cost_ns)

    def _is_better(self, at: _OpenNode) -> bool:
        """Return whether its choice is the best one that fits yet; that is kept."""
        if at.found.fits is None:
            return False
        choice = at.few.whole(at.found.fits)
        size, cost = self.options.taken(choice)
        if size.sum() > self.budget.size_bytes or cost.sum() > self.budget.cost_ns:
            return False  # Sums depend on their order.
        value = self._of(choice)
        if value >= self.value:
            return False
        self.choice, self.value = choice, value
        return True

    def _spend(self, at: _OpenNode) -> None:
        """Spend what the best choice leaves, among the synopses that have candidates."""
        prices = Prices(*at.found.prices, at.found.bound, None)
        choice = self.choice.copy()
        spend(self.objective, self.options, self.budget, prices, choice, [at.few.some])
        self.choice, self.value = choice, self._of(choice)

    def _ways(self, at: _OpenNode, worth: float) -> list[_OpenNode]:
        """Branch on the synopsis with the largest step between options that are nearly as good.

        worth: largest loss of a branch that is opened now; the other branches are opened later.
        """
        few, found = at.few, at.found
        above, synopsis = few.wavering(found, _LOSES)
        if synopsis is None:
            self._closed = min(self._closed, at.bound)
            return []
        own = np.flatnonzero(few.some.place == synopsis)
        left_out = self._left_out(int(few.some.row[own[0]]), found.prices)
        self._closed = min(self._closed, max(at.bound, found.bound + left_out))
        ways = [
            _OpenNode(
                max(at.bound, found.bound + float(above[option])), few, found, (synopsis, option)
            )
            for option in own.tolist()
        ]
        good = [above[option] <= worth for option in own]
        for way, is_good in zip(ways, good, strict=True):
            if not is_good:
                self._add(way)
        return [way for way, is_good in zip(ways, good, strict=True) if is_good]

    def _left_out(self, row: int, prices: Pair) -> float:
        """Return how much more than the least a row pays for an option that is no candidate."""
        paid = self.objective[row] + prices[0] * self.options.size_float[row]
        paid += prices[1] * self.options.cost_ns[row]
        least = paid.min()
        paid[self._near.option[self._near.row == row]] = np.inf
        return float(paid.min() - least)
