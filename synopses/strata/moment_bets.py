"""Bets on the moments of strata: bounds for a total or a ratio, whatever the distribution.

The fixed bets of betting.py, of which only counts, means and sums of squares are known, over all
strata in one test. Stratum h has N_h rows, of which n_h were read, simple random samples without
replacement. N and n are their sums, g_h = (N_h/N)/(n_h/n). A row adds z to the total. Under the
hypothesis that the mean of z over all N rows is u, a bet b fixed beforehand makes

  W = prod_h prod_i (1 + b g_h (u - z_hi)),  all factors >= 0.

In a stratum the expectation of the product is at most that of one factor, 1 + b g_h (u - u_h), to
the power of n_h (Maclaurin's inequality for elementary symmetric means; Hoeffding 1963, Thm 4). By
the weighted inequality of arithmetic and geometric means the product of these powers over strata is
at most (sum_h (n_h/n) (1 + b g_h (u - u_h)))^n = (1 + b (u - sum_h (N_h/N) u_h))^n = 1. So W >= 1/t
has a probability of at most t (Markov), and no stratum takes a share of delta. The strata's means
u_h may be any; the further they lie apart, the less W grows.

W is a mixture over bets, of which each is the best one for one variance. Of all samples with the
moments that were found, W is least for values at two points: the far end of the range, and one
more (log(1 + x) has a positive third derivative: Karlin & Studden 1966, Tchebycheff Systems).

A ratio r of totals, the average of a group's values, has z = y - r for the group's rows and 0 for
others, with the mean u = 0. Strata that were read in full have a known number of values, k N, with
a known mean a: then u = -k (a - r), which makes the factors 1 + b g_h (k (r - a) + r - y) and, for
other rows, 1 + b g_h k (r - a).

The bets depend on the hypothesis, as in betting.py. Let H be the far end of the range, L the other.
A bet b = c/sqrt((r - L)(H - r)) makes b (r - y) and b (r - a) grow with r. So does b = c/D with
D = H - r + k max(a - r, 0): below a, the first factor is 1 + c (H - y)/D - c, and
(a - r)/D falls; above a, nothing but r - y is ever negative. So W grows with r, and the bound is
one crossing.

Where strata that were read in full have values far beyond the range of those that were skipped, the
bets are those of `mean_ends`, which only the latter range limits.
Source: Waudby-Smith & Ramdas 2024, JRSS B 86(1) (betting); Spertus, Sridhar & Stark 2024, arXiv
2409.06680 (one test over strata); the weights g_h and the least wealth are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.model.overflow import SQUARES_MIN
from synopses.strata.stratum import Stratum
from synopses.strata.stratum_moments import mean_ends
from synopses.strata.variance_moment_bets import two_points

Floats = NDArray[np.float64]
Ends = tuple[Floats, Floats]

_BETS: Final = 10
_WEIGHTS: Final[Floats] = -np.log(np.arange(2.0, 2.0 + _BETS)) - math.log(
    (1.0 / np.arange(2.0, 2.0 + _BETS)).sum()
)
_CAP: Final = 0.95  # Of the bet that could lose all.
_PRECISE: Final = 1e-3  # The ends are found to this part of the width, on the safe side.
# Of the range of all values, that of the values that were skipped: with a narrower
# one, bets that it limits gain more than bets that the range of all values limits.
_NARROWED_MAX: Final = 0.6
_WIDTH_MIN: Final = math.sqrt(SQUARES_MIN)  # Squares in a narrower range may all underflow.


class _GroupMoments(NamedTuple):
    """What was read of one group.

    sizes, reads: float64 [strata], N_h and n_h. moments: float64 [strata, 3], the number of values,
    their mean and the sum of squared distances from it. ranges: float64 [strata, 2], of the values.
    known: float64 [2], number and sum of values in strata that were read in full.
    ends: the range of z of a total, or of y of a ratio. rich: log of the wealth that rules out.
    """

    sizes: Floats
    reads: Floats
    moments: Floats
    ranges: Floats
    known: Floats
    ends: tuple[float, float]
    rich: float
    is_ratio: bool


def total_ends(strata: Sequence[Stratum], *, delta: float) -> Ends:
    """Bounds for the total of each group's values over strata.

    Args:
      strata: at least one; their ranges may be infinite.
      delta: the probability with which either end may miss, in (0, 1).

    Returns:
      (low, high): float64 [groups], infinite where the range is.
    """
    low = high = sum(s.seen for s in strata if not s.skipped)
    for stratum in strata:
        if stratum.skipped and not stratum.read:
            first, last = stratum.certain_sum()
            low, high = low + first, high + last
    thinned = [s for s in strata if s.skipped and s.read]
    if thinned:
        ends = [s.ends() for s in thinned]
        span = min(end[0] for end in ends), max(end[1] for end in ends)
        known = np.zeros((2, len(strata[0].counts)))
        size = float(sum(s.population for s in thinned))
        first, last = _bounds(thinned, known, span, delta, is_ratio=False)
        low, high = low + size * first, high + size * last
    return np.asarray(low, np.float64), np.asarray(high, np.float64)


def ratio_ends(strata: Sequence[Stratum], *, delta: float) -> Ends:
    """Bounds for the average of each group's values over all strata.

    Args: as of `total_ends`.

    Returns:
      (low, high): float64 [groups]; the range of all values at the widest.
    """
    thinned = [s for s in strata if s.skipped]
    full = [s for s in strata if not s.skipped]
    groups = len(strata[0].counts)
    known = np.zeros((2, groups))
    for stratum in full:
        known += np.stack([stratum.counts, stratum.seen])
    there = [s for s in strata if s.population]
    low, high = min((s.low for s in there), default=0.0), max((s.high for s in there), default=0.0)
    if not thinned:
        mean = known[1] / np.maximum(known[0], 1.0)
        return mean, mean
    if not all(s.read for s in thinned):
        return np.full(groups, low), np.full(groups, high)
    skipped = max(s.high for s in thinned) - min(s.low for s in thinned)
    if _WIDTH_MIN < high - low < np.inf and skipped < _NARROWED_MAX * (high - low):
        return mean_ends(strata, (low, high), tail=delta / 2.0)
    return _bounds(thinned, known, (low, high), delta, is_ratio=True)


def _bounds(
    strata: Sequence[Stratum],
    known: Floats,
    ends: tuple[float, float],
    delta: float,
    *,
    is_ratio: bool,
) -> Ends:
    """known: float64 [2, groups], number and sum of values in strata that were read in full."""
    groups = known.shape[1]
    low, high = ends
    with np.errstate(over="ignore"):
        width = high - low
    if not _WIDTH_MIN < width < np.inf:
        return np.full(groups, low), np.full(groups, high)
    sizes = np.array([s.population for s in strata], np.float64)
    reads = np.array([np.full(groups, s.read) for s in strata], np.float64)
    if is_ratio and len(strata) == 1 and not known[0].any():
        # Given their number, the group's rows are a simple random sample of all of the group's.
        reads = np.array([np.maximum(strata[0].counts, 1)], np.float64)
    # In the unit of the range, where no square overflows.
    ranges = np.array([(s.low, s.high) for s in strata], np.float64) / width
    moments = np.array(
        [
            (s.counts, np.where(s.counts > 0, s.means, 0.0) / width, s.squares / width / width)
            for s in strata
        ],
        np.float64,
    )
    known = known / np.array([[1.0], [width]])
    rich = -math.log(delta / 2.0)
    last = _uppers(
        sizes, reads, moments, ranges, known, (low / width, high / width, rich, is_ratio)
    )
    # The lower end is the upper one of the values with their signs changed.
    signs = np.array([1.0, -1.0, 1.0])[:, None]
    turned = np.ascontiguousarray(-ranges[:, ::-1])
    how = (-high / width, -low / width, rich, is_ratio)
    first = -_uppers(sizes, reads, moments * signs, turned, known * signs[:2], how)
    # An end of the range is as it was given.
    first = np.where(first <= low / width, low, width * first)
    last = np.where(last >= high / width, high, width * last)
    return first, last


@njit(nogil=True, cache=True, error_model="numpy")
def _uppers(
    sizes: Floats,
    reads: Floats,
    moments: Floats,
    ranges: Floats,
    known: Floats,
    how: tuple[float, float, float, bool],
) -> Floats:
    low, high, rich, is_ratio = how
    found = np.empty(reads.shape[1])
    for group in range(len(found)):
        mine = moments[:, :, group].copy()
        seen = mine[:, 0].sum() + known[0, group]
        if group > 0 and seen + moments[:, 0, group - 1].sum() + known[0, group - 1] == 0.0:
            found[group] = found[group - 1]
            continue
        found[group] = _upper(
            _GroupMoments(
                sizes,
                reads[:, group].copy(),
                mine,
                ranges,
                known[:, group].copy(),
                (low, high),
                rich,
                is_ratio,
            )
        )
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _upper(group: _GroupMoments) -> float:
    """The largest mean that is not ruled out, rounded up."""
    low, high = group.ends
    mean = min(max(_estimate(group), low), high)
    believed, refuted = mean, high
    while refuted - believed > _PRECISE * (refuted - mean):
        middle = 0.5 * (believed + refuted)
        if not believed < middle < refuted:
            break
        if _wealth(group, middle) >= group.rich:
            refuted = middle
        else:
            believed = middle
    return float(refuted)


@njit(nogil=True, cache=True, error_model="numpy")
def _estimate(group: _GroupMoments) -> float:
    """The mean, or the ratio, that the sample has: nothing is won against it."""
    count, total = group.known
    for stratum in range(len(group.sizes)):
        scaled = group.sizes[stratum] / group.reads[stratum] * group.moments[stratum, 0]
        total += scaled * group.moments[stratum, 1]
        count += scaled
    if group.is_ratio:
        return float(total / count) if count > 0.0 else group.ends[0]
    return float(total / group.sizes.sum())


@njit(nogil=True, cache=True, error_model="numpy")
def _wealth(group: _GroupMoments, mean: float) -> float:
    """Log of the least wealth against a mean inside of the range."""
    low, high = group.ends
    size, read = group.sizes.sum(), group.reads.sum()
    heaviest = gain = 0.0
    for stratum in range(len(group.sizes)):
        weight = group.sizes[stratum] / size * (read / group.reads[stratum])
        heaviest = max(heaviest, weight)
        gain += group.reads[stratum] * weight * weight
    # A row that does not count is off by `rest`, one that counts by `top` less its value.
    rest, top, reach = mean, mean, high - mean
    if group.is_ratio:
        rest = (group.known[0] * mean - group.known[1]) / size
        top = rest + mean
        reach += max(-rest, 0.0)
    unit = math.sqrt(2.0 * group.rich / gain) / (math.sqrt(mean - low) * math.sqrt(high - mean))
    cap = _CAP / (heaviest * reach)
    best, wealth = -math.inf, 0.0
    for j in range(_BETS):
        bet = min(unit * 2.0**j, cap)
        total = _WEIGHTS[j]
        for stratum in range(len(group.sizes)):
            count, average, squares = group.moments[stratum]
            scaled = bet * (group.sizes[stratum] / size * (read / group.reads[stratum]))
            absent = group.reads[stratum] - count
            if absent > 0.0:
                total += absent * math.log1p(scaled * rest)
            if count > 0.0:
                least, most = group.ranges[stratum]
                total += count * two_points(scaled, top, average, squares / count, (least, most))
        if total > best:
            wealth = wealth * math.exp(best - total) + 1.0
            best = total
        else:
            wealth += math.exp(total - best)
    return best + math.log(wealth)
