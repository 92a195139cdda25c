"""Bounds for correlations by bets on comparisons of two spreads (saddle_bets.py).

Let m be the means, s the spreads, C the covariance and r = C/(s_x s_y) the correlation of all
pairs. The mean of W = a b - c (h a^2 + k b^2), a = x - u, b = y - v, tells whether r is above c.

Lower end, c >= 0. With h = t/2 and k = 1/(2 t), h s_x^2 + k s_y^2 is at least s_x s_y for every t
(arithmetic and geometric mean). So if r <= c, W has a mean of 0 at most, about the means. t is the
ratio of the spreads of the rows before. An error of t only costs width.

Lower end, c < 0. Here h s_x^2 + k s_y^2 must be at most s_x s_y. The ratios s_y/s_x that may be
are cut into cells. In a cell from t/g to t g, this holds for h = t/(g + 1/g) and
k = 1/(t (g + 1/g)), the chord of a concave function. Outermost are the ratios above T, which are
ruled out for every c, or not at all: T^2 a^2 - b^2 has a mean of 0 at most there. Likewise below.

Means. About a point (u, v) beside the means, the mean of W is larger by a quadratic form of the
distance. Let p = sqrt(t) x + y/sqrt(t). The form is at most (1 - c) d^2/4 if p of (u, v) is within
d of p of the means, whatever their distance is otherwise. So only p of the means is cut into cells.
In an outermost cell of ratios it is x, and the form is at most T^2 d^2. Cells that do not meet an
interval of the means, which has a small part of delta, are left out.

Certain pairs. Some pairs may be known for certain, by their values alone. The sample is then one of
the others, whose range is narrower. W of the certain pairs is known for every c.

The truth lies in one cell, so no cell has a part of delta of its own. Neither has a cell of c: W
falls with c, and bets against the largest c of a cell hold for all of it. The lower end is the
least c that is left in any cell. The upper end is the lower one of x and -y. The first rows, on
which nothing is bet, decide all cells, and how delta is split between both ends.

Source: Waudby-Smith & Ramdas 2024, JRSS B 86(1) (betting without replacement); Devlin,
Gnanadesikan, Kettenring 1975, Biometrika 62(3) (W is the influence of r, times s_x s_y, at its
truth). The comparisons by t, and the cells, are ours.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.saddle_bets import (
    PairRows,
    Table,
    bet_on_saddle,
    deal_pairs,
    least_of,
    makes_rich,
    means_before,
    mirrored_pairs,
    spreads_before,
    square_of,
    terms_of,
)

_ROWS_MIN: Final = 4  # Pairs before the first bet.
_PRIOR: Final = 2.0  # Pairs of correlation 0 that are added to the first rows.
_MOST: Final = 1.0 - 1e-12  # Correlation of the first rows.
_FLAT: Final = 1e-12  # A spread below this part of the range is rounding.
_HALF_MAX: Final = 0.5  # Of the half width that the first rows predict.
# Cells of c, on the scale of Fisher's z.
_CELL_MIN: Final = 0.4  # Of the half width.
_CELL: Final = 0.3  # Of the distance from the correlation of the first rows.
_NEAR: Final = 8.0  # Half widths: farther out a cell is half of its distance.
_FIRST_MIN: Final = 2.0  # Distance of the end of the first cell, which begins at -1.
_FIRST_END: Final = -17.0  # No first cell ends below this: much farther, tanh is -1.
# Below 0, the next cell begins at this part of c, until a last one that ends at 0.
_SHRINK: Final = 0.75
_LAST: Final = -0.05
# Cells of means: half of one, so that it costs this part of the half width.
_MEANS: Final = 0.02
_MEANS_MIN: Final = 1.0  # In standard errors.
_OUTERMOST: Final = 0.3  # Half a cell of means in an outermost cell of ratios, in spreads.
_GROWTH: Final = 0.125  # Of the distance from the mean of the first rows: no half is less.
# Cells of ratios: half of one, in logarithms, so that it costs this part of the half width.
_RATIOS: Final = 0.03
_RATIOS_MIN: Final = 0.03
_RATIOS_MAX: Final = 1.0
_RATIOS_GROWTH: Final = 0.25  # Of the distance from the ratio of the first rows: no half is less.
_RATIOS_FAR: Final = 3.0  # Distance at which the outermost cells begin, at least.
# Farther for a wide range: of this many pairs at its end, among all, the rows may have shown none.
_RATIOS_WIDE: Final = 6.0
_PRECISE: Final = 0.02  # The ends are found to this part of the width, on the safe side.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class _First(NamedTuple):
    """What the first rows predict.

    x, y, spread_x, spread_y, correlation: of them; t: the ratio of the spreads.
    rows: pairs that there will be in all. half: half width of the interval.
    reach: the most that a pair takes off W, over the product of the spreads.
    """

    x: float
    y: float
    spread_x: float
    spread_y: float
    correlation: float
    t: float
    rows: float
    half: float
    reach: float


class _Cell(NamedTuple):
    """A cell of what is not known beside r.

    t: ratio of the spreads at its middle; 0: it is that of the rows before each block.
    log_g: log of g.
    center, aside: middle and half width of the cell of p.
    """

    t: float
    log_g: float
    center: float
    aside: float


@njit(nogil=True, cache=True)
def correlations_by_bets(
    starts: Integers,
    first: Floats,
    second: Floats,
    absent: Integers,
    ranges: Floats,
    means: Floats,
    populations: Integers,
    certain: tuple[Integers, Floats],
    how: tuple[float, Floats, np.uint64],
) -> Floats:
    """Bounds for the correlation of all pairs of each group.

    Args:
      starts: int64 [groups + 1]; first, second: float64 [matches]: x and y of `SampledPairs`.
      absent: int64 [groups], rows read without a pair.
      ranges: float64 [groups, 2, 2], of x and y, that hold every value but the certain ones.
      means: float64 [groups, 2, 2], intervals of both means; their miss is not part of delta.
      populations: int64 [groups], N, without the tuples that are known for certain.
      certain: int64 [groups + 1], where the certain pairs of each group start; float64 [2, pairs].
      how: delta; float64 [groups, 2], parts of it for the lower and the upper end, 0 where an end
        is not wanted, NaN where the first rows decide; and the seed of the shuffle.

    Returns:
      bounds: float64 [groups, 3], both ends and the estimate; -1, 1 and NaN where too few pairs
      count, where those that were read do not vary, or where a range has no end or is a point.
    """
    delta, parts, seed = how
    rich = -math.log(0.5 * delta)
    known_starts, known = certain
    bounds = np.empty((len(ranges), 3))
    for group in range(len(ranges)):
        bounds[group] = -1.0, 1.0, np.nan
        begin, end = starts[group], starts[group + 1]
        widths = ranges[group, :, 1] - ranges[group, :, 0]
        if end - begin < _ROWS_MIN or not (widths.min() > 0.0 and widths.max() < np.inf):
            continue
        x, y = first[begin:end], second[begin:end]
        middle, spread = np.array([[x.mean()], [y.mean()]]), np.array([[x.std()], [y.std()]])
        if not (spread[:, 0] > _FLAT * widths).all():
            continue
        x, y = (x - middle[0, 0]) / spread[0, 0], (y - middle[1, 0]) / spread[1, 0]
        box, mean = (ranges[group] - middle) / spread, (means[group] - middle) / spread
        beside = (known[:, known_starts[group] : known_starts[group + 1]] - middle) / spread
        rows = deal_pairs(x, y, beside, box, (absent[group], populations[group], _ROWS_MIN, seed))
        if rows.start == len(rows.before):
            continue
        mirrored, mirrored_mean = mirrored_pairs(rows), mean.copy()
        mirrored_mean[1] = -mean[1, ::-1]
        below, above = _first(rows, rich), _first(mirrored, rich)
        # As `tail_share` of learned_bets.py.
        lower = 0.5 * below.half / rich + below.reach / below.rows
        upper = 0.5 * above.half / rich + above.reach / above.rows
        part = min(max(lower / (lower + upper), 0.1), 0.9)
        tails = delta * np.array([part, 1.0 - part])
        if not np.isnan(parts[group, 0]):
            tails = delta * parts[group]
        own = _estimate(rows, absent[group])
        bounds[group, 2] = own
        if tails[0] > 0.0:
            bounds[group, 0] = _lower(rows, below, mean, tails[0], own)
        if tails[1] > 0.0:
            bounds[group, 1] = -_lower(mirrored, above, mirrored_mean, tails[1], -own)
    return bounds


@njit(nogil=True, cache=True)
def _estimate(rows: PairRows, absent: int) -> float:
    """The correlation of the certain pairs and of the sampled ones, each in place of N/n pairs."""
    each = rows.population / (len(rows.x) + absent)
    sums = rows.certain[:, 5].copy()
    sums[0] += each * (rows.x * rows.x).sum()
    sums[1] += each * (rows.y * rows.y).sum()
    sums[2] += each * (rows.x * rows.y).sum()
    sums[3] += each * rows.x.sum()
    sums[4] += each * rows.y.sum()
    sums[5] += each * len(rows.x)
    xx, yy, xy, x, y = sums[:5] / sums[5]
    return float(min(max((xy - x * y) / math.sqrt((xx - x * x) * (yy - y * y)), -1.0), 1.0))


@njit(nogil=True, cache=True)
def _first(rows: PairRows, rich: float) -> _First:
    sums = rows.products[rows.start]
    each = rows.population / rows.before[rows.start]
    count = sums[5, 5]
    in_all = count * (len(rows.x) + rows.absent.sum()) / rows.before[rows.start]
    known = rows.certain[5, 5] / each  # Certain pairs, as if they were sampled.
    share = count / (count + known)
    x, y = means_before(rows, rows.start)
    spread_x, spread_y = spreads_before(rows, rows.start)
    t, unit = spread_y / spread_x, spread_x * spread_y
    product = sums[2, 5] + rows.certain[2, 5] / each - (count + known) * x * y
    r = min(max(product / unit / (count + known + _PRIOR), -_MOST), _MOST)
    terms = terms_of(r, np.array([0.5 * t, 0.5 / t, x, y, 1.0]), 0.0)
    variance = square_of(terms, sums) / unit / unit + _PRIOR * (1.0 - r * r) ** 2
    half = share * math.sqrt(2.0 * rich * variance / (count + _PRIOR) / in_all)
    reach = share * max(-least_of(terms, rows.box), 0.0) / unit
    return _First(x, y, spread_x, spread_y, r, t, in_all, min(half, _HALF_MAX), reach)


@njit(nogil=True, cache=True)
def _lower(rows: PairRows, first: _First, means: Floats, tail: float, own: float) -> float:
    """A lower bound for the correlation, wrong with probability `tail`; not above `own`."""
    blocks = len(rows.before)
    table = Table(-math.log(tail), np.zeros((blocks, 5)), np.zeros(blocks))
    away = max(abs(first.correlation), first.half)
    narrow = math.sqrt(2.0 * _RATIOS * first.half / away)
    narrow = min(max(narrow, _RATIOS_MIN), _RATIOS_MAX)
    least = _over_means(rows, first, means, table, (first.t, narrow), (-1.0, min(own, 0.0)))
    widest = max(
        np.abs(rows.box[0]).max() / first.spread_x, np.abs(rows.box[1]).max() / first.spread_y
    )
    far = max(_RATIOS_FAR, math.log(widest * math.sqrt(_RATIOS_WIDE / first.rows)))
    near = narrow
    while near < far:
        half = max(narrow, _RATIOS_GROWTH * near)
        for side in (-1.0, 1.0):
            ratio = first.t * math.exp(side * (near + half)), half
            least = _over_means(rows, first, means, table, ratio, (-1.0, least))
        near += 2.0 * half
    if least > -1.0:
        for column in range(2):
            if not _is_varied(rows, first, means, table, column, math.exp(near)):
                return -1.0
    if least < 0.0:
        return least
    return _over_means(rows, first, means, table, (0.0, 0.0), (0.0, own))


@njit(nogil=True, cache=True)
def _over_means(
    rows: PairRows,
    first: _First,
    means: Floats,
    table: Table,
    ratio: tuple[float, float],
    between: tuple[float, float],
) -> float:
    """The least c of an interval that is left in a cell of ratios; its upper end if none is."""
    t, log_g = ratio
    begin, least = between
    root = math.sqrt(t if t > 0.0 else first.t)
    middle, ends = root * first.x + first.y / root, root * means[0] + means[1] / root
    unit = first.spread_x * first.spread_y
    x, y = root * first.spread_x, first.spread_y / root
    square = max(x * x + y * y + 2.0 * first.correlation * unit, 0.0)
    half = math.sqrt(4.0 * _MEANS * first.half * unit / (1.0 - first.correlation))
    half = max(half, _MEANS_MIN * math.sqrt(square / first.rows))
    for center, aside in _cells(middle, half, ends):
        if least > begin:
            cell = _Cell(t, log_g, center, aside)
            least = _over_c(rows, first, table, cell, (begin, least))
    return least


@njit(nogil=True, cache=True)
def _is_varied(
    rows: PairRows, first: _First, means: Floats, table: Table, column: int, away: float
) -> bool:
    """Return whether the ratios are ruled out at which x (0) or y (1) is nearly constant.

    away: the first of them, over that of the first rows.
    """
    spreads, middles = (first.spread_x, first.spread_y), (first.x, first.y)
    spread = spreads[column]
    scale = spreads[1 - column] * away / spread
    table.looks[:] = 0.0
    table.looks[:, column], table.looks[:, 1 - column] = scale * scale, -1.0
    for block in range(rows.start, len(table.looks)):
        table.looks[block, 2], table.looks[block, 3] = means_before(rows, block)
    for center, aside in _cells(middles[column], _OUTERMOST * spread, means[column]):
        table.looks[:, 2 + column] = center
        if not bet_on_saddle(rows, table, -1.0, (scale * aside) ** 2):
            return False
    return True


@njit(nogil=True, cache=True)
def _cells(middle: float, half: float, ends: Floats) -> Floats:
    """float64 [cells, 2], middle and half width of the cells that meet an interval, outwards."""
    low, high = ends
    most = max(abs(low - middle), abs(high - middle))
    count = 3 + 2 * int(math.log1p(most / half) / math.log1p(2.0 * _GROWTH) + 0.5 / _GROWTH)
    cells = np.empty((count, 2))
    cells[0] = middle, half
    found, near = 1, half
    while near < most:
        size = max(half, _GROWTH * near)
        for side in (-1.0, 1.0):
            center = middle + side * (near + size)
            if center - size <= high and center + size >= low:
                cells[found] = center, size
                found += 1
        near += 2.0 * size
    return cells[:found]


@njit(nogil=True, cache=True)
def _over_c(
    rows: PairRows, first: _First, table: Table, cell: _Cell, between: tuple[float, float]
) -> float:
    """The least c of an interval that is left in a cell; its upper end if none is."""
    _look(rows, first, cell, table.looks)
    middle = math.atanh(first.correlation)
    half = first.half / (1.0 - first.correlation**2)
    low, least = between
    while low < least:
        if low == -1.0:
            place = max(middle - max(_NEAR * half, _FIRST_MIN), _FIRST_END)
        else:
            away = abs(math.atanh(low) - middle)
            width = max(_CELL_MIN * half, (_CELL if away < _NEAR * half else 0.5) * away)
            place = math.atanh(low) + width
        high = math.tanh(place)
        if low < 0.0:
            high = min(high, 0.0 if low > _LAST else _SHRINK * low)
        if not high > low:  # A cell too narrow for doubles: all below it is ruled out.
            return low
        kappa = _kappa(cell, low)
        if not bet_on_saddle(rows, table, high, kappa):
            return _crossing(rows, first, table, kappa, (low, min(high, least)))
        low = high
    return least


@njit(nogil=True, cache=True)
def _crossing(
    rows: PairRows, first: _First, table: Table, kappa: float, ends: tuple[float, float]
) -> float:
    """Return where in a cell of c the bets stop making rich, on the safe side."""
    low, high = ends
    if makes_rich(rows, table, high, kappa):
        return high
    while high - low > _PRECISE * max(first.half, abs(first.correlation - high)):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if makes_rich(rows, table, middle, kappa):
            low = middle
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def _kappa(cell: _Cell, low: float) -> float:
    """What the distance of the means from (u, v) adds to the mean of W, for no c below `low`."""
    c = low / math.cosh(cell.log_g) if low < 0.0 else low
    return 0.25 * (1.0 - c) * cell.aside**2


@njit(nogil=True, cache=True)
def _look(rows: PairRows, first: _First, cell: _Cell, looks: Floats) -> None:
    """Write h, k, u, v and g of each block down. (u, v) is near the means of the rows before."""
    looks[:, 4] = 1.0
    root = math.sqrt(cell.t if cell.t > 0.0 else first.t)
    along_x, along_y = root * first.spread_x**2, first.spread_y**2 / root
    unit, shrunk = root * along_x + along_y / root, 2.0 * math.cosh(cell.log_g)
    for block in range(rows.start, len(looks)):
        t = cell.t
        if t == 0.0:
            spread_x, spread_y = spreads_before(rows, block)
            t = spread_y / spread_x
        x, y = means_before(rows, block)
        aside = (cell.center - root * x - y / root) / unit
        looks[block, 0], looks[block, 1] = t / shrunk, 1.0 / (t * shrunk)
        looks[block, 2], looks[block, 3] = x + aside * along_x, y + aside * along_y
