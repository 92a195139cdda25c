"""The exact SQL against answers worked out from the rows in Python."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shedder.cql.evaluate import evaluate
from shedder.cql.expression import JOINS, inputs
from shedder.cql.render import POSITION, SqlDialect, exact_sql
from tests.cql.trees import SCHEMA, batches, bound_query

_CONNECTION = duckdb.connect(config={"threads": 1})
AGGREGATES = (
    "COUNT(*), COUNT(d), SUM(l), SUM(d), AVG(i), AVG(d), MIN(s), MAX(ts2), VAR(i), STDDEV(d), "
    "COUNT(DISTINCT d), COUNT(DISTINCT s), QUANTILE(l, 0.25), MEDIAN(ts2), TOP(c, 2), TOP(l, 3), "
    "CDF(d, 0.5), CDF(s, 'b'), CDF(ts2, ts), "
    "CORR(d, e), COVAR_POP(i, d), COVAR_SAMP(i, l), REGR_SLOPE(e, i), "
    "SELF_JOIN_SIZE(s), SELF_JOIN_SIZE(d), JOIN_SIZE(i, l), JOIN_SIZE(d, i), "
    "DISTINCT_BOTH(d, b, i > 0), DISTINCT_ONLY(s, b, i > 0), JACCARD(i, b, d > 0)"
)


def answers(batch: pa.RecordBatch, sql: str, **others: pa.Table) -> list[dict[str, Any]]:
    _CONNECTION.register("stream", pa.Table.from_batches([batch]))
    for name, table in others.items():
        _CONNECTION.register(name, table)
    rows: list[dict[str, Any]] = _CONNECTION.sql(sql).to_arrow_table().to_pylist()
    return rows


def with_positions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in another order, with their positions; no time is NULL, and many are equal."""
    times = pa.array([at % 3 for at in range(batch.num_rows)], pa.timestamp("us"))
    timed = batch.set_column(0, "ts", times)
    numbered = timed.append_column(POSITION, pa.array(range(batch.num_rows), pa.int64()))
    return numbered.take(pa.array(sorted(range(batch.num_rows), key=lambda at: at * 7 % 11)))


BY_TIME = "FIRST(s), LAST(d), FIRST(b), LAST(ts2), FIRST(day), LAST(l + i), FIRST(i)"


def by_time(batch: pa.RecordBatch, function: str, values: list[Any]) -> Any:
    """The value at the smallest or largest (time, position) of those that are there."""
    times, positions = (batch.column(name).to_pylist() for name in ("ts", POSITION))
    rows = zip(times, positions, values, strict=True)
    found = sorted(((t, p), value) for t, p, value in rows if value is not None)
    return None if not found else found[0 if function == "FIRST" else -1][1]


@settings(max_examples=15)
@given(batch=batches(rows_max=20))
def test_the_first_and_the_last_are_those_by_time_and_position(batch: pa.RecordBatch) -> None:
    rows = with_positions(batch)
    query = bound_query(f"SELECT {BY_TIME} FROM stream WHERE i % 3 <> 1 OR d > 0")
    assert query.where is not None
    kept = rows.filter(evaluate(query.where, rows))
    [found] = answers(rows, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    for number, part in enumerate(query.aggregates):
        assert part.argument is not None
        values = evaluate(part.argument, kept).to_pylist()
        assert found[f"a{number}"] == by_time(kept, part.function.name, values)


def test_sums_distinguish_overflow_infinities_and_nothing() -> None:
    rows = {
        "g": [1, 1, 2, 2, 3, 3, 4],
        "l": [(1 << 63) - 1, 1, (1 << 63) - 1, -5, 1, 2, None],
        "d": [math.inf, 1.0, math.inf, -math.inf, 1e308, -1e308, math.nan],
    }
    batch = _rows(i=pa.array(rows["g"], pa.int32()), l=rows["l"], d=pa.array(rows["d"]))
    query = bound_query("SELECT i, SUM(l), SUM(d), AVG(d), VAR(d), AVG(l) FROM stream GROUP BY i")
    found = answers(batch, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    by_group = {row["g0"]: tuple(row[f"a{n}"] for n in range(5)) for row in found}
    assert by_group[1] == (None, math.inf, math.inf, None, float(1 << 62))
    assert by_group[2] == ((1 << 63) - 6, None, None, None, float((1 << 63) - 6) / 2)
    assert by_group[3][:3] == (3, 0.0, 0.0)
    assert by_group[4] == (None, None, None, None, None)


def test_negative_zero_is_the_same_value_in_both_sets() -> None:
    batch = _rows(d=[-0.0, 0.0, 1.0, -0.0], b=[True, False, True, True])
    sets = "(d, b, NOT b)"
    query = bound_query(f"SELECT DISTINCT_BOTH{sets}, DISTINCT_ONLY{sets}, JACCARD{sets} FROM s")
    found = answers(batch, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    assert found == [{"a0": 1, "a1": 1, "a2": 0.5}]


def test_an_ungrouped_query_over_nothing_gives_one_row() -> None:
    batch = _rows(l=[1])
    query = bound_query(
        "SELECT COUNT(*), COUNT(l), SUM(l), MAX(s), TOP(l, 2) FROM stream WHERE l > 5"
    )
    found = answers(batch, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    assert found == [{"a0": 0, "a1": 0, "a2": None, "a3": None, "a4": None}]
    only_top = bound_query("SELECT TOP(l, 2) FROM stream WHERE l > 5")
    assert answers(batch, exact_sql(only_top, "stream", SqlDialect.DUCKDB, None, None)) == [
        {"a0": None}
    ]


def test_only_the_window_counts_and_it_is_half_open() -> None:
    batch = _rows(ts=pa.array([9, 10, 19, 20, None], pa.timestamp("us")))
    query = bound_query("SELECT COUNT(*) FROM stream")
    for start, end, count in ((10, 20, 2), (None, 20, 3), (10, None, 3), (None, None, 5)):
        sql = exact_sql(query, "stream", SqlDialect.DUCKDB, start, end)
        assert answers(batch, sql) == [{"a0": count}]


@pytest.mark.parametrize("q", [0.0, 0.07, 0.1, 0.25, 0.3, 0.5, 0.7, 0.99, 1.0])
def test_a_quantile_is_the_value_whose_rank_is_the_decimal_product(q: float) -> None:
    for count in (1, 2, 10, 30, 100):
        batch = _rows(l=list(range(1, count + 1)))
        query = bound_query(f"SELECT QUANTILE(l, {q}) FROM stream")
        hundredths = round(q * 100) * count  # The decimal product, in integers.
        rank = max(1, -(-hundredths // 100))
        sql = exact_sql(query, "stream", SqlDialect.DUCKDB, None, None)
        assert answers(batch, sql) == [{"a0": rank}]


@settings(max_examples=15)
@given(batch=batches(rows_max=20), grouped=st.booleans())
def test_aggregates_are_those_of_the_rows_that_evaluate_sees(
    batch: pa.RecordBatch, grouped: bool
) -> None:
    key, by = ("b, ", " GROUP BY b") if grouped else ("", "")
    query = bound_query(f"SELECT {key}{AGGREGATES} FROM stream WHERE i % 3 <> 1 OR d > 0{by}")
    assert query.where is not None
    kept = [value is True for value in evaluate(query.where, batch).to_pylist()]
    arguments = {
        part: [evaluate(each, batch).to_pylist() for each in inputs(part)]
        for part in query.aggregates
    }
    keys = evaluate(query.groups[0], batch).to_pylist() if grouped else [None] * batch.num_rows
    groups = {key for key, keep in zip(keys, kept, strict=True) if keep} if grouped else {None}
    found = answers(batch, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    assert {row.get("g0") for row in found} == groups
    assert len(found) == len(groups)
    for row in found:
        inside = [keep and key == row.get("g0") for key, keep in zip(keys, kept, strict=True)]
        for number, part in enumerate(query.aggregates):
            if part.argument is None:
                assert row[f"a{number}"] == sum(inside)
                continue
            if part.function in JOINS:
                sides = [
                    Counter(v for v, keep in zip(side, inside, strict=True) if keep)
                    for side in (arguments[part] * 2)[:2]
                ]
                truth = sum(n * sides[1][v] for v, n in sides[0].items() if v is not None)
                assert row[f"a{number}"] == truth
                continue
            if part.conditions:
                left, right = (
                    {x for x, keep in zip(column, inside, strict=True) if keep and x is not None}
                    for column in arguments[part]
                )
                _check_sets(part.function.name, left, right, row[f"a{number}"])
                continue
            given = [
                values
                for *values, keep in zip(*arguments[part], inside, strict=True)
                if keep and None not in values
            ]
            if part.second is not None:
                check_pairs(part.function.name, given, row[f"a{number}"])
                continue
            values = [value for [value] in given]
            _check(part.function.name, values, row[f"a{number}"], part.parameter)


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
    below = {"CORR": squares_x * squares_y, "REGR_SLOPE": squares_y}.get(function, rest)
    if below == 0:
        assert found is None
        return
    if any(squares and not 1e-280 < squares < 1e280 for squares in (squares_x, squares_y)):
        return
    most = math.sqrt(squares_x) * math.sqrt(squares_y)
    divisor = most if function == "CORR" else float(below)
    assert found == pytest.approx(float(cross) / divisor, abs=1e-9 * most / divisor)


def _rows(**given: Any) -> pa.RecordBatch:
    """Rows of the schema; columns that are not given are NULL."""
    rows = max(len(values) for values in given.values())
    arrays = []
    for column in SCHEMA.columns:
        values = given.get(column.name, pa.nulls(rows))
        array = values if isinstance(values, pa.Array) else pa.array(values, column.type.arrow)
        arrays.append(array.cast(column.type.arrow))
    return pa.record_batch(arrays, names=[column.name for column in SCHEMA.columns])
