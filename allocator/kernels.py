"""Loops over options in which numpy would pass over them several times; they release the GIL."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from allocator.demands import Booleans, Floats, Integers

_ROUNDING: Final = 1e-14  # of the absolute terms of a determinant, six products of three numbers


@njit(nogil=True, cache=True)
def best_of_rows(
    objective: Floats, size_bytes: Floats, cost_ns: Floats, per_byte: float, per_ns: float
) -> tuple[Integers, Floats]:
    """Return which option of each row is the first that pays least, [n], and what that is, [n].

    Args:
      objective, size_bytes, cost_ns: [n, k]; an objective of inf is no option.
      per_byte, per_ns: prices.
    """
    count, width = objective.shape
    choice, paid = np.zeros(count, np.int64), np.full(count, np.inf)
    for row in range(count):
        for option in range(width):
            payment = size_bytes[row, option] * per_byte + objective[row, option]
            payment += cost_ns[row, option] * per_ns
            if payment < paid[row]:
                paid[row], choice[row] = payment, option
    return choice, paid


@njit(nogil=True, cache=True)
def cheapest_ways(
    objective: Floats, size_bytes: Integers, cost_ns: Floats, choice: Integers
) -> tuple[Integers, Floats]:
    """Return each row's options that lose least per byte and per ns that they free, [n, 2].

    An option qualifies if it takes more of neither resource. A row whose present option has an
    infinite objective loses nothing by another such option.

    Args:
      objective, size_bytes, cost_ns: [n, k]; an objective of inf is no option.
      choice: [n]; what each has.

    Returns:
      the first options of those that lose least, and what they lose per unit, [n, 2]; inf where
      nothing can be freed.
    """
    count, width = objective.shape
    found, least = np.zeros((count, 2), np.int64), np.full((count, 2), np.inf)
    for row in range(count):
        has = choice[row]
        for option in range(width):
            freed_bytes = size_bytes[row, has] - size_bytes[row, option]
            freed_ns = cost_ns[row, has] - cost_ns[row, option]
            if freed_bytes < 0 or freed_ns < 0:
                continue
            lost = 0.0
            if objective[row, option] > objective[row, has]:
                lost = objective[row, option] - objective[row, has]
            if freed_bytes > 0 and lost / freed_bytes < least[row, 0]:
                least[row, 0], found[row, 0] = lost / freed_bytes, option
            if freed_ns > 0 and lost / freed_ns < least[row, 1]:
                least[row, 1], found[row, 1] = lost / freed_ns, option
    return found, least


@njit(nogil=True, cache=True)
def best_of_stretches(
    objective: Floats,
    size_bytes: Floats,
    cost_ns: Floats,
    start: Integers,
    per_byte: float,
    per_ns: float,
) -> tuple[Integers, Floats]:
    """Find the first option of each stretch that pays least, [r] of [m], and its payment, [r].

    Args:
      objective, size_bytes, cost_ns: [m]; finite. start: [r]; where each stretch begins, none is
        empty. per_byte, per_ns: prices.
    """
    at, paid = start.copy(), np.full(len(start), np.inf)
    for stretch in range(len(start)):
        end = start[stretch + 1] if stretch + 1 < len(start) else len(objective)
        for option in range(start[stretch], end):
            payment = size_bytes[option] * per_byte + objective[option]
            payment += cost_ns[option] * per_ns
            if payment < paid[stretch]:
                paid[stretch], at[stretch] = payment, option
    return at, paid


@njit(nogil=True, cache=True)
def best_somewhere(
    objective: Floats,
    size_bytes: Floats,
    cost_ns: Floats,
    middle: tuple[float, float],
    half: tuple[float, float],
) -> Booleans:
    """Return which options can be their row's best at some prices, [n, k]: see `Candidates.near`.

    Args:
      objective, size_bytes, cost_ns: [n, k]; an objective of inf is no option.
      middle, half: of the prices of a byte and of a nanosecond, and of their width.
    """
    count, width = objective.shape
    found = np.zeros((count, width), np.bool_)
    payment = np.empty(width)
    for row in range(count):
        best = 0
        for option in range(width):
            payment[option] = objective[row, option] + size_bytes[row, option] * middle[0]
            payment[option] += cost_ns[row, option] * middle[1]
            if payment[option] < payment[best]:
                best = option
        if payment[best] == np.inf:
            continue
        for option in range(width):
            above = payment[option] - payment[best]
            above -= abs(size_bytes[row, option] - size_bytes[row, best]) * half[0]
            above -= abs(cost_ns[row, option] - cost_ns[row, best]) * half[1]
            found[row, option] = above <= 0
    return found


@njit(nogil=True, cache=True)
def cheapest_mixture(
    rows: Floats,
    costs: Floats,
    needed: Floats,
    basis: Integers,
    tolerance: float,
    exchanges_max: int,
    bland_from: int,
) -> Floats:
    """Prices at which no column lowers a mixture's cost, [3]; `basis`, [3], is exchanged in place.

    The revised simplex method for `min costs x` with `rows^T x = needed`, `x >= 0`.

    Args:
      rows: [columns, 3]. costs: [columns]. needed: [3]; what the mixture adds up to.
      basis: three columns of a mixture that is allowed.
      tolerance: a column that lowers the cost by less does not count.
      exchanges_max: after so many, prices are as they are; bland_from: from there on by the rule
        that cannot cycle.
    """
    prices = np.zeros(3)
    columns = np.empty((3, 3))
    for exchange in range(exchanges_max):
        for at in range(3):
            columns[at] = rows[basis[at]]
        prices[:] = np.linalg.solve(columns, costs[basis])
        entering, lowest = -1, -tolerance
        for column in range(len(costs)):
            if column == basis[0] or column == basis[1] or column == basis[2]:
                continue
            of_row = rows[column, 0] * prices[0] + rows[column, 1] * prices[1]
            reduced = costs[column] - (of_row + rows[column, 2] * prices[2])
            if reduced < lowest:
                entering, lowest = column, reduced
                if exchange >= bland_from:
                    break
        if entering < 0:
            break
        whole, _ = _determinant(columns)
        amounts = np.linalg.solve(np.ascontiguousarray(columns.T), needed)
        leaving, least = -1, np.inf
        for at in range(3):
            columns[at] = rows[entering]
            exchanged, terms = _determinant(columns)
            columns[at] = rows[basis[at]]
            # Cramer's rule. A determinant within rounding of 0 would make the next basis singular.
            falls = exchanged / whole
            if falls > 0.0 and abs(exchanged) > _ROUNDING * terms:
                ratio = max(amounts[at], 0.0) / falls
                if ratio < least or (ratio == least and basis[at] < basis[leaving]):
                    leaving, least = at, ratio
        if leaving < 0:  # Only rounding says that the column lowers the cost.
            break
        basis[leaving] = entering
    return prices


@njit(nogil=True, cache=True)
def _determinant(of: Floats) -> tuple[float, float]:
    """The determinant of a [3, 3] matrix, and the sum of the absolute terms that it is made of."""
    total, terms = 0.0, 0.0
    for row in range(3):
        first, last = (row + 1) % 3, (row + 2) % 3
        plus = of[row, 0] * of[first, 1] * of[last, 2]
        minus = of[row, 0] * of[last, 1] * of[first, 2]
        total += plus - minus
        terms += abs(plus) + abs(minus)
    return total, terms
