"""The learning player of betting.py: it reads a sample block by block and bets by what it saw.

The sampled rows are dealt at random (by a hash of the sample itself) into blocks; read in this
order they are a simple random sample drawn row by row. Before a block, let c rows have counted
with sum S, of n' read in all: were u the true mean, the N - n' rows not yet read would have the
mean excess (c u - S)/(N - n') over u (over 0 for rows that do not count). So with a bet b that is
fixed before the block, the product over its rows of

  1 + b (excess + u - z)  for a row that counts,  1 + b excess  for one that does not

has, given all earlier rows, expectation at most 1 (negative association within the block), and the
wealth over all blocks is a supermartingale. It grows with u: excess does, and b does not know u.
A bet is the best one for the variance seen so far, b = a sqrt(2 log(2/tail) / sum of n_b a_b^2) /
deviation with a = N/(N - n'), which is what a finite population adds to the drift; it is capped so
that no factor can fall below 1 - cap whatever u in [0, 1] is.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.hashing import GOLDEN, splitmix

# Where blocks end, as parts of the sample: on the first nothing is bet.
_ENDS: Final[NDArray[np.float64]] = np.array([1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0])
_SEEN_MIN: Final = 8  # Values seen before the first bet: fewer say too little of the variance.
_CAP: Final = 0.9


class Plan(NamedTuple):
    """A sample dealt into blocks, with the bets on each.

    shares: float64 [matches], values in [0, 1] in the order of their blocks.
    starts: int64 [blocks + 1], where each block's values begin.
    others: int64 [blocks], its rows without a value.
    bets: float64 [blocks]; no block at all means that the player does not take part.
    counted, summed: float64 [blocks], c/(N - n') and S/(N - n') before the block.
    others_count: whether rows without a value count, as zeros.
    """

    shares: NDArray[np.float64]
    starts: NDArray[np.int64]
    others: NDArray[np.int64]
    bets: NDArray[np.float64]
    counted: NDArray[np.float64]
    summed: NDArray[np.float64]
    others_count: bool


@njit(nogil=True, cache=True)
def no_plan() -> Plan:
    """A player who does not take part."""
    none = np.zeros(0)
    return Plan(none, np.zeros(0, np.int64), np.zeros(0, np.int64), none, none, none, False)


@njit(nogil=True, cache=True)
def make_plan(
    shares: NDArray[np.float64],
    rest: tuple[int, int, bool, float],
    rich: float,
) -> Plan:
    """Deal the rows into blocks and fix the bets.

    Args:
      shares: float64 [matches], values in [0, 1].
      rest: rows without a value, N, whether those rows count, and the value they count as.
      rich: log of the wealth that rules a mean out.
    """
    absent, population, others_count, zero = rest
    read = len(shares) + absent
    blocks = len(_ENDS)
    ends = np.empty(blocks + 1, np.int64)
    ends[0] = 0
    for block in range(blocks):
        ends[block + 1] = math.ceil(_ENDS[block] * read)
    labels, room = _deal(len(shares), ends, _seed(shares, read))
    ordered, starts = _in_order(shares, labels, blocks)
    gain = 0.0
    for block in range(1, blocks):
        drift = population / (population - ends[block])
        gain += (ends[block + 1] - ends[block]) * drift * drift
    bets, counted, summed = np.zeros(blocks), np.zeros(blocks), np.zeros(blocks)
    total = squares = 0.0
    zeros = 0
    for block in range(blocks):
        before = float(ends[block])
        seen = starts[block]
        if block > 0:
            left = population - before
            count = seen + zeros
            counted[block] = count / left
            summed[block] = (total + zeros * zero) / left
            if seen >= _SEEN_MIN:
                mean = (total + zeros * zero) / count
                spread = squares + zeros * zero * zero - count * mean * mean
                cap = _CAP / (1.0 + counted[block])
                drift = population / left
                # The squares of rounding errors must not make a bet larger than the cap.
                error = math.sqrt(max(spread, 1e-300) / before)
                bets[block] = min(cap, drift * math.sqrt(2.0 * rich / gain) / error)
        for row in range(starts[block], starts[block + 1]):
            total += ordered[row]
            squares += ordered[row] * ordered[row]
        if others_count:
            zeros += room[block]
    return Plan(ordered, starts, room, bets, counted, summed, others_count)


@njit(nogil=True, cache=True)
def mirrored(plan: Plan) -> Plan:
    """The same plan for 1 - z: the other end of the interval."""
    return Plan(
        1.0 - plan.shares,
        plan.starts,
        plan.others,
        plan.bets,
        plan.counted,
        plan.counted - plan.summed,
        plan.others_count,
    )


@njit(nogil=True, cache=True)
def learned_wealth(plan: Plan, zero: float, mean: float) -> float:
    """Log of the wealth after all blocks if the mean were `mean`; zero: what absent rows count."""
    wealth = 0.0
    for block in range(len(plan.bets)):
        bet = plan.bets[block]
        if bet == 0.0:
            continue
        excess = plan.counted[block] * mean - plan.summed[block]
        away = excess + (mean - zero if plan.others_count else 0.0)
        wealth += plan.others[block] * math.log1p(bet * away)
        first, last = plan.starts[block], plan.starts[block + 1]
        wealth += log_product(plan.shares, first, last, bet, excess + mean)
    return wealth


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
    for at in range(row, last):
        total += math.log(1.0 + bet * (mean - shares[at]))
    return total + math.log(product)


@njit(nogil=True, cache=True)
def _seed(shares: NDArray[np.float64], read: int) -> np.uint64:
    """A seed out of the sample itself: another sample is dealt otherwise, a replay the same.

    One dealing for all samples would not do: how many matches fall into a block must be random.
    """
    state = np.uint64(read)
    for bits in shares.view(np.uint64):
        state = splitmix((state ^ bits) + GOLDEN)
    return state


@njit(nogil=True, cache=True)
def _deal(
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
def _in_order(
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
