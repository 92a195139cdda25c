"""CREATE VIEW, DROP VIEW, SHOW VIEWS, and CREATE QUERY ... AS INSERT INTO."""

from __future__ import annotations

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.statements.statement import CreateInsert, CreateView, DropView, Show
from shedder.errors import BadQuery, Unimplemented

MINUTE_US = 60_000_000
SLIDES = "[RANGE INTERVAL '1' MINUTE SLIDE INTERVAL '1' MINUTE]"


def select_text(text: str) -> str:
    statement = parse(text)
    assert isinstance(statement, CreateView | CreateInsert)
    return statement.select.text


@pytest.mark.parametrize(
    ("said", "retain_us"),
    [
        ("", None),
        ("RETAIN FOREVER", None),
        ("RETAIN INTERVAL '2' MINUTE", 2 * MINUTE_US),
        ("RANGE 5 MINUTES", 5 * MINUTE_US),
        ("[RANGE 5 MINUTES]", 5 * MINUTE_US),
    ],
)
def test_a_view_keeps_as_much_as_it_says(said: str, retain_us: int | None) -> None:
    statement = parse(f"CREATE VIEW IF NOT EXISTS v {said} AS SELECT a FROM s WHERE a > 1")
    assert isinstance(statement, CreateView)
    assert (statement.name, statement.retain_us, statement.if_not_exists) == ("v", retain_us, True)
    assert statement.select.text == "SELECT a FROM s WHERE a > 1"


@pytest.mark.parametrize(
    ("query", "stream"),
    [
        (f"SELECT COUNT(*) AS n FROM s {SLIDES}", f"SELECT RSTREAM(COUNT(*) AS n) FROM s {SLIDES}"),
        (f"SELECT ISTREAM(COUNT(*) AS n) FROM s {SLIDES}", None),
        ("SELECT DSTREAM(a) FROM s [RANGE INTERVAL '1' MINUTE]", None),
        ("SELECT a FROM s [RANGE INTERVAL '1' MINUTE]", None),
        ("(SELECT a FROM s) UNION ALL (SELECT b FROM t)", None),
    ],
)
def test_aggregates_of_each_slide_are_rstream_and_others_as_they_say(
    query: str, stream: str | None
) -> None:
    assert select_text(f"CREATE VIEW v AS {query}") == (stream or query)
    assert select_text(f"CREATE QUERY q AS INSERT INTO t {query}") == (stream or query)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE VIEW v AS SELECT COUNT(*) FROM s", "a query with aggregates is a relation"),
        ("CREATE VIEW v AS SELECT COUNT(*) FROM s [RANGE 1 MINUTE]", "give its windows one SLIDE"),
        ("CREATE VIEW v AS SELECT a FROM s LIMIT 3", "ORDER BY, LIMIT and OFFSET"),
        ("CREATE VIEW v RETAIN INTERVAL '0' DAY AS SELECT a FROM s", "RETAIN must be longer"),
        ("CREATE VIEW v [RETAIN 1 DAY] AS SELECT a FROM s", "expected RANGE and an interval"),
        ("CREATE VIEW v AS", "expected a SELECT"),
        ("CREATE QUERY q AS INSERT INTO t VALUES (1)", "expected a SELECT"),
        ("EXPLAIN CREATE QUERY q AS INSERT INTO t VALUES (1)", "expected a SELECT"),
    ],
)
def test_a_wrong_text_is_refused_where_it_is_wrong(text: str, message: str) -> None:
    with pytest.raises(BadQuery, match=message) as refusal:
        parse(text)
    assert "line 1, column" in str(refusal.value)


def test_clauses_of_approximate_answers_are_refused() -> None:
    with pytest.raises(Unimplemented, match="clauses of approximate answers"):
        parse(f"CREATE VIEW v AS SELECT COUNT(*) FROM s {SLIDES} WITHIN 1 PERCENT")


def test_other_statements_name_the_view_and_the_target() -> None:
    assert parse("DROP VIEW v") == DropView("v", if_exists=False)
    assert parse("DROP VIEW IF EXISTS v") == DropView("v", if_exists=True)
    assert parse("SHOW VIEWS") == Show("VIEWS")
    insert = parse("CREATE QUERY IF NOT EXISTS q AS INSERT INTO t (a, ts) SELECT a, ts FROM s")
    assert isinstance(insert, CreateInsert)
    assert (insert.name, insert.stream, insert.columns) == ("q", "t", ("a", "ts"))
    assert insert.if_not_exists
