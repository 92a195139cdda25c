"""Missing groups: how large a group can be of which the sample holds no row."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import lambertw

from synopses.intervals.interval import error_share


def missing_group_rows(*, population: int, read: int, confidence: float) -> int:
    """The largest number of tuples that a group missing from a uniform sample may have.

    At most N/g groups hold g tuples or more, and one of g tuples is missed with probability at
    most min((1 - g/N)^n, (1 - n/N)^g); so with the asked confidence no group of the returned size
    + 1 or more is missing, all groups at once. (Naming a group beforehand would allow 3 N/n at
    95 %; a group that nobody named needs about 10 N/n.) Source: estimators.md 10.

    Returns: rows in [0, N]; 0 when everything was read.
    """
    return missing_group_rows_in_strata(
        populations=np.array([population]), reads=np.array([read]), confidence=confidence
    )


def missing_group_rows_in_strata(
    *, populations: NDArray[np.int64], reads: NDArray[np.int64], confidence: float
) -> int:
    """The same over strata that were read at different rates: the worst split of a group.

    The worst is a group that lies wholly in the most thinned stratum, as far as it fits in:
    the rest lies in the next one.

    Args:
      populations: int64 [strata], tuples that arrived; >= reads.
      reads: int64 [strata], tuples that were read.
      confidence: of the statement about all groups, in (0, 1).
    """
    delta = error_share(confidence)
    some = populations > 0
    sizes, taken = populations[some].astype(np.float64), reads[some].astype(np.float64)
    order = np.argsort(taken / sizes, kind="stable")
    sizes, taken = sizes[order], taken[order]
    total = float(sizes.sum())

    def is_missed(rows: int) -> bool:
        before = np.concatenate([[0.0], np.cumsum(sizes)[:-1]])
        parts = np.clip(rows - before, 0.0, sizes)
        with np.errstate(divide="ignore", invalid="ignore"):
            by_rows = np.where(parts > 0, parts * np.log1p(-taken / sizes), 0.0)
            by_reads = np.where(taken > 0, taken * np.log1p(-parts / sizes), 0.0)
        log_missed = float(by_rows.sum())
        if len(sizes) == 1:  # Over strata only the linear bound is worst at this split.
            log_missed = min(log_missed, float(by_reads[0]))
        return math.log(total / rows) + log_missed > math.log(delta)

    smallest, largest = 0, int(total)
    while smallest < largest:
        middle = (smallest + largest + 1) // 2
        if is_missed(middle):
            smallest = middle
        else:
            largest = middle - 1
    return smallest


def missing_group_weight(*, total: float, tau: float, confidence: float) -> float:
    """The largest weight that a group missing from a weighted sample may have.

    The smallest x with (W/x) exp(-x/tau) <= delta, that is tau * lambertw(W/(tau delta)).
    Source: estimators.md 10.

    Args:
      total: W, the sum of all weights, >= 0 (exact, or the upper end of its interval).
      tau: of the sample (WeightedBottomK), >= 0.
      confidence: of the statement about all groups, in (0, 1).

    Returns: weight in [0, W]; 0.0 when tau is 0 (everything with a weight was kept).
    """
    delta = error_share(confidence)
    if tau <= 0.0 or total <= 0.0:
        return 0.0
    return min(total, tau * float(lambertw(total / (tau * delta)).real))
