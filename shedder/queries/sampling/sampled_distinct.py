"""COUNT(DISTINCT) from a sample: rows chosen by the hash of the column, or uniform rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, Column, Expression
from shedder.queries.sampling.interval_columns import SOURCE, UNSEEN
from shedder.queries.sampling.sampled_query import Sampled
from synopses.intervals.distinct import distinct_by_hash, distinct_by_rows
from synopses.model.estimate import Bound, Estimates


def sampled_distinct(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """Estimate the distinct values of each group."""
    node = aggregate.argument
    assert node is not None, aggregate
    view = sampled.view.hashed.get(node.name) if isinstance(node, Column) else None
    if view is not None and not sampled.is_everything:
        kept = sampled.per_group(sampled.hashed_counts(node, view).group)
        intervals = distinct_by_hash(kept=kept, share=view.share, confidence=confidence)
        return intervals.estimates(confidence=confidence, source="hash sample")
    pairs = sampled.value_counts(node)
    seen = sampled.per_group(pairs.group)
    if sampled.is_everything:
        return Estimates.exact(seen, SOURCE)
    intervals = distinct_by_rows(
        seen=seen,
        once=sampled.per_group(pairs.group[pairs.rows == 1]),
        matched=sampled.per_group(sampled.present_ids(node)),
        population=sampled.population,
        read=sampled.read,
        values_max=values_max(node, sampled),
        confidence=confidence,
    )
    if not np.any(sampled.read):  # As of counts; and nothing is known of how many there are.
        none = np.full(len(seen), np.uint8(Bound.NONE))
        return replace(Estimates.exact(seen, SOURCE), bound=none, reason=UNSEEN)
    return intervals.estimates(confidence=confidence, source=SOURCE)


def values_max(node: Expression, sampled: Sampled) -> float:
    """Return how many values the type and the range allow."""
    if node.type is ColumnType.BOOLEAN:
        return 2.0
    if node.type in (ColumnType.DOUBLE, ColumnType.VARCHAR):
        return np.inf
    low, high = sampled.range(node)
    return high - low + 1
