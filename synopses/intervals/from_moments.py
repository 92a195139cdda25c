"""Bounds for a mean from count, mean and squares of a sample, whatever the distribution."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input
from synopses.model.overflow import SQUARES_MIN

Floats = NDArray[np.float64]
Ends = tuple[Floats, Floats]

_KAPPA: Final = 7.0 / 3.0 + 3.0 / math.sqrt(2.0)
_BISECTIONS: Final = 50
_WIDTH_MIN: Final = math.sqrt(SQUARES_MIN)  # Squares in a narrower range may all underflow.


def mean_bounds(
    counts: Floats,
    means: Floats,
    squares: Floats | None,
    *,
    low: Floats,
    high: Floats,
    population: Floats | None,
    delta: float,
) -> Ends:
    """Bounds for the mean of a population with values in [low, high], of which some were read.

    The best of two that hold together, delta/2 each: Chernoff's (`chernoff`), and, where the
    squares are known, the empirical Bernstein-Serfling bound
      sd sqrt(2 r log(1/t)/n) + (7/3 + 3/sqrt 2)(high - low) log(1/t)/n, one-sided at 5 t,
    with r = 1 - (n - 1)/N for n <= N/2 and (1 - n/N)(1 + 1/n) above. Both hold for simple random
    samples without replacement. Source: Bardenet & Maillard 2015, Bernoulli 21(3), Thm 4.3.

    Args:
      counts: [groups], n values read. means, squares: [groups], of these, and the sum of their
        squared distances from it; squares None, or not finite: not known.
      low, high: [groups], a range that holds all values; may be infinite.
      population: [groups], N values that there are; None: unknown, at least n.
      delta: the probability with which either end may miss, in (0, 1).

    Returns:
      (low, high): [groups]; the range where nothing was read, or the range's width is beyond
      doubles, or so little that squares underflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        width = high - low
    usable = (counts > 0) & np.isfinite(width) & (width > _WIDTH_MIN)
    n = np.where(usable, counts, 1.0)
    width = np.where(usable, width, 1.0)
    base = np.where(usable, low, 0.0)
    mean = np.where(usable, np.clip(means, base, base + width), base)
    share = delta if squares is None else delta / 2.0
    first, last = chernoff((mean - base) / width, n, tail=share / 2.0)
    first, last = base + width * first, base + width * last
    if squares is not None:
        known = usable & np.isfinite(squares)
        reach = _serfling(n, np.where(known, squares, 0.0), width, population, share / 10.0)
        reach = np.where(known, reach, np.inf)
        first, last = np.maximum(first, mean - reach), np.minimum(last, mean + reach)
    found_low = np.where(usable, np.minimum(first, mean), low)
    found_high = np.where(usable, np.maximum(last, mean), high)
    return found_low, found_high


def _serfling(
    n: Floats, squares: Floats, width: Floats, population: Floats | None, tail: float
) -> Floats:
    ratio = np.ones(len(n))
    if population is not None:
        size = np.maximum(population, n)
        ratio = np.where(
            2.0 * n <= size, 1.0 - (n - 1.0) / size, (1.0 - n / size) * (1.0 + 1.0 / n)
        )
    log = math.log(1.0 / tail)
    deviation = np.sqrt(squares / n)
    return np.asarray(deviation * np.sqrt(2.0 * ratio * log / n) + _KAPPA * width * log / n)


def chernoff(share: Floats, n: Floats, *, tail: float) -> Ends:
    """Bounds for the mean of values in [0, 1] by relative entropy; each end misses with `tail`.

    P(mean of n >= x) <= exp(-n KL(x, p)) for the true mean p, with or without replacement.
    Source: Hoeffding 1963, JASA 58(301), Thm 1 and Thm 4.

    Args:
      share: [groups], the mean of those read, in [0, 1]. n: [groups], how many, at least 1.
      tail: in (0, 1).

    Returns:
      (low, high): [groups], in [0, 1].
    """
    limit = as_input(math.log(1.0 / tail) / n, np.float64)
    high = _largest(as_input(share, np.float64), limit)
    low = 1.0 - _largest(as_input(1.0 - share, np.float64), limit)
    return low, high


@njit(nogil=True, cache=True, error_model="numpy")
def _largest(share: Floats, limit: Floats) -> Floats:
    """The largest p with KL(share, p) <= limit, from above by bisection."""
    found = np.empty(share.size)
    for group in range(share.size):
        x = share[group]
        inside, outside = x, 1.0
        for _ in range(_BISECTIONS):
            middle = (inside + outside) / 2.0
            if _entropy(x, middle) <= limit[group]:
                inside = middle
            else:
                outside = middle
        found[group] = outside
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _entropy(x: float, p: float) -> float:
    """KL(x, p) of two coins, for x <= p < 1 (1: infinite unless x is 1)."""
    ones = x * np.log(x / p) if x > 0.0 else 0.0
    zeros = (1.0 - x) * np.log((1.0 - x) / (1.0 - p)) if x < 1.0 else 0.0
    return float(ones + zeros)
