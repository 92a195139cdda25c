"""Counts over strata by one test of their sum: a score interval with the skewness of the sum."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri

from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.normal import rho_max
from synopses.kernels.array_inputs import as_input
from synopses.model.parameters import error_share

Floats = NDArray[np.float64]
RHO_TIMES: Final = 2.0  # Of `rho_max`: the skewness is corrected here.
# Of the largest N/n. A half because T is discrete. A tenth for the terms that are left out, of the
# order of N/n times Hajek's rho. With a half alone, five strata were missed with 1.08 delta.
CONTINUITY: Final = 0.6
_DOUBLINGS: Final = 60
_BISECTIONS: Final = 60
_PRECISE: Final = 1e-3  # The ends are found to this part of their distance, on the safe side.


def total_count(
    population: Floats, read: Floats, matched: Floats, *, confidence: float
) -> tuple[Floats, Floats]:
    """Bounds for the number of tuples of all strata that match.

    `joint_count` where an end is certified. Elsewhere, and for a single stratum that skipped any,
    the exact hypergeometric bounds of each stratum added up, by the union bound.

    Args:
      population: float64 [strata], N of each. read: float64 [strata], n, at most N.
      matched: float64 [strata, groups], matches among those that were read.
      confidence: of each interval, in (0, 1).

    Returns:
      (low, high): float64 [groups], whole numbers.
    """
    thinned = read < population
    known = matched[~thinned].sum(axis=0)
    population, read, matched = population[thinned], read[thinned], matched[thinned]
    low, high = np.full(known.shape, np.nan), np.full(known.shape, np.nan)
    if len(read) > 1:
        low, high = joint_count(population, read, matched, confidence=confidence)
    rest = np.isnan(low) | np.isnan(high)
    if rest.any():
        each = split_confidence(confidence, max(1, len(read)))
        alone = [
            matching_count(population=size, read=n, matched=found, confidence=each)
            for size, n, found in zip(population, read, matched[:, rest], strict=True)
        ]
        for end, parts in ((low, [s.low for s in alone]), (high, [s.high for s in alone])):
            added = np.sum(parts, axis=0) if parts else np.zeros(int(rest.sum()))
            end[rest] = np.where(np.isnan(end[rest]), added, end[rest])
    return known + low, known + high


def joint_count(
    population: Floats, read: Floats, matched: Floats, *, confidence: float
) -> tuple[Floats, Floats]:
    """Return how many tuples of all strata match, without a share of delta for each stratum.

    The sum T of N/n times the matches read is a sum of independent hypergeometrics. A total k is
    believable if the T that was found lies inside of T's quantiles under k. These follow from the
    variance and the skewness of T (Cornish and Fisher), moved by `CONTINUITY` times the largest
    N/n, because T is discrete and further terms are left out. The variance depends on how k is
    split over the strata. The split is the most probable one: each stratum is off by its own share
    of the variance.

    An end is certified where Hajek's rho under it, the largest N/n over the standard error, is
    at most twice `rho_max`. That is no proof. Every sample of many designs of 2 to 5 strata was
    enumerated, and no population found was missed with a probability above delta
    (tests/synopses/strata, test_joint_counts.py).
    Source: Gart & Nam 1988, Biometrics 44(2) (score intervals with skewness, over strata);
    Wendell & Schmee 1996, JASA 91(434) (a total over strata); Hajek 1960.

    Args:
      population: float64 [strata], N of each. read: float64 [strata], n, at most N.
      matched: float64 [strata, groups], matches among those that were read.
      confidence: of each interval, in (0, 1).

    Returns:
      (low, high): float64 [groups], whole numbers; NaN where an end is not certified.
    """
    tail = error_share(confidence) / 2.0
    sizes, reads = as_input(population, np.float64), as_input(read, np.float64)
    counts = as_input(np.asarray(matched, np.float64).T, np.float64)
    groups = len(counts)
    if not (reads > 0).all():
        return np.full(groups, np.nan), np.full(groups, np.nan)
    how = (float(-ndtri(tail)), RHO_TIMES * rho_max(confidence))
    return _ends(sizes, reads, counts, how)


@njit(nogil=True, cache=True, error_model="numpy")
def _ends(
    population: Floats, read: Floats, matched: Floats, how: tuple[float, float]
) -> tuple[Floats, Floats]:
    groups = len(matched)
    low, high = np.empty(groups), np.empty(groups)
    size, skipped = population.sum(), (population - read).sum()
    for group in range(groups):
        if group > 0 and (matched[group] == matched[group - 1]).all():
            low[group], high[group] = low[group - 1], high[group - 1]
            continue
        found = matched[group]
        high[group] = min(_largest(population, read, found, how), found.sum() + skipped)
        # The unmatched are hypergeometric, too: their largest count leaves our smallest.
        low[group] = max(size - _largest(population, read, read - found, how), found.sum())
    return low, high


@njit(nogil=True, cache=True, error_model="numpy")
def _largest(population: Floats, read: Floats, matched: Floats, how: tuple[float, float]) -> float:
    """The largest believable count; NaN where it is not certified."""
    z, rho_most = how
    heaviest = 0.0
    for stratum in range(len(read)):
        if read[stratum] < population[stratum]:
            heaviest = max(heaviest, population[stratum] / read[stratum])
    if heaviest == 0.0:
        return float(matched.sum())
    believed, refuted = 0.0, z / heaviest if z > 0.0 else 1e-3 / heaviest
    off, variance = _excess(population, read, matched, refuted, z, heaviest)
    for _ in range(_DOUBLINGS):
        if off > 0.0:
            break
        believed, refuted = refuted, 2.0 * refuted
        off, variance = _excess(population, read, matched, refuted, z, heaviest)
    for _ in range(_BISECTIONS):
        if refuted - believed <= _PRECISE * refuted:
            break
        middle = (believed + refuted) / 2.0
        off, spread = _excess(population, read, matched, middle, z, heaviest)
        if off > 0.0:
            refuted, variance = middle, spread
        else:
            believed = middle
    if not heaviest <= rho_most * math.sqrt(variance):
        return math.nan
    total = 0.0
    for stratum in range(len(read)):
        share = _share(population[stratum], read[stratum], matched[stratum], refuted)
        total += population[stratum] * share
    return math.floor(total * (1.0 + 1e-12))


@njit(nogil=True, cache=True, error_model="numpy")
def _excess(
    population: Floats, read: Floats, matched: Floats, tilt: float, z: float, heaviest: float
) -> tuple[float, float]:
    """Return the distance of a tilt's count beyond the test's limit, and the variance there."""
    variance = third = away = 0.0
    for stratum in range(len(read)):
        size, n = population[stratum], read[stratum]
        share = _share(size, n, matched[stratum], tilt)
        away += size * share - matched[stratum] * (size / n)
        if n < size:
            weight = size / n
            part = weight * weight * n * share * (1.0 - share) * (size - n) / (size - 1.0)
            variance += part
            if size > 2.0:
                third += weight * part * (1.0 - 2.0 * share) * (size - 2.0 * n) / (size - 2.0)
    skew = third / variance if variance > 0.0 else 0.0
    most = CONTINUITY * heaviest + z * math.sqrt(variance) - (z * z - 1.0) / 6.0 * skew
    return away - most, variance


@njit(nogil=True, cache=True, error_model="numpy")
def _share(population: float, read: float, matched: float, tilt: float) -> float:
    """The most probable share p of a stratum under a tilt: p - m/n = tilt (N/n - 1) p (1 - p)."""
    found = matched / read
    c = tilt * (population / read - 1.0)
    root = math.sqrt((1.0 - c) * (1.0 - c) + 4.0 * c * found)
    if c < 1.0:
        return min(1.0, 2.0 * found / (1.0 - c + root))
    return min(1.0, (c - 1.0 + root) / (2.0 * c))
