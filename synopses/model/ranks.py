"""Ranks: which value in order a quantile is, by the decimal number that was asked for.

Doubles do not say: 0.07 * 100 is above 7 there, and 100 - 0.55 * 100 below 45. So the share is the
shortest decimal that reads as its double, which is what was written, and the product is exact.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synopses.model.errors import BadParameter

_INT64_MAX = np.iinfo(np.int64).max


def discrete_rank(q: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rank of the q-quantile among n values: max(1, ceil(q n)), 1-based; shape [n].

    Raises:
      BadParameter: q is not in [0, 1].
    """
    return np.maximum(least_of(q, counts), 1)


def least_of(share: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The smallest whole number that is not below this share of a count: ceil(share n); shape [n].

    Args:
      share: in [0, 1]. counts: int64 [n], >= 0.

    Raises:
      BadParameter: the share is not in [0, 1].
    """
    return counts - _floor(1 - _decimal(share), counts)


def most_of(share: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest whole number that is not above this share of a count: floor(share n); shape [n].

    Args and errors: as of `least_of`.
    """
    return _floor(_decimal(share), counts)


def _decimal(share: float) -> Fraction:
    if not 0.0 <= share <= 1.0:
        raise BadParameter("q", share, "0 to 1")
    return Fraction(repr(float(share)))


def _floor(share: Fraction, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    wide: NDArray[Any] = counts
    largest = int(counts.max(initial=1))
    if max(largest * share.numerator, share.denominator) > _INT64_MAX:
        wide = counts.astype(object)
    whole: NDArray[np.int64] = (wide * share.numerator // share.denominator).astype(np.int64)
    return whole
