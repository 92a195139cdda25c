"""Places of rows: whether the rows that an answer marks `certain` belong where it shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, parts_of
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Output
from shedder.queries.answers.answer import CERTAIN, Answer
from shedder.queries.certification.audit import BY_HASH, exact_query
from shedder.queries.certification.claims import Case, Key

_ORDER = "__order"
# Exact values are summed in another order than those of panes. Two values that differ by less than
# this, relative to the larger, may stand in either order.
_ROUNDING = 1e-9

Floats = NDArray[np.float64]


def placing_query(query: BoundQuery) -> BoundQuery:
    """Return the query whose exact answer has every group that passes HAVING, and its sort key."""
    key = [Output(_ORDER, each.expression) for each in query.order[:1]]
    exact = exact_query(query)
    return replace(exact, outputs=(*exact.outputs, *key), having=query.having)


def judged_rows(query: BoundQuery, answer: Answer) -> NDArray[np.int64]:
    """Return the rows that are `certain` and that an exact answer can judge, ascending.

    A row is judged if an output with an interval decides its place: exact sums of doubles may round
    to the other side of a limit. Places that hashes decide are not judged: if one is wrong, it
    stays wrong in later windows.
    """
    table = answer.table
    deciding = deciding_aggregates(query)
    if CERTAIN not in table.column_names or any(
        aggregate.function in BY_HASH for aggregate in deciding
    ):
        return np.zeros(0, np.int64)
    bounds = [
        table[output.name + "_bound"].to_numpy() == "interval"
        for output in query.outputs
        if output.name in answer.approximate
        and not deciding.isdisjoint(parts_of(output.expression))
    ]
    judged = np.logical_or.reduce([np.zeros(len(table), np.bool_), *bounds])
    return np.flatnonzero(judged & table[CERTAIN].to_numpy())


def places_hold(query: BoundQuery, answer: Answer, exactly: Answer) -> bool | None:
    """Return whether every row that is `certain` is in its place; None if there is none to judge.

    A place is decided by HAVING and the first key of ORDER BY. Ties are right in any order.

    Args:
      query: that was asked.
      answer: to it; its groups can be told by its outputs (`Case.judgeable`).
      exactly: the answer to `placing_query`, over the same tuples.
    """
    sure = judged_rows(query, answer)
    if not len(sure):
        return None
    shown = Case(0, query, answer).keys()
    passing = Case(0, placing_query(query), exactly).keys()
    row_of: dict[Key | None, int] = {key: row for row, key in enumerate(passing)}
    if any(shown[at] not in row_of for at in sure):
        return False
    if not query.order:
        return True
    earliest, latest = _place(exactly.table[_ORDER], descending=query.order[0].descending)
    rows = np.array([row_of[shown[at]] for at in sure])
    if query.limit is not None:
        rivals = np.searchsorted(np.sort(latest), earliest[rows])  # Surely before the row.
        return bool((rivals < query.limit).all())
    listed = np.array([at for at, key in enumerate(shown) if key in row_of])
    of_listed = np.array([row_of[shown[at]] for at in listed])
    before = np.maximum.accumulate(earliest[of_listed])
    after = np.minimum.accumulate(latest[of_listed][::-1])[::-1]
    in_order = (before <= latest[of_listed]) & (after >= earliest[of_listed])
    return bool(in_order[np.isin(listed, sure)].all())


def deciding_aggregates(query: BoundQuery) -> set[Aggregate]:
    """Return the aggregates that decide the places of rows."""
    expressions = [key.expression for key in query.order[:1]]
    expressions += [] if query.having is None else [query.having]
    parts = {part for expression in expressions for part in parts_of(expression)}
    return {part for part in parts if isinstance(part, Aggregate)}


def _place(values: pa.ChunkedArray[Any], *, descending: bool) -> tuple[Floats, Floats]:
    """Return the first and last place that each value can have, float64, in sorted order.

    Places are comparable among the values. NULL is last. Doubles have room for rounding.
    """
    sign = -1.0 if descending else 1.0
    if pa.types.is_floating(values.type):
        place = sign * values.to_numpy().astype(np.float64)
        slack = np.where(np.isfinite(place), _ROUNDING * np.abs(place), 0.0)
    else:
        ranks = pc.rank(values, "ascending", tiebreaker="dense")
        place = sign * ranks.to_numpy().astype(np.float64)
        slack = np.zeros(len(place))
    missing = np.isnan(place) | values.is_null().to_numpy()
    first, last = (np.where(missing, np.inf, end) for end in (place - slack, place + slack))
    return first, last
