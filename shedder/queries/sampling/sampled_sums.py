"""SUM and AVG from all that a sample has: the choice among uniform, weighted and extreme rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, Column, Expression
from shedder.queries.evidence.int64_sums import whole_ends, within_int64
from shedder.queries.sampling.anchored_values import HELD_MAX, AnchoredValues, is_beyond_doubles
from shedder.queries.sampling.interval_columns import SOURCE, as_estimates, both
from shedder.queries.sampling.sampled_counts import count_rows
from shedder.queries.sampling.sampled_moments import mean_of, moments_column, sum_of
from shedder.queries.sampling.sampled_query import Sampled
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.means import sampled_mean
from synopses.intervals.weighted import signed_sum, weighted_sum
from synopses.model.estimate import Bound, Estimates
from synopses.model.overflow import SUM_OUT_OF_RANGE, unless_out_of_range, without
from synopses.moments.moments import GroupedMoments


def sampled_total(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """Estimate the sum of each group."""
    node = aggregate.argument
    assert node is not None, aggregate
    return _added(sampled, node, _sum(sampled, node, aggregate.type, confidence))


def sampled_average(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """Estimate the average of each group."""
    node = aggregate.argument
    assert node is not None, aggregate
    return _added(sampled, node, _average(sampled, node, confidence))


def _added(sampled: Sampled, node: Expression, found: Estimates) -> Estimates:
    """A sum or mean, unless finite doubles left their range on the way to it."""
    if node.type is ColumnType.DOUBLE:
        seen = sampled.per_group(sampled.present_ids(node)) > 0
        nothing = found.null & seen & ~sampled.infinite(node)
        found = without(found, nothing, SUM_OUT_OF_RANGE)
    return unless_out_of_range(found, SUM_OUT_OF_RANGE)


def _sum(
    sampled: Sampled, node: Expression, kind: ColumnType | None, confidence: float
) -> Estimates:
    if kind is ColumnType.DOUBLE:
        return _part_sum(sampled, node, confidence)
    if sampled.is_everything:
        return _whole_sum(sampled, node)
    found = _with_whole_sums(sampled, node, _part_sum(sampled, node, confidence))
    return within_int64(found, found.low, found.high)


def _with_whole_sums(sampled: Sampled, node: Expression, found: Estimates) -> Estimates:
    """Sums of whole numbers; those that are exact have digits that doubles may have lost."""
    exact = (found.bound == Bound.EXACT) & ~found.null
    large = np.abs(found.value) >= HELD_MAX
    if is_beyond_doubles(sampled, node):
        large = np.ones_like(large)
    added = exact & large & np.broadcast_to(sampled.is_complete, exact.shape)
    rounded = np.where(exact & large & ~added, np.uint8(Bound.INTERVAL), found.bound)
    if not added.any():
        return replace(found, bound=rounded)
    sums = _whole_sum(sampled, node)
    value, low, high = (
        np.where(added, sums.value, whole_ends(part, side))
        for part, side in ((found.value, 0), (found.low, -1), (found.high, 1))
    )
    null = found.null | (added & sums.null)
    return replace(found, value=value, low=low, high=high, bound=rounded, null=null)


def _part_sum(sampled: Sampled, node: Expression, confidence: float) -> Estimates:
    if sampled.stratified is None:
        weighted = _weighted_sum(sampled, node, confidence)
        return _uniform_sum(sampled, node, confidence) if weighted is None else weighted
    half = split_confidence(confidence, 2)
    weighted = _weighted_sum(sampled, node, half)
    if weighted is None:
        return _uniform_sum(sampled, node, confidence)
    return both(_uniform_sum(sampled, node, half), weighted, confidence)


def _uniform_sum(sampled: Sampled, node: Expression, confidence: float) -> Estimates:
    intervals, unseen = sum_of(sampled, node, confidence)
    return moments_column(sampled, node, intervals, confidence, empty=unseen)


def _whole_sum(sampled: Sampled, node: Expression) -> Estimates:
    """The exact sum of whole numbers, added in 128 bits."""
    return replace(_whole_moments(sampled, node).sum(), source=SOURCE)


def _whole_moments(sampled: Sampled, node: Expression) -> GroupedMoments:
    values, ids = sampled.present(node)
    moments = GroupedMoments(sampled.groups.count, integer=True)
    moments.update(ids.astype(np.int32), values)
    return moments


def _weighted_sum(sampled: Sampled, node: Expression, confidence: float) -> Estimates | None:
    """From the weighted samples of the column, where there are any."""
    views = sampled.view.weighted.get(node.name) if isinstance(node, Column) else None
    low, high = sampled.range(node)
    if views is None or not np.isfinite([low, high]).all():
        return None
    positive, negative = (sampled.weighted_matches(each) for each in views)
    if low >= 0:
        intervals = weighted_sum(positive, confidence=confidence)
    else:
        intervals = signed_sum(positive, negative, confidence=confidence)
    seen = sampled.per_group(sampled.present_ids(node))
    for part in (positive, negative):
        seen = seen + part.light + (part.certain > 0)
    # All weight may be known and still rows of weight zero be unseen: then NULL is no fact.
    known = sampled.is_everything or sampled.is_whole
    return as_estimates(
        intervals, confidence, empty=seen == 0, known=known, source="weighted sample"
    )


def _average(sampled: Sampled, node: Expression, confidence: float) -> Estimates:
    """Certified normal where it may be; else betting, with the weighted sum if there is one."""
    if sampled.is_whole and isinstance(node, Column) and not sampled.is_everything:
        total = _weighted_sum(sampled, node, confidence)
        rows = sampled.view.basics[node.name].rows
        if total is not None and rows:
            value, low, high = (x / rows for x in (total.value, total.low, total.high))
            return replace(total, value=value, low=low, high=high)
    if is_beyond_doubles(sampled, node):
        anchored = AnchoredValues.of(sampled, node)
        intervals = anchored.raised(sampled_mean(anchored.sample, confidence=confidence))
        if (intervals.bound == Bound.EXACT).any():
            exact = (intervals.bound == Bound.EXACT) & ~np.isnan(intervals.value)
            mean = _whole_moments(sampled, node).mean().value
            ends = (intervals.value, intervals.low, intervals.high)
            value, low, high = (np.where(exact, mean, end) for end in ends)
            intervals = replace(intervals, value=value, low=low, high=high)
        return moments_column(sampled, node, intervals, confidence)
    intervals = mean_of(sampled, node, confidence)
    found = moments_column(sampled, node, intervals, confidence)
    if intervals.certified.all() or sampled.is_everything:
        return found
    return _crosswise(sampled, node, found, ~intervals.certified, confidence)


def _crosswise(
    sampled: Sampled,
    node: Expression,
    found: Estimates,
    wanted: NDArray[np.bool_],
    confidence: float,
) -> Estimates:
    """Averages as weighted sum by count, cut with betting's: half of delta for either."""
    half = split_confidence(confidence, 2)
    quarter = split_confidence(confidence, 4)
    total = _weighted_sum(sampled, node, quarter)
    if total is None:
        return found
    count = count_rows(sampled, node, quarter)
    mean = mean_of(sampled, node, half)
    lows, highs = np.maximum(count.low, 1.0), np.maximum(count.high, 1.0)
    low = np.maximum(mean.low, total.low / np.where(total.low >= 0, highs, lows))
    high = np.minimum(mean.high, total.high / np.where(total.high >= 0, lows, highs))
    # Without a common point one of the two has missed, as it may.
    usable = wanted & (count.low > 0) & ~total.null & ~found.null & (low <= high)
    value = np.clip(total.value / np.maximum(count.value, 1.0), low, np.maximum(low, high))
    return replace(
        found,
        value=np.where(usable, value, found.value),
        low=np.where(usable, low, found.low),
        high=np.where(usable, high, found.high),
        bound=np.where(usable, np.uint8(Bound.INTERVAL), found.bound),
    )
