"""Sizes of joins from Count-Min: numbers of pairs of equal tuples, read both ways.

Count-Min is sharp where few keys make up most tuples, CountSketch where many do; a Count-Min holds
the CountSketch of half its width, so both intervals come from one table and are intersected.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synopses.counters import bounds as hashed
from synopses.counters import inner_products as counter_products
from synopses.counters.count_min import GroupedCountMin
from synopses.model.estimate import Bound, Estimates
from synopses.model.parameters import error_share

SOURCE = "count-min"


def self_join_size(counts: GroupedCountMin, confidence: float) -> Estimates:
    """Sum of squared counts per group: float64, whole numbers below 2^53.

    Low: half of what may fail to Count-Min, half to CountSketch. High: Count-Min's, for certain,
    or CountSketch's. At least every tuple pairs with itself.
    """
    signed = counts.signed().second_moment(_half(confidence))
    totals = counts.totals().astype(np.float64)
    return _joined(counts, counts, signed, (totals, totals), totals, confidence)


def join_size(left: GroupedCountMin, right: GroupedCountMin, confidence: float) -> Estimates:
    """Sum over keys of count in left times count in right, per group: float64.

    Raises:
      CannotMerge: widths or seeds differ.
    """
    left.grow(right.groups)
    right.grow(left.groups)
    signed = left.signed().inner_product(right.signed(), _half(confidence))
    totals = left.totals().astype(np.float64), right.totals().astype(np.float64)
    return _joined(left, right, signed, totals, np.zeros(left.groups), confidence)


def _half(confidence: float) -> float:
    """At which confidence each of two bounds is asked, so that both hold with the given one."""
    return 1 - error_share(confidence) / 2


def _joined(
    left: GroupedCountMin,
    right: GroupedCountMin,
    signed: Estimates,
    totals: tuple[NDArray[np.float64], NDArray[np.float64]],
    least: NDArray[np.float64],
    confidence: float,
) -> Estimates:
    value = counter_products.of_keys(left, right)
    low, high = value.copy(), value.copy()
    large = np.flatnonzero(~(left.exact & right.exact))
    volume = totals[0][large] * totals[1][large]
    most = np.minimum(counter_products.of_tables(left, right, large).min(axis=1), volume)
    below = hashed.least_with_excess(most, volume, width=left.width, miss=1 - _half(confidence))
    # Where the two disagree one has failed, as it may; what is certain stays.
    upper = np.minimum(most, signed.high[large])
    lower = np.minimum(np.maximum.reduce([below, signed.low[large], least[large]]), upper)
    upper = np.maximum(np.floor(upper), lower)
    lower = np.ceil(lower)
    value[large] = np.clip(np.rint(signed.value[large]), lower, np.maximum(lower, upper))
    low[large], high[large] = lower, np.maximum(lower, upper)
    bound = np.zeros(value.size, np.uint8)
    bound[large] = Bound.INTERVAL
    null = np.zeros(value.size, np.bool_)
    return Estimates(value, low, high, bound, null, confidence, SOURCE)
