"""What texts mean, and what is refused with which words."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from shedder.cql.binding.parse import parse, parse_script
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Literal,
    Op,
)
from shedder.cql.statements.canonical_text import text_of_stream
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import (
    AlterActivity,
    AlterBytes,
    AlterQuery,
    AlterWeight,
    Contract,
    CreateQuery,
    CreateStream,
    Describe,
    DropQuery,
    DropStream,
    Explain,
    ExplainAllocation,
    ExplainPrecision,
    LandmarkWindow,
    OrderKey,
    RangeWindow,
    ReductionClause,
    Select,
    Show,
    SnapshotWindow,
    Target,
    TargetKind,
    UnboundedWindow,
)
from shedder.errors import BadQuery, Unimplemented
from synopses.frequent.heavy_share import Promise

MINUTE = 60_000_000


def frequent(share: float, promise: Promise) -> Aggregate:
    return Aggregate(AggregateFunction.FREQUENT, Column("x"), share, promise=promise)


def select(text: str, params: Any = None) -> Select:
    statement = parse(text, params)
    assert isinstance(statement, Select)
    return statement


def where(condition: str, params: Any = None) -> Any:
    return select(f"SELECT COUNT(*) FROM s WHERE {condition}", params).where


def test_a_stream_is_created_as_the_design_writes_it() -> None:
    statement = parse(
        "CREATE STREAM requests (ts TIMESTAMP, client BIGINT NOT NULL, domain VARCHAR, "
        "bytes DOUBLE) TIMESTAMP BY ts LATENESS INTERVAL '5' SECOND RETAIN INTERVAL '14' DAY "
        "ARCHIVE plain;"
    )
    assert isinstance(statement, CreateStream)
    assert [(c.name, c.type.value, c.nullable) for c in statement.columns] == [
        ("ts", "TIMESTAMP", False),
        ("client", "BIGINT", False),
        ("domain", "VARCHAR", True),
        ("bytes", "DOUBLE", True),
    ]
    assert statement.time_column == "ts"
    assert statement.lateness_us == 5_000_000
    assert statement.retain_us == 14 * 86_400_000_000
    assert parse(text_of_stream(statement)) == statement


def test_a_continuous_query_is_read_as_the_design_writes_it() -> None:
    query = select(
        "SELECT domain, COUNT(*) AS hits, COUNT(DISTINCT client) AS clients, "
        "QUANTILE(bytes, 0.99) AS p99 "
        "FROM requests [RANGE INTERVAL '5' MINUTE SLIDE INTERVAL '10' SECOND] "
        "WHERE bytes > 0 GROUP BY domain "
        "WITHIN 1 PERCENT CONFIDENCE 95 PERCENT ELSE WIDEN WEIGHT 2;"
    )
    assert query.stream == "requests"
    assert [item.name for item in query.outputs] == ["domain", "hits", "clients", "p99"]
    assert query.outputs[3].expression == Aggregate(
        AggregateFunction.QUANTILE, Column("bytes"), 0.99
    )
    assert query.window == RangeWindow(5 * MINUTE, 10_000_000)
    assert query.where == Call(Op.GT, (Column("bytes"), Literal(0, ColumnType.BIGINT)))
    assert query.groups == (Column("domain"),)
    assert query.target == Target(TargetKind.RELATIVE, 0.01)
    assert (query.confidence, query.contract, query.weight) == (0.95, Contract.WIDEN, 2.0)


def test_a_historical_query_is_read_as_the_design_writes_it() -> None:
    query = select(
        "SELECT AVG(bytes) FROM requests "
        "[FROM TIMESTAMP '2026-01-01' TO TIMESTAMP '2026-02-01'] "
        "WITHIN 0.5 PERCENT REDUCE BY until_error()"
    )
    assert query.window == SnapshotWindow(1_767_225_600_000_000, 1_769_904_000_000_000)
    assert query.target == Target(TargetKind.RELATIVE, 0.005)
    assert query.reduction == ReductionClause("until_error", ())


@pytest.mark.parametrize(
    ("window", "meaning"),
    [
        ("", UnboundedWindow()),
        ("[RANGE UNBOUNDED]", UnboundedWindow()),
        ("[RANGE 5 MINUTES]", RangeWindow(5 * MINUTE, 5_000_000)),
        ("[RANGE INTERVAL 5 MINUTE]", RangeWindow(5 * MINUTE, 5_000_000)),
        ("[RANGE '5 minutes' SLIDE '1 minute']", RangeWindow(5 * MINUTE, MINUTE)),
        (
            "[range interval '1 hour 30 minutes' slide 1 hour]",
            RangeWindow(90 * MINUTE, 60 * MINUTE),
        ),
        ("[RANGE INTERVAL '00:05:00' SLIDE 5 min]", RangeWindow(5 * MINUTE, 5 * MINUTE)),
        ("[RANGE 1 SECOND]", RangeWindow(1_000_000, 20_000)),  # 50 is the most that divides
        ("[RANGE 7 MICROSECONDS]", RangeWindow(7, 1)),
        ("[RANGE 0.5 SECONDS SLIDE 100 MS]", RangeWindow(500_000, 100_000)),
        ("[FROM '1970-01-02']", LandmarkWindow(86_400_000_000)),
        (
            "[FROM DATE '1970-01-02' TO '1970-01-03']",
            SnapshotWindow(86_400_000_000, 172_800_000_000),
        ),
        ("[FROM TIMESTAMP '1970-01-01 02:00:00+02:00']", LandmarkWindow(0)),
        ("AS q [RANGE 1 MINUTE SLIDE 1 MINUTE]", RangeWindow(MINUTE, MINUTE)),
        ("[RANGE 1 MINUTE SLIDE 1 MINUTE] q", RangeWindow(MINUTE, MINUTE)),
    ],
)
def test_windows_are_read_in_every_spelling(window: str, meaning: object) -> None:
    assert select(f"SELECT COUNT(*) FROM s {window}").window == meaning


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM s -- a comment",
        "SELECT /* inside */ COUNT(*) FROM s /* after */ ;",
        "select count( * ) from s",
        'SELECT COUNT(*) AS "count" FROM "s"',
        "SELECT COUNT(*) count FROM s AS x",
        "SELECT\n\tCOUNT(*)\nFROM\n\ts\n;\n",
        "SELECT /*+ HINT */ COUNT(*) FROM s",
        "SELECT COUNT() FROM s",
    ],
)
def test_the_same_query_is_read_however_it_is_written(text: str) -> None:
    assert select(text) == select("SELECT COUNT(*) FROM s")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a != 1", "a <> 1"),
        ("a::DOUBLE > 1", "CAST(a AS DOUBLE) > 1"),
        ("a BETWEEN 1 AND 2", "a >= 1 AND a <= 2"),
        ("a NOT BETWEEN 1 AND 2", "NOT (a >= 1 AND a <= 2)"),
        ("a IS NOT NULL", "NOT (a IS NULL)"),
        ("a NOT IN (1, 2)", "NOT (a IN (1, 2))"),
        ("a NOT LIKE 'x'", "NOT (a LIKE 'x')"),
        ("NOT a = b", "NOT (a = b)"),
        ("a = 1 AND b = 2 AND c = 3", "(a = 1 AND b = 2) AND c = 3"),
        ("a = 1 AND (b = 2 AND c = 3)", "(a = 1 AND b = 2) AND c = 3"),
        ("a = 1 OR b = 2 AND c = 3", "a = 1 OR (b = 2 AND c = 3)"),
        ("a + b * c > 1", "(a + (b * c)) > 1"),
        ("-a * b > 1", "(-a) * b > 1"),
        ("a IN (b, 1)", "a = b OR a = 1"),
        ("IFNULL(a, 1) > 1", "COALESCE(a, 1) > 1"),
        ("NULLIF(a, 1) > 1", "CASE WHEN a = 1 THEN NULL ELSE a END > 1"),
        ("CASE a WHEN 1 THEN 2 END > 1", "CASE WHEN a = 1 THEN 2 ELSE NULL END > 1"),
        ("DATE_TRUNC('hours', a) > b", "date_trunc('HOUR', a) > b"),
        ("HOUR(a) > 1", "EXTRACT(HOUR FROM a) > 1"),
        ("DATE_PART('dow', a) > 1", "EXTRACT(DOW FROM a) > 1"),
        ("a > INTERVAL '5' MINUTE", "a > 300000000"),
        ("a > INTERVAL 5 MINUTE", "a > 300000000"),
        ("a > INTERVAL '5 minutes'", "a > 300000000"),
        ("a LIKE 'x\\_' ESCAPE '\\'", "a LIKE 'x\\_'"),
        ("CONCAT(a, b, c) = 'x'", "a || b || c = 'x'"),
        ("a = CAST('5' AS BIGINT)", "a = 5"),
        ("s.a = 1", "a = 1"),
    ],
)
def test_two_spellings_mean_the_same(left: str, right: str) -> None:
    assert where(left) == where(right)


@pytest.mark.parametrize(
    ("call", "meaning"),
    [
        ("COUNT(DISTINCT x)", Aggregate(AggregateFunction.COUNT_DISTINCT, Column("x"))),
        ("STDDEV(x)", Aggregate(AggregateFunction.STDDEV, Column("x"))),
        ("STDDEV_SAMP(x)", Aggregate(AggregateFunction.STDDEV, Column("x"))),
        ("VARIANCE(x)", Aggregate(AggregateFunction.VAR, Column("x"))),
        ("VAR_SAMP(x)", Aggregate(AggregateFunction.VAR, Column("x"))),
        (
            "CORR(x, y)",
            Aggregate(AggregateFunction.CORR, Column("x"), second=Column("y")),
        ),
        (
            "covar_samp(x, 1)",
            Aggregate(
                AggregateFunction.COVAR_SAMP, Column("x"), second=Literal(1, ColumnType.BIGINT)
            ),
        ),
        ("self_join_size(x)", Aggregate(AggregateFunction.SELF_JOIN_SIZE, Column("x"))),
        (
            "JOIN_SIZE(x, y)",
            Aggregate(AggregateFunction.JOIN_SIZE, Column("x"), second=Column("y")),
        ),
        ("MEDIAN(x)", Aggregate(AggregateFunction.QUANTILE, Column("x"), 0.5)),
        (
            "distinct_both(x, y > 1, z)",
            Aggregate(
                AggregateFunction.DISTINCT_BOTH,
                Column("x"),
                conditions=(
                    Call(Op.GT, (Column("y"), Literal(1, ColumnType.BIGINT))),
                    Column("z"),
                ),
            ),
        ),
        (
            "JACCARD(x, y, z) FILTER (WHERE w)",
            Aggregate(
                AggregateFunction.JACCARD,
                Call(Op.CASE, (Column("w"), Column("x"), Literal(None))),
                conditions=(Column("y"), Column("z")),
            ),
        ),
        ("MIN(DISTINCT x)", Aggregate(AggregateFunction.MIN, Column("x"))),
        ("TOP(x, 5)", Aggregate(AggregateFunction.TOP, Column("x"), 5.0)),
        ("frequent(x, 0.01)", frequent(0.01, Promise.NO_FALSE_NEGATIVES)),
        ("FREQUENT(x, 0.01 NO FALSE NEGATIVES)", frequent(0.01, Promise.NO_FALSE_NEGATIVES)),
        ("FREQUENT(x, 1 no false positives)", frequent(1.0, Promise.NO_FALSE_POSITIVES)),
        ("FREQUENT(x, .5, 'NO FALSE POSITIVES')", frequent(0.5, Promise.NO_FALSE_POSITIVES)),
        (
            "CDF(x, 2)",
            select("SELECT AVG(CASE WHEN x <= 2 THEN 1.0 WHEN x > 2 THEN 0.0 END) FROM s")
            .outputs[0]
            .expression,
        ),
        (
            "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY x)",
            Aggregate(AggregateFunction.QUANTILE, Column("x"), 0.5),
        ),
        (
            "SUM(x) FILTER (WHERE y)",
            Aggregate(
                AggregateFunction.SUM, Call(Op.CASE, (Column("y"), Column("x"), Literal(None)))
            ),
        ),
    ],
)
def test_aggregates_have_the_names_that_people_use(call: str, meaning: Aggregate) -> None:
    assert select(f"SELECT {call} FROM s").outputs[0].expression == meaning


def test_numbers_of_outputs_stand_for_outputs() -> None:
    query = select("SELECT a + 1, COUNT(*) FROM s GROUP BY 1 ORDER BY 2 DESC, 1 ASC NULLS LAST")
    assert query.groups == (query.outputs[0].expression,)
    assert query.order == (
        OrderKey(query.outputs[1].expression, True),
        OrderKey(query.outputs[0].expression, False),
    )


def test_outputs_without_alias_get_names_that_a_program_can_use() -> None:
    query = select("SELECT a, COUNT(*), AVG(x), AVG(x), QUANTILE(x, 0.99), MAX(x) - MIN(x) FROM s")
    names = [item.name for item in query.outputs]
    assert names == ["a", "count", "avg_x", "avg_x_2", "quantile_x_0_99", "max_x_min_x"]


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (None, Literal(None)),
        (True, Literal(True, ColumnType.BOOLEAN)),
        (7, Literal(7, ColumnType.BIGINT)),
        (np.int32(7), Literal(7, ColumnType.BIGINT)),
        (1.5, Literal(1.5, ColumnType.DOUBLE)),
        (float("nan"), Literal(None)),
        ("x' OR 1=1 --", Literal("x' OR 1=1 --", ColumnType.VARCHAR)),
        (date(1970, 1, 2), Literal(1, ColumnType.DATE)),
        (datetime(1970, 1, 1, 0, 0, 1), Literal(1_000_000, ColumnType.TIMESTAMP)),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), Literal(1_000_000, ColumnType.TIMESTAMP)),
        (datetime(1, 1, 1, tzinfo=EAST), Literal(-62_135_604_000_000_000, ColumnType.TIMESTAMP)),
        (timedelta(seconds=1), Literal(1_000_000, ColumnType.BIGINT)),
        (np.timedelta64(5_000, "ns"), Literal(5, ColumnType.BIGINT)),
        (np.timedelta64(1, "D"), Literal(86_400_000_000, ColumnType.BIGINT)),
        (np.datetime64(5_000, "ns"), Literal(5, ColumnType.TIMESTAMP)),
        (np.datetime64("NaT"), Literal(None)),
    ],
)
def test_parameters_become_constants_of_their_type(value: Any, literal: Literal) -> None:
    expected = Call(Op.EQ, (Column("a"), literal))
    assert where("a = ?", [value]) == expected
    assert where("a = $1", (value,)) == expected
    assert where("a = :value", {"value": value}) == expected
    assert parse(select("SELECT COUNT(*) FROM s WHERE a = ?", [value]).text) == select(
        "SELECT COUNT(*) FROM s WHERE a = ?", [value]
    )


@pytest.mark.parametrize(
    "value",
    [np.timedelta64(1, "M"), np.timedelta64(1 << 40, "D"), np.datetime64(1 << 62, "s")],
)
def test_numpy_times_that_microseconds_do_not_hold_are_refused(value: Any) -> None:
    with pytest.raises(BadQuery, match="number 1: np"):
        where("a = ?", [value])


def test_a_whole_number_that_does_not_fit_an_integer_is_refused_with_a_way_out() -> None:
    with pytest.raises(BadQuery, match="3000000000 does not fit an INTEGER; make it a BIGINT"):
        where("a < CAST('3000000000' AS INTEGER)")


def test_an_integer_is_one_when_it_is_read_again() -> None:
    """A standing query's column was a BIGINT after a restart."""
    once = select("SELECT CAST('-5' AS INTEGER) AS five, COUNT(*) FROM s")
    assert once.outputs[0].expression == Literal(-5, ColumnType.INTEGER)
    assert select(once.text).outputs == once.outputs


def test_a_moment_may_be_of_another_year_in_utc() -> None:
    assert where("a > TIMESTAMP '9999-12-31 23:59:59-02:00'").args[1] == Literal(
        253_402_307_999_000_000, ColumnType.TIMESTAMP
    )


def test_parameters_may_stand_wherever_a_constant_may() -> None:
    query = select(
        "SELECT QUANTILE(x, ?) FROM s [RANGE ? SECONDS SLIDE ?] WITHIN ? PERCENT LIMIT 3".replace(
            " WITHIN ? PERCENT LIMIT 3", " LIMIT ? WITHIN ? PERCENT"
        ),
        [0.9, 60, timedelta(seconds=10), 3, 2],
    )
    assert query.window == RangeWindow(60_000_000, 10_000_000)
    assert (query.limit, query.target) == (3, Target(TargetKind.RELATIVE, 0.02))


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("a = ?", None, "parameter number 1 has no value"),
        ("a = ? AND b = ?", [1], "parameter number 2 has no value; 1 were given"),
        ("a = :x", {"y": 1}, "parameter :x has no value"),
        ("a = :x", [1], "parameter :x has no value; parameters were given in a list"),
        ("a = 1", [1], "no mark for parameter number 1"),
        ("a = ?", [b"x"], "cannot be a bytes"),
        ("a = ?", [1 << 70], "does not fit a BIGINT"),
        ("a = ?", ["\ud800"], "not valid Unicode"),
    ],
)
def test_parameters_that_do_not_fit_the_text_are_refused(
    text: str, params: Any, message: str
) -> None:
    with pytest.raises(BadQuery, match=message):
        where(text, params)


@pytest.mark.parametrize("size", ["8", "0 KIB", "1.3 BYTES", "1e9 KIB", "-1 MIB", "8 NS", "MIB"])
def test_other_sizes_of_a_query_are_refused(size: str) -> None:
    with pytest.raises(BadQuery, match=r"expected a size: 8 MIB; units are BYTES, KIB"):
        parse(f"ALTER QUERY q SET BYTES {size}")


def test_the_other_statements_are_read() -> None:
    assert parse("SHOW STREAMS") == Show("STREAMS")
    assert parse("show queries;") == Show("QUERIES")
    assert parse("DESCRIBE requests") == Describe("requests")
    assert parse("DESC requests") == Describe("requests")
    assert parse("DROP STREAM IF EXISTS s") == DropStream("s", True)
    assert parse("DROP QUERY q") == DropQuery("q", False)
    assert parse("alter query q set weight 2.5") == AlterWeight("q", 2.5)
    assert parse("ALTER QUERY q SET BYTES 1.5 mib") == AlterBytes("q", 3 << 19)
    assert parse("ALTER QUERY q SET ACTIVE") == AlterActivity("q", active=True)
    assert parse('ALTER QUERY "weight" SET INACTIVE;') == AlterActivity("weight", active=False)
    assert parse("EXPLAIN ALLOCATION") == ExplainAllocation()
    assert parse("explain precision q;") == ExplainPrecision("q")
    assert parse('EXPLAIN PRECISION "precision"') == ExplainPrecision("precision")
    question = "SELECT COUNT(*) FROM s"
    assert parse(f"EXPLAIN PRECISION {question}") == ExplainPrecision(parse(question))
    assert parse("EXPLAIN precision;") == parse('EXPLAIN "precision"') == Explain("precision")
    assert parse('EXPLAIN "allocation"') == Explain("allocation")
    assert parse("ALTER QUERY q SET THINNING 1/8;") == AlterQuery("q", 3)
    assert parse("alter query q set thinning 1 / 1") == AlterQuery("q", 0)
    assert parse("ALTER QUERY q SET THINNING 1") == AlterQuery("q", 0)
    assert parse("ALTER QUERY q SET THINNING auto") == AlterQuery("q", None)
    one = parse("ALTER QUERY q SET THINNING 1/4 FOR size, avg(x)")
    assert one == AlterQuery(
        "q", 2, (Column("size"), Aggregate(AggregateFunction.AVG, Column("x")))
    )
    assert parse("EXPLAIN busy") == Explain("busy")
    explained = parse("EXPLAIN SELECT COUNT(*) FROM s")
    assert isinstance(explained, Explain)
    assert isinstance(explained.subject, Select)
    created = parse("CREATE QUERY IF NOT EXISTS busy AS SELECT COUNT(*) FROM s")
    assert isinstance(created, CreateQuery)
    assert (created.name, created.if_not_exists) == ("busy", True)


def test_a_script_is_its_statements() -> None:
    script = "SHOW STREAMS; -- first\n;SHOW QUERIES;\nSELECT COUNT(*) FROM s WHERE a = ';' || ?;"
    assert len(parse_script(script, ["x"])) == 3
    with pytest.raises(BadQuery, match="expected one statement, got 2"):
        parse("SHOW STREAMS; SHOW QUERIES")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT COUNT(*) FROM s [RANGE 0 SECONDS]", "line 1, column 31.*not 0"),
        ("SELECT COUNT(*) FROM s [RANGE -5 SECONDS]", "not -5000000"),
        ("SELECT COUNT(*) FROM s [RANGE 5 MINUTES SLIDE 0 MS]", "SLIDE must be longer than 0"),
        ("SELECT COUNT(*) FROM s [RANGE 1000000 SECOND SLIDE 1 SECOND]", "1,000,000 panes"),
        ("SELECT COUNT(*) FROM s [RANGE INTERVAL '1' MONTH]", "MONTH is not a fixed length"),
        ("SELECT COUNT(*) FROM s [RANGE 5]", "needs a unit"),
        ("SELECT COUNT(*) FROM s [RANGE 5 PARSECS]", r"expected \]"),
        ("SELECT COUNT(*) FROM s [FROM '2026-02-01' TO '2026-01-01']", "ends before it begins"),
        ("SELECT COUNT(*) FROM s [FROM 'yesterday']", "'yesterday' is not a timestamp"),
        ("SELECT COUNT(*) FROM s [RANGE 5 MINUTES", r"expected \]"),
        ("SELECT COUNT(*) FROM s [5 MINUTES]", "expected RANGE"),
        ("SELECT COUNT(*) FROM s WITHIN 0 PERCENT", "not 0"),
        ("SELECT COUNT(*) FROM s WITHIN 200 PERCENT", "not 200"),
        ("SELECT COUNT(*) FROM s WITHIN 1e-323 PERCENT", "cannot be told from 0"),
        ("SELECT MEDIAN(x) FROM s WITHIN 1e-323 PERCENT RANK", "cannot be told from 0"),
        ("SELECT COUNT(*) FROM s CONFIDENCE 1e-300 PERCENT", "cannot be told from 0"),
        ("SELECT COUNT(*) FROM s WITHIN 5", "expected PERCENT, ABSOLUTE or RANK"),
        ("SELECT COUNT(*) FROM s WITHIN -1 ABSOLUTE", "not -1"),
        ("SELECT COUNT(*) FROM s WITHIN 2 RANK", "not 2"),
        ("SELECT COUNT(*) FROM s CONFIDENCE 100 PERCENT", "not 100"),
        ("SELECT COUNT(*) FROM s CONFIDENCE 0.95", "write CONFIDENCE 95 PERCENT"),
        ("SELECT COUNT(*) FROM s WEIGHT 0", "not 0"),
        ("SELECT COUNT(*) FROM s ELSE SHRUG", "expected WIDEN"),
        ("SELECT COUNT(*) FROM s WEIGHT 1 WEIGHT 2", "said twice"),
        ("SELECT COUNT(*) FROM s THINNING 1/3", "expected a share of the tuples"),
        ("SELECT COUNT(*) FROM s THINNING", "expected a share of the tuples"),
        ("SELECT COUNT(*) FROM s COSTING 5 NS", "expected AT MOST"),
        ("SELECT COUNT(*) FROM s COSTING AT MOST 5", "expected a unit: BYTES, KIB"),
        (
            "SELECT COUNT(*) FROM s COSTING AT MOST 0 KIB",
            "more than 0 and less than 2.63 BYTES, not 0",
        ),
        ("SELECT COUNT(*) FROM s COSTING AT MOST -5 NS", "not -5"),
        ("SELECT COUNT(*) FROM s COSTING AT MOST 9e9 GIB", "less than 2.63 BYTES, not 9.66"),
        ("SELECT COUNT(*) FROM s COSTING AT MOST 0.7 BYTES", "no whole number of bytes"),
        ("SELECT COUNT(*) FROM s COSTING AT MOST 1 KIB AND 2 MIB", "a limit of MIB already"),
        (
            "SELECT COUNT(*) FROM s COSTING AT MOST 1 NS REWRITE SIZE",
            "NEVER, or any of SLIDE, COLLAPSE, RANGE",
        ),
        ("SELECT COUNT(*) FROM s REWRITE NEVER", "COSTING AT MOST says which"),
        (
            "EXPLAIN CREATE STREAM s (ts TIMESTAMP)",
            "expected QUERY or VIEW, a name, AS and a SELECT",
        ),
        ("SELECT QUANTILE(x, 1.5) FROM s", "line 1, column 8.*not 1.5"),
        ("SELECT QUANTILE(x, y) FROM s", "constant number"),
        ("SELECT TOP(x, 0) FROM s", "not 0"),
        ("SELECT FREQUENT(x) FROM s", "constant share"),
        ("SELECT FREQUENT() FROM s", "constant share"),
        ("SELECT FREQUENT(x, y) FROM s", "constant share"),
        ("SELECT FREQUENT(x, 0.00001) FROM s", "from 0.0001 to 1, not 1e-05"),
        ("SELECT FREQUENT(x, 2) FROM s", "from 0.0001 to 1, not 2"),
        ("SELECT FREQUENT(x, 0.1, 'sure') FROM s", "NO FALSE NEGATIVES or NO FALSE POSITIVES"),
        ("SELECT FREQUENT(x, 0.1, 0.2, 0.3) FROM s", "NO FALSE NEGATIVES or NO FALSE POSITIVES"),
        ("SELECT FREQUENT(x, 0.1 NO FALSE WORDS) FROM s", r"expected \) or NO FALSE NEGATIVES"),
        ("SELECT SUM() FROM s", "SUM takes 1 argument, not 0"),
        ("SELECT COUNT(*) FROM s LIMIT -1", "not -1"),
        ("SELECT COUNT(*) FROM s ORDER BY 3", "3 is not the number of an output"),
        ("SELECT COUNT(*) c, SUM(x) AS C FROM s", "two outputs are named"),
        ("SELECT x.a, COUNT(*) FROM s GROUP BY 1", "no stream 'x'"),
        ("SELECT COUNT(*) FROM s WHERE a = 'x", "a ' is missing"),
        ("SELECT COUNT(*) FROM s WHERE", "WHERE"),
        ("SELECT COUNT(*)", "expected FROM"),
        ("SELECT COUNT(*)\nFORM s", "line 2"),
        ("SELEC 1", "line 1, column 1: expected SELECT"),
        ('"delete" FROM s', "line 1, column 1: expected SELECT"),  # In quotes it is a name.
        ('"alter" QUERY q SET INACTIVE', "line 1, column 1: expected SELECT"),
        ("CREATE STREAM s (a BIGINT)", "expected TIMESTAMP BY"),
        ("CREATE STREAM s (a BIGINT) TIMESTAMP BY a", "'a' is BIGINT"),
        ("CREATE STREAM s (a TIMESTAMP) TIMESTAMP BY b", "no column 'b'"),
        ("CREATE STREAM s (a TIMESTAMP, A DOUBLE) TIMESTAMP BY a", "two columns are named"),
        ("CREATE STREAM s (a VARCHAR(10), t TIMESTAMP) TIMESTAMP BY t", "takes no length"),
        ("CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t ARCHIVE tape", "no archive layout"),
        ("DROP TABEL s", "expected STREAM, TABLE, VIEW, QUERY, ROLLUP or INDEX"),
    ],
)
def test_a_wrong_text_is_refused_where_it_is_wrong(text: str, message: str) -> None:
    with pytest.raises(BadQuery, match=f"(?s){message}"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(x) OVER (PARTITION BY a) FROM s",
        "SELECT SUM(DISTINCT x) FROM s",
        "SELECT a, COUNT(*) FROM s GROUP BY ROLLUP (a)",
        "CREATE VIEW t AS SELECT COUNT(*) FROM s WITHIN 1 PERCENT",
        "CREATE MATERIALIZED VIEW t AS SELECT a FROM s",
        "INSERT INTO s VALUES (1) RETURNING a",
        "CREATE STREAM s (t TIMESTAMP, a DECIMAL(10, 2)) TIMESTAMP BY t",
        "SELECT SQRT(a) FROM s",
        "SELECT COUNT(*) FROM s WHERE a ILIKE 'x'",
    ],
)
def test_what_comes_later_is_refused_as_that(text: str) -> None:
    with pytest.raises(Unimplemented):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        'SELECT "a b", COUNT(*) AS "select" FROM "my stream" GROUP BY 1 ELSE FAIL',
        (
            "SELECT a, MAX(x) - MIN(x) AS spread, TOP(c, 5) FROM r q [RANGE 1 HOUR] "
            "WHERE q.x::DOUBLE BETWEEN 1 AND 2.5 AND NOT c LIKE 'a\\_%' OR d IS NOT NULL "
            "GROUP BY a HAVING spread > 3 ORDER BY 2 DESC, a LIMIT 10 WITHIN 3 ABSOLUTE WEIGHT 0.5"
        ),
        "SELECT a - (b - c), a - b - c, a / (b * c), -(-a), -(5), - -5 FROM s GROUP BY 1, 2, 3, 4",
        "SELECT 5, COUNT(*) FROM s GROUP BY 1 ORDER BY 1",
        "SELECT FREQUENT(x, 0.01), FREQUENT(lower(y), 1e-4 NO FALSE POSITIVES) FROM s",
        "SELECT CAST(99999999999999999 AS TIMESTAMP), CAST('-inf' AS DOUBLE), 1e300 FROM s",
        "SELECT MEDIAN(x) FROM s WITHIN 0.07 RANK CONFIDENCE 99.9 PERCENT REDUCE BY f(1, 'it''s')",
        "SELECT (a = b) = c, (a IS NULL) IS NULL, a IN (1) = b FROM s",
        "SELECT COUNT(*) FROM s WHERE a AND b BETWEEN 1 AND 2 AND c NOT BETWEEN 3 AND 4",
        "SELECT COUNT(*) FROM s WHERE a OR b IN (c, d) OR e IS NOT DISTINCT FROM f",
        "SELECT NOT (a AND b), (NOT a) = b, CASE WHEN a THEN 'x' END || 'y' FROM s",
        "SELECT COUNT(*) FROM s THINNING 1/8 COSTING AT MOST 1.5 KIB AND 0.5 NS REWRITE NEVER",
        "SELECT COUNT(*) FROM s x COSTING AT MOST 2 GIB REWRITE THINNING, SLIDE ELSE OMIT",
        'SELECT COUNT(*) thinning FROM s "COSTING" COSTING AT MOST 7 NS',
    ],
)
def test_canonical_text_means_the_same_query(text: str) -> None:
    query = parse(text)
    assert isinstance(query, (Select, RelationalSelect))
    assert parse(query.text) == query
