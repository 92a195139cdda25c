"""Intervals of proportions: the share of a part, from its share among drawn elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from synopses.intervals.interval import Intervals
from synopses.model.parameters import error_share


def binomial_share(*, drawn: ArrayLike, matched: ArrayLike, confidence: float) -> Intervals:
    """The share p of a population when `matched` of `drawn` independent draws belong to the part.

    The binomial is inverted in p, exactly. Draws without replacement vary less, so it holds for
    them, too. Source: Clopper & Pearson 1934, Biometrika 26; Hoeffding 1963, Thm 4.

    Args:
      drawn: whole, >= 0; scalar or [groups].
      matched: whole, 0 <= matched <= drawn.
      confidence: of each interval, in (0, 1).

    Returns:
      shares: [groups], value matched/drawn; with nothing drawn NaN, its ends 0 and 1.
    """
    tail = error_share(confidence) / 2.0
    n, m = np.broadcast_arrays(
        np.atleast_1d(np.asarray(drawn, np.float64)), np.atleast_1d(np.asarray(matched, np.float64))
    )
    # The inverse of the regularised beta function needs both its parameters above 0.
    low = np.where(m > 0, betaincinv(np.maximum(m, 1.0), n - m + 1.0, tail), 0.0)
    high = np.where(m < n, betaincinv(m + 1.0, np.maximum(n - m, 1.0), 1.0 - tail), 1.0)
    with np.errstate(invalid="ignore"):
        value = m / n
    return Intervals.of(value, low, high)
