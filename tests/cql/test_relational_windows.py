"""Windows of row queries, against a brute force over lists, and their text."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.binding.relational_from import FOREVER_US
from shedder.cql.binding.stream_defaults import is_stream_by_default
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.plans.logical_plan import (
    NowWindow,
    Plan,
    RowsWindow,
    StreamOperator,
    ToStream,
    WindowOf,
    inputs_of,
)
from shedder.cql.sql.plan_sql import needs_event_order
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import RangeWindow, SnapshotWindow, UnboundedWindow
from shedder.errors import BadQuery, ShedderError, Unimplemented, UnknownColumn
from tests.cql.relations import SECOND, Relations, stream, table
from tests.scale import scaled
from tests.seeds import seed

MINUTE = 60 * SECOND
L = ColumnType.BIGINT
Row = tuple[int | None, int | None, int]  # k, v and event time; the place in a list is its position
WORLD = Relations(
    {
        "s": (stream("s", k=L, v=L), [(1, 10, 0), (2, 20, 1), (1, 30, 1), (None, 40, 2)]),
        "names": (table("names", k=L), [(1,)]),
    }
)


def windows(plan: Plan) -> list[Any]:
    own = [plan.window] if isinstance(plan, WindowOf) else []
    return own + [each for part in inputs_of(plan) for each in windows(part)]


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("RANGE 1 MINUTE", RangeWindow(MINUTE, 1)),
        ("RANGE 1 MINUTE PRECEDING SLIDE 10 SECONDS", RangeWindow(MINUTE, 10 * SECOND)),
        ("WINDOW 1 MINUTE", RangeWindow(MINUTE, 1)),
        ("ROWS 5", RowsWindow(5)),
        ("ROWS 5 PRECEDING", RowsWindow(5)),
        ("ROWS 5 SLIDE 2", RowsWindow(5, 2)),
        ("PARTITION BY k ROWS 3", RowsWindow(3, 1, ("s.k",))),
        ("PARTITION BY s.k, v, k ROWS 3 SLIDE 7", RowsWindow(3, 7, ("s.k", "s.v"))),
        ("WINDOW K ROWS 4", RowsWindow(4, 1, ("s.k",))),
        ("NOW", NowWindow()),
        ("RANGE UNBOUNDED WHERE k = 1", UnboundedWindow()),
        (
            "FROM TIMESTAMP '1970-01-01 00:00:01' TO TIMESTAMP '1970-01-01 00:00:02'",
            SnapshotWindow(SECOND, 2 * SECOND),
        ),
        ("FROM TIMESTAMP '2026-01-01' SLIDE 15 MINUTES", RangeWindow(FOREVER_US, 15 * MINUTE)),
    ],
)
@pytest.mark.parametrize("form", ["SELECT * FROM s [{}]", "SELECT s.v FROM s [{}] s WHERE v > 1"])
def test_a_window_is_read_and_written_again(written: str, window: object, form: str) -> None:
    query = WORLD.bound(form.format(written))
    assert windows(query.plan) == [window]
    assert windows(WORLD.bound(query.text).plan) == [window]


@pytest.mark.parametrize("text", ["SELECT * FROM s", "SELECT * FROM s [RANGE UNBOUNDED]"])
def test_a_stream_without_a_window_is_all_of_it(text: str) -> None:
    assert windows(WORLD.bound(text).plan) == []


def newest(rows: list[Row], end_us: int, window: RowsWindow, least_v: int | None) -> list[Row]:
    """The contents of a ROWS window as of an instant, by going through all tuples in order."""
    order = sorted(range(len(rows)), key=lambda at: (rows[at][2], at))
    seen = [rows[at] for at in order if rows[at][2] < end_us]
    if least_v is not None:
        seen = [row for row in seen if row[1] is not None and row[1] >= least_v]
    seen = seen[: len(seen) - len(seen) % window.slide_rows]
    kept: dict[object, list[Row]] = {}
    for row in seen:
        partition = row[0] if window.partition else "all"
        kept.setdefault(partition, []).append(row)
    return [row for queue in kept.values() for row in queue[-window.rows :]]


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(3, 60)))
def test_rows_windows_hold_the_newest_rows_at_random_instants(world: int) -> None:
    dice = random.Random(seed("rows-windows", world))
    keys, values = (0, 1, 2, None), (1, 2, 3, None)
    rows: list[Row] = [
        (dice.choice(keys), dice.choice(values), dice.randrange(12))
        for _ in range(dice.randrange(40))
    ]
    relations = Relations({"s": (stream("s", k=L, v=L), rows)})
    for _ in range(scaled(30, 100)):
        partition = dice.choice(((), ("k",)))
        window = RowsWindow(dice.randint(1, 6), dice.randint(1, 4), partition)
        least, end_us = dice.choice((None, 2)), dice.randrange(14)
        by = "PARTITION BY k " if partition else ""
        where = "" if least is None else f" WHERE v >= {least}"
        text = f"SELECT k, v FROM s [{by}ROWS {window.rows} SLIDE {window.slide_rows}{where}]"
        expected = Counter(row[:2] for row in newest(rows, end_us, window, least))
        assert Counter(relations.rows(text, stretch=(None, end_us))) == expected, text


def test_where_in_the_brackets_comes_before_the_window_and_where_behind_them_after() -> None:
    assert WORLD.rows("SELECT v FROM s [ROWS 1 WHERE k = 1]") == [(30,)]
    assert WORLD.rows("SELECT v FROM s [ROWS 1] WHERE k = 1") == []


def test_first_and_last_are_by_event_time_and_position() -> None:
    text = "SELECT FIRST(v), LAST(v), COUNT(*) FROM s [PARTITION BY k ROWS 1] WHERE k IS NOT NULL"
    assert WORLD.rows(text) == [(20, 30, 2)]
    assert WORLD.rows("SELECT LAST(v) FROM s [ROWS 3] WHERE k IN (SELECT k FROM names)") == [(30,)]
    with pytest.raises(BadQuery, match="put FIRST or LAST into a subquery"):
        WORLD.rows("SELECT FIRST(s.v) FROM s, names WHERE s.k = names.k")


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("SELECT k FROM s", False),
        ("SELECT COUNT(*) FROM s [NOW] WHERE k IN (SELECT k FROM s [ROWS 2])", True),
        ("SELECT LAST(v) FROM s", True),
        ("SELECT MAX(v) FROM s [RANGE 1 HOUR]", False),
    ],
)
def test_positions_are_read_for_rows_windows_and_for_first_and_last(
    text: str, needed: bool
) -> None:
    assert needs_event_order(WORLD.bound(text).plan) is needed


@pytest.mark.parametrize(
    ("text", "operator", "canonical"),
    [
        ("SELECT ISTREAM(*) FROM s", StreamOperator.ISTREAM, "SELECT ISTREAM(*) FROM s"),
        (
            "SELECT DSTREAM(DISTINCT k, v + 1 w) FROM s [NOW]",
            StreamOperator.DSTREAM,
            "SELECT DSTREAM(DISTINCT k, v + 1 AS w) FROM s [NOW]",
        ),
        (
            "SELECT rstream(COUNT(*)) FROM s [RANGE 1 DAY PRECEDING]",
            StreamOperator.RSTREAM,
            "SELECT RSTREAM(COUNT(*) AS count) FROM s [RANGE INTERVAL '1' DAY]",
        ),
    ],
)
def test_a_result_may_be_a_stream(text: str, operator: StreamOperator, canonical: str) -> None:
    query = WORLD.bound(text)
    assert isinstance(query.plan, ToStream)
    assert query.plan.operator is operator
    assert query.text == canonical
    with pytest.raises(BadQuery, match="answered once has rows and no changes"):
        WORLD.rows(text)


@pytest.mark.parametrize(
    ("text", "is_stream"),
    [
        ("SELECT * FROM s", True),
        ("SELECT DISTINCT k FROM s [ROWS 3]", True),
        ("SELECT s.k FROM s, names WHERE s.k = names.k", True),
        ("SELECT t.n FROM (SELECT COUNT(*) AS n FROM s [NOW]) t", True),
        ("SELECT k FROM s UNION ALL SELECT k FROM names", True),
        ("SELECT DSTREAM(k) FROM s", True),
        ("SELECT COUNT(*) FROM s [NOW]", False),
        ("SELECT DISTINCT k, MAX(v) FROM s GROUP BY k", False),
        ("SELECT * FROM s ORDER BY v LIMIT 3", False),
        ("SELECT * FROM names", False),
    ],
)
def test_a_query_of_rows_over_a_stream_is_a_stream_by_default(text: str, is_stream: bool) -> None:
    statement = parse(text)
    assert isinstance(statement, RelationalSelect)
    plan = WORLD.bound(text).plan
    found = isinstance(plan, ToStream) or is_stream_by_default(statement.query, plan)
    assert found is is_stream


def test_a_window_over_a_subquery_is_over_its_stream() -> None:
    for select in ("SELECT k FROM s", "SELECT ISTREAM(k) FROM s"):
        plan = WORLD.bound(f"SELECT COUNT(*) FROM ({select}) t [ROWS 5]").plan
        [window] = [node for node in nodes(plan) if isinstance(node, WindowOf)]
        assert isinstance(window.input, ToStream)
        assert window.window == RowsWindow(5)
    plan = WORLD.bound("SELECT t.k FROM (SELECT DSTREAM(k) FROM s [NOW]) t").plan
    assert windows(plan) == [UnboundedWindow(), NowWindow()]


def nodes(plan: Plan) -> list[Plan]:
    return [plan, *(node for each in inputs_of(plan) for node in nodes(each))]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT * FROM s [ROWS 0]", BadQuery, "ROWS takes a whole number of rows, 1 or more"),
        ("SELECT * FROM s [ROWS 2 SLIDE 0]", BadQuery, "SLIDE takes a whole number of rows"),
        ("SELECT * FROM s [RANGE 0 SECONDS]", BadQuery, "RANGE must be longer than 0"),
        ("SELECT * FROM s [PARTITION BY k]", BadQuery, "expected columns, ROWS and a number"),
        ("SELECT * FROM s [PARTITION BY x ROWS 1]", UnknownColumn, "no column 'x'"),
        ("SELECT * FROM s [PARTITION BY k + 1 ROWS 1]", BadQuery, "expected columns"),
        ("SELECT * FROM s [ROWS 1 WHERE MAX(v) = 1]", BadQuery, "cannot stand in WHERE"),
        ("SELECT * FROM s [ROWS 1 WHERE]", BadQuery, "expected a condition after WHERE"),
        (
            "SELECT * FROM s [ROWS 1 WHERE k IN (SELECT k FROM names)]",
            BadQuery,
            "stands in WHERE or HAVING",
        ),
        (
            "SELECT * FROM s [FROM '2026-01-01' TO '2026-01-02' SLIDE 1 DAY]",
            BadQuery,
            "a window that ends does not slide",
        ),
        ("SELECT * FROM names [NOW]", BadQuery, "names is a table and has no window"),
        ("SELECT * FROM s [RANGE 1 MINUTE INTERNAL]", Unimplemented, "INTERNAL"),
        ("SELECT ISTREAM(k), v FROM s", BadQuery, "around the whole select list"),
        ("SELECT ISTREAM(k) AS x FROM s", BadQuery, "around the whole select list"),
        ("SELECT ISTREAM() FROM s", BadQuery, "something to select"),
        ("SELECT k FROM s WHERE ISTREAM(k) = 1", Unimplemented, "around the whole select list"),
        ("SELECT ISTREAM(k) FROM s ORDER BY k", BadQuery, "no order and no end"),
        ("SELECT ISTREAM(k) FROM s UNION SELECT k FROM s", BadQuery, "UNION is of relations"),
        ("SELECT k FROM s WHERE k IN (SELECT ISTREAM(k) FROM s)", BadQuery, "a subquery of FROM"),
        ("SELECT t.n FROM (SELECT COUNT(*) n FROM s) t [NOW]", BadQuery, "t is a relation"),
        ("SELECT t.k FROM (SELECT k FROM names) t [ROWS 1]", BadQuery, "t is a relation"),
        (
            "SELECT t.k FROM (SELECT k FROM s) t [FROM '2026-01-01' SLIDE 1 DAY]",
            BadQuery,
            "over a stream, not over a subquery",
        ),
        ("DELETE FROM s [ROWS 5]", Unimplemented, "window of this statement"),
        ("DELETE FROM s [NOW]", Unimplemented, "window of this statement"),
        ("DELETE FROM s [RANGE UNBOUNDED WHERE k = 1]", Unimplemented, "window of this"),
        ("INSERT INTO s SELECT * FROM s [ROWS 5]", Unimplemented, "window of this statement"),
        (
            "CREATE ROLLUP r AS SELECT COUNT(*) FROM s [FROM '2026-01-01' SLIDE 1 DAY]",
            Unimplemented,
            "window of this statement",
        ),
    ],
)
def test_bad_windows_and_streams_are_refused(
    text: str, error: type[ShedderError], message: str
) -> None:
    with pytest.raises(error, match=message):
        WORLD.bound(text)


def test_a_window_over_a_subquery_is_not_answered_once() -> None:
    with pytest.raises(BadQuery, match="put the window on the stream in the subquery"):
        WORLD.rows("SELECT COUNT(*) FROM (SELECT k FROM s) t [ROWS 5]")
