"""The learning player of betting.py: bets on a shuffled sample, by what was seen before each.

The sampled rows are dealt at random into blocks: by a hash of the sample's values, and of a seed
that the values do not determine. Read in this order they are a simple random sample drawn row by
row. Before a block, let c rows have counted
with sum S, of n' read in all. If u is the true mean, the N - n' rows not yet read have the mean
excess (c u - S)/(N - n') over u (over 0 for rows that do not count). So with a bet b that is
fixed before the block, the product over its rows of

  1 + b (excess + u - z)  for a row that counts,  1 + b excess  for one that does not

has, given all earlier rows, expectation at most 1 (negative association within the block). The
wealth W over all blocks is a supermartingale. With probability at most `tail` it is ever 1/tail
(Ville 1939), and then betting ends and u is ruled out.

Bets aim at that wealth by the last row. Reaching a wealth by a deadline is what a digital option
pays for: while p = W tail < 1, the best bet on small steps of deviation s, of which n are left, is
  b = phi(x)/(p s sqrt(n)),  Phi(x) = p.
It makes W tail the probability that a normal total exceeds its quantile, so the interval is as
narrow as the normal one where steps are small beside the range. A bet that does not aim pays for
Markov's inequality instead: sqrt(2 log(1/tail)), 1.39 times as much at 95 %. In a finite population
the n rows left count by their squared drifts (N/(N - n'))^2. s is estimated from the blocks before,
and every factor is kept above 1 - cap.

Bets that know W know u, so W need not grow with u, as a bound by one crossing requires. Therefore
the means are cut into cells, by the first block alone, on which nothing is bet. All means of a cell
share the bets that the least of them would make, and W grows with u within the cell. Cells are
tested from 1 downwards: the bound is the crossing in the first that is not ruled out as a whole.
The true mean lies in one cell, and is beyond the bound only if it is ruled out there. The first
block also splits delta between the two ends.

Source: Kulldorff 1993, SIAM J. Control Optim. 31(1), and Browne 1999, Adv. Appl. Prob. 31(2)
(digital options); Voracek & Orabona 2025, arXiv 2505.22422 (bets that aim, for confidence
intervals); the cells and the blocks are ours.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from synopses.kernels.hashing import GOLDEN, splitmix

# Where blocks end, as parts of the sample: on the first nothing is bet.
BLOCK_ENDS: Final[NDArray[np.float64]] = np.array(
    [1 / 32] + [part / 16 for part in range(1, 16)] + [1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128, 1.0]
)
_ROWS_MIN: Final = 64  # Of a smaller sample the first block is empty: its rows would be missed.
_CAP: Final = 0.99  # Of the bet that could lose all.
_ROOM_MIN: Final = 1e-9  # Between what is expected and 1: rounding could make it negative.
_STEP: Final = 0.125  # Between the nodes of _SLOPES, in log wealth.
_NODES: Final = np.arange(0.0, 64.0, _STEP)
# phi(x)/p where Phi(x) = p = exp(-lack).
_SLOPES: Final[NDArray[np.float64]] = np.exp(
    -0.5 * ndtri_exp(-_NODES[1:]) ** 2 - 0.5 * math.log(2.0 * math.pi) + _NODES[1:]
)
_CELL_MIN: Final = 0.3  # Of the half-width that the first block predicts.
_CELL: Final = 0.2  # Of the distance from the first block's mean.
_NEAR: Final = 8.0  # Half-widths: farther out a cell is half of its distance.
_PRECISE: Final = 0.02  # The ends are found to this part of the width, on the safe side.


# Cached kernels name this class: without it an index that an older version wrote is not readable.
class Plan(NamedTuple):
    """A sample dealt into blocks, with what is known before each.

    shares: float64 [matches], values in [0, 1] in the order of their blocks.
    starts: int64 [blocks + 1], where each block's values begin.
    others: int64 [blocks], its rows without a value.
    before: float64 [blocks], rows of the earlier blocks.
    counts, sums, squares: float64 [blocks], those of them that count, their sum, that of squares.
    weights: float64 [blocks], N/(N - n') over the root of its squares' sum over the rows left; 0 of
      an empty block.
    population: N. others_count: whether rows without a value count.
    """

    shares: NDArray[np.float64]
    starts: NDArray[np.int64]
    others: NDArray[np.int64]
    before: NDArray[np.float64]
    counts: NDArray[np.float64]
    sums: NDArray[np.float64]
    squares: NDArray[np.float64]
    weights: NDArray[np.float64]
    population: float
    others_count: bool


@njit(nogil=True, cache=True)
def make_plan(shares: NDArray[np.float64], rest: tuple[int, int, bool, float, np.uint64]) -> Plan:
    """Deal the rows into blocks.

    Args:
      shares: float64 [matches], values in [0, 1].
      rest: rows without a value, N, whether those rows count, the value they count as, and the
        seed of the shuffle.
    """
    absent, population, others_count, zero, seed = rest
    read = len(shares) + absent
    ends = block_ends(read)
    blocks = len(BLOCK_ENDS)
    labels, room = deal(len(shares), ends, seed_of(shares, read, seed))
    ordered, starts = in_order(shares, labels, blocks)
    counts, sums, squares = np.zeros(blocks), np.zeros(blocks), np.zeros(blocks)
    total = square = 0.0
    count = 0
    for block in range(blocks):
        counts[block], sums[block], squares[block] = count, total, square
        for row in range(starts[block], starts[block + 1]):
            total += ordered[row]
            square += ordered[row] * ordered[row]
        count += starts[block + 1] - starts[block]
        if others_count:
            count += room[block]
            total += room[block] * zero
            square += room[block] * zero * zero
    weights = block_weights(ends, population)
    before, size = ends[:-1].astype(np.float64), float(population)
    return Plan(ordered, starts, room, before, counts, sums, squares, weights, size, others_count)


@njit(nogil=True, cache=True)
def block_ends(read: int) -> NDArray[np.int64]:
    """int64 [blocks + 1], the row at which each block of `read` rows begins."""
    ends = np.zeros(len(BLOCK_ENDS) + 1, np.int64)
    for block in range(len(BLOCK_ENDS)):
        if block > 0 or read >= _ROWS_MIN:
            ends[block + 1] = math.ceil(BLOCK_ENDS[block] * read)
    return ends


@njit(nogil=True, cache=True)
def block_weights(ends: NDArray[np.int64], population: int) -> NDArray[np.float64]:
    """float64 [blocks], the `weights` of `Plan`."""
    blocks = len(ends) - 1
    weights = np.zeros(blocks)
    gain = 0.0
    for block in range(blocks - 1, -1, -1):
        rows = ends[block + 1] - ends[block]
        if rows > 0:
            drift = population / (population - ends[block])
            gain += rows * drift * drift
            weights[block] = drift / math.sqrt(gain)
    return weights


@njit(nogil=True, cache=True)
def mirrored(plan: Plan) -> Plan:
    """The same plan for 1 - z: the other end of the interval."""
    return Plan(
        1.0 - plan.shares,
        plan.starts,
        plan.others,
        plan.before,
        plan.counts,
        plan.counts - plan.sums,
        plan.counts - 2.0 * plan.sums + plan.squares,
        plan.weights,
        plan.population,
        plan.others_count,
    )


@njit(nogil=True, cache=True)
def tail_share(plan: Plan, rich: float) -> float:
    """The upper end's part of delta, by the first block.

    An end is off by about deviation sqrt(2 rich/n) + (distance of the range's end) rich/n, with
    rich = log(1/its part). The sum of both is least where parts are as the derivatives over rich.
    """
    count, mean, variance = _first_block(plan)
    root = math.sqrt(variance / (2.0 * rich * count))
    upper, lower = root + (1.0 - mean) / count, root + mean / count
    return min(max(upper / (upper + lower), 0.1), 0.9)


@njit(nogil=True, cache=True)
def learned_upper(plan: Plan, zero: float, tail: float) -> float:
    """An upper bound for the mean, wrong with probability `tail`: cell by cell, see the module.

    It is not below the mean of the sample.
    """
    rich = -math.log(tail)
    count, middle, variance = _first_block(plan)
    half_width = math.sqrt(2.0 * rich * variance / count) + 0.5 / count
    own = _mean(plan, zero)
    bets = np.zeros(len(plan.before))
    high = 1.0
    while high > own:
        away = abs(high - middle)
        width = max(_CELL_MIN * half_width, (_CELL if away < _NEAR * half_width else 0.5) * away)
        low = max(high - width, 0.0)
        if not bet_against(plan, zero, low, rich, bets):
            break
        high = low
    if high <= own or learned_wealth(plan, zero, high, rich, bets) < rich:
        return max(high, own)
    while high - low > _PRECISE * abs(high - own):
        mean = 0.5 * (low + high)
        if not low < mean < high:
            break
        if learned_wealth(plan, zero, mean, rich, bets) < rich:
            low = mean
        else:
            high = mean
    return max(high, own)


@njit(nogil=True, cache=True)
def _mean(plan: Plan, zero: float) -> float:
    """Of all rows that count, at least one."""
    zeros = plan.others.sum() if plan.others_count else 0
    return float((plan.shares.sum() + zeros * zero) / (len(plan.shares) + zeros))


@njit(nogil=True, cache=True)
def _first_block(plan: Plan) -> tuple[float, float, float]:
    """Rows that will have counted in all, their mean and their variance, by the first block."""
    count = plan.counts[1]
    rows = len(plan.shares) + plan.others.sum()
    if count == 0.0:
        return rows / max(plan.before[1], 1.0), 0.5, 0.25
    mean = plan.sums[1] / count
    variance = max(plan.squares[1] / count - mean * mean, 0.0)
    return count * rows / plan.before[1], mean, variance


@njit(nogil=True, cache=True)
def bet_against(
    plan: Plan, zero: float, mean: float, rich: float, bets: NDArray[np.float64]
) -> bool:
    """Bet against `mean` block by block.

    Args:
      zero: what rows without a value count as.
      rich: log of the wealth at which betting ends.
      bets: float64 [blocks], overwritten by the bets made.

    Returns: whether that wealth was reached.
    """
    bets[:] = 0.0
    wealth = 0.0
    rows = float(len(plan.shares) + plan.others.sum())
    for block in range(1, len(bets)):
        if plan.weights[block] == 0.0:
            continue
        before, count = plan.before[block], plan.counts[block]
        left = plan.population - before
        excess = (count * mean - plan.sums[block]) / left
        expected = excess + mean
        # The rows seen may have missed a value at the far end of the range, of which the mean
        # allows mean * rows: part of one such value is added to their spread.
        share = (count + 0.5) / (before + 0.5)
        spread = plan.squares[block] - 2.0 * mean * plan.sums[block] + mean * mean * count
        unseen = share * (1.0 - mean) * min(1.0, mean * rows / max(before, 1.0))
        variance = (max(spread, 0.0) + unseen) / (before + 0.5)
        variance = min(variance, share * mean * (1.0 - mean))
        slope = slope_of(rich - wealth) * plan.weights[block]
        cap = _CAP / max(1.0 - expected, _ROOM_MIN)
        bets[block] = cap if slope >= cap * math.sqrt(variance) else slope / math.sqrt(variance)
        wealth += _gain(plan, zero, mean, block, bets[block])
        if wealth >= rich:
            return True
    return False


@njit(nogil=True, cache=True)
def learned_wealth(
    plan: Plan, zero: float, mean: float, rich: float, bets: NDArray[np.float64]
) -> float:
    """Log of the wealth that given bets make if the mean is `mean`; arguments: `bet_against`."""
    wealth = 0.0
    for block in range(1, len(bets)):
        if bets[block] == 0.0:
            continue
        wealth += _gain(plan, zero, mean, block, bets[block])
        if wealth >= rich:
            break
    return wealth


@njit(nogil=True, cache=True, inline="always")
def _gain(plan: Plan, zero: float, mean: float, block: int, bet: float) -> float:
    """Log of what the wealth grows by in a block."""
    left = plan.population - plan.before[block]
    excess = (plan.counts[block] * mean - plan.sums[block]) / left
    gain = 0.0
    if plan.others[block] > 0:
        away = excess + (mean - zero if plan.others_count else 0.0)
        gain = plan.others[block] * math.log1p(bet * away)
    first, last = plan.starts[block], plan.starts[block + 1]
    if first < last:
        gain += log_product(plan.shares, first, last, bet, excess + mean)
    return gain


@njit(nogil=True, cache=True)
def slope_of(lack: float) -> float:
    """phi(x)/p where Phi(x) = p = exp(-lack), lack > 0, between the nodes of a table."""
    place = lack / _STEP
    node = min(int(place), len(_SLOPES) - 1)
    below = _SLOPES[node - 1] if node > 0 else 0.0
    return float(below + (place - node) * (_SLOPES[node] - below))


@njit(nogil=True, cache=True)
def log_product(
    shares: NDArray[np.float64], first: int, last: int, bet: float, mean: float
) -> float:
    """Log of the product of 1 + bet (mean - share) over the shares from first to last (exclusive).

    Four products at once, because one waits for each of its factors; every 32 of these they are
    joined, and a logarithm is taken only of what would soon be no number any more.
    """
    total, product = 0.0, 1.0
    row = first
    while row + 32 <= last:
        a = b = c = d = 1.0
        for at in range(row, row + 32, 4):
            a *= 1.0 + bet * (mean - shares[at])
            b *= 1.0 + bet * (mean - shares[at + 1])
            c *= 1.0 + bet * (mean - shares[at + 2])
            d *= 1.0 + bet * (mean - shares[at + 3])
        joined = (a * b) * (c * d)
        if 1e-150 < joined < 1e150:
            product *= joined
        else:  # A mean close to 1 has factors of any size.
            total += math.log(a) + math.log(b) + math.log(c) + math.log(d)
        if product < 1e-150 or product > 1e150:
            total += math.log(product)
            product = 1.0
        row += 32
    rest = 1.0
    for at in range(row, last):
        rest *= 1.0 + bet * (mean - shares[at])
    if 1e-150 < rest < 1e150:
        return total + math.log(product * rest)
    for at in range(row, last):
        total += math.log(1.0 + bet * (mean - shares[at]))
    return total + math.log(product)


@njit(nogil=True, cache=True)
def seed_of(shares: NDArray[np.float64], read: int, seed: np.uint64) -> np.uint64:
    """Combine the seed of the shuffle with the sample: a replay shuffles alike.

    One shuffle for all samples is not valid: how many matches fall into a block must be random.
    The values alone do not make it random. Of k equal values behind a filter, only k varies.
    """
    state = seed ^ np.uint64(read)
    for bits in shares.view(np.uint64):
        state = splitmix((state ^ bits) + GOLDEN)
    return state


@njit(nogil=True, cache=True)
def deal(
    count: int, ends: NDArray[np.int64], state: np.uint64
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A block for each of `count` rows, as if all rows had been shuffled; the room left over."""
    room = ends[1:] - ends[:-1]
    labels = np.empty(count, np.int64)
    left = ends[-1]
    for row in range(count):
        state += GOLDEN
        place = int(float(splitmix(state) >> np.uint64(11)) * 2.0**-53 * left)
        block = 0
        while place >= room[block]:
            place -= room[block]
            block += 1
        labels[row] = block
        room[block] -= 1
        left -= 1
    return labels, room


@njit(nogil=True, cache=True)
def in_order(
    shares: NDArray[np.float64], labels: NDArray[np.int64], blocks: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The values block by block, and where each block begins."""
    starts = np.zeros(blocks + 1, np.int64)
    for label in labels:
        starts[label + 1] += 1
    starts = np.cumsum(starts)
    at = starts[:-1].copy()
    ordered = np.empty(len(shares))
    for row in range(len(shares)):
        ordered[at[labels[row]]] = shares[row]
        at[labels[row]] += 1
    return ordered, starts
