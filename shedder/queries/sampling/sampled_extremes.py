"""MIN and MAX from a sample: what was seen bounds one side, the known range the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column, Expression
from shedder.queries.evidence.late_tuple_bounds import outward_int
from shedder.queries.sampling.sampled_query import Sampled
from synopses.model.estimate import Bound, Estimates

_TOLD_APART = 2.0**53
_SOURCE = "sample"
_UNSEEN = "no sampled row matches"
_TEXT = "the least and the greatest text may not be in the sample"


def sampled_extreme(sampled: Sampled, node: Expression, *, is_min: bool) -> Estimates:
    """The least or the greatest value of each group.

    Without filter and groups the basics know it. Else the sample's is an end for certain, and so
    is the end of the column's range: no confidence is spent. Where no row of a group is sampled,
    the group has no such value or one in the range. Text has no known range.
    """
    if node.type is ColumnType.VARCHAR:
        return _text(sampled, node, is_min=is_min)
    if sampled.is_whole and isinstance(node, Column) and node.type is not ColumnType.BOOLEAN:
        basics = sampled.view.basics[node.name]
        end = basics.low if is_min else basics.high
        known = np.array([0 if end is None else end])
        return Estimates.exact(known, "basics", np.array([end is None]))
    found, null = _seen(sampled, node, is_min=is_min)
    if sampled.is_everything:
        return Estimates.exact(found, _SOURCE, null)
    ends = sampled.range(node)
    far = np.full(len(found), ends[0 if is_min else 1])
    complete = np.broadcast_to(sampled.is_complete, far.shape)
    far = np.where(complete & ~null, found, far)
    # Between whole numbers beyond 2^53 there may be others that are one double with them.
    told = (found.dtype.kind == "f") | (np.abs(far) < _TOLD_APART)
    bound = np.where((found == far) & told & ~null, Bound.EXACT, Bound.INTERVAL).astype(np.uint8)
    bound = np.where(np.isinf(far) & ~complete, np.uint8(Bound.NONE), bound)
    bound = np.where(complete, np.uint8(Bound.EXACT), bound)
    near = found
    if null.any():
        near = np.where(null, _of_type(ends[1 if is_min else 0], found.dtype, is_min=is_min), found)
    low, high = (far, near) if is_min else (near, far)
    reason = _UNSEEN if null.any() else ""
    return Estimates(found, low, high, bound, null, 1.0, _SOURCE, reason)


def _of_type(end: float, kind: np.dtype[Any], *, is_min: bool) -> Any:
    """The other end of the range in the type of the values, rounded outward."""
    if kind.kind == "i":
        return outward_int(np.array(end), 1 if is_min else -1)
    return end


def _seen(
    sampled: Sampled, node: Expression, *, is_min: bool
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The least or greatest sampled value of each group; which groups have none."""
    values, ids = sampled.present(node)
    order = np.lexsort((values, ids))
    groups, first, rows = np.unique(ids[order], return_index=True, return_counts=True)
    found = np.zeros(sampled.groups.count, values.dtype)
    found[groups] = values[order][first if is_min else first + rows - 1]
    null = np.ones(sampled.groups.count, np.bool_)
    null[groups] = False
    return found, null


def _text(sampled: Sampled, node: Expression, *, is_min: bool) -> Estimates:
    values, ids = sampled.present(node)
    table = pa.table([pa.array(ids), values], ["id", "text"])
    ends: Any = table.group_by("id").aggregate([("text", "min"), ("text", "max")])
    found = np.full(sampled.groups.count, None, object)
    texts = ends["text_min" if is_min else "text_max"].to_pylist()
    found[ends["id"].to_numpy()] = np.array(texts, object)
    null = sampled.per_group(ids) == 0
    if sampled.is_everything:
        return Estimates.exact(found, _SOURCE, null)
    complete = np.broadcast_to(sampled.is_complete, null.shape)
    bound = np.where(complete, np.uint8(Bound.EXACT), np.uint8(Bound.NONE))
    return Estimates(found, found, found, bound, null, 1.0, _SOURCE, _TEXT)
