"""Expressions over batches: values worked out by hand at the edges of the semantics table."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from shedder.cql.expressions.evaluate import evaluate, true_rows
from tests.cql.exact_answers import rows_of
from tests.cql.trees import bound_query

MIN, MAX = -(1 << 63), (1 << 63) - 1


def value_of(expression: str, **given: Any) -> list[Any]:
    rows = rows_of(**(given or {"l": [None]}))
    argument = bound_query(f"SELECT COUNT({expression}) FROM stream").aggregates[0].argument
    assert argument is not None
    values: list[Any] = evaluate(argument, rows).to_pylist()
    return values


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("9223372036854775807 + 1", None),
        ("-9223372036854775808 - 1", None),
        ("3037000500 * 3037000500", None),
        ("3037000499 * 3037000499", 3037000499**2),
        ("-(-9223372036854775808)", None),
        ("ABS(-9223372036854775808)", None),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("-9223372036854775808 % -1", 0),
        ("7 % 0", None),
        ("7 / 2", 3.5),
        ("1 / 0", None),
        ("1e308 * 10", math.inf),
        ("1e308 * 10 - 1e308 * 10", None),
        ("7.5 % 2", 1.5),
        ("ROUND(0.49999999999999994)", 0.0),
        ("ROUND(-2.5)", -3.0),
        ("ROUND(1.005, 2)", 1.0),
        ("ROUND(2.675, 2)", 2.68),
        ("ROUND(1e308, 15)", 1e308),
        ("FLOOR(-0.5)", -1.0),
        ("CAST(-1.9 AS BIGINT)", -1),
        ("CAST(9.3e18 AS BIGINT)", None),
        ("CAST(9223372036854774784.0 AS BIGINT)", 9223372036854774784),
        ("CAST(2147483648 AS INTEGER)", None),
        ("-0.0 = 0.0", True),
        ("-0.0 IN (0.0)", True),
        ("9007199254740993 = 9007199254740992.0", True),  # compared as DOUBLEs
        ("NULL AND FALSE", False),
        ("NULL AND TRUE", None),
        ("NULL OR TRUE", True),
        ("NOT NULL", None),
        ("1 IN (2, NULL)", None),
        ("1 IN (1, NULL)", True),
        ("NULL IN (1)", None),
        ("5 IN (CAST('5' AS INTEGER), 7)", True),
        ("5.0 IN (7.5, CAST('5' AS INTEGER))", True),
        ("TIMESTAMP '1970-01-02' IN (DATE '1970-01-02')", True),
        ("TIMESTAMP '1970-01-02' IN (CAST(2147483647 AS DATE))", None),
        ("'abc' LIKE 'a%'", True),
        ("'ABC' LIKE 'a%'", False),
        ("'a.c' LIKE 'a_c'", True),
        ("'abc' LIKE 'a.c'", False),
        ("'100%' LIKE '100\\%'", True),
        ("'é' LIKE '_'", True),
        ("'Z' < 'a'", True),
        ("'é' > 'z'", True),
        ("LENGTH('é😀')", 2),
        ("SUBSTRING('é😀x', 2)", "😀x"),
        ("SUBSTR('é😀x', 2, 1)", "😀"),
        ("SUBSTRING('ab', 3)", ""),
        ("SUBSTRING('ab', 2, 0)", ""),
        ("SUBSTRING(NULL, 1)", None),
        ("SPLIT_PART('a//b', '/', 1)", "a"),
        ("SPLIT_PART('a//b', '/', 2)", ""),
        ("SPLIT_PART('a//b', '/', 4)", ""),
        ("SPLIT_PART('a//b', '/', -1)", "b"),
        ("SPLIT_PART('aaa', 'aa', -1)", "a"),
        ("SPLIT_PART('', '/', 1)", ""),
        ("SPLIT_PART(NULL, '/', 1)", None),
        ("REPLACE('aXbX', 'X', '')", "ab"),
        ("REPLACE('aaa', 'aa', 'b')", "ba"),
        ("REGEXP_EXTRACT('x?q=1&channel_id=57', '(&|^)channel_id=([^&]*)', 2)", "57"),
        ("REGEXP_EXTRACT('xaab', 'a|aa')", "a"),
        ("REGEXP_EXTRACT('xaab', 'a+')", "aa"),
        ("REGEXP_EXTRACT('ab', '(x)|b', 1)", ""),
        ("REGEXP_EXTRACT('abc', 'd')", ""),
        ("REGEXP_EXTRACT('a\nb', 'a.b')", ""),
        ("REGEXP_EXTRACT('ab\n', 'b$')", ""),
        ("REGEXP_EXTRACT(NULL, 'a')", None),
        (
            "STRFTIME(TIMESTAMP '2026-03-07 04:05:06.999', '%Y-%m-%d %H:%M:%S')",
            "2026-03-07 04:05:06",
        ),
        ("STRFTIME(DATE '1969-12-31', '%j%%')", "365%"),
        ("STRFTIME(CAST(-1 AS TIMESTAMP), '%S')", "59"),
        ("CASE WHEN NULL THEN 1 WHEN TRUE THEN 2 END", 2),
        ("CASE WHEN FALSE THEN 1 END", None),
        ("NULL IS DISTINCT FROM 1", True),
        ("NULL IS NOT DISTINCT FROM NULL", True),
        ("(NULL = 1) IS TRUE", False),
        ("DATE '2026-03-01' - TIMESTAMP '2026-02-28'", 86_400_000_000),
        ("EXTRACT(DOW FROM DATE '2026-11-22')", 0),
        ("EXTRACT(ISODOW FROM DATE '2026-11-22')", 7),
        ("EXTRACT(WEEK FROM DATE '2027-01-03')", 53),
        ("EXTRACT(MILLISECOND FROM TIMESTAMP '2026-01-01 00:00:01.5')", 1500),
        ("EXTRACT(EPOCH FROM TIMESTAMP '1969-12-31 23:59:59.5')", -0.5),
        ("CAST(TIMESTAMP '1969-12-31 23:59:59.999999' AS DATE)", date(1969, 12, 31)),
        ("DATE_TRUNC('week', DATE '1970-01-01')", datetime(1969, 12, 29)),
        ("DATE_TRUNC('quarter', DATE '2026-06-30')", datetime(2026, 4, 1)),
        ("TIMESTAMP '2026-01-01' + INTERVAL '90' MINUTE", datetime(2026, 1, 1, 1, 30)),
    ],
)
def test_a_constant_expression_has_the_value_of_the_table(expression: str, value: Any) -> None:
    assert value_of(expression) == [value]


def test_nan_is_null_wherever_it_is_read() -> None:
    nan = pa.array([math.nan, 1.0])
    assert value_of("d", d=nan) == [None, 1.0]
    assert value_of("d IS NULL", d=nan) == [True, False]
    assert value_of("d > 0 OR d <= 0", d=nan) == [None, True]
    assert value_of("COALESCE(d, 5)", d=nan) == [5.0, 1.0]


def test_only_the_rows_that_overflow_are_null() -> None:
    assert value_of("l + 1", l=[MAX, 1, None]) == [None, 2, None]
    assert value_of("l * m", l=[MAX, 3, MIN], m=[2, 4, 1]) == [None, 12, MIN]
    assert value_of("l - m", l=[MIN, 0, 5], m=[1, MIN, 3]) == [None, None, 2]
    assert value_of("i + i", i=[2**31 - 1]) == [2**32 - 2]


def test_text_that_is_no_number_is_null() -> None:
    texts = ["12", "-0012", "+5", " 1", "1 ", "", "1e3", "0x1", "1_0", "٣", "9223372036854775808"]
    whole = [12, -12, 5, None, None, None, None, None, None, None, None]
    assert value_of("CAST(s AS BIGINT)", s=texts) == whole
    decimals = [12.0, -12.0, 5.0, None, None, None, 1000.0, None, None, None, 2.0**63]
    assert value_of("CAST(s AS DOUBLE)", s=texts) == decimals


def test_a_condition_keeps_the_rows_where_it_is_true() -> None:
    assert true_rows(pa.array([True, False, None])).tolist() == [True, False, False]


def test_a_batch_without_rows_gives_an_array_without_rows() -> None:
    empty = rows_of(l=[1]).slice(0, 0)
    for expression in ("l + 1", "5", "s LIKE 'x'", "d % 2", "DATE_TRUNC('month', ts)", "l IN (1)"):
        query = bound_query(f"SELECT COUNT({expression}) FROM stream")
        argument = query.aggregates[0].argument
        assert argument is not None
        assert evaluate(argument, empty).to_pylist() == []


def test_a_timestamp_with_a_zone_is_read_as_utc() -> None:
    query = bound_query("SELECT COUNT(*) FROM stream WHERE ts = '2026-06-01 12:00:00+02:00'")
    moment = datetime(2026, 6, 1, 10, tzinfo=UTC).replace(tzinfo=None)
    assert query.where is not None
    rows = rows_of(ts=pa.array([moment], pa.timestamp("us")))
    assert evaluate(query.where, rows).to_pylist() == [True]
