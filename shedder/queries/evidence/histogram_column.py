"""HISTOGRAM's output: of each group a list of buckets, made of their counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, Expression
from shedder.cql.expressions.histograms import counts_of, edges_of
from shedder.queries.evidence.arrow_columns import typed_intervals
from shedder.queries.evidence.confidence_budget import joint_confidence
from shedder.queries.evidence.output_column import OutputColumn
from synopses.model.estimate import Bound, Estimates


def histogram_column(
    name: str, node: Expression, estimates: Mapping[Aggregate, Estimates]
) -> OutputColumn:
    """list<struct<from, to, count, low, high>> per group, from the lowest bucket to the highest.

    from, to: the edges, null where there is none. low, high: of the count, null without a bound.
    A bound is that of the weakest bucket; the intervals of all of them hold at once with the
    column's confidence.
    """
    counts = [estimates[count] for count in counts_of(node)]
    value, low, high = (
        np.stack([np.asarray(getattr(each, part)) for each in counts], axis=1)
        for part in ("value", "low", "high")
    )
    bound = np.stack([each.bound for each in counts], axis=1)
    groups, buckets = value.shape
    none = (bound == Bound.NONE).ravel()
    never: NDArray[np.bool_] = np.zeros(none.size, np.bool_)
    columns = typed_intervals(
        value.ravel(), low.ravel(), high.ravel(), ColumnType.BIGINT, null=never, open_=none
    )
    struct = pa.StructArray.from_arrays(
        [*_edges(node, groups), *columns], names=["from", "to", "count", "low", "high"]
    )
    starts: Any = pa.array(np.arange(groups + 1, dtype=np.int32) * buckets)
    reach = np.where(bound == Bound.NONE, np.inf, np.maximum(high - value, value - low))
    reach = np.where(bound == Bound.EXACT, 0.0, reach)
    least = np.where(reach > 0, value, np.inf).min(axis=1)
    return OutputColumn(
        name,
        None,
        pa.ListArray.from_arrays(starts, struct),
        bound=bound.max(axis=1),
        size=np.where(np.isfinite(least), least, 1.0),
        reach=reach.max(axis=1),
        confidence=joint_confidence(node, estimates),
    )


def _edges(node: Expression, groups: int) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Lower and upper edge of every bucket of every group."""
    edges = edges_of(node)
    kind = edges[0].type
    assert kind is not None, node
    stored: Any = pa.array([None, *(edge.value for edge in edges), None], kind.arrow)
    every = np.tile(np.arange(len(edges) + 1), groups)
    return stored.take(pa.array(every)), stored.take(pa.array(every + 1))
