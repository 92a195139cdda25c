"""MIN and MAX from a sample: what was seen bounds one side, the known range the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column, Expression
from shedder.queries.evidence.late_tuple_bounds import outward_int
from shedder.queries.sampling.anchored_values import HELD_MAX, is_beyond_doubles
from shedder.queries.sampling.interval_columns import SOURCE, UNSEEN
from shedder.queries.sampling.sampled_query import Sampled
from synopses.model.estimate import Bound, Estimates

_TEXT = "the least and the greatest text may not be in the sample"


def sampled_extreme(sampled: Sampled, aggregate: Aggregate, _: float) -> Estimates:
    """The least or the greatest value of each group.

    Without filter and groups the basics know it. Else the sample's is an end for certain, and so
    is the end of the column's range: no confidence is spent. Where no row of a group is sampled,
    the group has no such value or one in the range. Text has no known range. With extreme rows, the
    range is that of the others, and a value beyond it is the least or the greatest for certain.
    """
    node, is_min = aggregate.argument, aggregate.function is AggregateFunction.MIN
    assert node is not None, aggregate
    if node.type is ColumnType.VARCHAR:
        return _text(sampled, node, is_min=is_min)
    if sampled.is_whole and isinstance(node, Column) and node.type is not ColumnType.BOOLEAN:
        basics = sampled.view.basics[node.name]
        end = basics.low if is_min else basics.high
        known = np.array([0 if end is None else end])
        return Estimates.exact(known, "basics", np.array([end is None]))
    found, null = _seen(sampled, node, is_min=is_min)
    if sampled.is_everything:
        return Estimates.exact(found, SOURCE, null)
    ends = sampled.range(node)
    far = np.full(len(found), ends[0 if is_min else 1])
    if sampled.extremes is not None and not is_beyond_doubles(sampled, node):
        held = _of_each(*sampled.extremes.present(node), sampled.groups.count, is_min=is_min)
        found, null = _nearest((found, null), held, is_min=is_min)
        far = np.full(len(found), sampled.extremes.range(node)[0 if is_min else 1])
        far = np.where(null, far, np.minimum(far, found) if is_min else np.maximum(far, found))
    complete = np.broadcast_to(sampled.is_complete, far.shape)
    far = np.where(complete & ~null, found, far)
    # Between whole numbers beyond 2^53 there may be others that are one double with them.
    distinct = (found.dtype.kind == "f") | (np.abs(far) < HELD_MAX)
    bound = np.where((found == far) & distinct & ~null, Bound.EXACT, Bound.INTERVAL).astype(
        np.uint8
    )
    bound = np.where(np.isinf(far) & ~complete, np.uint8(Bound.NONE), bound)
    bound = np.where(complete, np.uint8(Bound.EXACT), bound)
    near = found
    if null.any():
        near = np.where(null, _of_type(ends[1 if is_min else 0], found.dtype, is_min=is_min), found)
    low, high = (far, near) if is_min else (near, far)
    reason = UNSEEN if null.any() else ""
    return Estimates(found, low, high, bound, null, 1.0, SOURCE, reason)


def _of_type(end: float, kind: np.dtype[Any], *, is_min: bool) -> Any:
    """The other end of the range in the type of the values, rounded outward."""
    if kind.kind == "i":
        return outward_int(np.array(end), 1 if is_min else -1)
    return end


Values = tuple[NDArray[Any], NDArray[np.bool_]]  # By group, and which groups have none.


def _seen(sampled: Sampled, node: Expression, *, is_min: bool) -> Values:
    """The least or greatest sampled value of each group."""
    return _of_each(*sampled.present(node), sampled.groups.count, is_min=is_min)


def _of_each(values: NDArray[Any], ids: NDArray[np.int64], count: int, *, is_min: bool) -> Values:
    """The least or greatest of the values of each group."""
    order = np.lexsort((values, ids))
    groups, first, rows = np.unique(ids[order], return_index=True, return_counts=True)
    found = np.zeros(count, values.dtype)
    found[groups] = values[order][first if is_min else first + rows - 1]
    null = np.ones(count, np.bool_)
    null[groups] = False
    return found, null


def _nearest(first: Values, second: Values, *, is_min: bool) -> Values:
    """The lesser or the greater of two values of each group, where there are two."""
    both = np.minimum(first[0], second[0]) if is_min else np.maximum(first[0], second[0])
    found = np.where(first[1], second[0], np.where(second[1], first[0], both))
    return found, first[1] & second[1]


def _text(sampled: Sampled, node: Expression, *, is_min: bool) -> Estimates:
    values, ids = sampled.present(node)
    table = pa.table([pa.array(ids), values], ["id", "text"])
    ends: Any = table.group_by("id").aggregate([("text", "min"), ("text", "max")])
    found = np.full(sampled.groups.count, None, object)
    texts = ends["text_min" if is_min else "text_max"].to_pylist()
    found[ends["id"].to_numpy()] = np.array(texts, object)
    null = sampled.per_group(ids) == 0
    if sampled.is_everything:
        return Estimates.exact(found, SOURCE, null)
    complete = np.broadcast_to(sampled.is_complete, null.shape)
    bound = np.where(complete, np.uint8(Bound.EXACT), np.uint8(Bound.NONE))
    return Estimates(found, found, found, bound, null, 1.0, SOURCE, _TEXT)
