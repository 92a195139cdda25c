"""Combining: several intervals into one, with variances where allowed, else by the union bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtri

from synopses.errors import BadParameter
from synopses.estimate import Bound
from synopses.intervals.interval import Intervals, error_share


def split_confidence(confidence: float, parts: int) -> float:
    """What each of `parts` intervals must be asked for, so that all hold with `confidence`.

    The union bound: 1 - (1 - confidence)/parts. It needs no independence.

    Raises:
      BadParameter: the confidence is not inside (0, 1), or there is no part.
    """
    if parts < 1:
        raise BadParameter("parts", parts, "1 or more")
    return 1.0 - error_share(confidence) / parts


def add_strata(parts: Sequence[Callable[[float], Intervals]], *, confidence: float) -> Intervals:
    """The sum of independent strata (stretches that were read at different rates).

    Where all strata of a group are certified normal (or exact), variances add; everywhere else
    each stratum is asked at the split confidence and the ends add. Source: estimators.md 1, 12.

    Args:
      parts: one per stratum: confidence -> its Intervals, all with the same groups.
      confidence: of each sum, in (0, 1).

    Returns:
      sums: [groups]; the bound is the weakest of the parts'.
    """
    split = split_confidence(confidence, len(parts))
    plain = [part(confidence) for part in parts]
    if len(plain) == 1:
        return plain[0]
    apart = [part(split) for part in parts]
    exact = np.stack([part.bound == Bound.EXACT for part in plain])
    all_exact = np.logical_and.reduce(exact, axis=0)
    variances = np.where(exact, 0.0, np.stack([part.variance for part in plain]))
    # A stratum of which nothing was read has no value of its own: the least that is possible.
    values = [np.where(np.isnan(p.value), np.clip(0.0, p.low, p.high), p.value) for p in plain]
    value = np.sum(values, axis=0)
    variance = variances.sum(axis=0)  # NaN where one is not certified.
    half = -ndtri(error_share(confidence) / 2.0) * np.sqrt(variance)
    certified = ~np.isnan(variance)
    low = np.where(certified, value - half, np.sum([part.low for part in apart], axis=0))
    high = np.where(certified, value + half, np.sum([part.high for part in apart], axis=0))
    return Intervals.of(
        value,
        low,
        high,
        exact=all_exact,
        variance=np.where(certified & ~all_exact, variance, np.nan),
    )


def within_late(sums: Intervals, *, late: int, low: float, high: float) -> Intervals:
    """A sum or count widened by `late` tuples that came too late for their pane.

    Source: estimators.md 12: by [late * min(0, low), late * max(0, high)].

    Args:
      sums: what was computed without them.
      late: how many came too late, >= 0; they may or may not match.
      low: the smallest that one can add (counts: 0); high: the largest (counts: 1).
    """
    if late == 0:
        return sums
    nothing = np.full(len(sums), np.nan)
    bound = np.maximum(sums.bound, np.uint8(Bound.INTERVAL))
    return Intervals(
        sums.value,
        sums.low + late * min(0.0, low),
        sums.high + late * max(0.0, high),
        bound,
        nothing,
    )
