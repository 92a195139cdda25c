"""Poisson bounds: what a count, or a weighted sum of counts, says about its expectation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainccinv, gammaincinv

from synopses.model.parameters import error_share


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
