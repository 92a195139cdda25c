"""Intervals of COUNT, SUM and AVG of groups, when each stratum was read at its own share.

A stratum is all that was to be read at one level; what was read of it is a simple random sample
without replacement. One that was read in full is a stratum, too: it adds no error. Where the
total is certified normal, variances add; elsewhere one test has all strata.
Source: Cochran 1977, Sampling Techniques, 5 (strata) and 6 (ratios).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.from_moments import Ends, Floats
from synopses.intervals.hypergeometric import seen_count
from synopses.intervals.interval import Intervals
from synopses.intervals.normal import rho_max, two_sided
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.seen_groups import shown_delta
from synopses.model.overflow import in_range
from synopses.model.parameters import error_share
from synopses.strata.joint_counts import total_count
from synopses.strata.stratified_bets import learned_ratio, learned_total
from synopses.strata.stratum import Stratum

Error = tuple[Floats, Floats]


def stratified_count(
    strata: Sequence[Stratum], *, confidence: float, shown_if_read: bool = False
) -> Intervals:
    """Return how many values each group has: one test of the sum over strata, see `total_count`.

    Args:
      strata: with the values of each group that were read.
      confidence: of each interval.
      shown_if_read: a group is shown only if a value of it was read, and then its interval holds:
        by `seen_count` of the one stratum that skipped any, or at `shown_delta` over several.

    Returns: counts, [groups]; exact where no stratum skipped any.
    """
    population = np.array([s.population for s in strata], np.float64)
    read = np.array([s.read for s in strata], np.float64)
    matched = np.array([s.counts for s in strata], np.float64)
    low, high = total_count(population, read, matched, confidence=confidence)
    thinned = np.flatnonzero(read < population)
    if shown_if_read and len(thinned) == 1:
        low = _low_if_shown(population, read, matched, int(thinned[0]), confidence)
    elif shown_if_read and len(thinned):
        # That a group is shown makes its counts larger, so the high end holds as it is. The low end
        # is an interval of its own, at delta/2: it pays for the bound of how often it is shown.
        delta = error_share(confidence)
        shares = (read / population)[:, None]
        parts = shown_delta(matched, shares, confidence=1.0 - delta / 2.0)
        for part in np.unique(parts):
            at = parts == part
            part_confidence = 1.0 - delta * float(part)
            low[at], _ = total_count(population, read, matched[:, at], confidence=part_confidence)
    value = _floats(sum(s.factor * s.counts for s in strata))
    return Intervals.of(value, low, high, exact=_nothing_skipped(strata))


def _low_if_shown(
    population: Floats, read: Floats, matched: Floats, thinned: int, confidence: float
) -> Floats:
    """The low ends where one stratum skipped values; a value elsewhere shows its group for sure."""
    elsewhere = matched.sum(axis=0) - matched[thinned]
    found = seen_count(
        population=population[thinned],
        read=read[thinned],
        matched=matched[thinned],
        confidence=confidence,
        unread=np.where(elsewhere > 0, 0.0, 1.0),
    )
    return _floats(elsewhere + found.low)


@np.errstate(over="ignore", invalid="ignore")
def stratified_sum(
    strata: Sequence[Stratum],
    *,
    confidence: float,
    samples: Sequence[SampledValues] = (),
) -> Intervals:
    """The sum of each group's values.

    Normal with the finite-population factor where the total is certified (`normal_half`, with the
    largest deviation from the known range). Elsewhere bets on all strata at once, of which only
    moments are known (moment_bets.py), or all rows (stratified_bets.py).

    Args:
      samples: the rows of the strata that skipped any, in this order; empty: not known.

    Returns: sums, [groups]; exact where nothing was skipped, NONE where the range is infinite on
    both sides and something was.
    """
    errors = [_sum_error(s) for s in strata]
    half = normal_half(strata, errors, confidence)
    certified = ~np.isnan(half)
    value = _floats(sum(s.factor * s.seen for s in strata))
    delta = error_share(confidence)
    low, high = learned_total(strata, samples, wanted=~certified, delta=delta)
    certain = [stratum.certain_sum() for stratum in strata]
    return Intervals.of(
        value,
        np.where(certified, value - half, low),
        np.where(certified, value + half, high),
        exact=_nothing_skipped(strata),
        variance=np.where(certified, _variance(errors), np.nan),
    ).clipped(_floats(sum(c[0] for c in certain)), _floats(sum(c[1] for c in certain)))


@np.errstate(over="ignore", invalid="ignore")
def stratified_mean(
    strata: Sequence[Stratum],
    *,
    confidence: float,
    samples: Sequence[SampledValues] = (),
) -> Intervals:
    """The average of each group's values.

    Without groups the number of values is known, and the sum is divided by it. With groups it is
    a ratio of two estimates: linearised where the total of e = y - mean is certified. Elsewhere
    bets on that total, over all strata at once. Arguments: as of `stratified_sum`.

    Returns: means, [groups]; NaN for a group of which no value was read.
    """
    members = sum(s.population for s in strata)
    if all(s.whole for s in strata):
        if not members or not sum(s.read for s in strata):
            return _unseen(strata)
        total = stratified_sum(strata, confidence=confidence, samples=samples)
        return total.scaled(1.0 / members)
    size = _floats(sum(s.factor * s.counts for s in strata))
    known = size > 0
    value = _floats(sum(s.factor * s.seen for s in strata)) / np.where(known, size, 1.0)
    errors = [mean_error(s, value) for s in strata]
    half = normal_half(strata, errors, confidence)
    certified = ~np.isnan(half) & known
    half = half / np.where(known, size, 1.0)
    delta = error_share(confidence)
    low, high = learned_ratio(strata, samples, wanted=~certified, delta=delta)
    found = Intervals.of(
        np.where(known, value, np.nan),
        np.where(certified, value - half, low),
        np.where(certified, value + half, high),
        exact=_nothing_skipped(strata) & known,
        variance=np.where(certified, _variance(errors) / np.where(known, size, 1.0) ** 2, np.nan),
    )
    return found.clipped(*_certain_mean(strata))


def _sum_error(stratum: Stratum) -> Error:
    """Of the estimated sum."""
    n = max(stratum.read, 1)
    seen = stratum.seen
    spread = stratum.squares + seen * stratum.means * (1.0 - stratum.counts / n)
    low, high = stratum.ends()
    return error_of_total(stratum, seen / n, spread, (low, high))


def mean_error(stratum: Stratum, mean: Floats) -> Error:
    """Of the total of y - mean over the group's values."""
    n = max(stratum.read, 1)
    away = np.where(stratum.counts > 0, stratum.means - mean, 0.0)
    total = stratum.counts * away
    spread = stratum.squares + total * away - total**2 / n
    low, high = np.minimum(stratum.low - mean, 0.0), np.maximum(stratum.high - mean, 0.0)
    return error_of_total(stratum, total / n, spread, (low, high))


def error_of_total(
    stratum: Stratum, average: Floats, spread: Floats, ends: tuple[Floats | float, Floats | float]
) -> Error:
    """Return how far a stratum's estimated total may be off, and what one value can do to it.

    Args:
      average: [groups], of what was read, per value read of any group. spread: [groups], the sum
        of squared distances from it. ends: the range that holds what each value adds.

    Returns:
      (error, influence): [groups], the standard error, and N/n times the largest distance of one
      value from the average; 0 where nothing was skipped. The influence is infinite where the
      spread lost digits by underflow or overflow.
    """
    groups = len(average)
    if not stratum.skipped:
        return np.zeros(groups), np.zeros(groups)
    n = stratum.read
    if n < 2:
        return np.zeros(groups), np.full(groups, np.inf)
    deviation = np.sqrt(np.maximum(spread, 0.0) / (n - 1))
    reach = np.maximum(ends[1] - average, average - ends[0])
    error = stratum.population * deviation * np.sqrt(stratum.unread_share / n)
    lost = (spread > 0) & ~in_range(spread)
    return error, np.where(lost, np.inf, stratum.factor * reach)


def normal_half(strata: Sequence[Stratum], errors: Sequence[Error], confidence: float) -> Floats:
    """Half of a normal interval for the total of all strata; NaN where it is not certified.

    Variances add. Hajek's rho, for the sum over strata: the most that one value of any of them can
    do to the total, over the standard error of the total; for one stratum it is that of normal.py.
    Student's t at the degrees of freedom of Satterthwaite.
    Source: Hajek 1960; Cochran 1977, Sampling Techniques, 5.4 (degrees of freedom).
    """
    influence = np.max([most for _, most in errors], axis=0)
    certified = influence <= rho_max(confidence) * np.sqrt(_variance(errors))
    return np.where(certified, student_half(strata, errors, confidence), np.nan)


def student_half(strata: Sequence[Stratum], errors: Sequence[Error], confidence: float) -> Floats:
    """The half of `normal_half`, whether it is certified or not."""
    variance = _variance(errors)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Of shares of the variance, for fourth powers of errors may be no doubles.
        shares = (error**2 / variance for error, _ in errors)
        per_degree = _floats(
            sum(share**2 / _freedom(s) for s, share in zip(strata, shares, strict=True))
        )
        freedom = np.where(per_degree > 0, 1.0 / per_degree, 1e9)
    return two_sided(freedom, confidence=confidence) * np.sqrt(variance)


def _variance(errors: Sequence[Error]) -> Floats:
    """Of the total: those of strata, which were drawn apart, add."""
    return _floats(sum(error**2 for error, _ in errors))


def _freedom(stratum: Stratum) -> Floats:
    """Degrees of freedom of a stratum's variance."""
    read = np.full(len(stratum.counts), stratum.read) if stratum.whole else stratum.counts
    return np.asarray(np.maximum(read - 1.0, 1.0), np.float64)


def _certain_mean(strata: Sequence[Stratum]) -> Ends:
    """All skipped values are the group's and lie at one end of the range."""
    counts, seen = _floats(sum(s.counts for s in strata)), _floats(sum(s.seen for s in strata))
    skipped = sum(s.skipped for s in strata)
    lows, highs = range_of(strata)
    if not skipped:
        mean = seen / np.maximum(counts, 1.0)
        return mean, mean
    there = counts + skipped
    none = counts == 0
    low = (seen + skipped * lows) / there if np.isfinite(lows) else np.full(len(seen), -np.inf)
    high = (seen + skipped * highs) / there if np.isfinite(highs) else np.full(len(seen), np.inf)
    mean = seen / np.maximum(counts, 1.0)
    return np.where(none, lows, np.minimum(low, mean)), np.where(
        none, highs, np.maximum(high, mean)
    )


def range_of(strata: Sequence[Stratum]) -> tuple[float, float]:
    """The range of all values of the strata that skipped any; infinite if there is none."""
    thinned = [s for s in strata if s.skipped]
    if not thinned:
        return -np.inf, np.inf
    return min(s.low for s in thinned), max(s.high for s in thinned)


def _unseen(strata: Sequence[Stratum]) -> Intervals:
    low, high = range_of(strata)
    return Intervals.of(np.full(1, np.nan), np.full(1, low), np.full(1, high))


def _nothing_skipped(strata: Sequence[Stratum]) -> NDArray[np.bool_]:
    nothing: NDArray[np.bool_] = np.full(len(strata[0].counts), not any(s.skipped for s in strata))
    return nothing


def _floats(column: object) -> Floats:
    return np.asarray(column, np.float64)
