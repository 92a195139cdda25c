"""The learning player over strata: one test of a total or a ratio, by rows in a random order.

The player of learned_bets.py, with the weights of moment_bets.py. Stratum h has N_h rows, of which
n_h were read, simple random samples without replacement; N is the sum of N_h. Each stratum's rows
are dealt into blocks at random. Before a block, v_h = (N_h - n'_h)/N is the part of all rows that
stratum h has left. The block has k_h > 0 rows of each stratum, k in all, and g_h = v_h k/k_h. Under
the hypothesis that the mean over all N rows is u, a bet b that is fixed before the block makes

  1 + b (excess + g_h (u - z))  for a row of stratum h,  excess = (c u - S)/N,

where c rows with sum S have counted before. With m_h the mean of stratum h's rows not yet read, the
product over its rows in the block has an expectation of at most the factor at z = m_h, to the power
of k_h (Maclaurin's inequality; Hoeffding 1963, Thm 4). The product over strata is at most
(1 + b (excess + sum_h v_h (u - m_h)))^k (arithmetic and geometric means), where the sum over strata
is -excess. So the wealth is a supermartingale (Ville 1939), whatever the strata's means are.

A ratio r of totals has u - z = r - y for the group's rows and 0 for others. Rows of strata that
were read in full count as seen before the first block. Nothing is bet on blocks that lack rows of
some stratum. A deviation of u has the same effect on the excess in all blocks, and a row's variance
is s^2 A, with A = sum_h k_h/k g_h^2: so bets are as 1/A. Everything else is as in learned_bets.py.
Source: Spertus, Sridhar & Stark 2024, arXiv 2409.06680 (one martingale over strata), and the
sources of learned_bets.py; the weights are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.learned_bets import (
    BLOCK_ENDS,
    deal,
    in_order,
    log_product,
    seed_of,
    slope_of,
)
from synopses.intervals.sample_values import SampledValues
from synopses.kernels.hashing import GOLDEN
from synopses.model.overflow import SQUARES_MIN
from synopses.strata.moment_bets import ratio_ends, total_ends
from synopses.strata.stratum import Stratum

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ends = tuple[Floats, Floats]

_CAP: Final = 0.99  # Of the bet that could lose all.
_ROOM_MIN: Final = 1e-9  # Between what is expected and the range's end.
_CELL_MIN: Final = 0.3  # Of the half-width that the first block predicts.
_CELL: Final = 0.2  # Of the distance from the first block's mean.
_NEAR: Final = 8.0  # Half-widths: farther out a cell is half of its distance.
_PRECISE: Final = 0.02  # The ends are found to this part of the width, on the safe side.
_WIDTH_MIN: Final = math.sqrt(SQUARES_MIN)  # Of a range, as in moment_bets.py.
READ_MIN: Final = 64  # Rows of a stratum, of which each block has one at least.


class _Plan(NamedTuple):
    """The rows of a group's strata, dealt into blocks.

    shares: float64 [matches], values in [0, 1], by block, then stratum. starts: int64
    [blocks strata + 1]. others: int64 [blocks, strata], rows without a value.
    counts, sums, squares, before: float64 [blocks, strata], of earlier blocks: rows that count,
    their sum, that of squares, and all rows.
    gains: float64 [blocks, strata], g_h. parts: float64 [blocks, strata], of A. weights: float64
    [blocks], 1/A over the root of the sum of 1/A over all rows left; 0: nothing is bet.
    factors: float64 [strata], N_h/n_h. known: number and sum of values known before. size: N.
    zero: what rows without a value count as. others_count: whether they do.
    """

    shares: Floats
    starts: Ints
    others: Ints
    counts: Floats
    sums: Floats
    squares: Floats
    before: Floats
    gains: Floats
    parts: Floats
    weights: Floats
    factors: Floats
    known: tuple[float, float]
    size: float
    zero: float
    others_count: bool


def learned_total(
    strata: Sequence[Stratum],
    samples: Sequence[SampledValues],
    *,
    wanted: NDArray[np.bool_],
    delta: float,
) -> Ends:
    """Bounds for the total of each group's values over strata, by their rows.

    Args:
      strata: at least one. samples: the rows of those that skipped any, in this order.
      wanted: bool [groups]; elsewhere the bounds may be any valid ones.
      delta: the probability with which either end may miss, in (0, 1).

    Returns:
      (low, high): float64 [groups]; those of `total_ends` where a stratum has fewer rows than
      READ_MIN, or the range is infinite.
    """
    thinned = [s for s in strata if s.skipped]
    ends = [s.ends() for s in thinned]
    low, high = min((e[0] for e in ends), default=0.0), max((e[1] for e in ends), default=0.0)
    if not (wanted.any() and _is_usable(samples, low, high)):
        return total_ends(strata, delta=delta)
    known = np.zeros((2, len(wanted)))
    first, last = _bounded(samples, known, (low, high), (wanted, delta), others_count=True)
    size = float(sum(s.population for s in thinned))
    read = np.sum([np.zeros(len(wanted)), *(s.seen for s in strata if not s.skipped)], axis=0)
    return read + size * first, read + size * last


def learned_ratio(
    strata: Sequence[Stratum],
    samples: Sequence[SampledValues],
    *,
    wanted: NDArray[np.bool_],
    delta: float,
) -> Ends:
    """Bounds for the average of each group's values over strata, by their rows.

    Arguments and results are those of `learned_total`, with `ratio_ends` in place of `total_ends`.
    """
    there = [s for s in strata if s.population]
    low, high = min((s.low for s in there), default=0.0), max((s.high for s in there), default=0.0)
    if not (wanted.any() and _is_usable(samples, low, high)):
        return ratio_ends(strata, delta=delta)
    known = np.zeros((2, len(wanted)))
    for stratum in strata:
        if not stratum.skipped:
            known += np.stack([stratum.counts, stratum.seen])
    return _bounded(samples, known, (low, high), (wanted, delta), others_count=False)


def _is_usable(samples: Sequence[SampledValues], low: float, high: float) -> bool:
    with np.errstate(over="ignore"):
        width = high - low
    enough = all(int(s.reads[0]) >= READ_MIN for s in samples)
    return len(samples) > 0 and enough and _WIDTH_MIN < width < np.inf


def _bounded(
    samples: Sequence[SampledValues],
    known: Floats,
    ends: tuple[float, float],
    how: tuple[NDArray[np.bool_], float],
    *,
    others_count: bool,
) -> Ends:
    """known: float64 [2, groups], number and sum of values in strata that were read in full."""
    wanted, delta = how
    low, width = ends[0], ends[1] - ends[0]
    values = np.concatenate([s.values for s in samples])
    offsets = np.cumsum([0, *(len(s.values) for s in samples[:-1])])
    starts = np.stack([s.starts + at for s, at in zip(samples, offsets, strict=True)])
    found = _bounds(
        np.clip((values - low) / width, 0.0, 1.0),
        starts,
        np.array([int(s.populations[0]) for s in samples]),
        np.array([int(s.reads[0]) for s in samples]),
        np.stack([known[0], known[1] / width - low / width * known[0]]),
        np.array([s.shuffle_seed for s in samples], np.uint64),
        wanted,
        (delta, others_count, min(1.0, max(0.0, -low / width))),
    )
    return low + width * found[:, 0], low + width * found[:, 1]


@njit(nogil=True, cache=True)
def _bounds(
    shares: Floats,
    starts: Ints,
    sizes: Ints,
    reads: Ints,
    known: Floats,
    seeds: NDArray[np.uint64],
    wanted: NDArray[np.bool_],
    how: tuple[float, bool, float],
) -> Floats:
    delta, others_count, zero = how
    groups = starts.shape[1] - 1
    found = np.empty((groups, 2))
    found[:, 0], found[:, 1] = 0.0, 1.0
    for group in range(groups):
        count = known[0, group]
        for stratum in range(len(sizes)):
            count += starts[stratum, group + 1] - starts[stratum, group]
        if not wanted[group] or (count == 0.0 and not others_count):
            continue
        before = (known[0, group], known[1, group])
        place = (before, zero, others_count)
        plan = _make_plan(shares, starts[:, group : group + 2].copy(), sizes, reads, seeds, place)
        part = _tail_share(plan, -math.log(delta / 2.0))
        found[group, 1] = _upper(plan, part * delta)
        found[group, 0] = 1.0 - _upper(_mirrored(plan), (1.0 - part) * delta)
    return found


@njit(nogil=True, cache=True)
def _make_plan(
    shares: Floats,
    starts: Ints,
    sizes: Ints,
    reads: Ints,
    seeds: NDArray[np.uint64],
    place: tuple[tuple[float, float], float, bool],
) -> _Plan:
    known, zero, others_count = place
    blocks, strata = len(BLOCK_ENDS), len(sizes)
    size = float(sizes.sum())
    rows = np.empty((blocks, strata))
    others = np.empty((blocks, strata), np.int64)
    counts, sums = np.zeros((blocks, strata)), np.zeros((blocks, strata))
    squares, before = np.zeros((blocks, strata)), np.zeros((blocks, strata))
    matches = (starts[:, 1] - starts[:, 0]).sum()
    ordered, edges = np.empty(matches), np.zeros(blocks * strata + 1, np.int64)
    dealt = np.empty(matches)
    places = np.zeros((strata, blocks + 1), np.int64)
    filled = 0
    for stratum in range(strata):
        mine = shares[starts[stratum, 0] : starts[stratum, 1]].copy()
        ends = np.zeros(blocks + 1, np.int64)
        for block in range(blocks):
            ends[block + 1] = math.ceil(BLOCK_ENDS[block] * reads[stratum])
        seed = seeds[stratum] + np.uint64(stratum) * GOLDEN
        labels, room = deal(len(mine), ends, seed_of(mine, reads[stratum], seed))
        in_blocks, cuts = in_order(mine, labels, blocks)
        dealt[filled : filled + len(mine)] = in_blocks
        places[stratum] = cuts + filled
        filled += len(mine)
        total = square = count = 0.0
        for block in range(blocks):
            counts[block, stratum], sums[block, stratum] = count, total
            squares[block, stratum], before[block, stratum] = square, ends[block]
            rows[block, stratum] = ends[block + 1] - ends[block]
            others[block, stratum] = room[block]
            for value in in_blocks[cuts[block] : cuts[block + 1]]:
                total += value
                square += value * value
            count += cuts[block + 1] - cuts[block]
            if others_count:
                count += room[block]
                total += room[block] * zero
                square += room[block] * zero * zero
    at = 0
    for block in range(blocks):
        for stratum in range(strata):
            first, last = places[stratum, block], places[stratum, block + 1]
            ordered[at : at + last - first] = dealt[first:last]
            at += last - first
            edges[block * strata + stratum + 1] = at
    gains, parts = np.zeros((blocks, strata)), np.zeros((blocks, strata))
    weights, left = np.zeros(blocks), 0.0
    for block in range(blocks - 1, -1, -1):
        if rows[block].min() > 0.0:
            k = rows[block].sum()
            gains[block] = (sizes - before[block]) / size * k / rows[block]
            parts[block] = rows[block] / k * gains[block] ** 2
            spread = parts[block].sum()
            parts[block] /= spread
            left += k / spread
            weights[block] = 1.0 / spread / math.sqrt(left)
    factors = sizes / reads
    return _Plan(
        ordered, edges, others, counts, sums, squares, before, gains, parts, weights, factors,
        known, size, zero, others_count,
    )  # fmt: skip


@njit(nogil=True, cache=True)
def _mirrored(plan: _Plan) -> _Plan:
    """The same plan for 1 - z: the other end of the interval."""
    return _Plan(
        1.0 - plan.shares,
        plan.starts,
        plan.others,
        plan.counts,
        plan.counts - plan.sums,
        plan.counts - 2.0 * plan.sums + plan.squares,
        plan.before,
        plan.gains,
        plan.parts,
        plan.weights,
        plan.factors,
        (plan.known[0], plan.known[0] - plan.known[1]),
        plan.size,
        1.0 - plan.zero,
        plan.others_count,
    )


@njit(nogil=True, cache=True)
def _first_block(plan: _Plan) -> tuple[float, float, float]:
    """Rows that will count as in one sample, their mean and their variance, by the first block."""
    count = total = square = rows = 0.0
    for stratum in range(len(plan.factors)):
        weight = plan.factors[stratum]
        rows += plan.before[1, stratum]
        count += weight * plan.counts[1, stratum]
        total += weight * plan.sums[1, stratum]
        square += weight * plan.squares[1, stratum]
    if count == 0.0:
        return 1.0 / BLOCK_ENDS[0], 0.5, 0.25
    mean = total / count
    seen = plan.counts[1].sum() / BLOCK_ENDS[0]
    return max(seen, 1.0), mean, max(square / count - mean * mean, 0.0)


@njit(nogil=True, cache=True)
def _tail_share(plan: _Plan, rich: float) -> float:
    """The upper end's part of delta, by the first block; see learned_bets.py."""
    count, mean, variance = _first_block(plan)
    root = math.sqrt(variance / (2.0 * rich * count))
    upper, lower = root + (1.0 - mean) / count, root + mean / count
    return min(max(upper / (upper + lower), 0.1), 0.9)


@njit(nogil=True, cache=True)
def _own(plan: _Plan) -> float:
    """The estimate: no bound is beyond it."""
    strata = len(plan.factors)
    count, total = plan.known
    for stratum in range(strata):
        ones = zeros = amount = 0.0
        for block in range(len(plan.weights)):
            at = block * strata + stratum
            first, last = plan.starts[at], plan.starts[at + 1]
            ones += last - first
            amount += plan.shares[first:last].sum()
            zeros += plan.others[block, stratum]
        if not plan.others_count:
            zeros = 0.0
        count += plan.factors[stratum] * (ones + zeros)
        total += plan.factors[stratum] * (amount + zeros * plan.zero)
    return min(max(total / count, 0.0), 1.0) if count > 0.0 else 0.0


@njit(nogil=True, cache=True)
def _upper(plan: _Plan, tail: float) -> float:
    """An upper bound for the mean, wrong with probability `tail`: cell by cell."""
    rich = -math.log(tail)
    count, middle, variance = _first_block(plan)
    half_width = math.sqrt(2.0 * rich * variance / count) + 0.5 / count
    own = _own(plan)
    bets = np.zeros(len(plan.weights))
    high, low = 1.0, 1.0
    while high > own:
        away = abs(high - middle)
        width = max(_CELL_MIN * half_width, (_CELL if away < _NEAR * half_width else 0.5) * away)
        low = max(high - width, 0.0)
        if not _bet_against(plan, low, rich, bets):
            break
        high = low
    if high <= own or _wealth(plan, high, rich, bets) < rich:
        return max(high, own)
    while high - low > _PRECISE * abs(high - own):
        mean = 0.5 * (low + high)
        if not low < mean < high:
            break
        if _wealth(plan, mean, rich, bets) < rich:
            low = mean
        else:
            high = mean
    return max(high, own)


@njit(nogil=True, cache=True)
def _excess(plan: _Plan, block: int, mean: float) -> float:
    count = plan.known[0] + plan.counts[block].sum()
    return float((count * mean - plan.known[1] - plan.sums[block].sum()) / plan.size)


@njit(nogil=True, cache=True)
def _bet_against(plan: _Plan, mean: float, rich: float, bets: Floats) -> bool:
    """Bet against `mean` block by block, and write the bets; return whether `rich` was reached."""
    bets[:] = 0.0
    wealth = 0.0
    rows = float(len(plan.shares) + plan.others.sum())
    for block in range(1, len(bets)):
        if plan.weights[block] == 0.0:
            continue
        seen, counted = plan.before[block].sum(), plan.counts[block].sum()
        # The rows seen may have missed a value at the far end; see learned_bets.py.
        share = (counted + 0.5) / (seen + 0.5)
        unseen = share * (1.0 - mean) * min(1.0, mean * rows / max(seen, 1.0))
        variance, largest = unseen / (seen + 0.5), 0.0
        for stratum in range(len(plan.factors)):
            count, total = plan.counts[block, stratum], plan.sums[block, stratum]
            spread = plan.squares[block, stratum] - 2.0 * mean * total + mean * mean * count
            spread = max(spread, 0.0) / (plan.before[block, stratum] + 0.5)
            variance += plan.parts[block, stratum] * spread
            largest = max(largest, plan.gains[block, stratum])
        variance = min(variance, share * mean * (1.0 - mean))
        slope = slope_of(rich - wealth) * plan.weights[block]
        excess = _excess(plan, block, mean)
        room = max(largest * (1.0 - mean) - excess, -excess)
        cap = _CAP / max(room, _ROOM_MIN)
        bets[block] = cap if slope >= cap * math.sqrt(variance) else slope / math.sqrt(variance)
        wealth += _gain(plan, block, mean, bets[block])
        if wealth >= rich:
            return True
    return False


@njit(nogil=True, cache=True)
def _wealth(plan: _Plan, mean: float, rich: float, bets: Floats) -> float:
    """Log of the wealth that given bets make if the mean is `mean`."""
    wealth = 0.0
    for block in range(1, len(bets)):
        if bets[block] == 0.0:
            continue
        wealth += _gain(plan, block, mean, bets[block])
        if wealth >= rich:
            break
    return wealth


@njit(nogil=True, cache=True)
def _gain(plan: _Plan, block: int, mean: float, bet: float) -> float:
    """Log of what the wealth grows by in a block."""
    excess, strata = _excess(plan, block, mean), len(plan.factors)
    gain = 0.0
    for stratum in range(strata):
        own = plan.gains[block, stratum]
        if plan.others[block, stratum] > 0:
            away = excess + (own * (mean - plan.zero) if plan.others_count else 0.0)
            gain += plan.others[block, stratum] * math.log1p(bet * away)
        at = block * strata + stratum
        first, last = plan.starts[at], plan.starts[at + 1]
        if first < last:
            gain += log_product(plan.shares, first, last, bet * own, excess / own + mean)
    return gain
