"""Bets on the mean of W, a saddle over pairs, in blocks as learned_bets.py deals them.

  W = g a b - c (h a^2 + k b^2) - kappa,  a = x - u,  b = y - v,  for a pair,

and 0 for another row. h, k, u, v and g are fixed before each block; c and kappa before the first.
If W has a mean of 0 at most over all tuples, those that are not read have a mean of `expected` at
most: less the sum over the rows read, over N - n'. So the product over the rows of a block of
1 + b (W - expected) has expectation at most 1, for a bet b >= 0 that leaves every factor positive.
Pairs that are known for certain count among the rows read, and the sample is one of the others.
Where h and k are at least 0, W falls with c, and with it the wealth of given bets.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.learned_bets import (
    BLOCK_ENDS,
    block_ends,
    block_weights,
    deal,
    in_order,
    seed_of,
    slope_of,
)

_CAP: Final = 0.998  # Of the bet that could lose all.
# Bets aim at a wealth larger by this, in logarithms: near its aim a bet vanishes.
_BEYOND: Final = 0.2
_ROOM_MIN: Final = 1e-9  # Of the size of W: what a factor may lose; rounding could take it away.
# Part of a pair at the least W that is added to the spread of the rows seen, as in learned_bets.py.
_UNSEEN: Final = 0.03
_FLAT: Final = 1e-24  # A variance below this part of the squared range is rounding.
_ROUNDING: Final = 1e-12  # Likewise below this part of the mean square that it is computed from.
_TERMS: Final = 6  # Of W: x^2, y^2, x y, x, y and 1.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Terms = tuple[float, float, float, float, float, float]


class PairRows(NamedTuple):
    """The blocks of a sample of pairs.

    x, y: float64 [pairs], block by block. starts: int64 [blocks + 1], where these begin.
    absent: int64 [blocks], rows without a pair. before: float64 [blocks], rows of earlier blocks.
    weights: those of `Plan`. products: float64 [blocks, 6, 6], sums of products of the terms of W
      over earlier blocks. certain: float64 [6, 6], over the pairs that are known for certain.
    population: N, without these. box: float64 [2, 2], the range of x and of y of the others.
    start: the first block on which anything is bet.
    """

    x: Floats
    y: Floats
    starts: Integers
    absent: Integers
    before: Floats
    weights: Floats
    products: Floats
    certain: Floats
    population: float
    box: Floats
    start: int


class Table(NamedTuple):
    """What the bets of one end are made with, and room to write them down.

    rich: log of the wealth that rules c out. looks: float64 [blocks, 5], h, k, u, v and g.
    bets: float64 [blocks].
    """

    rich: float
    looks: Floats
    bets: Floats


@njit(nogil=True, cache=True)
def deal_pairs(
    x: Floats, y: Floats, certain: Floats, box: Floats, rest: tuple[int, int, int, np.uint64]
) -> PairRows:
    """Deal the rows into blocks.

    Args:
      x, y: float64 [pairs]. certain: float64 [2, pairs], those that are known for certain.
      box: float64 [2, 2], the ranges of the others.
      rest: rows without a pair, N, pairs before the first bet, and the seed of the shuffle.
    """
    absent, population, rows_min, seed = rest
    ends = block_ends(len(x) + absent)
    labels, room = deal(len(x), ends, seed_of(y, absent, seed_of(x, absent, seed)))
    blocks = len(BLOCK_ENDS)
    dealt_x, starts = in_order(x, labels, blocks)
    dealt_y, _ = in_order(y, labels, blocks)
    products, total = np.zeros((blocks, _TERMS, _TERMS)), np.zeros((_TERMS, _TERMS))
    for block in range(blocks):
        products[block] = total
        for row in range(starts[block], starts[block + 1]):
            _add(dealt_x[row], dealt_y[row], total)
    known = np.zeros((_TERMS, _TERMS))
    for row in range(certain.shape[1]):
        _add(certain[0, row], certain[1, row], known)
    start = 0
    while start < blocks and starts[start] < rows_min:
        start += 1
    return PairRows(
        dealt_x,
        dealt_y,
        starts,
        room,
        ends[:-1].astype(np.float64),
        block_weights(ends, population),
        products,
        known,
        float(population),
        box,
        start,
    )


@njit(nogil=True, cache=True)
def _add(x: float, y: float, total: Floats) -> None:
    """Add the products of a pair's terms."""
    terms = (x * x, y * y, x * y, x, y, 1.0)
    for i in range(_TERMS):
        for j in range(_TERMS):
            total[i, j] += terms[i] * terms[j]


@njit(nogil=True, cache=True)
def mirrored_pairs(rows: PairRows) -> PairRows:
    """The same blocks of x and -y."""
    products, certain, box = rows.products.copy(), rows.certain.copy(), rows.box.copy()
    for term in (2, 4):
        products[:, term, :] *= -1.0
        products[:, :, term] *= -1.0
        certain[term, :] *= -1.0
        certain[:, term] *= -1.0
    box[1] = -rows.box[1, ::-1]
    return PairRows(
        rows.x,
        -rows.y,
        rows.starts,
        rows.absent,
        rows.before,
        rows.weights,
        products,
        certain,
        rows.population,
        box,
        rows.start,
    )


@njit(nogil=True, cache=True)
def means_before(rows: PairRows, block: int) -> tuple[float, float]:
    """Of x and y of all pairs, as the rows before a block predict."""
    sums, each = rows.products[block], rows.population / rows.before[block]
    count = rows.certain[5, 5] + each * sums[5, 5]
    x, y = rows.certain[3, 5] + each * sums[3, 5], rows.certain[4, 5] + each * sums[4, 5]
    return x / count, y / count


@njit(nogil=True, cache=True)
def spreads_before(rows: PairRows, block: int) -> tuple[float, float]:
    """Of x and y of all pairs, as the rows before a block predict; never 0."""
    sums, each = rows.products[block], rows.population / rows.before[block]
    count = rows.certain[5, 5] + each * sums[5, 5]
    found = np.empty(2)
    for column in range(2):
        mean = (rows.certain[3 + column, 5] + each * sums[3 + column, 5]) / count
        square = (rows.box[column, 1] - rows.box[column, 0]) ** 2
        mean_square = (rows.certain[column, 5] + each * sums[column, 5]) / count
        variance = mean_square - mean * mean
        least = max(_FLAT * square, _ROUNDING * mean_square)
        found[column] = variance if variance > least else 0.25 * square / len(rows.x)
    return math.sqrt(found[0]), math.sqrt(found[1])


@njit(nogil=True, cache=True, inline="always")
def terms_of(c: float, look: Floats, kappa: float) -> Terms:
    """W's weights of x^2, y^2, x y, x, y and 1; look: h, k, u, v and g."""
    h, k, u, v, g = c * look[0], c * look[1], look[2], look[3], look[4]
    one = g * u * v - h * u * u - k * v * v - kappa
    return -h, -k, g, 2.0 * h * u - g * v, 2.0 * k * v - g * u, one


@njit(nogil=True, cache=True)
def sum_of(terms: Terms, sums: Floats) -> float:
    """The sum of W over the pairs of some `products`."""
    total = 0.0
    for i in range(_TERMS):
        total += terms[i] * sums[i, 5]
    return total


@njit(nogil=True, cache=True)
def square_of(terms: Terms, sums: Floats) -> float:
    """The sum of W^2 over the pairs of some `products`."""
    total = 0.0
    for i in range(_TERMS):
        row = 0.5 * terms[i] * sums[i, i]
        for j in range(i):
            row += terms[j] * sums[i, j]
        total += 2.0 * terms[i] * row
    return max(total, 0.0)


@njit(nogil=True, cache=True)
def least_of(terms: Terms, box: Floats) -> float:
    """The least W in the box. W is a saddle, so that is on an edge."""
    xx, yy, xy, lx, ly, one = terms
    least = np.inf
    for side in range(2):
        x, y = box[0, side], box[1, side]
        least = min(least, _least_on(yy, xy * x + ly, (xx * x + lx) * x + one, box[1]))
        least = min(least, _least_on(xx, xy * y + lx, (yy * y + ly) * y + one, box[0]))
    return least


@njit(nogil=True, cache=True)
def _least_on(square: float, slope: float, base: float, ends: Floats) -> float:
    """The least square z^2 + slope z + base for z from ends[0] to ends[1]."""
    low, high = ends
    least = base + min(low * (slope + square * low), high * (slope + square * high))
    if square > 0.0 and low < -0.5 * slope / square < high:
        least = min(least, base - 0.25 * slope * slope / square)
    return float(least)


@njit(nogil=True, cache=True)
def bet_on_saddle(rows: PairRows, table: Table, c: float, kappa: float) -> bool:
    """Bet that W has a mean above 0; overwrite the bets; return whether that made rich."""
    bets = table.bets
    bets[:] = 0.0
    wealth = 0.0
    x, y = np.abs(rows.box[0]).max(), np.abs(rows.box[1]).max()
    for block in range(rows.start, len(bets)):
        if rows.weights[block] == 0.0:
            continue
        terms = terms_of(c, table.looks[block], kappa)
        before, sums = rows.before[block], rows.products[block]
        total = sum_of(terms, sums)
        expected = -(total + sum_of(terms, rows.certain)) / (rows.population - before)
        size = abs(terms[0]) * x * x + abs(terms[1]) * y * y + x * y
        size += abs(terms[3]) * x + abs(terms[4]) * y + abs(terms[5])
        # Rows without a pair have W = 0.
        reach = max(expected - min(least_of(terms, rows.box), 0.0), _ROOM_MIN * size)
        spread = square_of(terms, sums) - expected * (2.0 * total - before * expected)
        share = (sums[5, 5] + 0.5) / (before + 0.5)
        spread = max(spread, 0.0) + _UNSEEN * share * reach * reach
        deviation = math.sqrt(spread / (before + 0.5))
        slope, cap = slope_of(table.rich + _BEYOND - wealth) * rows.weights[block], _CAP / reach
        bets[block] = cap if slope >= cap * deviation else slope / deviation
        wealth += _gain(rows, block, terms, expected, bets[block])
        if wealth >= table.rich:
            return True
    return False


@njit(nogil=True, cache=True)
def makes_rich(rows: PairRows, table: Table, c: float, kappa: float) -> bool:
    """Return whether the bets of the table rule c out."""
    wealth = 0.0
    for block in range(rows.start, len(table.bets)):
        if table.bets[block] == 0.0:
            continue
        terms = terms_of(c, table.looks[block], kappa)
        total = sum_of(terms, rows.products[block]) + sum_of(terms, rows.certain)
        expected = -total / (rows.population - rows.before[block])
        wealth += _gain(rows, block, terms, expected, table.bets[block])
        if wealth >= table.rich:
            return True
    return False


@njit(nogil=True, cache=True)
def _gain(rows: PairRows, block: int, terms: Terms, expected: float, bet: float) -> float:
    """Log of what the wealth grows by in a block."""
    gain = rows.absent[block] * math.log1p(-bet * expected)
    xx, yy, xy = bet * terms[0], bet * terms[1], bet * terms[2]
    lx, ly, one = bet * terms[3], bet * terms[4], 1.0 + bet * (terms[5] - expected)
    product = 1.0
    for row in range(rows.starts[block], rows.starts[block + 1]):
        x, y = rows.x[row], rows.y[row]
        product *= one + x * (xx * x + xy * y + lx) + y * (yy * y + ly)
        if not 1e-150 < product < 1e150:
            gain += math.log(product)
            product = 1.0
    return float(gain + math.log(product))
