"""Bounds of Count-Min and of CountSketch, proved from their rows of hashed counters.

Every bound is for one named value and for hash functions drawn at random. A stream that was made
with knowledge of the hashes can break a bound; no other stream can. `miss` is the probability that
a bound fails. There are five rows (counter_kernels.DEPTH), so a median fails only if three rows do.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from synopses.counters.kernels import DEPTH

Column = NDArray[np.float64]
_MAJORITY = DEPTH // 2 + 1
_FIRST_SHARE = 0.8  # Of `miss`, to an inner product; the rest to the second moments it needs.


def excess_share(width: int, miss: float) -> float:
    """The share t of what else was counted that the least of five rows exceeds with `miss`.

    A row's excess has expectation (total - own) / width, so all rows exceed t times that with
    probability (1 / (width t))^DEPTH at most (Markov).
    Source: Cormode & Muthukrishnan 2005, J. Algorithms 55(1), Theorem 1, with t solved for.
    """
    return float(miss ** (-1 / DEPTH)) / width


def least_with_excess(most: Column, volume: Column, *, width: int, miss: float) -> Column:
    """Return how low the truth may be below a Count-Min answer, which is never too low itself.

    The excess is at most t (volume - truth): solved for the truth, so what is all there is has no
    error. Shapes [n].

    Args:
      most: the answers; the truth is not above.
      volume: the total of the counts, or for inner products the product of both totals.
      width: cells per row. miss: as above.
    """
    share = excess_share(width, miss)
    if share >= 1:
        return np.zeros(most.size)
    return np.clip((most - share * volume) / (1 - share), 0.0, most)


def _squared_reach(miss: float) -> tuple[float, bool]:
    """k^2: k deviations of one row that the rows' mean, or median (True), passes with `miss`.

    Mean: Chebyshev, the variance of a mean of DEPTH rows. Median: three rows must be so far out.
    Source: Charikar, Chen, Farach-Colton 2002 (median); Alon, Matias, Szegedy 1999 (mean).
    """
    by_mean = 1 / (DEPTH * miss)
    by_median = 1 / _row_miss(miss)
    return min(by_mean, by_median), by_median < by_mean


def _squared_reach_below(miss: float) -> tuple[float, bool]:
    """The same for being too low only (Cantelli's inequality)."""
    by_mean = (1 / miss - 1) / DEPTH
    by_median = 1 / _row_miss(miss) - 1
    return min(by_mean, by_median), by_median < by_mean


def _row_miss(miss: float) -> float:
    """Return how improbable one row must be out, so that three of five are with `miss` at most."""
    return float(betaincinv(_MAJORITY, DEPTH - _MAJORITY + 1, miss))


def _middle(rows: Column, by_median: bool) -> Column:
    return np.median(rows, axis=1) if by_median else rows.mean(axis=1)


def second_moment(rows: Column, *, width: int, miss: float) -> tuple[Column, Column, Column]:
    """Sum of squared counts from CountSketch: value, low, high; shapes [n].

    A row's sum of squared counters is unbiased with variance at most 2 F^2 / width.
    Source: Alon, Matias, Szegedy 1999; Thorup & Zhang 2004 (hashed into cells).

    Args:
      rows: [n, DEPTH], sums of squared counters.
      width: cells per row. miss: as above.
    """
    squared, by_median = _squared_reach(miss)
    value, reach = _middle(rows, by_median), math.sqrt(2 * squared / width)
    return value, value / (1 + reach), _over(value, reach)


def second_moment_most(rows: Column, *, width: int, miss: float) -> Column:
    """What the sum of squared counts is not above; shapes as in second_moment."""
    squared, by_median = _squared_reach_below(miss)
    return _over(_middle(rows, by_median), math.sqrt(2 * squared / width))


def second_moment_error(width: int, miss: float, tuples: int) -> float:
    """The largest relative distance of second_moment's ends from its value, for n tuples.

    The moment is n to n^2, for certain: that bounds the error where no width keeps the promise.
    """
    reach = math.sqrt(2 * _squared_reach(miss)[0] / width)
    certain = max(0.0, tuples - 1.0)
    return min(reach / (1 - reach), certain) if reach < 1 else certain


def _over(value: Column, reach: float) -> Column:
    if reach < 1:
        return value / (1 - reach)
    return np.full(value.size, np.inf)


def inner_product(
    rows: Column, moments: tuple[Column, Column], *, width: int, miss: float
) -> tuple[Column, Column, Column]:
    """Sum over keys of count here times count there from CountSketch: value, low, high.

    A row's sum of products is unbiased; its variance is at most (F G + J^2) / width, with F and G
    the second moments and J the truth. |value - J|^2 <= k^2 times that is solved for J.
    Source: Alon, Gibbons, Matias, Szegedy 1999; Cormode & Garofalakis 2005 (hashed into cells).

    Args:
      rows: [n, DEPTH], sums of products of counters.
      moments: what F and G are not above at `moments_miss(miss)` each; shapes [n].
      width: cells per row. miss: of the whole interval, that of the moments included.
    """
    squared, by_median = _squared_reach(_FIRST_SHARE * miss)
    value, share = _middle(rows, by_median), squared / width
    if share >= 1:
        return value, np.full(value.size, -np.inf), np.full(value.size, np.inf)
    with np.errstate(invalid="ignore"):
        product = moments[0] * moments[1]
        product[(moments[0] == 0) | (moments[1] == 0)] = 0.0  # Of nothing, whatever the other is.
        reach = np.sqrt(share * value**2 + share * (1 - share) * product)
        return value, (value - reach) / (1 - share), (value + reach) / (1 - share)


def moments_miss(miss: float) -> float:
    """Return how improbable each second moment of `inner_product` must be above its bound."""
    return (1 - _FIRST_SHARE) * miss / 2


def occurrences(
    rows: Column, moment: float, *, width: int, miss: float
) -> tuple[Column, Column, Column]:
    """Return how often keys occur, from CountSketch: value, low, high; shapes [n].

    A row's counter, with the key's sign, is unbiased with variance at most F / width.
    Source: Charikar, Chen, Farach-Colton 2002, Lemma 3, by Chebyshev's inequality.

    Args:
      rows: [n, DEPTH], signed counters.
      moment: what the second moment F is not above at `moments_miss(miss)`.
      width: cells per row. miss: as above.
    """
    squared, by_median = _squared_reach(_FIRST_SHARE * miss)
    value, reach = _middle(rows, by_median), math.sqrt(squared * moment / width)
    return value, value - reach, value + reach
