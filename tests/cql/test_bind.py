"""Names, types and rules: what binds to what, and what is refused with which words."""

from __future__ import annotations

import pytest

from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Literal,
    Op,
    parts_of,
    size_of,
    walk,
)
from shedder.cql.statements.archive_layout import Plain
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition, Select
from shedder.errors import BadQuery, ShedderError, TypeMismatch, UnknownColumn
from tests.cql.trees import bound_query


def test_every_part_of_a_bound_query_has_a_type() -> None:
    query = bound_query(
        "SELECT b, AVG(d) AS mean, COUNT(*) FROM stream WHERE l > 1.5 AND s LIKE 'a%' "
        "GROUP BY b HAVING mean > 3 ORDER BY mean DESC, b"
    )
    mean = Aggregate(AggregateFunction.AVG, Column("d", ColumnType.DOUBLE), None, ColumnType.DOUBLE)
    count = Aggregate(AggregateFunction.COUNT, None, None, ColumnType.BIGINT)
    assert query.aggregates == (mean, count)
    assert query.groups == (Column("b", ColumnType.BOOLEAN),)
    assert query.having == Call(Op.GT, (mean, Literal(3.0, ColumnType.DOUBLE)), ColumnType.BOOLEAN)
    assert [key.expression for key in query.order] == [mean, query.groups[0]]
    assert query.columns == ("b", "l", "d", "s")
    assert query.text == parse(query.text).text  # type: ignore[union-attr]


def test_an_aggregate_that_is_asked_twice_is_listed_once() -> None:
    query = bound_query("SELECT SUM(l), SUM(l) / COUNT(*), MAX(d) FROM stream HAVING SUM(l) > 1")
    assert [part.function.name for part in query.aggregates] == ["SUM", "COUNT", "MAX"]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("i", "INTEGER"),
        ("i + i", "BIGINT"),
        ("i / 2", "DOUBLE"),
        ("l % 2", "BIGINT"),
        ("l * d", "DOUBLE"),
        ("ABS(i)", "BIGINT"),
        ("ROUND(d)", "DOUBLE"),
        ("COALESCE(i, l)", "BIGINT"),
        ("CASE WHEN b THEN 1 ELSE 2.5 END", "DOUBLE"),
        ("NULLIF(i, 1)", "INTEGER"),
        ("ts + INTERVAL '1' DAY", "TIMESTAMP"),
        ("INTERVAL '1' DAY + ts", "TIMESTAMP"),
        ("ts - ts2", "BIGINT"),
        ("ts - '2026-01-01'", "BIGINT"),
        ("DATE_TRUNC('day', day)", "TIMESTAMP"),
        ("EXTRACT(YEAR FROM day)", "BIGINT"),
        ("EXTRACT(EPOCH FROM ts)", "DOUBLE"),
        ("LENGTH(s) > '3'", "BOOLEAN"),
        ("day < ts", "BOOLEAN"),
        ("NULL", "BIGINT"),
        ("COALESCE(NULL, s)", "VARCHAR"),
        ("s || 'x'", "VARCHAR"),
    ],
)
def test_an_expression_has_the_type_that_the_rules_give(expression: str, kind: str) -> None:
    query = bound_query(f"SELECT {expression} AS x, COUNT(*) FROM stream GROUP BY 1")
    assert query.groups[0].type is ColumnType[kind]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("SUM(i)", "BIGINT"),
        ("SUM(d)", "DOUBLE"),
        ("AVG(l)", "DOUBLE"),
        ("MIN(s)", "VARCHAR"),
        ("MAX(ts)", "TIMESTAMP"),
        ("QUANTILE(i, 0.5)", "INTEGER"),
        ("MEDIAN(ts)", "TIMESTAMP"),
        ("COUNT(DISTINCT day)", "BIGINT"),
        ("VAR(i)", "DOUBLE"),
        ("FIRST(s)", "VARCHAR"),
        ("LAST(day)", "DATE"),
        ("CORR(i, d)", "DOUBLE"),
        ("SELF_JOIN_SIZE(day)", "DOUBLE"),
        ("JOIN_SIZE(i, d)", "DOUBLE"),
        ("COVAR_POP(l, 2)", "DOUBLE"),
        ("REGR_SLOPE(d, d)", "DOUBLE"),
        ("REGR_INTERCEPT(i, d)", "DOUBLE"),
        ("DISTINCT_BOTH(s, b, l > 1)", "BIGINT"),
        ("DISTINCT_ONLY(d, b, NULL)", "BIGINT"),
        ("JACCARD(ts, b, NOT b)", "DOUBLE"),
    ],
)
def test_an_aggregate_has_the_type_that_the_rules_give(call: str, kind: str) -> None:
    assert bound_query(f"SELECT {call} FROM stream").aggregates[0].type is ColumnType[kind]


def test_names_are_found_as_written_and_else_in_any_case() -> None:
    assert bound_query("SELECT MAX(TS) FROM stream").columns == ("ts",)
    twins = StreamSchema(
        "s",
        tuple(ColumnDefinition(name, ColumnType.TIMESTAMP, True) for name in ("a", "A", "b")),
        "b",
        0,
        None,
        Plain(),
        1,
    )
    assert bound_query("SELECT MAX(A) FROM s", twins).columns == ("A",)
    assert bound_query("SELECT MAX(B) FROM s", twins).columns == ("b",)


def test_an_alias_gives_way_to_a_column_in_where_and_group_by() -> None:
    query = bound_query("SELECT DATE_TRUNC('day', ts) AS ts, COUNT(*) FROM stream GROUP BY ts")
    assert query.groups == (Column("ts", ColumnType.TIMESTAMP),)
    query = bound_query(
        "SELECT DATE_TRUNC('day', ts) AS at, COUNT(*) FROM stream "
        "WHERE at > '2026-01-01' GROUP BY at"
    )
    assert query.groups == (query.outputs[0].expression,)


def test_an_alias_goes_before_a_column_in_order_by() -> None:
    query = bound_query("SELECT b, AVG(d) AS d FROM stream GROUP BY b ORDER BY d")
    assert query.order[0].expression == query.aggregates[0]


def test_a_constant_in_quotes_becomes_what_it_is_compared_with() -> None:
    query = bound_query("SELECT COUNT(*) FROM stream WHERE ts >= '1970-01-01 00:00:01'")
    assert query.where == Call(
        Op.GE,
        (Column("ts", ColumnType.TIMESTAMP), Literal(1_000_000, ColumnType.TIMESTAMP)),
        ColumnType.BOOLEAN,
    )


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT MAX(x) FROM stream", UnknownColumn, "no column 'x'; there are ts, b"),
        ("SELECT s, COUNT(*) FROM stream", BadQuery, "'s' is neither in GROUP BY"),
        ("SELECT l + d, COUNT(*) FROM stream GROUP BY l", BadQuery, "'d' is neither"),
        ("SELECT *, COUNT(*) FROM stream", BadQuery, r"\* is all columns of rows"),
        ("SELECT SUM(stream.*) FROM stream", BadQuery, r"stream\.\* is all columns of rows"),
        ("SELECT SUM(s) FROM stream", TypeMismatch, "SUM takes INTEGER, BIGINT or DOUBLE, not s"),
        ("SELECT SUM(b) FROM stream", TypeMismatch, "COUNT_IF"),
        ("SELECT MEDIAN(s) FROM stream", TypeMismatch, "QUANTILE takes"),
        ("SELECT SUM(AVG(l)) FROM stream", BadQuery, "cannot stand inside another"),
        ("SELECT JACCARD(l, b, MAX(l) > 1) FROM stream", BadQuery, "cannot stand inside another"),
        ("SELECT DISTINCT_BOTH(l, b, x) FROM stream", UnknownColumn, "no column 'x'"),
        ("SELECT DISTINCT_ONLY(l, b, l) FROM stream", TypeMismatch, "ONLY takes BOOLEAN, not l"),
        ("SELECT COUNT(*) FROM stream WHERE SUM(l) > 1", BadQuery, "use HAVING"),
        ("SELECT COUNT(*) FROM stream GROUP BY COUNT(*)", BadQuery, "cannot stand in GROUP BY"),
        ("SELECT COUNT(*) FROM stream WHERE l", TypeMismatch, "l, which is BIGINT"),
        ("SELECT COUNT(*) FROM stream HAVING COUNT(*)", TypeMismatch, "HAVING takes a condition"),
        ("SELECT COUNT(*) FROM stream WHERE l = s", TypeMismatch, "l is BIGINT, s is VARCHAR"),
        ("SELECT COUNT(*) FROM stream WHERE l = 'x'", TypeMismatch, "'x'"),
        (
            "SELECT COUNT(*) FROM stream WHERE ts > 'soon'",
            TypeMismatch,
            "'soon' is not a timestamp",
        ),
        ("SELECT COUNT(*) FROM stream WHERE s LIKE t", TypeMismatch, "constant pattern"),
        ("SELECT COUNT(*) FROM stream WHERE s LIKE 'a\\b'", BadQuery, "backslash"),
        ("SELECT COUNT(*) FROM stream WHERE NOT l", TypeMismatch, "NOT takes BOOLEAN"),
        ("SELECT MAX(day + 1) FROM stream", TypeMismatch, "no DATE"),
        ("SELECT MAX(ts * 2) FROM stream", TypeMismatch, "BIGINT, not ts"),
        ("SELECT MAX(CAST(d AS VARCHAR)) FROM stream", TypeMismatch, "cannot be cast"),
        ("SELECT MAX(ROUND(d, 99)) FROM stream", BadQuery, "not 99"),
        ("SELECT TOP(s, 3) || 'x' FROM stream", TypeMismatch, "is a list"),
        ("SELECT FREQUENT(s, 0.5) || 'x' FROM stream", TypeMismatch, "is a list"),
        ("SELECT COUNT(*) FROM stream ORDER BY TOP(s, 3)", TypeMismatch, "has no order"),
        ("SELECT AVG(d) a, MIN(d) a_low FROM stream", BadQuery, "beside a"),
        ("SELECT AVG(d) certain FROM stream", BadQuery, "'certain'"),
        ("SELECT COUNT(*) FROM stream WITHIN 0.01 RANK", BadQuery, "for quantiles"),
    ],
)
def test_what_breaks_a_rule_is_refused(text: str, error: type[ShedderError], message: str) -> None:
    with pytest.raises(error, match=message):
        bound_query(text)


def test_a_large_output_may_not_be_named_many_times() -> None:
    large = "NULLIF(" * 12 + "l" + ", 1)" * 12
    named = " OR ".join(f"x = {number}" for number in range(3))
    bound_query(f"SELECT {large} AS x, COUNT(*) FROM stream WHERE {named} GROUP BY x")
    named = " OR ".join(f"x = {number}" for number in range(30))
    with pytest.raises(BadQuery, match="more than 100,000 parts"):
        bound_query(f"SELECT {large} AS x, COUNT(*) FROM stream WHERE {named} GROUP BY x")


def test_binding_twice_gives_the_same_query() -> None:
    select = parse("SELECT b, SUM(l + i) AS x FROM stream GROUP BY b HAVING x > 1")
    assert isinstance(select, Select)
    schema = bound_query("SELECT COUNT(*) FROM stream").schema
    assert bind(select, schema) == bind(select, schema)
    assert hash(bind(select, schema).aggregates) == hash(bind(select, schema).aggregates)


def test_a_part_that_stands_in_a_statement_many_times_is_bound_once() -> None:
    """NULLIF(x, 0) has x twice: 11 of them in each other have 2^11 times x, and few parts."""
    nested = "d"
    for _ in range(11):
        nested = f"NULLIF({nested}, 0)"
    query = bound_query(f"SELECT SUM({nested}) AS s, {nested} AS v FROM stream GROUP BY {nested}")
    [summed] = query.aggregates
    assert size_of(summed) > 2**11
    for part in (summed, query.outputs[1].expression, *query.groups):
        parts = list(parts_of(part))
        assert len(parts) < 100
        assert set(parts) == set(walk(part))
