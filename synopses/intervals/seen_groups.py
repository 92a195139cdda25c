"""Groups that are shown because a row of them was read: at which delta their intervals hold.

An answer shows a group only if at least one of its rows was read. Let the rows of a group that are
read have the mean number mu. By negative association of a sample without replacement (Joag-Dev &
Proschan 1983, Ann. Stat. 11, 3.2) a row is read with probability P >= 1 - exp(-mu). An interval
that misses with probability a misses with at most a/P if the group is shown. So a/P is asked, with
a lower bound for P that the rows read give themselves: given that the group is shown, x rows or
more were read with probability at most

  min(exp(-mu) (e mu/x)^x, mu^x/x!) / (1 - exp(-mu))

(Chernoff; E[binomial(X, x)] by Maclaurin's inequality; both hold under negative association). Below
some mu that is a small part of delta, and that mu is the bound. An interval for one group that
holds if the group is shown controls the false coverage rate of all that are shown.
Source: Weinstein, Fithian & Benjamini 2013, JASA 108(501) (intervals given selection).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from synopses.model.parameters import error_share

Floats = NDArray[np.float64]

_MEAN_SHARE: Final = 0.01  # The part of delta that the bound for the mean spends.
_MEAN_MAX: Final = 37.0  # exp(-37) is below the resolution of doubles beside 1.
_BISECTIONS: Final = 50
_CLASSES: Final = 7.0  # Parts are rounded down to 1 - 2^-j, j <= 7, and to 2^-j.


def shown_delta(rows: ArrayLike, shares: ArrayLike, *, confidence: float) -> Floats:
    """The part of delta at which an interval is asked, so that it holds if its group is shown.

    Args:
      rows: [strata, groups], rows of each group that were read.
      shares: of the rows of a stratum that were read, in [0, 1]; broadcast to `rows`.
      confidence: of each interval if its group is shown, in (0, 1).

    Returns:
      parts: float64 [groups], in (0, 1]; few different ones. 1 where the group was sure to be
      shown. Where no row was read the interval is one, and it misses only if P(no row) <= delta.
    """
    delta = error_share(confidence)
    counts = np.atleast_2d(np.asarray(rows, np.float64))
    read = np.broadcast_to(np.asarray(shares, np.float64), counts.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = np.where(counts > 0, counts * np.log1p(-np.minimum(read, 1.0)), 0.0).sum(axis=0)
    seen = counts.sum(axis=0)
    few, which = np.unique(seen, return_inverse=True)
    means = _mean_of_shown(few, tail=_MEAN_SHARE * delta)[which]
    # A group has at least the rows that were read of it.
    shown = np.maximum(-np.expm1(-means), -np.expm1(missed))
    shown = np.where(seen > 0, shown, 1.0 - delta)
    sure = np.isneginf(missed) | (means >= _MEAN_MAX)
    return np.where(sure, 1.0, (1.0 - _MEAN_SHARE) * _rounded(shown))


def _mean_of_shown(rows: Floats, *, tail: float) -> Floats:
    """The smallest mean mu under which so many rows are not too rare, if a group is shown."""
    low, high = np.zeros(len(rows)), np.minimum(np.maximum(rows - 1.0, 0.0), _MEAN_MAX)
    limit, beside = np.log(tail), _beside_power(rows)
    high = np.where(_log_tail(rows, beside, high) > limit, high, np.maximum(rows - 1.0, 0.0))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        rare = _log_tail(rows, beside, middle) <= limit
        low, high = np.where(rare, middle, low), np.where(rare, high, middle)
    return low


def _beside_power(rows: Floats) -> tuple[Floats, Floats]:
    """Return the terms of both bounds for the tail that do not depend on the mean."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return rows - rows * np.log(rows), gammaln(rows + 1.0)


def _log_tail(rows: Floats, beside: tuple[Floats, Floats], mean: Floats) -> Floats:
    """The logarithm of the bound for the tail, mean < rows; it grows with the mean."""
    of_chernoff, of_first_term = beside
    with np.errstate(divide="ignore", invalid="ignore"):
        power = rows * np.log(mean)
        chernoff = power - mean + of_chernoff
        tail = np.minimum(chernoff, power - of_first_term) - np.log(-np.expm1(-mean))
    return np.where(rows <= 1.0, 0.0, np.where(mean <= 0.0, -np.inf, np.minimum(tail, 0.0)))


def _rounded(shown: Floats) -> Floats:
    """Probabilities in (0, 1], rounded down to few."""
    least = np.exp2(-_CLASSES)
    above = 1.0 - np.exp2(-np.floor(-np.log2(np.maximum(1.0 - shown, least))))
    return np.where(shown >= 0.5, above, np.exp2(-np.ceil(-np.log2(np.maximum(shown, 1e-300)))))
