"""Coupons of small HyperLogLog groups: distinct values by 26 bits of their hashes.

A coupon is what DataSketches keeps of a value while a sketch is small: a slot of 26 bits, of which
a register's are the lowest, and the register's content. Slots collide rarely: n values leave fewer
than n occupied with probability n(n - 1) / 2^27 at most.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from synopses.model.estimate import Bound
from synopses.model.parameters import error_share

SLOT_BITS: Final = 26  # As in DataSketches.
SLOTS: Final = 1 << SLOT_BITS
_GATHERED_MAX: Final = 128


def held_max(lg_k: int) -> int:
    """Return how many coupons a group holds before it has 2^lg_k registers instead."""
    return max(1, (1 << lg_k) // 16)


def gathered_max(lg_k: int) -> int:
    """Return how many coupons a group gathers before it raises its 2^lg_k registers by all of them.

    Two for each cache line of 4,096 registers, an eighth of their bytes; of fewer a quarter. Twice
    as many are some percent faster.
    """
    return min(_GATHERED_MAX, (1 << lg_k) // 16)


def counted(
    coupons: NDArray[np.int64], taken: NDArray[np.int64], confidence: float
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The high end and the bound of groups that hold so many coupons; they are the low end.

    Exact where there are as many different slots as values: none of these came twice, or collided.

    Args:
      coupons: int64 [groups], different slots.
      taken: int64 [groups], values taken in, repetitions counted.
      confidence: in (0, 1).
    """
    high = np.maximum(np.minimum(coupons + collided_max(coupons, confidence), taken), coupons)
    return high, np.where(coupons == taken, Bound.EXACT, Bound.INTERVAL).astype(np.uint8)


def collided_max(held: NDArray[np.int64], confidence: float) -> NDArray[np.int64]:
    """Return how many values more than coupons there are at most, with this confidence.

    Whatever the slots of the values before it, value i of D (from 0) finds its own occupied with
    probability at most i/m, m = 2^26. So c given values all do with at most the product of theirs,
    and by the union bound over all choices of c, P(C >= c) <= L^c / c! with L = D(D - 1) / 2m;
    where C is large, Chernoff's e^(c - L) (L / c)^c is less (Mitzenmacher & Upfal 2005, 4.1). The
    result is the smallest c for which c + 1 collisions among held + c + 1 values are too rare. It
    does not fall with `held`, so D is missed only if C reaches a number that it reaches too rarely.

    Args:
      held: int64 [groups], occupied slots.
      confidence: in (0, 1).

    Returns:
      int64 [groups].
    """
    log_of_miss = np.log(error_share(confidence))
    sizes, where = np.unique(held, return_inverse=True)
    collided = np.zeros(sizes.size, np.int64)
    open_ = np.arange(sizes.size)
    while open_.size:
        open_ = open_[_log_tail(sizes[open_], collided[open_] + 1) > log_of_miss]
        collided[open_] += 1
    found: NDArray[np.int64] = collided[where]
    return found


def _log_tail(held: NDArray[np.int64], collided: NDArray[np.int64]) -> NDArray[np.float64]:
    """The logarithm of a bound for P(C >= c) of held + c values; c >= 1."""
    values, c = (held + collided).astype(np.float64), collided.astype(np.float64)
    pairs = np.maximum(values * (values - 1.0) / (2.0 * SLOTS), 1e-300)
    choices = c * np.log(pairs) - gammaln(c + 1.0)
    chernoff = np.where(c > pairs, c - pairs + c * np.log(pairs / c), 0.0)
    return np.minimum(choices, chernoff)
