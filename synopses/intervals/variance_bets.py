"""The learning player of learned_bets.py for variances: bets on squared distances.

For a number c that is fixed before a block, (y - c)^2 has the mean v + (m - c)^2, where m is the
mean and v the variance. The rows are dealt into blocks, and factors of a block have expectation at
most 1, as learned_bets.py argues for any values that are fixed before the block.

Upper end. Whatever m is, (y - c)^2 has a mean of v at least. So the product of
  1 + b (excess + v - (y - c)^2)  for a row that counts,  1 + b excess  for one that does not
rules v out. c is the mean of the rows before, and no bound for the mean is needed.

Lower end. The means that may be are cut into cells of centre c and half width d. If m lies in the
cell, (y - c)^2 has a mean of v + d^2 at most. The lower end is the least over all cells that meet
an interval of the mean, which has a small part of delta. A cell away from the sample's mean costs
nothing: there the mean of (y - c)^2 is larger. So no cell has a part of delta of its own.

The first rows, on which nothing is bet, decide the cells of means, those of variances, and how
delta is split between the two ends. They end with the first block before which enough rows count.

Source: Martinez-Taboada & Ramdas 2025, arXiv 2505.01987 (squared distances from the mean of the
rows before, for both ends); the cells of means and the bets that aim are ours.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.learned_bets import Plan, make_plan, slope_of

_ROWS_ABOVE: Final = 2  # That count, before the first bet on the upper end.
_ROWS_BELOW: Final = 4  # Likewise for the lower end, whose cells of means they decide.
_CAP: Final = 0.99  # Of the bet that could lose all.
_ROOM_MIN: Final = 1e-9  # Of what a factor may lose; rounding could make it negative.
# Cells of variances. Twice as fine, they narrow an interval by 1 % and take twice the time.
_CELL_MIN: Final = 0.6  # Of the half width that the first rows predict.
_CELL: Final = 0.4  # Of the distance from the variance of the first rows.
_NEAR: Final = 8.0  # Half widths: farther out a cell is half of its distance.
_LEAST: Final = 0.25  # Of the variance of the first rows: the lowest cell ends here.
# Cells of means. A cell costs the lower end the square of half its width.
_MEANS: Final = 1.0  # Half a cell in the middle, in standard errors of the mean.
_HALF_MIN: Final = 1e-12  # Of the range: half a cell is not less.
_GROWTH: Final = 0.25  # Of the distance from the mean of the first rows: no cell is narrower.
_FAR: Final = 3.0  # Variances of the first rows: at this squared distance cells begin to double.
_PRECISE: Final = 0.05  # The ends are found to this part of the width, on the safe side.

Floats = NDArray[np.float64]


class _Game(NamedTuple):
    """The blocks of a sample, in units of its range, 0 at its mean.

    low, high: the range. cubes, fourths: float64 [blocks], sums of powers over earlier blocks.
    start: the first block on which anything is bet.
    mean, variance, spread: of the rows before it; spread: the variance of their squared distances.
    rows: how many will have counted in all, as these rows predict.
    """

    plan: Plan
    low: float
    high: float
    cubes: Floats
    fourths: Floats
    start: int
    mean: float
    variance: float
    spread: float
    rows: float


@njit(nogil=True, cache=True)
def variances_by_bets(
    starts: NDArray[np.int64],
    values: Floats,
    absent: NDArray[np.int64],
    ranges: Floats,
    means: Floats,
    populations: NDArray[np.int64],
    how: tuple[float, np.uint64],
) -> Floats:
    """Bounds for the average of (y - m)^2 about the mean m of all values of each group.

    Args:
      starts: int64 [groups + 1]; values: float64 [matches]: those of `SampledValues`.
      absent: int64 [groups], rows read without a value.
      ranges: float64 [groups, 2], that holds every value.
      means: float64 [groups, 2], an interval of the mean; its miss is not part of delta.
      populations: int64 [groups], N.
      how: delta, and the seed of the shuffle.

    Returns:
      bounds: float64 [groups, 2]; 0 and a quarter of the squared range where too few rows count.
    """
    delta, seed = how
    bounds = np.zeros((len(ranges), 2))
    for group in range(len(ranges)):
        width = ranges[group, 1] - ranges[group, 0]
        bounds[group, 1] = 0.25 * width * width
        first, last = starts[group], starts[group + 1]
        if not 0.0 < width < np.inf or first == last:
            continue
        middle = values[first:last].mean()
        game = _game(
            (values[first:last] - middle) / width,
            (ranges[group, 0] - middle) / width,
            (absent[group], populations[group], False, 0.0, seed),
        )
        above, below = _after(game, _ROWS_ABOVE), _after(game, _ROWS_BELOW)
        if above.start == len(game.cubes):
            continue
        part = _upper_share(above, -math.log(0.5 * delta))
        bounds[group, 1] = _upper(above, part * delta) * width * width
        if below.start < len(game.cubes):
            ends = (means[group, 0] - middle) / width, (means[group, 1] - middle) / width
            bounds[group, 0] = _lower(below, (1.0 - part) * delta, ends) * width * width
    return bounds


@njit(nogil=True, cache=True)
def _game(values: Floats, low: float, rest: tuple[int, int, bool, float, np.uint64]) -> _Game:
    plan = make_plan(values, rest)
    blocks = len(plan.before)
    cubes, fourths = np.zeros(blocks), np.zeros(blocks)
    cube = fourth = 0.0
    for block in range(blocks):
        cubes[block], fourths[block] = cube, fourth
        for row in range(plan.starts[block], plan.starts[block + 1]):
            square = plan.shares[row] * plan.shares[row]
            cube += square * plan.shares[row]
            fourth += square * square
    return _Game(plan, low, low + 1.0, cubes, fourths, blocks, 0.0, 0.0, 0.0, 0.0)


@njit(nogil=True, cache=True)
def _after(game: _Game, rows_min: int) -> _Game:
    """The game that begins with the first block before which so many rows count."""
    plan, start = game.plan, 0
    while start < len(plan.counts) and plan.counts[start] < rows_min:
        start += 1
    mean = variance = spread = rows = 0.0
    if start < len(plan.counts):
        count = plan.counts[start]
        rows = count * (len(plan.shares) + plan.others.sum()) / plan.before[start]
        mean = plan.sums[start] / count
        total, squares = _about(game, start, mean)
        variance = total / count if total > 0.0 else 0.25 / rows
        spread = max(squares / count - variance * variance, 0.5 * variance * variance)
    low, high, cubes, fourths = game.low, game.high, game.cubes, game.fourths
    return _Game(plan, low, high, cubes, fourths, start, mean, variance, spread, rows)


@njit(nogil=True, cache=True, inline="always")
def _about(game: _Game, block: int, center: float) -> tuple[float, float]:
    """Of the rows before a block: the sum of (y - center)^2, and of its square."""
    plan = game.plan
    count, total, square = plan.counts[block], plan.sums[block], plan.squares[block]
    twice = center * center
    first = square - 2.0 * center * total + twice * count
    second = (
        game.fourths[block]
        - 4.0 * center * game.cubes[block]
        + 6.0 * twice * square
        - 4.0 * twice * center * total
        + twice * twice * count
    )
    return max(first, 0.0), max(second, 0.0)


@njit(nogil=True, cache=True)
def _upper_share(game: _Game, rich: float) -> float:
    """The upper end's part of delta; see `tail_share` of learned_bets.py."""
    root = math.sqrt(game.spread / (2.0 * rich * game.rows))
    reach = max(game.high - game.mean, game.mean - game.low) ** 2
    upper = root + max(reach - game.variance, 0.0) / game.rows
    lower = root + game.variance / game.rows
    return min(max(upper / (upper + lower), 0.05), 0.95) if upper + lower > 0.0 else 0.5


@njit(nogil=True, cache=True, inline="always")
def _cell_width(game: _Game, half_width: float, end: float) -> float:
    away = abs(end - game.variance)
    return max(_CELL_MIN * half_width, (_CELL if away < _NEAR * half_width else 0.5) * away)


@njit(nogil=True, cache=True)
def _own(game: _Game) -> float:
    """The variance of all rows that count."""
    return float((game.plan.shares * game.plan.shares).mean())


@njit(nogil=True, cache=True)
def _upper(game: _Game, tail: float) -> float:
    """An upper bound for the variance, wrong with probability `tail`, cell by cell downwards."""
    rich, own = -math.log(tail), _own(game)
    half_width = math.sqrt(2.0 * rich * game.spread / game.rows) + 0.125 / game.rows
    bets, seen = np.zeros(len(game.cubes)), np.zeros((len(game.cubes), 3))
    for block in range(game.start, len(bets)):
        center = game.plan.sums[block] / game.plan.counts[block]
        _look(game, seen, block, min(max(center, game.low), game.high))
    high = low = 0.25
    while high > own:
        low = max(high - _cell_width(game, half_width, high), 0.0)
        if not _bet_below(game, seen, low, rich, bets):
            break
        high = low
    if high <= own or _wealth(game, seen, high, rich, bets) < rich:
        return max(high, own)
    while high - low > _PRECISE * abs(high - own):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if _wealth(game, seen, middle, rich, bets) < rich:
            low = middle
        else:
            high = middle
    return max(high, own)


@njit(nogil=True, cache=True)
def _lower(game: _Game, tail: float, ends: tuple[float, float]) -> float:
    """A lower bound for the variance, wrong with probability `tail`: the least over cells of means.

    It is not above the variance of the sample. Cells of means that do not meet `ends` are left out.
    """
    rich, own = -math.log(tail), _own(game)
    half_width = math.sqrt(2.0 * rich * game.spread / game.rows) + 0.5 * game.variance / game.rows
    bets, seen = np.zeros(len(game.cubes)), np.zeros((len(game.cubes), 3))
    cells = _cells_of_means(game, ends)
    least = own
    for cell in np.argsort(np.abs(cells[:, 0])):  # The sample's mean is 0.
        center, aside = cells[cell]
        for block in range(game.start, len(bets)):
            _look(game, seen, block, center)
        low = 0.0
        while low < least:
            width = min(_cell_width(game, half_width, low), max(low, _LEAST * game.variance))
            high = low + max(width, aside, low if low > game.variance / _LEAST else 0.0)
            if not _bet_above(game, seen, high + aside, rich, bets):
                high = min(high, least)
                found = _crossing(game, seen, (low, high), rich, own, aside, bets)
                if found < high:
                    least = found
                    break
            low = high
    return least


@njit(nogil=True, cache=True)
def _cells_of_means(game: _Game, ends: tuple[float, float]) -> Floats:
    """Centre and squared half width of each cell that meets `ends`, outwards from the middle."""
    half = max(_MEANS * math.sqrt(game.variance / game.rows), _HALF_MIN)
    most = 2 * int(math.log(1.0 / half) / math.log1p(_GROWTH) + 1.0 / _GROWTH + 9.0) + 1
    cells = np.empty((most, 2))
    cells[0] = game.mean, half * half
    count, near = 1, half
    while near < 1.0:
        far = near + max(
            2.0 * half, near * (_GROWTH if near * near < _FAR * game.variance else 1.0)
        )
        for side in (-1.0, 1.0):
            first, last = game.mean + side * near, game.mean + side * far
            if max(first, last) >= ends[0] and min(first, last) <= ends[1]:
                cells[count] = 0.5 * (first + last), 0.25 * (far - near) ** 2
                count += 1
        near = far
    return cells[:count]


@njit(nogil=True, cache=True)
def _crossing(
    game: _Game,
    seen: Floats,
    ends: tuple[float, float],
    rich: float,
    own: float,
    aside: float,
    bets: Floats,
) -> float:
    """Return where in a cell the wealth, which falls, becomes too little, on the safe side.

    Nothing below the cell is left. So its lower end is returned if the wealth is nowhere enough.
    """
    low, high = ends
    if _wealth(game, seen, high + aside, rich, bets) >= rich:
        return high
    while high - low > _PRECISE * (own - low):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if _wealth(game, seen, middle + aside, rich, bets) < rich:
            high = middle
        else:
            low = middle
    return low


@njit(nogil=True, cache=True, inline="always")
def _look(game: _Game, seen: Floats, block: int, center: float) -> None:
    """Write down a block's centre, and the sums of squares and fourth powers before it."""
    total, squares = _about(game, block, center)
    seen[block, 0], seen[block, 1], seen[block, 2] = center, total, squares


@njit(nogil=True, cache=True)
def _bet_below(game: _Game, seen: Floats, variance: float, rich: float, bets: Floats) -> bool:
    """Bet that the variance is below a number; overwrite `bets`; return whether that made rich."""
    plan = game.plan
    bets[:] = 0.0
    wealth = 0.0
    for block in range(game.start, len(bets)):
        if plan.weights[block] == 0.0:
            continue
        before, count = plan.before[block], plan.counts[block]
        center, total, squares = seen[block]
        reach = max(game.high - center, center - game.low) ** 2
        expected = variance + (count * variance - total) / (plan.population - before)
        # As in learned_bets.py: part of a value at the far end is added to the spread of the rows.
        share, mean = (count + 0.5) / (before + 0.5), variance / reach
        unseen = share * (1.0 - mean) * min(1.0, mean * game.rows / count) * reach * reach
        spread = squares - 2.0 * variance * total + variance * variance * count
        spread = (max(spread, 0.0) + unseen) / (before + 0.5)
        deviation = math.sqrt(min(spread, share * variance * (reach - variance)))
        slope = slope_of(rich - wealth) * plan.weights[block]
        cap = _CAP / max(reach - expected, _ROOM_MIN * reach)
        bets[block] = cap if slope >= cap * deviation else slope / deviation
        wealth += _gain(game, seen, variance, block, bets[block])
        if wealth >= rich:
            return True
    return False


@njit(nogil=True, cache=True)
def _bet_above(game: _Game, seen: Floats, average: float, rich: float, bets: Floats) -> bool:
    """Bet that squared distances are above a number on average: as `_bet_below`, bets negative."""
    plan = game.plan
    bets[:] = 0.0
    wealth = 0.0
    for block in range(game.start, len(bets)):
        if plan.weights[block] == 0.0:
            continue
        before, count = plan.before[block], plan.counts[block]
        _, total, squares = seen[block]
        expected = average + (count * average - total) / (plan.population - before)
        share = (count + 0.5) / (before + 0.5)
        spread = squares - 2.0 * average * total + average * average * count
        deviation = math.sqrt((max(spread, 0.0) + share * average * average) / (before + 0.5))
        slope = slope_of(rich - wealth) * plan.weights[block]
        cap = _CAP / max(expected, _ROOM_MIN * average)
        bets[block] = -(cap if slope >= cap * deviation else slope / deviation)
        wealth += _gain(game, seen, average, block, bets[block])
        if wealth >= rich:
            return True
    return False


@njit(nogil=True, cache=True)
def _wealth(game: _Game, seen: Floats, average: float, rich: float, bets: Floats) -> float:
    """Log of the wealth that given bets make if squared distances have this average."""
    wealth = 0.0
    for block in range(game.start, len(bets)):
        if bets[block] == 0.0:
            continue
        wealth += _gain(game, seen, average, block, bets[block])
        if wealth >= rich:
            break
    return wealth


@njit(nogil=True, cache=True, inline="always")
def _gain(game: _Game, seen: Floats, average: float, block: int, bet: float) -> float:
    """Log of what the wealth grows by in a block."""
    plan = game.plan
    center, total, _ = seen[block]
    excess = (plan.counts[block] * average - total) / (plan.population - plan.before[block])
    gain = 0.0
    if plan.others[block] > 0:
        gain = plan.others[block] * math.log1p(bet * excess)
    expected = average + excess
    product = 1.0
    for row in range(plan.starts[block], plan.starts[block + 1]):
        away = plan.shares[row] - center
        product *= 1.0 + bet * (expected - away * away)
        if not 1e-150 < product < 1e150:
            gain += math.log(product)
            product = 1.0
    return gain + math.log(product)
