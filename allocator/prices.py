"""Prices of bytes and CPU at which the synopses' own best choices together spend the budget.

At prices p of a byte and q of a nanosecond, each synopsis takes the option with the least
objective + p * bytes + q * ns, on its own: that is all that a synopsis has to know of the others.
The right prices maximise the Lagrangian dual, a concave function of two numbers; its maximum is a
bound that no allocation is below. They are found by cutting planes: each evaluation gives a plane,
and the highest point under all planes is the next pair of prices (Kelley 1960; seen from the other
side, Dantzig & Wolfe 1960). About 15 evaluations do, however many synopses there are; where they
are many, all but the first few only look at what can be best near a guess (`candidates.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.candidates import Candidates, Pair, blocks
from allocator.demands import BYTES_END, Budget, Floats, Integers, Options
from allocator.kernels import best_of_rows
from allocator.mixture_lp import Mixture
from allocator.step_towards import that_free

_PLANES_MAX = 60
GUESSED_FROM = 2_000  # synopses
_GUESSED_BY_LOSS = 250
_GUESSED_OF_REST = 500
_GUESSED_GAP = 1e-2
_BOX = 1.5  # prices may leave a guess by this factor at first
_CHEAP = 0.03  # of the bound, for the whole budget: whether it is that or nothing, matters little
_DEARER = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # by a share
_NOTHING = 1e-3  # of the largest objective: below it, a gap's size relative to it says little
_ROUNDED_FROM = 2.0**53  # bytes: from there on doubles are not exact
_MORE = 1 + 1e-9  # times: sums are rounded
_CLOSE = 1e-3  # of the bound
GAP = 1e-3  # of the dual's value; whole options leave a larger one anyway
_LACKING = 1e3  # times the objective's span, for a whole budget that is lacking
_FORBIDDING = 1e9  # times the objective's span: a price at which only the resource counts


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """per_byte, per_ns: in weighted error. bound: no allocation has a smaller objective.

    choice: int64 [n]; the best one within the budget that was met on the way, or None.
    near: all options that are best near these prices; None where all options are few.
    """

    per_byte: float
    per_ns: float
    bound: float
    choice: Integers | None
    near: Candidates | None = None


def best_response(
    objective: Floats, options: Options, per_byte: float, per_ns: float
) -> tuple[Integers, Floats]:
    """Each synopsis' best option at prices, [n], and what it then pays, [n]."""
    choice, paid = best_of_rows(objective, options.size_float, options.cost_ns, per_byte, per_ns)
    return choice, paid


def largest(objective: Floats) -> Floats:
    """The largest objective that each synopsis' options have, [n]."""
    most = np.empty(len(objective))
    for rows in blocks(objective):
        block = objective[rows]
        most[rows] = block.max(1, initial=0.0)
    none = np.flatnonzero(np.isinf(most))
    of_none = objective[none]
    most[none] = np.where(np.isfinite(of_none), of_none, 0.0).max(1, initial=0.0)
    return most


def least(objective: Floats, options: Options, rows: Integers | None = None) -> Floats:
    """The least bytes and the least ns that each synopsis can do with, each taken alone, [2, n].

    rows: rows of the objective, ascending; None: all.
    """
    found = np.empty((2, len(objective)))
    for part in blocks(objective):
        none = np.flatnonzero(np.isinf(objective[part]))
        of = part if rows is None else rows[part]
        for at, column in enumerate((options.size_float, options.cost_ns)):
            possible = column[of]
            if len(none):
                possible = possible.copy()
                possible.ravel()[none] = np.inf
            found[at, part] = possible.min(1, initial=np.inf)
    return found


def that_fit(objective: Floats, options: Options, budget: Budget, needed: Floats) -> Floats:
    """The objective without options that leave others less than they need, [n, k].

    needed: `least` of these.
    """
    others_bytes, others_ns = needed.sum(1)[:, None] - needed
    left_bytes = budget.size_bytes * _MORE - others_bytes
    left_ns = budget.cost_ns * _MORE - others_ns
    fitting = objective.copy()
    for rows in blocks(objective):
        over = options.size_float[rows] > left_bytes[rows, None]
        over |= options.cost_ns[rows] > left_ns[rows, None]
        fitting[rows][over] = np.inf
    return fitting


def is_over(needed: Floats, budget: Budget) -> bool:
    """Return whether what all need together of a resource, [2, n], is more than there is."""
    size_bytes, cost_ns = needed.sum(1).tolist()
    return bool(size_bytes > budget.size_bytes * _MORE or cost_ns > budget.cost_ns * _MORE)


def find_prices(
    objective: Floats,
    options: Options,
    budget: Budget,
    *,
    gap: float = GAP,
    needed: Floats | None = None,
    near: Prices | None = None,
    guessed_from: int = GUESSED_FROM,
) -> Prices:
    """The prices that maximise the dual, up to a relative gap.

    Args:
      objective: [n, k], finite and >= 0 where there is an option, else inf.
      options: [n, k].
      budget: what there is.
      needed: `least` of these, if it is known.
      near: prices that are perhaps not far off, with a bound that is of the same size.
      guessed_from: number of synopses from which prices are guessed if no near prices are known.
    """
    needed = least(objective, options) if needed is None else needed
    if is_over(needed, budget):
        return Prices(0.0, 0.0, np.inf, None)
    dual = _Dual(objective, options, budget)
    if dual.add((0.0, 0.0)):
        return dual.found
    many = len(objective) >= guessed_from
    guess = _guess(dual, objective, options, budget, needed) if many and near is None else near
    if guess is None:
        for prices in dual.forbidding:
            dual.add(prices)
    _climb(dual, gap, guess)
    if dual.bound > dual.largest:
        return dual.found  # No choice loses so much: none fits.
    best, unit = dual.best, max(dual.bound, 0.0)
    for more in (
        () if dual.is_close else _DEARER
    ):  # At the best prices the budget is all but spent: on which side?
        if dual.add((best[0] * (1 + more) + unit * more, best[1] * (1 + more) + unit * more)):
            break
    if dual.choice is None:
        for prices in dual.forbidding:
            dual.add(prices)
    if dual.choice is None and budget.size_bytes >= _ROUNDED_FROM:
        dual.take_least()
    dual.meets()
    return dual.found


def _climb(dual: _Dual, gap: float, guess: Prices | None) -> None:
    """Add planes until the highest point is known, first near the guess, if there is one.

    A box keeps the next prices from running far away while few planes are known (Marsten, Hogan,
    Blankenship 1975, Oper. Res. 23(3)). It moves where the best prices are on its edge; where they
    are inside, the dual, which is concave, does not rise by much beyond the edge either.
    """
    width = _BOX
    if guess is not None:
        prices = dual.of_budget((guess.per_byte, guess.per_ns))
        dual.look_around(prices, width, max(dual.bound, min(guess.bound, dual.largest)))
        dual.add(prices)
    for _ in range(_PLANES_MAX):
        prices, value = dual.highest()
        near = gap * max(value, _NOTHING * dual.largest)
        if dual.bound > dual.largest:
            return
        if value - dual.bound <= near:
            if guess is None or dual.is_inside(dual.best) or dual.meets():
                return
            width *= width  # A guess that is far off is given up soon.
            dual.look_around(prices, width, dual.bound)
            continue
        dual.add(prices)


def _guess(
    dual: _Dual, objective: Floats, options: Options, budget: Budget, needed: Floats
) -> Prices:
    """Prices from a part of the synopses.

    Prices are common to all synopses. The part holds the synopses that can lose most. A few of the
    others represent the rest: all their columns are multiplied, which changes none of their
    choices. The part has as much budget beyond its least sizes as all synopses have beyond theirs.
    """
    n = len(objective)
    order = np.argsort(dual.least - dual.most)
    first, others = order[:_GUESSED_BY_LOSS], order[_GUESSED_BY_LOSS :: n // _GUESSED_OF_REST]
    times = np.append(np.ones(len(first)), np.full(len(others), (n - len(first)) / len(others)))
    some = np.append(first, others)
    part = options.only(some)
    scaled = Options(
        part.names,
        np.ceil(part.size_bytes * times[:, None]).astype(np.int64),
        part.cost_ns * times[:, None],
        part.error,
    )
    goal = objective[some] * times[:, None]
    own = least(goal, scaled)
    more = own.sum(1) - needed.sum(1)
    beyond = Budget(int(max(0.0, budget.size_bytes + more[0])), max(0.0, budget.cost_ns + more[1]))
    return find_prices(goal, scaled, beyond, gap=_GUESSED_GAP, needed=own)


class _Dual:
    """The planes that are known of the dual; prices here are of the whole budget."""

    def __init__(self, objective: Floats, options: Options, budget: Budget) -> None:
        self._objective = objective
        self._options = options
        self._units = (max(budget.size_bytes, 1), max(budget.cost_ns, 1e-9))
        self._budget_bytes = budget.size_bytes
        self._budget = (float(budget.size_bytes > 0), float(budget.cost_ns > 0))
        self.most = largest(objective)
        self.largest = float(self.most.sum())
        self._free = best_response(objective, options, 0.0, 0.0)
        self.least = self._free[1]
        self.span = max(self.largest - float(self.least.sum()), 1e-300)
        forbidding = _FORBIDDING * self.span
        self.forbidding = ((forbidding, 0.0), (0.0, forbidding), (forbidding, forbidding))
        self.bound = -np.inf
        self.best = (0.0, 0.0)
        self.choice: Integers | None = None
        self._over: Integers | None = None
        self._least = np.inf
        self._edges: tuple[float, ...] = ()
        self._near: Candidates | None = None
        self._mixture = Mixture(self._budget, _LACKING * self.span)

    def add(self, prices: Pair) -> bool:
        """Evaluate at prices; whether the choice fits."""
        near = self._near
        if near is not None and self.is_near(prices):
            at, payment = near.best(*self.in_units(prices))
            choice = near.option[at]
            value = float(near.objective[at].sum())
            spent = float(near.size_bytes[at].sum()), float(near.cost_ns[at].sum())
        else:
            choice, payment = self._free if prices == (0.0, 0.0) else self._best(prices)
            rows = np.arange(len(choice))
            value = float(self._objective[rows, choice].sum())
            spent = (
                float(self._options.size_float[rows, choice].sum()),
                float(self._options.cost_ns[rows, choice].sum()),
            )
        shares = spent[0] / self._units[0], spent[1] / self._units[1]
        self._mixture.add(value, *shares)
        fits = bool(shares[0] <= self._budget[0] and shares[1] <= self._budget[1])
        if fits and max(spent[0], self._units[0]) >= _ROUNDED_FROM:
            fits = self._is_within(choice)
        if fits and value < self._least:
            self._least, self.choice = value, choice
        bound = float(payment.sum()) - prices[0] * self._budget[0] - prices[1] * self._budget[1]
        if bound > self.bound and max(prices) < _FORBIDDING * self.span:  # there, digits get lost
            self.bound, self.best, self._over = bound, prices, None if fits else choice
        return fits

    def meets(self) -> bool:
        """Search between the best choice, which is over the budget, and one that fits.

        Synopses change from the first to the second choice in the order of what they lose per unit
        freed, and only as many as necessary. One of many synopses takes little beside the budget.

        Returns:
          whether the best choice that fits is near the bound.
        """
        if self._over is None or self.choice is None:
            return self.is_close
        rows = np.flatnonzero(self._over != self.choice)
        before, after = (rows, self._over[rows]), (rows, self.choice[rows])
        columns = self._options.size_float, self._options.cost_ns
        every = np.arange(len(self._over)), self._over
        freed = np.stack([column[before] - column[after] for column in columns])
        there_is = np.multiply(self._units, self._budget)
        over = np.array([column[every].sum() for column in columns]) - there_is
        lost = self._objective[after] - self._objective[before]
        lost -= np.array(self.in_units(self.best)) @ freed
        changed = that_free(lost, freed, over)
        if changed is None:
            return self.is_close
        changed = rows[changed]
        between = self._over.copy()
        between[changed] = self.choice[changed]
        value = float(self._objective[every[0], between].sum())
        if value < self._least and self._is_within(between):
            self._least, self.choice = value, between
        return self.is_close

    def _is_within(self, choice: Integers) -> bool:
        """Return whether a choice's bytes, which doubles would round, are within the budget."""
        size_bytes = self._options.size_bytes[np.arange(len(choice)), choice]
        return int(size_bytes.sum()) <= self._budget_bytes

    def take_least(self) -> None:
        """Take the least bytes of all rows, if they fit: prices cannot separate equal doubles."""
        possible = np.isfinite(self._objective)
        choice = np.where(possible, self._options.size_bytes, BYTES_END - 1).argmin(1)
        rows = np.arange(len(choice))
        share_ns = float(self._options.cost_ns[rows, choice].sum()) / self._units[1]
        if self._is_within(choice) and share_ns <= self._budget[1]:
            self._least, self.choice = float(self._objective[rows, choice].sum()), choice

    def highest(self) -> tuple[Pair, float]:
        """The highest point under all planes, found as the mixture of choices that attains it."""
        return self._mixture.best()

    def _best(self, prices: Pair) -> tuple[Integers, Floats]:
        return best_response(self._objective, self._options, *self.in_units(prices))

    def look_around(self, prices: Pair, width: float, bound: float) -> None:
        """From now on, look for prices that differ from these by this factor at most.

        bound: about what the dual's value is there.
        """
        cheap = _CHEAP * max(bound, 0.0)
        lowest = [price / width if price > cheap else 0.0 for price in prices]
        highest = [max(price, cheap) * width for price in prices]
        self._edges = (*lowest, *highest)
        ends = (lowest[0], lowest[1]), (highest[0], highest[1])
        self._mixture.between(*ends)
        self._near = Candidates.near(self._objective, self._options, *map(self.in_units, ends))

    def is_near(self, prices: Pair) -> bool:
        """Return whether prices are where they are looked for."""
        ends = zip(prices, self._edges[:2], self._edges[2:], strict=True)
        return all(low <= price <= high for price, low, high in ends)

    def is_inside(self, prices: Pair) -> bool:
        """Return whether the prices lie inside the searched range, or at 0."""
        edges = [edge for edge in self._edges if edge > 0]
        at_end = any(abs(price - edge) <= 1e-9 * edge for price in prices for edge in edges)
        return self.is_near(prices) and not at_end

    @property
    def is_close(self) -> bool:
        """Return whether the best choice that fits is near the bound; a rest may be unspent."""
        return self._least - self.bound <= _CLOSE * abs(self.bound)

    @property
    def found(self) -> Prices:
        """What is known."""
        per_byte, per_ns = self.in_units(self.best)
        return Prices(per_byte, per_ns, self.bound, self.choice, self._near)

    def of_budget(self, prices: Pair) -> Pair:
        """Prices of the whole budget, from those of a byte and of a nanosecond."""
        of_ns = prices[1] * self._units[1] if np.isfinite(self._units[1]) else 0.0
        return prices[0] * self._units[0], of_ns

    def in_units(self, prices: Pair) -> Pair:
        return prices[0] / self._units[0], prices[1] / self._units[1]
