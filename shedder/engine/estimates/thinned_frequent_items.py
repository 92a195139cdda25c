"""Most frequent values of parts that were read thinned."""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from shedder.engine.estimates.thinned_sketches import SOURCE, Segments
from shedder.engine.panes.level_segment import Segment
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.frequent.heavy_share import Promise
from synopses.frequent.top_lists import NONE_COUNTED, Counted, frequent_lists, top_lists
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.unseen_groups import missing_group_rows
from synopses.model.estimate import Bound, Estimates

Integers = NDArray[np.int64]


def thinned_top(whole: GroupedFrequent, segments: Segments, k: int, confidence: float) -> Estimates:
    """The k most frequent values of each group, with bounds that hold for all values at once.

    The summary bounds for certain how often a value was read; the step from there to how often it
    arrived is hypergeometric in each stratum, at delta/2 shared by all values and strata as in
    `sampled_top`; the other half is for values of which nothing was read.
    """
    lists = np.empty(whole.groups, object)
    counted, outside = _counted(whole, segments, confidence)
    lists[:] = top_lists(counted, outside, k)
    lost = np.array([not found for found in lists], np.bool_) & (outside > 0)
    bound = np.where(lost, Bound.NONE, Bound.INTERVAL).astype(np.uint8)
    null, reason = np.zeros(len(lists), np.bool_), NONE_COUNTED if lost.any() else ""
    return Estimates(lists, lists, lists, bound, null, confidence, SOURCE, reason)


def thinned_frequent(
    whole: GroupedFrequent,
    segments: Segments,
    share: float,
    promise: Promise,
    confidence: float,
    *,
    late: int,
    ungrouped: bool,
) -> Estimates:
    """The values that make up a share of their group, with bounds that hold for all values at once.

    Counts as in `thinned_top`, at half of delta; the other half is for the group's number of
    values, hypergeometric in each stratum, which is known where the query has no groups and filter.
    """
    half = split_confidence(confidence, 2)
    return frequent_lists(
        *_counted(whole, segments, half),
        _totals(whole, segments, half, ungrouped=ungrouped),
        share=share,
        promise=promise,
        late=late,
        confidence=confidence,
        source=SOURCE,
    )


def _totals(
    whole: GroupedFrequent, segments: Segments, confidence: float, *, ungrouped: bool
) -> tuple[Integers, Integers]:
    """Return how many values each group has, at least and at most."""
    low, high = whole.totals, whole.totals
    each = split_confidence(confidence, max(_thinned(segments), 1))
    for _, segment in segments:
        read = segment.synopsis.totals
        if ungrouped:
            low, high = low + segment.population, high + segment.population
            continue
        if not segment.skipped:
            low, high = low + read, high + read
            continue
        found = matching_count(
            population=segment.population, read=segment.read, matched=read, confidence=each
        )
        low, high = low + found.low.astype(np.int64), high + found.high.astype(np.int64)
    return low, high


Stratum = tuple[NDArray[np.uint64], Counted, Integers]
"""The keys of the values that have a counter, their counts, and what another value has at most."""


def _counted(
    whole: GroupedFrequent, segments: Segments, confidence: float
) -> tuple[Counted, Integers]:
    """Every value's counts over all strata, by group, and the most of any other one."""
    strata = [_arrived(s.synopsis, s, _thinned(segments), confidence) for _, s in segments]
    _, counted, outside = reduce(_together, strata, (*whole.tracked(), whole.error))
    return counted, outside


def _thinned(segments: Segments) -> int:
    """Return how many strata spend confidence: those that any tuple was skipped of."""
    return sum(segment.skipped > 0 for _, segment in segments)


def _arrived(summary: GroupedFrequent, segment: Segment, strata: int, confidence: float) -> Stratum:
    """A stratum of which a part was read."""
    keys, read = summary.tracked()
    if not segment.skipped:
        return keys, read, summary.error
    half = 1 - (1 - confidence) / 2 / strata
    least = 1 + missing_group_rows(
        population=segment.population, read=segment.read, confidence=half
    )
    each = 1 - (1 - half) * least / segment.population

    def bounds(matched: Integers) -> tuple[Integers, Integers]:
        different, row = np.unique(np.minimum(matched, segment.read), return_inverse=True)
        found = matching_count(
            population=segment.population, read=segment.read, matched=different, confidence=each
        )
        return found.low[row].astype(np.int64), found.high[row].astype(np.int64)

    above = bounds(read.low)[0]
    low = np.where(above >= least, above, read.low)
    high = np.maximum(bounds(read.high)[1], least)
    count = np.rint(read.count * (segment.population / max(segment.read, 1))).astype(np.int64)
    counted = Counted(read.groups, read.values, np.clip(count, low, high), low, high)
    return keys, counted, np.maximum(bounds(summary.error)[1], least)


def _together(one: Stratum, other: Stratum) -> Stratum:
    """Both: a value without a counter in one of them may be any other value there."""
    outside = one[2] + other[2]
    keys = np.concatenate([one[0], other[0]])
    groups = np.concatenate([one[1].groups, other[1].groups])
    order = np.lexsort((keys, groups))
    keys, groups = keys[order], groups[order]
    first = np.ones(order.size, np.bool_)
    first[1:] = (keys[1:] != keys[:-1]) | (groups[1:] != groups[:-1])
    row = np.empty(order.size, np.int64)
    row[order] = np.cumsum(first) - 1
    groups = groups[first]
    count, low = np.zeros((2, groups.size), np.int64)
    high = outside[groups]
    for (_, counted, unseen), rows in zip((one, other), np.split(row, [one[0].size]), strict=True):
        count[rows] += counted.count
        low[rows] += counted.low
        high[rows] += counted.high - unseen[counted.groups]
    values = np.concatenate([one[1].values, other[1].values])[order][first]
    return keys[first], Counted(groups, values, np.minimum(count, high), low, high), outside
