"""Quantiles from a uniform sample: order statistics as ends, without any assumption."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.hypergeometric import matching_count_max
from synopses.intervals.interval import Intervals
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.tail_probabilities import (
    binomial_at_least,
    binomial_at_most,
    hypergeometric_at_least,
    hypergeometric_at_most,
)
from synopses.kernels.array_inputs import as_input
from synopses.model.errors import BadParameter
from synopses.model.parameters import error_share
from synopses.model.ranks import discrete_rank, least_of, most_of

_WORTH_COUNTING: Final = 0.1  # Share read above which bounding K narrows more than it costs.
_COUNTING_SHARE: Final = 0.05  # Of delta, for that bound.


def sampled_quantile(sample: SampledValues, *, rank_share: float, confidence: float) -> Intervals:
    """The discrete quantile (percentile_disc) of each group's values, read or not.

    The quantile is the group member in rank ceil(q K), at least 1, of all K. Of the m sampled
    ones the number at or below it is hypergeometric, so the a-th and b-th smallest sampled
    values are ends, each failing with delta/2 at most. K is known without a filter; with one it
    is bounded by the hypergeometric when much was read, else taken as infinite (binomial), both
    safe. Ties only help. Where there is no such order statistic the end is the known range's.
    Source: David & Nagaraja 2003, Order Statistics, 7.1 and 3.7.

    Args:
      sample: rows and range; see SampledValues.
      rank_share: q in [0, 1].
      confidence: of each interval, in (0, 1).

    Returns:
      quantiles: [groups], each end a value of the data or of the range; exact where n = N; NaN
      for a group without a matching row read.

    Raises:
      BadParameter: rank_share lies outside [0, 1].
    """
    if not 0.0 <= rank_share <= 1.0:
        raise BadParameter("rank_share", rank_share, "a number in [0, 1]")
    matched = sample.matched
    ordered = _sorted_in_groups(sample)
    middle = discrete_rank(rank_share, matched)
    value = _pick(ordered, sample.starts, middle, np.full(sample.groups, np.nan))
    if sample.complete.all():
        return Intervals.of(value, value, value, exact=True)
    first, last = _enclosing_ranks(sample, rank_share, confidence)
    low = np.where(sample.complete, value, _pick(ordered, sample.starts, first, sample.low))
    high = np.where(sample.complete, value, _pick(ordered, sample.starts, last, sample.high))
    return Intervals.of(value, low, high, exact=sample.complete)


def rank_bounds(
    matched: NDArray[np.int64],
    *,
    members: NDArray[np.int64],
    members_known: bool,
    rank_share: float,
    confidence: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which sampled ranks enclose the quantile.

    Args:
      matched: int64 [groups], sampled members.
      members: int64 [groups], all members K, or the most that they can be, or 0: any number.
      members_known: whether `members` is K itself. If not, the tails of the largest population
        are used, with the quantile's rank rounded to the unsafe side: of populations with the
        same share below the quantile the larger has the heavier tails (Uhlmann 1966; the tests
        check it for every K up to 40).
      rank_share: q in [0, 1].
      confidence: of each pair, in (0, 1).

    Returns:
      (first, last): int64 [groups], ranks from 1; 0 and matched + 1 mean the range's ends.
    """
    # Rows marked "at or below the quantile" for the first rank, "below it" for the last.
    if members_known:
        at_or_below = discrete_rank(rank_share, members)
        marked = np.stack([at_or_below, at_or_below - 1])
    else:
        marked = np.stack([most_of(rank_share, members), least_of(rank_share, members)])
    counts, sizes = as_input(matched, np.int64), as_input(members, np.int64)
    tail = error_share(confidence) / 2.0
    return _ranks(counts, sizes, marked.astype(np.float64), rank_share, tail)


def _enclosing_ranks(
    sample: SampledValues, rank_share: float, confidence: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranks by what is known of the number of members: all, a bound worth its price, nothing."""
    members = sample.populations.copy()
    if sample.everything:
        return rank_bounds(
            sample.matched,
            members=members,
            members_known=True,
            rank_share=rank_share,
            confidence=confidence,
        )
    delta = error_share(confidence)
    counted = sample.reads >= _WORTH_COUNTING * sample.populations
    members[~counted] = 0
    if counted.any():
        members[counted] = matching_count_max(
            population=sample.populations[counted],
            read=sample.reads[counted],
            matched=sample.matched[counted],
            confidence=1.0 - delta * _COUNTING_SHARE,
        )
        delta *= 1.0 - _COUNTING_SHARE
    return rank_bounds(
        sample.matched,
        members=members,
        members_known=False,
        rank_share=rank_share,
        confidence=1.0 - delta,
    )


def _sorted_in_groups(sample: SampledValues) -> NDArray[np.float64]:
    """Sort the values of each group.

    Sorting slices takes a twelfth of the time of one sort by group and value where groups have
    thousands of values, and the same time where they have one.
    """
    ordered = sample.values + 0.0  # No zero is negative, else the order of zeros would be open.
    several = np.flatnonzero(sample.matched > 1)
    ends = zip(sample.starts[several].tolist(), sample.starts[several + 1].tolist(), strict=True)
    for start, end in ends:
        ordered[start:end].sort()
    return ordered


def _pick(
    ordered: NDArray[np.float64],
    starts: NDArray[np.int64],
    ranks: NDArray[np.int64],
    otherwise: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Each group's value of that rank; `otherwise` where it has no such rank."""
    there = (ranks >= 1) & (ranks <= np.diff(starts))
    picked = otherwise.copy()
    picked[there] = ordered[starts[:-1][there] + ranks[there] - 1]
    return picked


@njit(nogil=True, cache=True)
def _ranks(
    matched: NDArray[np.int64],
    members: NDArray[np.int64],
    marked: NDArray[np.float64],
    share: float,
    tail: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first = np.empty(len(matched), np.int64)
    last = np.empty(len(matched), np.int64)
    for group in range(len(matched)):
        m, size = matched[group], members[group]
        if group > 0 and m == matched[group - 1] and size == members[group - 1]:
            first[group], last[group] = first[group - 1], last[group - 1]
            continue
        first[group] = _first(m, size, (share, marked[0, group]), tail)
        last[group] = _last(m, size, (share, marked[1, group]), tail)
    return first, last


@njit(nogil=True, cache=True)
def _first(matched: int, members: int, below: tuple[float, float], tail: float) -> int:
    """The largest a with P(fewer than a sampled members at or below the quantile) <= tail.

    below: the share of members, and their number (used where members > 0).
    """
    safe, unsafe = 0, matched + 1
    while unsafe - safe > 1:
        middle = (safe + unsafe) // 2
        if members > 0:
            chance = hypergeometric_at_most(middle - 1.0, float(members), below[1], float(matched))
        else:
            chance = binomial_at_most(middle - 1.0, float(matched), below[0])
        if chance <= tail:
            safe = middle
        else:
            unsafe = middle
    return safe


@njit(nogil=True, cache=True)
def _last(matched: int, members: int, below: tuple[float, float], tail: float) -> int:
    """The smallest b with P(at least b sampled members below the quantile) <= tail."""
    unsafe, safe = 0, matched + 1
    while safe - unsafe > 1:
        middle = (safe + unsafe) // 2
        if members > 0:
            chance = hypergeometric_at_least(
                float(middle), float(members), below[1], float(matched)
            )
        else:
            chance = binomial_at_least(float(middle), float(matched), below[0])
        if chance <= tail:
            safe = middle
        else:
            unsafe = middle
    return safe
