"""Prices of bytes and CPU at which everybody's own best choice together spends the budget.

At prices p of a byte and q of a nanosecond, each synopsis takes the option with the least
objective + p * bytes + q * ns, on its own: that is all that a synopsis has to know of the others.
The right prices maximise the Lagrangian dual, a concave function of two numbers; its maximum is a
bound that no allocation is below. They are found by cutting planes: each evaluation gives a plane,
and the highest point under all planes is the next pair of prices (Kelley 1960; seen from the other
side, Dantzig & Wolfe 1960). About 15 evaluations do, however many synopses there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.demands import Budget, Floats, Integers, Options
from allocator.mixture import Mixture

_PLANES_MAX = 60
_GUESSED_FROM = 2_000  # synopses
_GUESSED_OF = 250
_BOX = 1.5  # prices may leave a guess by this factor at first
_DEARER = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # by a share
_NOTHING = 1e-3  # of the largest objective: below it, a gap's size relative to it says little
_BLOCK = 1 << 15  # float64s
_ROUNDING = 1e-9  # of sums
_CLOSE = 1e-3  # of the bound
GAP = 1e-3  # of the dual's value; whole options leave a larger one anyway
_LACKING = 1e3  # times the objective's span, for a whole budget that is lacking
_FORBIDDING = 1e9  # times the objective's span: a price at which only the resource counts


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """per_byte, per_ns: in weighted error. bound: no allocation has a smaller objective.

    choice: int64 [n]; the best one within the budget that was met on the way, or None.
    """

    per_byte: float
    per_ns: float
    bound: float
    choice: Integers | None


def best_response(
    objective: Floats, options: Options, per_byte: float, per_ns: float
) -> tuple[Integers, Floats]:
    """Each synopsis' best option at prices, [n], and what it then pays, [n]."""
    choice = np.empty(len(objective), np.int64)
    paid = np.empty(len(objective))
    room: tuple[Floats, Floats] | None = None  # Memory that is written again for each block.
    for rows in blocks(objective):
        goal = objective[rows]
        if room is None:
            room = np.empty_like(goal), np.empty_like(goal)
        payment, of_ns = room[0][: len(goal)], room[1][: len(goal)]
        np.multiply(options.size_float[rows], per_byte, out=payment)
        payment += goal
        if per_ns:
            np.multiply(options.cost_ns[rows], per_ns, out=of_ns)
            payment += of_ns
        best = payment.argmin(1)
        choice[rows] = best
        paid[rows] = payment[np.arange(len(best)), best]
    return choice, paid


def blocks(matrix: Floats) -> Iterator[slice]:
    """Stretches of rows that fit into a processor's cache with a few arrays of their size."""
    rows = max(1, _BLOCK // max(1, matrix.shape[1]))
    return (slice(start, start + rows) for start in range(0, len(matrix), rows))


def extremes(objective: Floats) -> tuple[Floats, Floats]:
    """The least and the largest objective of each synopsis' options, [n] and [n]."""
    least, most = np.empty(len(objective)), np.empty(len(objective))
    for rows in blocks(objective):
        block = objective[rows]
        least[rows] = block.min(1, initial=np.inf)
        most[rows] = np.where(np.isfinite(block), block, 0.0).max(1, initial=0.0)
    return least, most


def exceeds(objective: Floats, options: Options, budget: Budget) -> bool:
    """Whether the least that everybody can do with is over the budget of one resource alone."""
    least_bytes = least_ns = 0.0
    for rows in blocks(objective):
        none = np.isinf(objective[rows])
        least_bytes += float(np.where(none, np.inf, options.size_float[rows]).min(1).sum())
        least_ns += float(np.where(none, np.inf, options.cost_ns[rows]).min(1).sum())
    more = 1 + _ROUNDING
    return least_bytes > budget.size_bytes * more or least_ns > budget.cost_ns * more


def find_prices(objective: Floats, options: Options, budget: Budget, gap: float = GAP) -> Prices:
    """The prices that maximise the dual, up to a relative gap.

    Args:
      objective: [n, k], finite and >= 0 where there is an option, else inf.
      options: [n, k].
      budget: what there is.
    """
    dual = _Dual(objective, options, budget)
    if dual.add((0.0, 0.0)):
        return dual.found
    if len(objective) >= _GUESSED_FROM and exceeds(objective, options, budget):
        return Prices(0.0, 0.0, np.inf, None)
    guess = _guess(objective, options, budget, gap)
    if guess is None:
        for prices in dual.forbidding:
            dual.add(prices)
    else:
        dual.add(guess)
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
    return dual.found


def _climb(dual: _Dual, gap: float, guess: tuple[float, float] | None) -> None:
    """Add planes until the highest point is known, first near the guess, if there is one.

    A box keeps the next prices from running far away while few planes are known (Marsten, Hogan,
    Blankenship 1975, Oper. Res. 23(3)); where the highest point lies on its edge, it moves.
    """
    width = _BOX
    if guess is not None:
        dual.look_around(guess, width)
    for _ in range(_PLANES_MAX):
        prices, value = dual.highest()
        near = gap * max(value, _NOTHING * dual.largest)
        if dual.bound > dual.largest:
            return
        if value - dual.bound <= near:
            if guess is None or not dual.on_edge(prices):
                return
            width *= width  # A guess that is far off is given up soon.
            dual.look_around(prices, width)
            continue
        dual.add(prices)


def _guess(
    objective: Floats, options: Options, budget: Budget, gap: float
) -> tuple[float, float] | None:
    """Prices of the whole budget, from a part of the synopses; None for few of them.

    Prices are what all have in common. Those who can lose most are in the part; of the others a
    few stand for the rest, with all that they have multiplied, which changes no choice of theirs.
    """
    n = len(objective)
    if n < _GUESSED_FROM:
        return None
    least, most = extremes(objective)
    order = np.argsort(least - most)
    first, others = order[:_GUESSED_OF], order[_GUESSED_OF :: (n - _GUESSED_OF) // _GUESSED_OF]
    times = np.append(np.ones(len(first)), np.full(len(others), (n - len(first)) / len(others)))
    some = np.append(first, others)
    part = options.only(some)
    scaled = Options(
        part.names,
        np.ceil(part.size_bytes * times[:, None]).astype(np.int64),
        part.cost_ns * times[:, None],
        part.error,
    )
    found = find_prices(objective[some] * times[:, None], scaled, budget, gap)
    of_ns = found.per_ns * budget.cost_ns if np.isfinite(budget.cost_ns) else 0.0
    return found.per_byte * max(budget.size_bytes, 1), of_ns


class _Dual:
    """The planes that are known of the dual; prices here are of the whole budget."""

    def __init__(self, objective: Floats, options: Options, budget: Budget) -> None:
        self._objective = objective
        self._options = options
        self._units = (max(budget.size_bytes, 1), max(budget.cost_ns, 1e-9))
        self._budget = (float(budget.size_bytes > 0), float(budget.cost_ns > 0))
        least, most = extremes(objective)
        self.largest = float(most.sum())
        self.span = max(self.largest - float(least.sum()), 1e-300)
        forbidding = _FORBIDDING * self.span
        self.forbidding = ((forbidding, 0.0), (0.0, forbidding), (forbidding, forbidding))
        self.bound = -np.inf
        self.best = (0.0, 0.0)
        self.choice: Integers | None = None
        self._least = np.inf
        self._edges: tuple[float, ...] = ()
        self._mixture = Mixture(self._budget, _LACKING * self.span)

    def add(self, prices: tuple[float, float]) -> bool:
        """Evaluate at prices; whether the choice fits."""
        choice, payment = best_response(self._objective, self._options, *self.in_units(prices))
        rows = np.arange(len(choice))
        value = float(self._objective[rows, choice].sum())
        spent_bytes = self._options.size_bytes[rows, choice].sum(dtype=np.float64)
        spent_ns = self._options.cost_ns[rows, choice].sum()
        shares = spent_bytes / self._units[0], spent_ns / self._units[1]
        self._mixture.add(value, *shares)
        fits = bool(shares[0] <= self._budget[0] and shares[1] <= self._budget[1])
        if fits and value < self._least:
            self._least, self.choice = value, choice
        bound = float(payment.sum()) - prices[0] * self._budget[0] - prices[1] * self._budget[1]
        if bound > self.bound and max(prices) < _FORBIDDING * self.span:  # there, digits get lost
            self.bound, self.best = bound, prices
        return fits

    def highest(self) -> tuple[tuple[float, float], float]:
        """The highest point under all planes, found as the mixture of choices that attains it."""
        return self._mixture.best()

    def look_around(self, prices: tuple[float, float], width: float) -> None:
        """From now on, look for prices that differ from these by this factor at most."""
        least = _NOTHING * max(self.bound, 0.0)
        lowest = [price / width if price > least else 0.0 for price in prices]
        highest = [max(price, least) * width for price in prices]
        self._edges = (*lowest, *highest)
        self._mixture.between((lowest[0], lowest[1]), (highest[0], highest[1]))

    def on_edge(self, prices: tuple[float, float]) -> bool:
        """Whether prices are at an end, other than 0, of where they are looked for."""
        edges = [edge for edge in self._edges if edge > 0]
        return any(abs(price - edge) <= 1e-9 * edge for price in prices for edge in edges)

    @property
    def is_close(self) -> bool:
        """Whether the best choice that fits is near the bound: what is left is spent afterwards."""
        return self._least - self.bound <= _CLOSE * abs(self.bound)

    @property
    def found(self) -> Prices:
        """What is known."""
        per_byte, per_ns = self.in_units(self.best)
        return Prices(per_byte, per_ns, self.bound, self.choice)

    def in_units(self, prices: tuple[float, float]) -> tuple[float, float]:
        return prices[0] / self._units[0], prices[1] / self._units[1]
