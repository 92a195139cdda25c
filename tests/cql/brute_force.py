"""Exact answers worked out row by row in Python: what SQL is checked against."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import BY_TIME, JOINS, Aggregate, inputs
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.bound_query import BoundQuery


def check(query: BoundQuery, batch: pa.RecordBatch, found: Sequence[dict[str, Any]]) -> None:
    """Assert that these rows are the answer.

    Args:
      query: with at most one group.
      batch: the rows of its window; with POSITION where it asks for the first or the last.
      found: as exact_sql names columns.
    """
    rows = batch.num_rows
    kept = [True] * rows
    if query.where is not None:
        kept = [value is True for value in evaluate(query.where, batch).to_pylist()]
    arguments = {
        part: [evaluate(each, batch).to_pylist() for each in inputs(part)]
        for part in query.aggregates
    }
    keys = evaluate(query.groups[0], batch).to_pylist() if query.groups else [None] * rows
    groups = {key for key, keep in zip(keys, kept, strict=True) if keep}
    if not query.groups:
        groups = {None}
    assert {row.get("g0") for row in found} == groups
    assert len(found) == len(groups)
    for row in found:
        inside = [keep and key == row.get("g0") for key, keep in zip(keys, kept, strict=True)]
        for number, part in enumerate(query.aggregates):
            _check_one(part, batch, arguments[part], inside, row[f"a{number}"])


def by_time(batch: pa.RecordBatch, function: str, values: list[Any]) -> Any:
    """The value at the smallest or largest (time, position) of those that are there."""
    times, positions = (batch.column(name).to_pylist() for name in ("ts", POSITION))
    rows = zip(times, positions, values, strict=True)
    found = sorted(((t, p), value) for t, p, value in rows if value is not None)
    return None if not found else found[0 if function == "FIRST" else -1][1]


def _check_one(
    part: Aggregate,
    batch: pa.RecordBatch,
    arguments: list[list[Any]],
    inside: list[bool],
    found: Any,
) -> None:
    if part.argument is None:
        assert found == sum(inside)
        return
    if part.function in BY_TIME:
        values = [x if keep else None for x, keep in zip(arguments[0], inside, strict=True)]
        assert found == by_time(batch, part.function.name, values)
        return
    if part.function in JOINS:
        sides = [
            Counter(v for v, keep in zip(side, inside, strict=True) if keep)
            for side in (arguments * 2)[:2]
        ]
        assert found == sum(n * sides[1][v] for v, n in sides[0].items() if v is not None)
        return
    if part.conditions:
        left, right = (
            {x for x, keep in zip(column, inside, strict=True) if keep and x is not None}
            for column in arguments
        )
        _check_sets(part.function.name, left, right, found)
        return
    given = [
        values
        for *values, keep in zip(*arguments, inside, strict=True)
        if keep and None not in values
    ]
    if part.second is not None:
        check_pairs(part.function.name, given, found)
        return
    _check(part.function.name, [value for [value] in given], found, part.parameter)


def _check_sets(function: str, left: set[Any], right: set[Any], found: Any) -> None:
    match function:
        case "DISTINCT_BOTH":
            assert found == len(left & right)
        case "DISTINCT_ONLY":
            assert found == len(left - right)
        case "JACCARD":
            assert found == (len(left & right) / len(left | right) if left | right else None)


def _check(function: str, values: list[Any], found: Any, parameter: float | None) -> None:
    match function:
        case "COUNT":
            assert found == len(values)
        case "COUNT_DISTINCT":
            assert found == len(set(values))
        case "MIN" | "MAX":
            chosen = min if function == "MIN" else max
            ordered = [value.encode() if isinstance(value, str) else value for value in values]
            shown = found.encode() if isinstance(found, str) else found
            assert shown == (chosen(ordered) if values else None)
        case "TOP":
            assert parameter is not None
            counts = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
            expected = [{"value": v, "count": n} for v, n in counts[: int(parameter)]]
            assert found == (expected or None)
        case "FREQUENT":
            assert parameter is not None
            counts = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
            least = Fraction(repr(parameter)) * len(values)
            expected = [{"value": v, "count": n} for v, n in counts if n >= least]
            assert found == (expected or None)
        case "QUANTILE":
            assert parameter is not None
            rank = max(1, math.ceil(parameter * len(values)))
            assert found == (sorted(values)[rank - 1] if values else None)
        case "SUM" if all(isinstance(value, int) for value in values):
            total = sum(values)
            assert found == (total if values and -(1 << 63) <= total < 1 << 63 else None)
        case "SUM" | "AVG" if values and all(map(math.isfinite, values)):
            try:
                total = math.fsum(values)
            except OverflowError:
                return
            divisor = len(values) if function == "AVG" else 1
            slack = 1e-12 * sum(abs(value) / divisor for value in values)
            assert math.isinf(found) or abs(found - total / divisor) <= slack
        case "SUM" | "AVG":
            signs = {value > 0 for value in values if math.isinf(value)}
            infinite = math.inf if signs == {True} else -math.inf
            assert found == (infinite if len(signs) == 1 else None)
        case "VAR" | "STDDEV":
            empty = len(values) < 2 or any(map(math.isinf, values))
            assert (found is None) == empty or any(abs(value) > 1e150 for value in values)
            if not empty and all(abs(value) < 1e100 for value in values):
                _check_spread(values, found, root=function == "STDDEV")


def _check_spread(values: list[Any], found: float, *, root: bool) -> None:
    """Against fractions, unless the squares are below what doubles hold."""
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    squares = sum((value - mean) ** 2 for value in exact)
    if squares == 0:
        assert found == 0
    elif squares > 1e-280:
        variance = squares / (len(values) - 1)
        assert found == pytest.approx(math.sqrt(variance) if root else float(variance), rel=1e-9)


def check_pairs(function: str, pairs: list[list[float]], found: float | None) -> None:
    """A function of pairs against fractions; where squares leave the range of DOUBLE, nothing."""
    x, y = ([pair[at] for pair in pairs] for at in (0, 1))
    if not pairs or any(map(math.isinf, x + y)):
        assert found is None
        return
    first, second = ([Fraction(value) for value in column] for column in (x, y))
    mean_x, mean_y = sum(first) / len(x), sum(second) / len(x)
    cross = sum((a - mean_x) * (b - mean_y) for a, b in zip(first, second, strict=True))
    squares_x = sum((a - mean_x) ** 2 for a in first)
    squares_y = sum((b - mean_y) ** 2 for b in second)
    rest = len(x) - (function == "COVAR_SAMP")
    regression = dict.fromkeys(("REGR_SLOPE", "REGR_INTERCEPT"), squares_y)
    below = {"CORR": squares_x * squares_y, **regression}.get(function, rest)
    if below == 0:
        assert found is None
        return
    if any(squares and not 1e-280 < squares < 1e280 for squares in (squares_x, squares_y)):
        return
    most = math.sqrt(squares_x) * math.sqrt(squares_y)
    if function == "REGR_INTERCEPT":
        ends = (sum(map(abs, column)) for column in (first, second))
        if any(end > sys.float_info.max for end in ends) and math.isnan(found):
            return  # As AVG, whose sum leaves the range of DOUBLE.
        steep = math.sqrt(squares_x) / math.sqrt(squares_y)
        scale = float(abs(mean_x)) + steep * float(abs(mean_y))
        assert found == pytest.approx(float(mean_x - cross / squares_y * mean_y), abs=1e-9 * scale)
        return
    divisor = most if function == "CORR" else float(below)
    assert found == pytest.approx(float(cross) / divisor, abs=1e-9 * most / divisor)
