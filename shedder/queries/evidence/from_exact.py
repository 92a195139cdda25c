"""Evidence from rows that were computed exactly, by `cql.render.exact_sql`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import LISTS, OF_PAIRS, Aggregate, AggregateFunction
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.evidence.evidence import Evidence
from synopses.model.estimate import Estimates, TopItem
from synopses.model.overflow import SUM_OUT_OF_RANGE, known_in_range, without

SOURCE = "archive"
_OF_SQUARES = OF_PAIRS | {AggregateFunction.VAR, AggregateFunction.STDDEV}
_WIDE_INT = (ColumnType.INTEGER, ColumnType.BIGINT)


def evidence_from_exact(query: BoundQuery, table: pa.Table, **facts: Any) -> Evidence:
    """Evidence whose every value is exact.

    Args:
      query: the query that was answered.
      table: columns g0.. (group keys) and a0.. (query.aggregates, in order), a row per group.
      facts: further fields of Evidence (window, watermark, position ...).
    """
    keys = tuple(
        _whole(table[f"g{at}"]).cast(group.type.arrow)
        for at, group in enumerate(query.groups)
        if group.type is not None
    )
    estimates = {
        aggregate: _estimates(aggregate, _whole(table[f"a{at}"]))
        for at, aggregate in enumerate(query.aggregates)
    }
    known: dict[str, Any] = {"sources": (SOURCE,), "archive_share_read": 1.0, **facts}
    return Evidence(keys, estimates, **known)


def _estimates(aggregate: Aggregate, column: pa.Array[Any]) -> Estimates:
    null = _mask(column.is_null())
    if aggregate.function in LISTS:
        most = aggregate.parameter if aggregate.function is AggregateFunction.TOP else None
        return Estimates.exact(_lists(column, None if most is None else int(most)), SOURCE, null)
    kind = aggregate.type
    assert kind is not None, aggregate
    if kind in _WIDE_INT:
        return _integers(column, null)
    if kind is ColumnType.VARCHAR:
        texts = np.array(column.to_pylist(), object)
        return Estimates.exact(texts, SOURCE, null)
    column = column.cast(kind.arrow)
    if kind is ColumnType.DOUBLE:
        floats: NDArray[np.float64] = column.to_numpy(zero_copy_only=False)
        if aggregate.function in _OF_SQUARES:
            return known_in_range(floats, null, SOURCE)
        found = Estimates.exact(floats, SOURCE, np.isnan(floats))
        return without(found, found.null & ~null, SUM_OUT_OF_RANGE)
    stored = {ColumnType.TIMESTAMP: pa.int64(), ColumnType.DATE: pa.int32()}.get(kind, pa.uint8())
    whole = column.cast(stored).cast(pa.int64()).fill_null(0)
    return Estimates.exact(whole.to_numpy(), SOURCE, null)


def _integers(column: pa.Array[Any], null: NDArray[np.bool_]) -> Estimates:
    """Integers; a sum beyond int64 (DuckDB adds in 128 bits) is NULL."""
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        wide = [None if x is None else int(x) for x in column.to_pylist()]
        fits = [x is not None and -(2**63) <= x < 2**63 for x in wide]
        values = np.array([x if ok else 0 for x, ok in zip(wide, fits, strict=True)], np.int64)
        over = ~np.array(fits, np.bool_) & ~null
        exact = Estimates.exact(values, SOURCE, null | over)
        return replace(exact, reason="a sum is beyond BIGINT: NULL") if over.any() else exact
    return Estimates.exact(column.cast(pa.int64()).fill_null(0).to_numpy(), SOURCE, null)


def _lists(column: pa.Array[Any], most: int | None) -> NDArray[np.object_]:
    """Lists of struct(value, count), most first, as lists of TopItem, `most` of them."""
    lists = np.empty(len(column), object)
    if pa.types.is_null(column.type):
        lists[:] = [[] for _ in range(len(column))]
        return lists
    items: Any = pc.list_flatten(column)
    values, counts = _stored_values(items.field("value")), items.field("count").to_pylist()
    lengths = pc.list_value_length(column).fill_null(0).to_pylist()
    at = 0
    for group, length in enumerate(lengths):
        found = zip(values[at : at + length], counts[at : at + length], strict=True)
        lists[group] = [TopItem(value, count, count, count, True) for value, count in found][:most]
        at += length
    return lists


def _stored_values(values: pa.Array[Any]) -> list[Any]:
    """As TopItem holds them: microseconds and days for TIMESTAMP and DATE."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us")).cast(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    found: list[Any] = values.to_pylist()
    return found


def _whole(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined


def _mask(array: pa.Array[Any]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return found
