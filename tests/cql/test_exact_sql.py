"""The exact SQL against answers worked out from the rows in Python."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shedder.cql.sql.exact_query import SqlDialect, exact_sql
from tests.cql.brute_force import check
from tests.cql.exact_answers import AGGREGATES, BY_TIME, answers, rows_of, with_positions
from tests.cql.trees import batches, bound_query


@pytest.mark.slow
@settings(max_examples=15)
@given(batch=batches(rows_max=20))
def test_the_first_and_the_last_are_those_by_time_and_position(batch: pa.RecordBatch) -> None:
    rows = with_positions(batch)
    query = bound_query(f"SELECT {BY_TIME} FROM stream WHERE i % 3 <> 1 OR d > 0")
    check(query, rows, answers(rows, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None)))


def test_sums_distinguish_overflow_infinities_and_nothing() -> None:
    rows = {
        "g": [1, 1, 2, 2, 3, 3, 4],
        "l": [(1 << 63) - 1, 1, (1 << 63) - 1, -5, 1, 2, None],
        "d": [math.inf, 1.0, math.inf, -math.inf, 1e308, -1e308, math.nan],
    }
    batch = rows_of(i=pa.array(rows["g"], pa.int32()), l=rows["l"], d=pa.array(rows["d"]))
    query = bound_query("SELECT i, SUM(l), SUM(d), AVG(d), VAR(d), AVG(l) FROM stream GROUP BY i")
    found = answers(batch, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    by_group = {row["g0"]: tuple(row[f"a{n}"] for n in range(5)) for row in found}
    assert by_group[1] == (None, math.inf, math.inf, None, float(1 << 62))
    assert by_group[2] == ((1 << 63) - 6, None, None, None, float((1 << 63) - 6) / 2)
    assert by_group[3][:3] == (3, 0.0, 0.0)
    assert by_group[4] == (None, None, None, None, None)


def test_an_intercept_whose_means_leave_the_range_of_doubles_is_nan() -> None:
    batch = rows_of(i=pa.array([-5, 7], pa.int32()), d=[1e308, 1e308], e=[1.0, 2.0])
    query = bound_query("SELECT REGR_INTERCEPT(d, i), REGR_SLOPE(d, i), AVG(d) FROM stream")
    (found,) = answers(batch, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    assert [math.isnan(found["a0"]), found["a1"], math.isnan(found["a2"])] == [True, 0.0, True]
    query = bound_query("SELECT REGR_INTERCEPT(e, i) FROM stream")
    (found,) = answers(batch, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    assert found["a0"] == pytest.approx(17 / 12)


def test_negative_zero_is_the_same_value_in_both_sets() -> None:
    batch = rows_of(d=[-0.0, 0.0, 1.0, -0.0], b=[True, False, True, True])
    sets = "(d, b, NOT b)"
    query = bound_query(f"SELECT DISTINCT_BOTH{sets}, DISTINCT_ONLY{sets}, JACCARD{sets} FROM s")
    found = answers(batch, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    assert found == [{"a0": 1, "a1": 1, "a2": 0.5}]


def test_an_ungrouped_query_over_nothing_gives_one_row() -> None:
    batch = rows_of(l=[1])
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
    batch = rows_of(ts=pa.array([9, 10, 19, 20, None], pa.timestamp("us")))
    query = bound_query("SELECT COUNT(*) FROM stream")
    for start, end, count in ((10, 20, 2), (None, 20, 3), (10, None, 3), (None, None, 5)):
        sql = exact_sql(query, "stream", SqlDialect.DUCKDB, start, end)
        assert answers(batch, sql) == [{"a0": count}]


@pytest.mark.parametrize("q", [0.0, 0.07, 0.1, 0.25, 0.3, 0.5, 0.7, 0.99, 1.0])
def test_a_quantile_is_the_value_whose_rank_is_the_decimal_product(q: float) -> None:
    for count in (1, 2, 10, 30, 100):
        batch = rows_of(l=list(range(1, count + 1)))
        query = bound_query(f"SELECT QUANTILE(l, {q}) FROM stream")
        hundredths = round(q * 100) * count  # The decimal product, in integers.
        rank = max(1, -(-hundredths // 100))
        sql = exact_sql(query, "stream", SqlDialect.DUCKDB, None, None)
        assert answers(batch, sql) == [{"a0": rank}]


@pytest.mark.slow
@settings(max_examples=15)
@given(batch=batches(rows_max=20), grouped=st.booleans())
def test_aggregates_are_those_of_the_rows_that_evaluate_sees(
    batch: pa.RecordBatch, grouped: bool
) -> None:
    key, by = ("b, ", " GROUP BY b") if grouped else ("", "")
    query = bound_query(f"SELECT {key}{AGGREGATES} FROM stream WHERE i % 3 <> 1 OR d > 0{by}")
    found = answers(batch, exact_sql(query, "stream", SqlDialect.DUCKDB, None, None))
    check(query, batch, found)
