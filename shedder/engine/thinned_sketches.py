"""Distinct values, quantiles and most frequent values of parts that were read thinned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.engine.segment import Segment
from synopses.distinct import GroupedDistinct
from synopses.estimate import Bound, Estimates, TopItem
from synopses.frequent import GroupedFrequent
from synopses.intervals.bucket_quantiles import BucketStratum, bucket_quantile
from synopses.intervals.combine import split_confidence
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.missing import missing_group_rows
from synopses.log_buckets import GroupedLogBuckets
from synopses.theta import GroupedTheta

SOURCE = "thinned panes"
Segments = Sequence[tuple[int, Segment]]


def thinned_distinct(whole: GroupedDistinct, segments: Segments, confidence: float) -> Estimates:
    """Distinct values: of those kept by their hash at the smallest share of all.

    Where a part of the window was read in full, its values are in HyperLogLog, which cannot be cut
    back to a share: then there are at least as many values as in either part, and at most as many
    as in both together, delta/2 for each.
    """
    groups = whole.groups
    merged: GroupedTheta | None = None
    for level, segment in segments:
        theta = segment.synopsis.select(np.arange(groups))
        theta.thin(level)
        merged = theta if merged is None else merged.merge(theta)
    assert merged is not None
    if not whole.distinct(confidence).value.any():
        return merged.distinct(confidence)
    each = split_confidence(confidence, 2)
    full, kept = whole.distinct(each), merged.distinct(each)
    low = np.maximum(full.low, kept.low)
    value, high = np.maximum(full.value, kept.value), full.high + kept.high
    low = np.minimum(low, value)
    none = np.zeros(groups, np.bool_)
    bound = np.full(groups, Bound.INTERVAL, np.uint8)
    return Estimates(value, low, high, bound, none, confidence, SOURCE)


def thinned_quantile(
    whole: GroupedLogBuckets, segments: Segments, q: float, confidence: float, *, ungrouped: bool
) -> Estimates:
    """The discrete q-quantile of each group: float64."""
    found = bucket_quantile(
        [_stratum(whole, None), *(_stratum(s.synopsis, s) for _, s in segments)],
        whole.ends_of,
        rank_share=q,
        confidence=confidence,
        whole=ungrouped,
    )
    null = np.isnan(found.value)
    skipped = any(segment.skipped for _, segment in segments)
    bound = np.where(null, Bound.NONE if skipped else Bound.EXACT, found.bound)
    reason = "no value of the group was read, and tuples were skipped" if null.any() else ""
    values = np.where(null, 0.0, found.value)
    return Estimates(
        values, found.low, found.high, bound.astype(np.uint8), null, confidence, SOURCE, reason
    )


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


def thinned_top(whole: GroupedFrequent, segments: Segments, k: int, confidence: float) -> Estimates:
    """The k most frequent values of each group, with bounds that hold for all values at once.

    The summary bounds for certain how often a value was read; the step from there to how often it
    arrived is hypergeometric in each stratum, at delta/2 shared by all values and strata as in
    `sampled_top`; the other half is for values of which nothing was read.
    """
    parts = [_Counted.of(whole, None, len(segments), confidence)]
    parts += [_Counted.of(s.synopsis, s, len(segments), confidence) for _, s in segments]
    lists = np.empty(whole.groups, object)
    for group in range(whole.groups):
        lists[group] = _listed([part.of_group(group) for part in parts], k)
    bound = np.full(len(lists), Bound.INTERVAL, np.uint8)
    null = np.zeros(len(lists), np.bool_)
    return Estimates(lists, lists, lists, bound, null, confidence, SOURCE)


Bounds = dict[object, tuple[float, int, int]]


class _Counted:
    """The values that a summary tracks, and what it says of those that it does not."""

    def __init__(
        self, items: list[list[TopItem]], error: NDArray[np.int64], segment: Segment | None
    ) -> None:
        self._items = items
        self._error = error
        self._segment = segment
        self._each = self._least = 0.0

    @classmethod
    def of(
        cls, summary: GroupedFrequent, segment: Segment | None, strata: int, confidence: float
    ) -> _Counted:
        """Ask the summary for everything that it tracks."""
        made = cls(summary.top(summary.entries), summary.error, segment)
        if segment is not None and segment.skipped:
            half = 1 - (1 - confidence) / 2 / strata
            made._least = 1.0 + missing_group_rows(
                population=segment.population, read=segment.read, confidence=half
            )
            made._each = 1 - (1 - half) * made._least / segment.population
        return made

    def of_group(self, group: int) -> tuple[Bounds, int]:
        """(value, low, high) of every tracked value, and the most that another one can have."""
        items = self._items[group]
        low = np.array([item.low for item in items], np.float64)
        high = np.array([item.high for item in items], np.float64)
        value = np.array([item.count for item in items], np.float64)
        outside = float(self._error[group])
        segment = self._segment
        if segment is not None and segment.skipped and segment.population:
            high = np.minimum(high, segment.read)
            found, most = self._arrived(segment, low), self._arrived(segment, high)
            low = np.where(found[0] >= self._least, found[0], low)
            value = value * (segment.population / max(segment.read, 1))
            high = np.maximum(most[1], self._least)
            unseen = self._arrived(segment, np.array([min(outside, float(segment.read))]))
            outside = max(float(unseen[1][0]), self._least)
        bounds = {
            item.value: (float(v), int(first), int(last))
            for item, v, first, last in zip(items, value, low, high, strict=True)
        }
        return bounds, int(outside)

    def _arrived(
        self, segment: Segment, read: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if not len(read):
            return read, read
        found = matching_count(
            population=segment.population,
            read=segment.read,
            matched=read,
            confidence=self._each,
        )
        return found.low, found.high


def _listed(parts: Sequence[tuple[Bounds, int]], k: int) -> list[TopItem]:
    """The k values with the largest estimated counts over all strata."""
    names = dict.fromkeys(name for bounds, _ in parts for name in bounds)
    found = []
    for name in names:
        value, low, high = 0.0, 0, 0
        for bounds, outside in parts:
            more = bounds.get(name, (0.0, 0, outside))
            value, low, high = value + more[0], low + more[1], high + more[2]
        found.append((name, min(max(round(value), low), high), low, high))
    found.sort(key=lambda item: -item[1])
    outside = sum(part[1] for part in parts)
    outside = max([outside, *(item[3] for item in found[k:])])
    return [TopItem(name, value, low, high, low >= outside) for name, value, low, high in found[:k]]
