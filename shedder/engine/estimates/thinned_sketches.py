"""Distinct values, quantiles and most frequent values of parts that were read thinned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.level_segment import Segment
from shedder.engine.panes.synopsis_resizing import merged
from shedder.queries.sampling.interval_columns import unseen
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.histogram.quantile_bounds import BucketStratum, bucket_quantile
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.intervals.confidence_split import split_confidence
from synopses.model.estimate import Bound, Estimates
from synopses.theta.theta_sketch import GroupedTheta

SOURCE = "thinned panes"
_ANY_CONFIDENCE = 0.95  # Whether there are any values does not depend on it.
Segments = Sequence[tuple[int, Segment]]


def thinned_distinct(whole: GroupedDistinct, segments: Segments, confidence: float) -> Estimates:
    """Distinct values: of those kept by their hash at the smallest share of all.

    Where a part of the window was read in full, its values are in HyperLogLog, which cannot be cut
    back to a share: then there are at least as many values as in either part, and at most as many
    as in both together, delta/2 for each.
    """
    groups, together = whole.groups, _at_one_share(whole, segments)
    if not whole.distinct(confidence).value.any():
        return together.distinct(confidence)
    each = split_confidence(confidence, 2)
    full, kept = whole.distinct(each), together.distinct(each)
    low = np.maximum(full.low, kept.low)
    value, high = np.maximum(full.value, kept.value), full.high + kept.high
    low = np.minimum(low, value)
    none = np.zeros(groups, np.bool_)
    bound = np.full(groups, Bound.INTERVAL, np.uint8)
    return Estimates(value, low, high, bound, none, confidence, SOURCE)


def read_values(
    whole: GroupedDistinct, segments: Segments
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What was read of each group's values, and at which share: in full, and at the smallest.

    Returns: (values, shares): [2, groups]; of values that were read in full, whether there are any.
    """
    there = (np.asarray(whole.distinct(_ANY_CONFIDENCE).value) > 0).astype(np.int64)
    kept = _at_one_share(whole, segments)
    return np.stack([there, kept.held]), np.stack([np.ones(whole.groups), kept.shares])


def keeps_what_was_read(whole: GroupedDistinct, segments: Segments) -> bool:
    """Return whether the sketches hold all values that were read: the error is of thinning alone.

    whole: of what was read in full. segments: at least one.
    """
    if whole.distinct(_ANY_CONFIDENCE).value.any():
        return False
    level = max(level for level, _ in segments)
    return bool((_at_one_share(whole, segments).shares >= 2.0**-level).all())


def _at_one_share(whole: GroupedDistinct, segments: Segments) -> GroupedTheta:
    """The values that were kept by their hash at the smallest share of all segments."""
    together: GroupedTheta | None = None
    for level, segment in segments:
        theta = segment.synopsis.select(np.arange(whole.groups))
        theta.thin(level)
        together = theta if together is None else merged(together, theta)
    assert together is not None
    return together


def thinned_quantile(
    whole: GroupedLogBuckets, segments: Segments, q: float, confidence: float, *, ungrouped: bool
) -> Estimates:
    """The discrete q-quantile of each group: float64."""
    every = [whole, *(segment.synopsis for _, segment in segments)]
    bits = min(each.mantissa_bits for each in every)
    whole, *thinned = (_at_bits(each, bits) for each in every)  # Else cells are not the same ones.
    of_segments = zip(thinned, segments, strict=True)
    strata = [_stratum(whole, None), *(_stratum(each, s) for each, (_, s) in of_segments)]
    found = bucket_quantile(
        [s for s in strata if s.population] or strata,  # One of nothing has no range to widen by.
        whole.ends_of,
        rank_share=q,
        confidence=confidence,
        whole=ungrouped,
    )
    null = np.isnan(found.value)
    skipped = any(segment.skipped for _, segment in segments)
    nothing = unseen(found.low, found.high) if skipped else np.uint8(Bound.EXACT)
    bound = np.where(null, nothing, found.bound)
    reason = "no value of the group was read, and tuples were skipped" if null.any() else ""
    values = np.where(null, 0.0, found.value)
    return Estimates(
        values, found.low, found.high, bound.astype(np.uint8), null, confidence, SOURCE, reason
    )


def _at_bits(buckets: GroupedLogBuckets, bits: int) -> GroupedLogBuckets:
    """The same in buckets this wide: what has read nothing is as narrow as it was made."""
    if buckets.mantissa_bits == bits:
        return buckets
    return GroupedLogBuckets.from_bytes(buckets.to_bytes()).resize(bits)


def _stratum(buckets: GroupedLogBuckets, segment: Segment | None) -> BucketStratum:
    groups, cells, counts = buckets.buckets()
    totals = buckets.counts
    read = int(totals.sum())
    low, high, population = -np.inf, np.inf, read
    if segment is not None:
        population, read = segment.population, segment.read
        low = -np.inf if segment.low is None else float(np.nextafter(segment.low, -np.inf))
        high = np.inf if segment.high is None else float(np.nextafter(segment.high, np.inf))
    elif read:
        extremes = buckets.quantile(0.0), buckets.quantile(1.0)
        low = float(extremes[0].low[totals > 0].min())
        high = float(extremes[1].high[totals > 0].max())
    return BucketStratum(population, read, groups, cells, counts, totals.copy(), low, high)
