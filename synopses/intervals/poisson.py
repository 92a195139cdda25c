"""Poisson bounds: what a count, or a weighted sum of counts, says about its expectation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainccinv, gammaincinv

from synopses.intervals.interval import error_share


def garwood(
    count: ArrayLike, *, confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exact bounds for the mean of a Poisson count, conservative for Poisson-binomial ones.

    low = chi2(delta/2; 2C)/2 and high = chi2(1 - delta/2; 2C + 2)/2; low is 0 when C = 0.
    Source: Garwood 1936, Biometrika 28; for a sum of unequal Bernoullis the Poisson tails are
    the heavier ones: Hoeffding 1956, Ann. Math. Stat. 27.

    Args:
      count: C, whole, >= 0; scalar or [groups].
      confidence: of each interval, in (0, 1).

    Returns:
      (low, high): float64 [groups].
    """
    tail = error_share(confidence) / 2.0
    seen = np.atleast_1d(np.asarray(count, np.float64))
    low = np.where(seen > 0.0, gammaincinv(np.maximum(seen, 1.0), tail), 0.0)
    return low, np.asarray(gammainccinv(seen + 1.0, tail), np.float64)


def fay_feuer(
    total: ArrayLike, variance: ArrayLike, largest: ArrayLike, *, confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gamma bounds for the mean of a weighted sum of Poisson counts.

    With y = sum of t_s C_s and v = sum of t_s^2 C_s, low is the delta/2 quantile of the gamma
    with mean y and variance v, high the 1 - delta/2 quantile of that with mean y + t and
    variance v + t^2, t the largest weight. With one weight both are Garwood's.
    Source: Fay & Feuer 1997, Stat. Med. 16 (conservative in all their simulations, not proven).

    Args:
      total: y; >= 0; scalar or [groups].
      variance: v; >= 0.
      largest: t, over all strata that could have held a match, those without one too: over the
        others only, coverage falls to 0.38. Where 0 all was certain and the ends are y.
      confidence: of each interval, in (0, 1).

    Returns:
      (low, high): float64 [groups], in the unit of total.
    """
    tail = error_share(confidence) / 2.0
    columns = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(x, np.float64)) for x in (total, variance, largest))
    )
    y, v, t = columns
    some = (y > 0.0) & (v > 0.0)
    safe_y, safe_v = np.where(some, y, 1.0), np.where(some, v, 1.0)
    low = np.where(some, safe_v / safe_y * gammaincinv(safe_y**2 / safe_v, tail), y)
    open_end = t > 0.0
    top_y, top_v = np.where(open_end, y + t, 1.0), np.where(open_end, v + t**2, 1.0)
    high = np.where(open_end, top_v / top_y * gammainccinv(top_y**2 / top_v, tail), y)
    return low, high
