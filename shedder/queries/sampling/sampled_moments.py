"""COUNT, SUM, AVG and VAR from uniform rows, beside extreme rows that are held for certain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Expression
from shedder.queries.sampling.anchored_values import AnchoredValues, is_beyond_doubles
from shedder.queries.sampling.interval_columns import as_estimates, spoiled
from shedder.queries.sampling.sampled_query import Sampled
from shedder.queries.sampling.split_values import SplitValues
from synopses.intervals.certain_stratum import (
    mean_with_certain,
    sum_with_certain,
    variance_with_certain,
)
from synopses.intervals.interval import Intervals
from synopses.intervals.means import sampled_mean
from synopses.intervals.sums import sampled_sum
from synopses.intervals.variance import deviation, sampled_deviation, sampled_variance
from synopses.model.estimate import Estimates
from synopses.model.overflow import unless_out_of_range


def sum_of(
    sampled: Sampled, node: Expression, confidence: float
) -> tuple[Intervals, NDArray[np.bool_]]:
    """Return the sum of each group, and which groups have no value that was seen."""
    split = SplitValues.of(sampled, node)
    if split is not None:
        found = sum_with_certain(split.others, split.certain, confidence=confidence)
        return found, split.unseen
    sample = sampled.values(node)
    return sampled_sum(sample, confidence=confidence), sample.matched == 0


def mean_of(sampled: Sampled, node: Expression, confidence: float) -> Intervals:
    """Return the average of each group."""
    split = SplitValues.of(sampled, node)
    if split is None:
        return sampled_mean(sampled.values(node), confidence=confidence)
    return mean_with_certain(split.others, split.certain, confidence=confidence)


def _variance_of(
    sampled: Sampled, node: Expression, confidence: float, *, is_root: bool
) -> Intervals:
    """Return the sample variance of each group; is_root: its root, the standard deviation.

    Whole numbers that doubles do not hold are replaced by their distances from one of them.
    """
    split = SplitValues.of(sampled, node)
    if split is not None:
        found = variance_with_certain(split.others, split.certain, confidence=confidence)
        return deviation(found) if is_root else found
    if is_beyond_doubles(sampled, node):
        sample = AnchoredValues.of(sampled, node).sample
    else:
        sample = sampled.values(node)
    estimator = sampled_deviation if is_root else sampled_variance
    return estimator(sample, confidence=confidence)


def sampled_spread(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """Estimate VAR or STDDEV of each group."""
    node, is_root = aggregate.argument, aggregate.function is AggregateFunction.STDDEV
    assert node is not None, aggregate
    intervals = _variance_of(sampled, node, confidence, is_root=is_root)
    return unless_out_of_range(moments_column(sampled, node, intervals, confidence))


def moments_column(
    sampled: Sampled,
    node: Expression,
    intervals: Intervals,
    confidence: float,
    empty: NDArray[np.bool_] | None = None,
) -> Estimates:
    """Sums, means and variances, which infinities spoil."""
    return spoiled(as_estimates(intervals, confidence, empty=empty), sampled.infinite(node))
