"""Rows of one relation, against rows worked out by hand."""

from __future__ import annotations

import math
from datetime import datetime

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.plans.logical_plan import Filter, Ordered, Project, RelationKind, Scan
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import Explain
from shedder.errors import BadQuery, ShedderError, TypeMismatch, Unimplemented, UnknownColumn
from tests.cql.relations import SECOND, Relations, stream, table

WORLD = Relations(
    {
        "s": (
            stream("s", a=ColumnType.BIGINT, d=ColumnType.DOUBLE, v=ColumnType.VARCHAR),
            [
                (1, 0.5, "x", 0),
                (2, math.nan, "y", 1 * SECOND),
                (None, 2.5, None, 2 * SECOND),
                (1, 0.5, "x", 3 * SECOND),
                (3, -1.0, "X", 4 * SECOND),
            ],
        ),
        "names": (
            table("names", id=ColumnType.BIGINT, name=ColumnType.VARCHAR),
            [(1, "one"), (2, "two"), (2, "deux")],
        ),
    }
)


def at(second: int) -> datetime:
    return datetime(1970, 1, 1, 0, 0, second)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT * FROM s LIMIT 2",
            [(1, 0.5, "x", at(0)), (2, None, "y", at(1))],
        ),
        ("SELECT q.a, q.a + 1 AS more FROM s q WHERE q.v = 'x'", [(1, 2), (1, 2)]),
        ("SELECT v, s.* FROM s WHERE a = 3", [("X", 3, -1.0, "X", at(4))]),
        ("SELECT DISTINCT a, v FROM s ORDER BY a", [(1, "x"), (2, "y"), (3, "X"), (None, None)]),
        ("SELECT a FROM s ORDER BY a DESC", [(3,), (2,), (1,), (1,), (None,)]),
        ("SELECT a FROM s ORDER BY d, ts DESC", [(3,), (1,), (1,), (None,), (2,)]),
        ("SELECT v FROM s ORDER BY ts DESC LIMIT 2 OFFSET 1", [("x",), (None,)]),
        ("SELECT ts FROM s OFFSET 4", [(at(4),)]),
        ("SELECT a AS z FROM s WHERE z > 1 ORDER BY z", [(2,), (3,)]),
        ("SELECT -a AS a FROM s WHERE a > 1 ORDER BY a", [(-3,), (-2,)]),
        ("SELECT 7 FROM s WHERE a = 1", [(7,), (7,)]),
        ("SELECT a FROM s WHERE d IS NULL", [(2,)]),
        ("SELECT a FROM s WHERE NOT d > 0", [(3,)]),
        ("SELECT name FROM names WHERE id = 2 ORDER BY 1", [("deux",), ("two",)]),
        ("SELECT DISTINCT id FROM names ORDER BY id LIMIT 1", [(1,)]),
    ],
)
def test_rows_of_one_relation(text: str, expected: list[tuple[object, ...]]) -> None:
    assert WORLD.rows(text) == expected


def test_columns_of_a_star_that_have_a_name_already_get_a_number() -> None:
    query = WORLD.bound("SELECT v AS a, *, a, d FROM s")
    names = [column.name for column in query.columns]
    assert names == ["a", "a_3", "d", "v", "ts", "a_2", "d_2"]


def test_a_window_is_the_stretch_that_the_caller_gives() -> None:
    text = "SELECT a FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] WHERE a > 0"
    assert WORLD.rows(text, stretch=(1 * SECOND, 3 * SECOND)) == [(2,)]


def test_now_is_the_moment_that_the_caller_gives() -> None:
    text = "SELECT a FROM s WHERE ts >= NOW() - INTERVAL '2' SECOND ORDER BY ts"
    assert WORLD.rows(text, now_us=5 * SECOND) == [(1,), (3,)]
    with pytest.raises(BadQuery, match="least watermark"):
        WORLD.bound(text)


def test_a_scan_has_the_columns_that_are_read() -> None:
    plan = WORLD.bound("SELECT v FROM s q WHERE a = 1 ORDER BY ts").plan
    assert isinstance(plan, Project)
    assert isinstance(plan.input, Ordered)
    assert isinstance(plan.input.input, Project)
    assert isinstance(plan.input.input.input, Filter)
    scan = plan.input.input.input.input
    assert isinstance(scan, Scan)
    assert (scan.relation, scan.alias, scan.kind) == ("s", "q", RelationKind.STREAM)
    assert [column.name for column in scan.columns] == ["q.a", "q.v", "q.ts"]
    assert scan.time_column == "q.ts"


def test_a_scan_has_at_least_one_column() -> None:
    plan = WORLD.bound("SELECT 1 FROM s").plan
    assert isinstance(plan, Project)
    assert isinstance(plan.input, Scan)
    assert [column.name for column in plan.input.columns] == ["s.ts"]


def test_the_relations_of_a_query_are_named() -> None:
    statement = parse("EXPLAIN SELECT * FROM s x")
    assert isinstance(statement, Explain)
    assert isinstance(statement.subject, RelationalSelect)
    assert statement.subject.relations == ("s",)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("select *  from s -- all", "SELECT * FROM s"),
        ("SELECT s.a FROM s AS s LIMIT 3 OFFSET 0", "SELECT s.a FROM s LIMIT 3"),
        (
            "SELECT DISTINCT a b, a+1 FROM s [RANGE 60 SECONDS] t ORDER BY 1 DESC",
            (
                "SELECT DISTINCT a AS b, a + 1 AS a_1 FROM s t [RANGE INTERVAL '1' MINUTE] "
                "ORDER BY a DESC"
            ),
        ),
        (
            'SELECT "my a", "x"."*" FROM "S 1" "x" [FROM DATE \'2026-01-01\']',
            'SELECT "my a", x."*" FROM "S 1" x [FROM TIMESTAMP \'2026-01-01 00:00:00\']',
        ),
    ],
)
def test_canonical_text_of_rows(text: str, canonical: str) -> None:
    statement = parse(text)
    assert isinstance(statement, RelationalSelect)
    assert statement.text == canonical
    assert parse(canonical) == statement


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT x FROM s", UnknownColumn, "no column 'x'"),
        ("SELECT q.a FROM s", BadQuery, "no relation q in FROM; there are s"),
        ("SELECT s.a FROM s q", BadQuery, "no relation s in FROM; there are q"),
        ("SELECT q.* FROM s", BadQuery, r"q\.\*: no relation q"),
        ("SELECT * FROM s WHERE a", TypeMismatch, "WHERE takes a condition"),
        ("SELECT * FROM s WHERE a = v", TypeMismatch, "values of one type"),
        ("SELECT DISTINCT a FROM s ORDER BY d", BadQuery, "add it to the select list"),
        ("SELECT *, 1 FROM s ORDER BY 2", BadQuery, r"2 counts outputs, and \* is many"),
        ("SELECT a FROM s ORDER BY 2", BadQuery, "there are 1"),
        ("SELECT * FROM names [RANGE 1 MINUTE]", BadQuery, "names is a table and has no window"),
        ("SELECT * FROM s LIMIT -1", BadQuery, "LIMIT takes a whole number"),
        ("SELECT * FROM s OFFSET 1.5", BadQuery, "OFFSET takes a whole number"),
        ("SELECT * FROM s WITHIN 1 PERCENT", BadQuery, "exact; leave WITHIN away$"),
        ("SELECT DISTINCT ON (a) a FROM s", Unimplemented, "DISTINCT ON"),
        ("SELECT a, COUNT(*) OVER () FROM s", Unimplemented, "^OVER: not"),
        ("SELECT a, COUNT(*) OVER (PARTITION BY a) FROM s", Unimplemented, "^OVER: not"),
        ("SELECT a FROM s WHERE a > ANY (SELECT a FROM names)", Unimplemented, "^ANY; write IN"),
        ("SELECT COUNT(*) FROM s GROUP BY ROLLUP (a)", Unimplemented, "^ROLLUP in GROUP BY"),
        (
            "SELECT HISTOGRAM(a, [0, 9]) AS h FROM s [ROWS 9]",
            TypeMismatch,
            r"HISTOGRAM\(.*\) is a list",
        ),
        ("SELECT TOP(a, 3) AS most FROM s [ROWS 9]", BadQuery, "a SLIDE of 2 or more tuples"),
        ("SELECT * EXCEPT (a) FROM s", Unimplemented, "EXCEPT"),
        ("SELECT * FROM s [RANGE 1 HOUR SLIDE 1 SECOND COLLAPSE]", BadQuery, "COLLAPSE is for"),
        ("SELECT *", BadQuery, "expected FROM"),
    ],
)
def test_bad_queries_of_rows_are_refused(
    text: str, error: type[ShedderError], message: str
) -> None:
    with pytest.raises(error, match=message):
        WORLD.bound(text)
