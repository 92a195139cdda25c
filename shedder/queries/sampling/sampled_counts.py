"""COUNT from a sample, beside extreme rows held for certain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, Column, Expression
from shedder.queries.sampling.interval_columns import SOURCE
from shedder.queries.sampling.sampled_query import Sampled
from synopses.intervals.hypergeometric import matching_count, seen_count
from synopses.intervals.interval import Intervals
from synopses.model.estimate import Estimates


def sampled_count(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """Count the rows of each group, or those with a value of the argument."""
    return count_rows(sampled, aggregate.argument, confidence)


def count_rows(sampled: Sampled, node: Expression | None, confidence: float) -> Estimates:
    """Count the rows of each group, or those with a value; exact where the basics know."""
    ids = sampled.groups.ids if node is None else sampled.present_ids(node)
    matched = sampled.per_group(ids)
    if sampled.is_everything:
        return Estimates.exact(matched, SOURCE)
    if sampled.are_strata and node is None:
        return Estimates.exact(np.asarray(sampled.population), "basics")
    if sampled.is_whole and node is None:
        return Estimates.exact(np.array([sampled.population]), "basics")
    if sampled.is_whole and isinstance(node, Column):
        return Estimates.exact(np.array([sampled.view.basics[node.name].rows]), "basics")
    intervals = _intervals(sampled, node, matched, confidence)
    seen = np.nan_to_num(intervals.value, nan=0.0)  # Of nothing read: as many as were counted.
    return replace(intervals, value=seen).estimates(confidence=confidence, source=SOURCE)


def _intervals(
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
