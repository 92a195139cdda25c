"""Counts, sums, averages and variances from a sample, beside extreme rows held for certain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Expression
from shedder.queries.sampling.anchored_values import AnchoredValues, is_beyond_doubles
from shedder.queries.sampling.sampled_query import Sampled
from shedder.queries.sampling.split_values import SplitValues
from synopses.intervals.certain_stratum import (
    mean_with_certain,
    sum_with_certain,
    variance_with_certain,
)
from synopses.intervals.hypergeometric import matching_count, seen_count
from synopses.intervals.interval import Intervals
from synopses.intervals.means import sampled_mean
from synopses.intervals.sums import sampled_sum
from synopses.intervals.variance import deviation, sampled_deviation, sampled_variance


def count_of(
    sampled: Sampled, node: Expression | None, matched: NDArray[np.int64], confidence: float
) -> Intervals:
    """Return the number of each group's rows, or of those with a value. matched: of the sample.

    The bounds of a group that is shown because a row of it was read allow for that (`seen_count`).
    """
    extremes = sampled.extremes
    is_chance = bool(sampled.groups.groups) and not sampled.are_strata
    counted = seen_count if is_chance else matching_count
    if extremes is None:
        return counted(
            population=sampled.population,
            read=sampled.read,
            matched=matched,
            confidence=confidence,
        )
    held = sampled.per_group(extremes.ids if node is None else extremes.present(node)[1])
    of_others = counted(
        population=extremes.population,
        read=extremes.read,
        matched=sampled.per_group(sampled.other_ids(node)),
        confidence=confidence,
    )
    value, low, high = (held + end for end in (of_others.value, of_others.low, of_others.high))
    return replace(of_others, value=value, low=low, high=high)


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


def variance_of(
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
