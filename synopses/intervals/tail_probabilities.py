"""Tails: exact binomial and hypergeometric tail probabilities, as compiled kernels.

A point probability is taken by Loader's saddle-point expansion, which keeps its relative error
near 1e-14 at any size (differences of log-gamma lose all digits at 10^12 tuples); a tail is the
sum of point probabilities by their ratios, outwards until the rest no longer matters, or so many
terms that the law is 5,000 wide or more. The ratios fall, so the rest is then at most a geometric
series: what is returned is never less than the tail, and no count, however large, takes longer.
Source: Loader 2000, Fast and accurate computation of binomial probabilities.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

_HALF_LOG_TWO_PI: Final = 0.5 * math.log(2.0 * math.pi)
_NEGLIGIBLE: Final = 1e-16
_TERMS_MAX: Final = 1 << 15  # A law of standard deviation s has about 7 s that matter.
# log(n!) - log(stirling(n)) for n = 0 .. 15, where the series of _stirling_error is not yet good.
_SMALL_ERRORS: Final[NDArray[np.float64]] = np.array(
    [0.0]
    + [math.lgamma(n + 1.0) - (n + 0.5) * math.log(n) + n - _HALF_LOG_TWO_PI for n in range(1, 16)]
)


@njit(nogil=True, cache=True)
def two_deviations(found: float, share: float) -> float:
    """A step of about two standard deviations from found/share, whole and never lost in it."""
    step = np.ceil(2.0 * math.sqrt((found + 4.0) * (1.0 - share)) / share) + 1.0
    return float(max(step, np.ceil(found / share * 2.0**-50)))


@njit(nogil=True, cache=True)
def _stirling_error(n: float) -> float:
    if n < 16.0:
        return float(_SMALL_ERRORS[int(n)])
    square = float(n) * float(n)  # Whole numbers of 64 bits would wrap.
    inner = 1.0 / 1260.0 - (1.0 / 1680.0) / square
    return (1.0 / 12.0 - (1.0 / 360.0 - inner / square) / square) / n


@njit(nogil=True, cache=True)
def _deviance(x: float, mean: float) -> float:
    """x log(x / mean) + mean - x, without cancellation near x = mean."""
    if abs(x - mean) >= 0.1 * (x + mean):
        return x * math.log(x / mean) + mean - x
    v = (x - mean) / (x + mean)
    total = (x - mean) * v
    term = 2.0 * x * v
    v *= v
    for j in range(1, 1000):
        term *= v
        new = total + term / (2 * j + 1)
        if new == total:
            break
        total = new
    return total


@njit(nogil=True, cache=True)
def log_binomial(x: float, n: float, p: float) -> float:
    """log P(X = x) for X binomial(n, p); x and n whole numbers."""
    if p <= 0.0:
        return 0.0 if x == 0.0 else -math.inf
    if p >= 1.0:
        return 0.0 if x == n else -math.inf
    if x == 0.0:
        return n * math.log1p(-p)
    if x == n:
        return n * math.log(p)
    if x < 0.0 or x > n:
        return -math.inf
    saddle = _stirling_error(n) - _stirling_error(x) - _stirling_error(n - x)
    saddle -= _deviance(x, n * p) + _deviance(n - x, n * (1.0 - p))
    return saddle + 0.5 * math.log(n / (x * (n - x))) - _HALF_LOG_TWO_PI


@njit(nogil=True, cache=True)
def log_hypergeometric(x: float, population: float, marked: float, read: float) -> float:
    """log P(X = x): x of `read` tuples are marked, `marked` of `population` are."""
    if x < max(0.0, read + marked - population) or x > min(read, marked):
        return -math.inf
    if read == population:
        return 0.0
    p = read / population
    return float(
        log_binomial(x, marked, p)
        + log_binomial(read - x, population - marked, p)
        - log_binomial(read, population, p)
    )


@njit(nogil=True, cache=True)
def hypergeometric_at_most(x: float, population: float, marked: float, read: float) -> float:
    """P(X <= x) for X hypergeometric; see log_hypergeometric."""
    if x >= min(read, marked):
        return 1.0
    if x < max(0.0, read + marked - population):
        return 0.0
    if x > read * (marked / population):
        return 1.0 - _hypergeometric_above(x + 1.0, population, marked, read, False)
    return float(_hypergeometric_below(x, population, marked, read, True))


@njit(nogil=True, cache=True)
def hypergeometric_at_least(x: float, population: float, marked: float, read: float) -> float:
    """P(X >= x) for X hypergeometric; see log_hypergeometric."""
    if x <= max(0.0, read + marked - population):
        return 1.0
    if x > min(read, marked):
        return 0.0
    if x < read * (marked / population):
        return 1.0 - _hypergeometric_below(x - 1.0, population, marked, read, False)
    return float(_hypergeometric_above(x, population, marked, read, True))


@njit(nogil=True, cache=True)
def binomial_at_most(x: float, n: float, p: float) -> float:
    """P(X <= x) for X binomial(n, p)."""
    if x >= n or p <= 0.0:
        return 1.0
    if x < 0.0 or p >= 1.0:
        return 0.0
    if x > n * p:
        return 1.0 - _binomial_above(x + 1.0, n, p, False)
    return float(_binomial_below(x, n, p, True))


@njit(nogil=True, cache=True)
def binomial_at_least(x: float, n: float, p: float) -> float:
    """P(X >= x) for X binomial(n, p)."""
    if x <= 0.0 or p >= 1.0:
        return 1.0
    if x > n or p <= 0.0:
        return 0.0
    if x < n * p:
        return 1.0 - _binomial_below(x - 1.0, n, p, False)
    return float(_binomial_above(x, n, p, True))


@njit(nogil=True, cache=True)
def _rest(point: float, ratio: float) -> float:
    """What terms that fall at least by this ratio come to, after one of this size; at most."""
    return point * ratio / (1.0 - ratio) if ratio < 1.0 else math.inf


@njit(nogil=True, cache=True)
def _hypergeometric_below(
    x: float, population: float, marked: float, read: float, at_most: bool
) -> float:
    """P(X <= x), x not above the mean, so that the terms fall from x downwards.

    Where there are too many terms: not less than that (at_most), or not more.
    """
    point = 1.0
    total = 1.0
    rest = population - marked - read
    for term in range(_TERMS_MAX):
        at = x - term
        if at <= 0.0 or point < _NEGLIGIBLE * total:
            break
        ratio = at * (rest + at) / ((marked - at + 1.0) * (read - at + 1.0))
        point *= ratio
        total += point
    else:
        total += _rest(point, ratio) if at_most else 0.0
    return min(1.0, total * math.exp(log_hypergeometric(x, population, marked, read)))


@njit(nogil=True, cache=True)
def _hypergeometric_above(
    x: float, population: float, marked: float, read: float, at_most: bool
) -> float:
    """P(X >= x), x not below the mean; where there are too many terms as above."""
    point = 1.0
    total = 1.0
    rest = population - marked - read
    end = min(read, marked)
    for term in range(1, _TERMS_MAX + 1):
        at = x + term
        if at > end or point < _NEGLIGIBLE * total:
            break
        ratio = (marked - at + 1.0) * (read - at + 1.0) / (at * max(rest + at, 1.0))
        point *= ratio
        total += point
    else:
        total += _rest(point, ratio) if at_most else 0.0
    return min(1.0, total * math.exp(log_hypergeometric(x, population, marked, read)))


@njit(nogil=True, cache=True)
def _binomial_below(x: float, n: float, p: float, at_most: bool) -> float:
    """P(X <= x), x not above the mean; where there are too many terms as above."""
    point = 1.0
    total = 1.0
    odds = (1.0 - p) / p
    for term in range(_TERMS_MAX):
        at = x - term
        if at <= 0.0 or point < _NEGLIGIBLE * total:
            break
        ratio = at * odds / (n - at + 1.0)
        point *= ratio
        total += point
    else:
        total += _rest(point, ratio) if at_most else 0.0
    return min(1.0, total * math.exp(log_binomial(x, n, p)))


@njit(nogil=True, cache=True)
def _binomial_above(x: float, n: float, p: float, at_most: bool) -> float:
    """P(X >= x), x not below the mean; where there are too many terms as above."""
    point = 1.0
    total = 1.0
    odds = p / (1.0 - p)
    for term in range(1, _TERMS_MAX + 1):
        at = x + term
        if at > n or point < _NEGLIGIBLE * total:
            break
        ratio = (n - at + 1.0) * odds / at
        point *= ratio
        total += point
    else:
        total += _rest(point, ratio) if at_most else 0.0
    return min(1.0, total * math.exp(log_binomial(x, n, p)))
