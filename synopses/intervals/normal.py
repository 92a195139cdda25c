"""The normal interval, and when it may be believed: Hajek's condition from the known range."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from synopses.model.parameters import error_share

# Simulated: rho <= 0.3 covers 0.93 to 0.96 at 95 %, rho <= 0.15 the like at 99 %.
_RHO_AT_95: Final = 0.3
_SLOPE: Final = math.log(0.3 / 0.15) / math.log(0.05 / 0.01)


def rho_max(confidence: float) -> float:
    """The largest rho with which a normal interval is certified.

    0.3 at 95 % and below, 0.15 at 99 %, in between and above on the straight line through both
    in logarithms of delta.
    """
    delta = min(error_share(confidence), 0.05)
    return float(_RHO_AT_95 * (delta / 0.05) ** _SLOPE)


def rho(
    reach: NDArray[np.float64],
    deviation: NDArray[np.float64],
    *,
    read: NDArray[np.float64],
    unread_share: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Hajek's rho: how far one value can lie out, in standard errors of the sample's total.

    The sample's own skewness cannot tell, because the sample has not seen the tail; the range
    of the column has. Source: Hajek 1960, Publ. Math. Inst. Hung. 5.

    Args:
      reach: [groups], the largest |y - mean| that the known range allows.
      deviation: [groups], the sample's standard deviation of y.
      read: [groups], values that the deviation is of.
      unread_share: 1 - n/N.

    Returns:
      rho: [groups], inf where the deviation is 0 or unknown.
    """
    error = deviation * np.sqrt(read * unread_share)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error > 0.0, reach / error, np.inf)
    return np.where(np.isnan(ratio), np.inf, ratio)


def two_sided(freedom: NDArray[np.float64], *, confidence: float) -> NDArray[np.float64]:
    """Student's t quantile at 1 - delta/2; freedom: degrees of freedom, at least 1 is used."""
    tail = error_share(confidence) / 2.0
    return np.asarray(-stdtrit(np.maximum(freedom, 1.0), tail), np.float64)
