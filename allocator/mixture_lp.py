"""The cheapest mixture of choices within a budget: a linear program that grows a column at a time.

It has three rows (shares of the mixture add up to 1; bytes; ns), so its optimal basis has three
columns, and after a new column a few exchanges make it optimal again: the revised simplex method on
3 x 3 matrices (Dantzig 1963), without the set-up that a packaged solver takes each time.
"""

from __future__ import annotations

import numpy as np

from allocator.kernels import cheapest_mixture

_EXCHANGES_MAX = 200
_BLAND_FROM = 100  # exchanges: from then on by the rule that cannot cycle (Bland 1977)
_TOLERANCE = 1e-11  # of the largest cost


class Mixture:
    """Columns (value, share of the bytes, share of the ns), and the best mixture of them.

    Where the budget is not enough for any, what is lacking is bought at `highest` prices per whole
    budget, and what is left over sold at `lowest` ones: so prices stay between them.
    """

    def __init__(self, budget: tuple[float, float], highest: float) -> None:
        self._needed = np.array([1.0, *budget])
        self._rows = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]]
        self._costs = [0.0, 0.0, highest, highest]
        self._basis = np.zeros(0, np.int64)

    def between(self, lowest: tuple[float, float], highest: tuple[float, float]) -> None:
        """From now on, prices are looked for between these."""
        self._costs[:4] = [-lowest[0], -lowest[1], *highest]

    def add(self, value: float, bytes_share: float, ns_share: float) -> None:
        """One more choice that may be mixed in."""
        self._rows.append([1.0, bytes_share, ns_share])
        self._costs.append(value)
        if not len(self._basis):
            over = (bytes_share > self._needed[1], ns_share > self._needed[2])
            self._basis = np.array([4, 2 if over[0] else 0, 3 if over[1] else 1])

    def best(self) -> tuple[tuple[float, float], float]:
        """The prices of the whole budget at the optimum, both >= 0, and its value."""
        rows, costs = np.array(self._rows), np.array(self._costs)
        tolerance = _TOLERANCE * max(float(np.abs(costs).max()), 1e-300)
        prices = cheapest_mixture(
            rows, costs, self._needed, self._basis, tolerance, _EXCHANGES_MAX, _BLAND_FROM
        )
        value = float(prices @ self._needed)
        return (max(0.0, -float(prices[1])), max(0.0, -float(prices[2]))), value
