"""Row queries in EXPLAIN ALLOCATION: bytes, levels, and the predicted precision of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from shedder.cql.text.sampling_fractions import share_text
from shedder.engine.allocation.explain import SCHEMA
from shedder.engine.dataflow.row_precision import RowPrecision
from shedder.engine.dataflow.row_queries import StandingRowQueries
from shedder.engine.dataflow.row_query import RowQuery


def row_plans_table(rows: StandingRowQueries) -> pa.Table:
    """Return rows of `allocation_table` for each row query; none without row queries.

    size_bytes of all of them sum to what all row queries together may hold. State that several
    queries read is a row of no query, because it is counted once. On the apply thread.
    """
    queries = list(rows.queries.values())
    if not queries:
        return SCHEMA.empty_table()
    found = [row for query in queries for row in _rows(query)]
    own_bytes = sum(row["size_bytes"] for row in found)
    shared_bytes = rows.size_bytes - own_bytes
    if shared_bytes:
        found.append({"synopsis": "operators that row queries share", "size_bytes": shared_bytes})
    free_bytes = rows.limits.all_bytes_max - own_bytes - shared_bytes
    found.append({"synopsis": "free for row queries", "size_bytes": free_bytes})
    return pa.Table.from_pylist(found, SCHEMA)


def _rows(query: RowQuery) -> Iterator[dict[str, Any]]:
    """Return the operators of a query that no other one reads, and its kept rows."""
    level = None if query.thinning is None else query.thinning.level
    precision, kept_bytes = RowPrecision.at(level), query.output.counted_bytes
    yield {
        "query": query.name,
        "synopsis": "operators",
        "size_bytes": query.own_bytes - kept_bytes,
        "weight": None if level is None else query.weight,
        "thinning": share_text(precision.level),
        "predicted_error": precision.false_negatives + precision.false_positives,
        "predicted_fn": precision.false_negatives,
        "predicted_fp": precision.false_positives,
    }
    yield {"query": query.name, "synopsis": "kept rows", "size_bytes": kept_bytes}
