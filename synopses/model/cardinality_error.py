"""From HyperLogLog registers to a number of distinct values, with an interval.

The value is Ertl's improved raw estimate (Ertl 2017, arXiv:1702.01284, Algorithm 6): unbiased over
the whole range without tables. The interval:
  - below 1.5 values a register, from how many registers are occupied alone. The occupancy of m
    slots by D values has mean m(1 - e^-t) and the linear-counting deviation sqrt(m(e^t - t - 1)),
    t = D/m (Whang, Vander-Zanden, Taylor 1990, Thm 2), inverted at the interval's own ends;
  - above, from the relative standard error sqrt(3 ln 2 - 1)/sqrt(m) = 1.039/sqrt(m), which holds
    for merged registers (Ertl, sect. 4.5; DataSketches' non-HIP error is the same).
Certain whatever the luck of the hashes: never fewer than the occupied registers, never more than
the values taken in; only where these are equal is the number exact. An interval that lies above the
values taken in has missed; it is drawn anew with twice the deviations, and if it still does
(crafted values, cut off from the hashes' luck), only what is certain is said. Ends are rounded
outwards to whole numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from synopses.model.estimate import Bound, Estimates
from synopses.model.parameters import as_confidence

RELATIVE_ERROR = math.sqrt(3 * math.log(2) - 1)
_OCCUPANCY_MAX = 1.5  # Values per register; beyond, the registers' heights know more.
_ROUNDS = 25

Column = NDArray[np.float64]


def z_of(confidence: float) -> float:
    """Return how many standard deviations to each side hold this share of a normal distribution.

    Raises:
      BadParameter: the confidence is not in (0, 1).
    """
    return float(ndtri(0.5 + as_confidence(confidence) / 2))


def raw_estimate(histogram: NDArray[np.int64]) -> Column:
    """Ertl's improved raw estimate; histogram int64 [groups, 64] of register values."""
    slots = histogram.sum(axis=1).astype(np.float64)
    weights = 2.0 ** -np.arange(64)
    weights[0] = 0.0
    z = histogram @ weights + slots * _sigma(histogram[:, 0] / np.maximum(slots, 1))
    estimate = slots * slots / (2 * math.log(2)) / np.maximum(z, 1e-300)
    return np.where(histogram[:, 0] == slots, 0.0, estimate)


def _sigma(x: Column) -> Column:
    """Ertl's sigma: x + sum over k >= 1 of 2^(k-1) x^(2^k), cut after 40 terms."""
    power, factor, total = x.copy(), 1.0, x.copy()
    for _ in range(40):
        power = power * power
        if not power.any():  # So are all further powers.
            break
        total += power * factor
        factor *= 2
    return total


def estimate_distinct(
    histogram: NDArray[np.int64], taken: NDArray[np.int64], confidence: float
) -> Estimates:
    """Distinct values per group: int64 with an interval.

    Args:
      histogram: int64 [groups, 64], how many registers hold each value.
      taken: int64 [groups], values taken in, repetitions counted.
      confidence: of the interval, in (0, 1).
    """
    z = z_of(confidence)
    slots = histogram.sum(axis=1).astype(np.float64)
    occupied = slots - histogram[:, 0]
    raw, most = raw_estimate(histogram), taken.astype(np.float64)
    low, high = _ends(raw, occupied, slots, z)
    if not (low <= most).all():
        wider, _ = _ends(raw, occupied, slots, 2 * z)
        low = np.where(low <= most, low, np.where(wider <= most, wider, occupied))
    low = np.clip(low, occupied, most)
    high = np.clip(high, low, most)
    value = np.clip(np.rint(raw), low, high)
    bound = np.where(occupied == most, Bound.EXACT, Bound.INTERVAL).astype(np.uint8)
    return Estimates(
        value.astype(np.int64),
        low.astype(np.int64),
        high.astype(np.int64),
        bound,
        np.zeros(len(raw), np.bool_),
        confidence,
        "hll",
    )


def _ends(raw: Column, occupied: Column, slots: Column, z: float) -> tuple[Column, Column]:
    """What the hashes alone say: both ends, so many deviations off."""
    few = _linear(occupied, slots) <= _OCCUPANCY_MAX * slots
    spread = z * RELATIVE_ERROR / np.sqrt(np.maximum(slots, 1))
    low = np.where(few, _inverted(occupied - 0.5, slots, -z), raw / (1 + spread))
    high = raw / np.maximum(1 - spread, 1e-9)
    high = np.where(few, _inverted(occupied + 0.5, slots, z), high)
    return np.floor(low), np.ceil(high)


def _linear(occupied: Column, slots: Column) -> Column:
    """Linear counting: how many values occupy so many of the slots on average."""
    free = np.maximum(slots - occupied, 0.25)
    return np.where(slots > 0, slots * np.log(np.maximum(slots, 1) / free), 0.0)


def _inverted(occupied: Column, slots: Column, z: float) -> Column:
    """The D for which this occupancy is z deviations off: D = linear + z * deviation(D)."""
    middle = _linear(np.maximum(occupied, 0.0), slots)
    size = np.maximum(slots, 1.0)
    ends = middle
    for _ in range(_ROUNDS):
        load = np.clip(ends / size, 0.0, 4.0)
        before, ends = ends, np.maximum(middle + z * np.sqrt(size * (np.expm1(load) - load)), 0.0)
        if np.array_equal(ends, before):  # So would the ends of all further rounds be.
            break
    return ends


def relative_error(slots: int, confidence: float) -> float:
    """Relative half-width (the upper, larger one) that so many registers give.

    With fewer than 1.5 values a register it is smaller; ends rounded to whole numbers come on top.
    """
    spread = z_of(confidence) * RELATIVE_ERROR / math.sqrt(slots)
    return spread / (1 - spread) if spread < 1 else math.inf
