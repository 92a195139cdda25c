"""EXPLAIN PRECISION of a standing join with CONFIDENCE: the parts of the intervals of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.expression import Column
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.plans.logical_plan import Aggregated, Project, companions_of
from shedder.cql.plans.plan_words import with_plain_names
from shedder.dataflow.sampled_joins.sampled_join_aggregates import SampledJoinAggregates
from shedder.engine.dataflow.interval_columns import confidence_of
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.standing_plan import nodes_of
from shedder.errors import BadQuery
from shedder.queries.answers.precision_table import PartRow, precision_table
from shedder.queries.evidence.precision_parts import ROWS_MAX, ValueStep, WidthPrices, value_parts
from shedder.queries.evidence.shown_widths import ShownWidth
from synopses.joins.join_totals import TotalParts
from synopses.model.estimate import Bound

_SAMPLED, _HEAVY, _ROUNDING, _EXACT = "sampled keys", "heavy keys", "rounding", "exact sums"
_JOINT = f"{_SAMPLED} and {_HEAVY}"
_PRICES = WidthPrices.none(
    "a KiB, a ns, a second: the width at other bytes is not predicted; fewer panes or more bytes "
    "narrow it"
)
_CERTAIN = WidthPrices.none("a KiB, a ns, a second: only more bytes in later panes narrow it")
_ROUNDED = WidthPrices.none("no resource narrows it")
_NOT_FINITE = "a value or a sum is not finite, or beyond 64 bits"


def join_precision(query: RowQuery) -> pa.Table:
    """Return the parts of each value of the present rows. On the apply thread.

    Raises:
      BadQuery: the query is no join with CONFIDENCE. RowQueryFailed: the message says why.
    """
    query.guard(query.finish_step)
    rows = query.answer().table.to_pylist()
    join = query.sampled_join
    if join is None:
        raise BadQuery(
            f"EXPLAIN PRECISION is for aggregates over one stream, and for joins with CONFIDENCE; "
            f"the rows of {query.name!r} have no intervals"
        )
    outputs = _outputs(query)
    batch = join.batch()
    places = _places(rows, batch, outputs)
    exact = np.all([column.bound == Bound.EXACT for column in join.table.columns], axis=0)
    has_key = np.arange(len(places)) < len(join.table.hashes)
    # The row of other keys comes first, then the other rows with an interval.
    shown = np.lexsort([places, has_key, exact])[:ROWS_MAX].tolist()
    confidence = confidence_of(query.query.plan)
    found = list[PartRow]()
    for at, row in zip(shown, batch.take(pa.array(shown, pa.int64())).to_pylist(), strict=True):
        first = PartRow(places[at] + 1, _group(join, row), "", "")
        for name, column in outputs.items():
            if column.startswith("a") and column + "_low" in row:
                parts = join.table.parts[int(column[1:])]
                steps = _steps(join, at, _width(row, column), parts, confidence)
                found += value_parts(replace(first, output=name), steps)
    return precision_table(found, len(places) - len(shown))


def _outputs(query: RowQuery) -> dict[str, str]:
    """Return the column of the operator that each output of a query has."""
    [project] = (
        node
        for node in nodes_of(query.query.plan)
        if isinstance(node, Project) and isinstance(node.input, Aggregated)
    )
    return {
        output.name: output.expression.name
        for output in project.outputs
        if isinstance(output.expression, Column)
    }


def _places(
    rows: Sequence[dict[str, Any]], batch: pa.RecordBatch, outputs: dict[str, str]
) -> list[int]:
    """Return the place in an answer of each row of the operator. Equal rows are interchangeable."""
    where: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        where.setdefault(tuple(row[name] for name in outputs), []).append(place)
    columns = (batch.column(name).to_pylist() for name in outputs.values())
    return [where[row].pop() for row in zip(*columns, strict=True)]


def _group(join: SampledJoinAggregates, row: dict[str, Any]) -> str | None:
    """Return the key of a row of the operator as text; None: there are no groups."""
    if join.spec.group is None:
        return None
    others = "other keys" if join.spec.group_input is None else "others"
    key = others if row["g0"] is None else str(row["g0"])
    return f"{with_plain_names(text_of(join.spec.group))} = {key}"


def _steps(
    join: SampledJoinAggregates,
    at: int,
    width: ShownWidth,
    parts: TotalParts | None,
    confidence: float,
) -> list[ValueStep]:
    """Return the steps of the interval of one value."""
    table = join.table
    if width.bound is Bound.EXACT:
        return [ValueStep(_EXACT, width, 1.0, _ROUNDED)]
    if table.is_estimated:
        return [ValueStep(_JOINT, width, confidence, _PRICES, _NOT_FINITE, is_joint=True)]
    if at < table.known:
        return [ValueStep(_ROUNDING, width, 1.0, _ROUNDED, _NOT_FINITE)]
    if at < len(table.hashes):
        return [ValueStep(_HEAVY, width, 1.0, _CERTAIN, _NOT_FINITE)]
    if parts is None or width.bound is Bound.NONE or width.value is None:
        return [ValueStep(_JOINT, width, confidence, _PRICES, _NOT_FINITE, is_joint=True)]
    return [
        ValueStep(_SAMPLED, _apart(width, parts.below, parts.above), confidence, _PRICES),
        ValueStep(
            _HEAVY,
            _apart(width, parts.below + parts.unknown, parts.above + parts.unknown),
            1.0,
            _CERTAIN,
        ),
        ValueStep(_ROUNDING, width, 1.0, _ROUNDED),
    ]


def _apart(width: ShownWidth, lower: float, upper: float) -> ShownWidth:
    """The value with ends that are so far from it."""
    assert width.value is not None
    low, high = width.value - lower, width.value + upper
    return ShownWidth(width.value, low, high, lower, upper, Bound.INTERVAL)


def _width(row: dict[str, Any], column: str) -> ShownWidth:
    low, high, bound, _ = (row[name] for name in companions_of(column))
    value, kind = row[column], Bound[bound.upper()]
    if kind is Bound.EXACT:
        return ShownWidth(value, value, value, 0.0, 0.0, kind)
    if kind is Bound.NONE or value is None:
        return ShownWidth(value, low, high, None, None, kind)
    return ShownWidth(value, low, high, value - low, high - value, kind)
