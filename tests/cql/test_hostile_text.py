"""No text crashes, hangs or comes through as anything but a statement or a refusal."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shedder.cql.binding.parse import parse, parse_script
from shedder.cql.binding.relational_binding import bind_relational
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Expression
from shedder.cql.sql.plan_sql import RelationSql, plan_sql
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import ColumnDefinition, Select, Statement
from shedder.cql.text.size_limits import Limits
from shedder.errors import BadQuery, ShedderError, Unimplemented
from tests.cql.relations import Table

QUERY = (
    "SELECT a, COUNT(*) n, QUANTILE(b, 0.99) FROM s [RANGE INTERVAL '5' MINUTE SLIDE 10 SECONDS] "
    "WHERE NOT a LIKE 'x\\_%' AND (b BETWEEN 1 AND 2 OR c IN (1, 2.5, ?)) GROUP BY a "
    "HAVING n > 3 ORDER BY 2 DESC LIMIT 5 WITHIN 1 PERCENT CONFIDENCE 95 PERCENT ELSE OMIT WEIGHT 2"
)

ROWS = (
    "WITH w AS ( SELECT a , b FROM s [ PARTITION BY a ROWS 5 SLIDE 2 WHERE b > ? ] ) SELECT "
    "DISTINCT w . a , t . * , ( SELECT MAX ( c ) FROM u WHERE u . a = w . a ) m FROM w JOIN t [ "
    "RANGE 5 MINUTES SLIDE 10 SECONDS ] USING ( a ) , ( SELECT ISTREAM ( x ) FROM v ) v [ NOW ] "
    "LEFT JOIN y ON y . x = v . x AND y . z < 3 WHERE NOT EXISTS ( SELECT 1 FROM u WHERE u . a "
    "= w . a ) AND a NOT IN ( SELECT b FROM r UNION ALL SELECT c FROM q EXCEPT SELECT d FROM p "
    ") AND NOW ( ) > ts GROUP BY w . a HAVING COUNT ( * ) > 1 ORDER BY 1 DESC , m LIMIT 5 "
    "OFFSET 2"
)

# Queries of aggregates over one stream, and of rows over several.
QUERIES = pytest.mark.parametrize("query", [QUERY, ROWS], ids=["aggregates", "rows"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM " + "(SELECT * FROM " * 10_000 + "s" + ")" * 10_000,
        "SELECT " + "(" * 10_000 + "1" + ")" * 10_000 + " FROM s",
        "SELECT SUM(" + "-" * 1 + " -" * 10_000 + "a) FROM s",
        "SELECT COUNT(*) FROM s WHERE " + "NOT " * 10_000 + "a",
        "SELECT COUNT(*) FROM s WHERE " + "CASE WHEN " * 5_000 + "a",
        "SELECT COUNT(*) FROM s WHERE " + "a BETWEEN " * 3_000 + "1",
        "SELECT SUM(" + "a + " * 2_000 + "a) FROM s",
        "SELECT SUM(" + "a || " * 900 + "a) FROM s",
        "SELECT SUM(a" + "::BIGINT" * 3_000 + ") FROM s",
        "SELECT SUM(a" + ".b" * 3_000 + ") FROM s",
        "SELECT SUM(a" + "[1]" * 3_000 + ") FROM s",
        "SELECT COUNT(*) FROM s WHERE " + "INTERVAL " * 5_000 + "1",
        "SELECT COUNT(*) FROM s WHERE a" + " IS NULL" * 3_000,
        "SELECT COUNT(*) FROM s WHERE " + "EXISTS " * 3_000 + "a",
        "EXPLAIN " * 5_000 + "SELECT COUNT(*) FROM s",
        "SELECT " + "a, " * 10_000 + "a FROM s",
        "SELECT COUNT(*) FROM s WHERE a IN (" + "1, " * 15_000 + "1)",
        "SELECT COUNT(*) FROM s" + " JOIN s" * 3_000,
        "SELECT COUNT(*) FROM s" + ", s" * 1_000,
        "SELECT a FROM s" + " JOIN s USING (a)" * 100,
        "SELECT a FROM s WHERE a IN " + "(SELECT a FROM s WHERE a IN " * 40 + "(1" + ")" * 41,
        "SELECT a FROM " + "(" * 31 + "SELECT a FROM s" + ")" * 30,
        "SELECT a FROM s " + "UNION SELECT a FROM s " * 300,
        "WITH " + "a AS (SELECT a FROM s), " * 300 + "b AS (SELECT 1 FROM a) SELECT * FROM b",
        "SELECT a FROM s [" + "ROWS 5 WHERE " * 1_000,
        "SELECT " + "ISTREAM(" * 1_000 + "a" + ")" * 1_000 + " FROM s",
        "SELECT " + "(SELECT " * 40 + "a FROM s" + ") FROM s" * 40,
        "SELECT COUNT(*) FROM s" + " UNION SELECT COUNT(*) FROM s" * 1_000,
        "/*" * 20_000,
        "/*" * 20_000 + "*/" * 20_000 + "SELECT",
        "[" * 10_000,
        "{" * 10_000,
        "'" * 9_999,
        '"' * 9_999,
        "$" * 10_000,
        ":" * 10_000,
        "?" * 10_000,
        "\x00SELECT",
        "SELECT '\ud800' FROM s",
        "",
        ";",
        ";;;;",
        "   -- nothing",
    ],
    ids=lambda text: repr(text[:24]),
)
def test_a_hostile_text_is_refused_with_a_message(text: str) -> None:
    with pytest.raises((BadQuery, Unimplemented)) as refused:
        parse(text)
    assert len(str(refused.value)) < 500


@pytest.mark.slow
def test_twenty_thousand_ors_are_refused_at_once() -> None:
    text = "SELECT COUNT(*) FROM s WHERE " + "a OR " * 20_000 + "a"
    with pytest.raises(BadQuery, match="at most 65,536"):
        parse(text)
    with pytest.raises(BadQuery, match="words"):
        parse(text, limits=Limits(text_bytes_max=1 << 20))


def test_a_text_may_have_64_kib_and_no_byte_more() -> None:
    query = "SELECT COUNT(*) FROM s"
    padding = " " * (65_536 - len(query))
    parse(query + padding)
    with pytest.raises(BadQuery, match="65,537 bytes"):
        parse(query + padding + " ")
    with pytest.raises(BadQuery, match="bytes"):
        parse(query + "é" * 40_000)


def test_thirty_two_levels_are_read_and_thirty_three_are_not() -> None:
    parse("SELECT SUM(" + "(" * 31 + "a" + ")" * 31 + ") FROM s")
    with pytest.raises(BadQuery, match="at most 32 levels"):
        parse("SELECT SUM(" + "(" * 32 + "a" + ")" * 32 + ") FROM s")


@pytest.mark.parametrize(
    ("opening", "innermost", "closing"),
    [
        ("SELECT t.a FROM (", "SELECT a FROM s", ") t"),
        ("SELECT a FROM s WHERE EXISTS (", "SELECT a FROM s", ")"),
        ("SELECT a FROM s WHERE a NOT IN (", "SELECT a FROM s", ")"),
        ("(", "SELECT a FROM s", ") UNION (SELECT b FROM s)"),
        ("SELECT (", "SELECT MAX(a) FROM s", ") + MAX(a) FROM s"),
    ],
)
def test_queries_that_are_nested_as_deep_as_can_be_are_bound(
    opening: str, innermost: str, closing: str
) -> None:
    """Fifteen levels, because a subquery may be in brackets of its own in the canonical text."""
    statement = parse(opening * 15 + innermost + closing * 15)
    assert isinstance(statement, RelationalSelect)
    assert parse(statement.text) == statement
    _binds(statement)
    with pytest.raises(BadQuery, match="levels"):
        parse(opening * 33 + innermost + closing * 33)


def test_a_sum_of_ninety_columns_is_read_and_one_of_two_hundred_is_not() -> None:
    parse("SELECT SUM(" + "a + " * 90 + "a) FROM s")
    with pytest.raises(BadQuery, match="more than 100 levels"):
        parse("SELECT SUM(" + "a + " * 200 + "a) FROM s")


def test_a_long_chain_of_or_is_read_as_a_shallow_tree() -> None:
    words = " OR ".join(f"a = {number}" for number in range(150))
    statement = parse(f"SELECT COUNT(*) FROM s WHERE {words}")
    assert isinstance(statement, Select)
    assert _depth(statement.where) < 12  # Of 150 terms in pairs, 8 and two below.


@pytest.mark.slow
@settings(max_examples=80)
@given(st.text(max_size=80))
def test_any_text_gives_a_statement_or_a_refusal(text: str) -> None:
    _survives(text)


@pytest.mark.slow
@QUERIES
@settings(max_examples=100)
@given(seed=st.integers(0, 1 << 32), cuts=st.integers(1, 4))
def test_a_query_with_words_lost_doubled_and_swapped_is_survived(
    query: str, seed: int, cuts: int
) -> None:
    dice = random.Random(seed)
    words = query.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(cuts):
        at = dice.randrange(len(words))
        match dice.randrange(3):
            case 0:
                del words[at]
            case 1:
                words.insert(at, dice.choice(words))
            case _:
                other = dice.randrange(len(words))
                words[at], words[other] = words[other], words[at]
    _survives(" ".join(words))


@pytest.mark.slow
@QUERIES
@settings(max_examples=80)
@given(share=st.floats(0, 1), lost=st.integers(0, 5), put=st.text(max_size=3))
def test_a_query_with_characters_changed_is_survived(
    query: str, share: float, lost: int, put: str
) -> None:
    at = int(share * len(query))
    _survives(query[:at] + put + query[at + lost :])


def _depth(expression: Expression | None) -> int:
    """Return the levels of a tree of calls."""
    below = expression.args if isinstance(expression, Call) else ()
    return 1 + max(map(_depth, below), default=0)


def _survives(text: str) -> None:
    with contextlib.suppress(BadQuery, Unimplemented):
        for statement in parse_script(text, [1.5]):
            _binds(statement)


def _binds(statement: Statement) -> None:
    """Assert that a row query is bound or refused, and that its text means the same again."""
    if not isinstance(statement, RelationalSelect):
        return
    assert parse(statement.text) == statement
    columns = tuple(ColumnDefinition(name, ColumnType.BIGINT, True) for name in "abcdxz")
    schemas = {name: Table(name, columns) for name in statement.relations}
    with contextlib.suppress(ShedderError):
        plan_sql(bind_relational(statement, schemas, 0).plan, Anything())


class Anything(dict[str, RelationSql]):
    """A relation for every alias."""

    def __missing__(self, alias: str) -> RelationSql:
        return RelationSql(alias)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("NULLIF(", ", 1)"),
        ("IF(b, ", ", 1) IS NOT DISTINCT FROM 2"),
        ("(", " BETWEEN FALSE AND TRUE)"),
        ("CASE ", " WHEN 1 THEN 2 WHEN 2 THEN 3 END"),
    ],
)
def test_what_would_double_with_each_level_is_refused_before_it_is_written_out(
    opening: str, closing: str
) -> None:
    with pytest.raises(BadQuery, match=r"written out, .* more than 50,000 parts"):
        parse("SELECT COUNT(*) FROM s WHERE " + opening * 30 + "a" + closing * 30)


def test_many_that_are_large_are_refused_as_one_that_is_too_large() -> None:
    large = "NULLIF(" * 12 + "a" + ", 1)" * 12
    parse(f"SELECT SUM({large}) FROM s")
    with pytest.raises(BadQuery, match="50,000 parts"):
        parse("SELECT " + ", ".join([f"SUM({large})"] * 5) + " FROM s")
