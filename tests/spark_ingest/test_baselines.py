"""Spark has the exact answer of whatever the language can ask: every aggregate, every window."""

import datetime as dt
import math
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.expressions.functions import AGGREGATES
from shedder.cql.sql.exact_query import POSITION, SqlDialect, exact_sql
from shedder.cql.statements.statement import Window
from shedder.errors import ShedderError
from shedder.queries.certification.claims import Case, aggregate_name
from shedder.streams.windows import span_of
from spark_ingest.baseline import exact, exact_answer, sealed_stream
from spark_ingest.question_runner import bound
from spark_ingest.workload import FUNCTIONS, WINDOWS
from tests.cql.brute_force import check
from tests.spark_ingest.archives import answer, stream_schema

DOCUMENTED = Path(__file__).parents[2] / "docs" / "cql.md"

# Every name that the language has for an aggregate, and a call of each.
CALLS = {
    "COUNT": "COUNT(*) AS n, COUNT(s) AS n_s, COUNT(d) FILTER (WHERE b) AS n_d",
    "COUNT(DISTINCT": "COUNT(DISTINCT s) AS n_distinct, COUNT(DISTINCT d) AS d_distinct",
    "COUNT_IF": "COUNT_IF(i > 2) AS n_if",
    "SUM": "SUM(i) AS total_i, SUM(d) AS total_d",
    "AVG": "AVG(i) AS mean_i, AVG(d) AS mean_d",
    "MEAN": "MEAN(d) AS mean_again",
    "MIN": "MIN(s) AS least_s, MIN(day) AS least_day",
    "MAX": "MAX(ts2) AS most_ts, MAX(d) AS most_d",
    "FIRST": "FIRST(s) AS first_s, FIRST(d) AS first_d",
    "LAST": "LAST(i) AS last_i, LAST(ts2) AS last_ts",
    "VAR": "VAR(d) AS var_d",
    "VARIANCE": "VARIANCE(i) AS variance_i",
    "VAR_SAMP": "VAR_SAMP(i) AS var_samp_i",
    "STDDEV": "STDDEV(d) AS deviation",
    "STDDEV_SAMP": "STDDEV_SAMP(i) AS deviation_i",
    "STD": "STD(d) AS std_d",
    "COVAR_POP": "COVAR_POP(d, i) AS covar_pop",
    "COVAR_SAMP": "COVAR_SAMP(d, i) AS covar_samp",
    "CORR": "CORR(d, i) AS corr",
    "REGR_SLOPE": "REGR_SLOPE(d, i) AS slope",
    "REGR_INTERCEPT": "REGR_INTERCEPT(d, i) AS intercept",
    "QUANTILE": "QUANTILE(d, 0.9) AS d90, QUANTILE(ts2, 0.07) AS ts07",
    "QUANTILE_DISC": "QUANTILE_DISC(i, 0.5) AS i50",
    "PERCENTILE_DISC": "PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY d) AS d25",
    "MEDIAN": "MEDIAN(i) AS median_i",
    "CDF": "CDF(d, 0.5) AS cdf, CDF(s, 'c') AS cdf_s",
    "HISTOGRAM": "HISTOGRAM(i, [0, 2, 5]) AS histogram, HISTOGRAM(d, 4, -1, 1) AS equal_parts",
    "DISTINCT_BOTH": "DISTINCT_BOTH(s, b, i > 2) AS came_back",
    "DISTINCT_ONLY": "DISTINCT_ONLY(s, b, i > 2) AS lost",
    "JACCARD": "JACCARD(i, b, d > 0) AS alike",
    "TOP": "TOP(s, 2) AS top_s, TOP(day, 3) AS top_day",
    "FREQUENT": "FREQUENT(s, 0.2) AS heavy, FREQUENT(i, 0.1 NO FALSE POSITIVES) AS heavy_i",
    "SELF_JOIN_SIZE": "SELF_JOIN_SIZE(s) AS pairs",
    "JOIN_SIZE": "JOIN_SIZE(i, l) AS joined",
}
SPANS = {
    "RangeWindow": (
        " [RANGE INTERVAL '20' SECOND]",
        " [RANGE INTERVAL '30' SECOND SLIDE INTERVAL '30' SECOND]",
        " [RANGE INTERVAL '25' SECOND SLIDE INTERVAL '10' SECOND]",
        " [RANGE INTERVAL '40' SECOND SLIDE INTERVAL '1' SECOND COLLAPSE BY 2 AFTER 5]",
    ),
    "LandmarkWindow": (" [FROM TIMESTAMP '2026-01-01 00:00:20']",),
    "SnapshotWindow": (" [FROM '2026-01-01 00:00:10' TO '2026-01-01 00:00:41']",),
    "UnboundedWindow": ("", " [RANGE UNBOUNDED]"),
}
EVERYTHING = ", ".join(CALLS.values())
ROWS = 400


def columns() -> dict[str, pa.Array]:
    rng = np.random.default_rng(5)
    start = np.datetime64("2026-01-01T00:00:00", "us").astype(np.int64)
    times = start + np.sort(rng.integers(0, 60, ROWS)) * 1_000_000  # Many are equal.

    def some(values: pa.Array) -> pa.Array:
        return pa.array(values, mask=rng.random(ROWS) < 0.1)

    floats = np.round(rng.normal(0, 1, ROWS), 2)
    return {
        "ts": pa.array(times, pa.timestamp("us")),
        "b": some(rng.random(ROWS) < 0.6),
        "i": some(rng.integers(0, 6, ROWS).astype(np.int32)),
        "l": some(rng.integers(0, 9, ROWS)),
        "d": some(np.where(rng.random(ROWS) < 0.02, np.nan, floats)),
        "s": some(rng.choice(["a", "b", "c", "ü", ""], ROWS, p=[0.5, 0.2, 0.1, 0.1, 0.1])),
        "ts2": pa.array(times * 3 % 1_000_000_007, pa.timestamp("us")),
        "day": some(rng.integers(20_000, 20_004, ROWS).astype("datetime64[D]")),
    }


def documented() -> set[str]:
    """The names in the first column of the table of aggregates in docs/cql.md."""
    section = DOCUMENTED.read_text().split("\n## Aggregates\n")[1].split("\n## ")[0]
    cells = [row.split("|")[1] for row in section.splitlines() if row.startswith("|")]
    return set(re.findall(r"`(COUNT\(DISTINCT|[A-Z_]+)\b", " ".join(cells)))


def test_there_is_an_exact_answer_to_every_aggregate_that_the_language_has():
    schema = stream_schema("r", pa.table(columns()).schema)
    functions = set()
    for name, call in CALLS.items():
        query = bound(f"SELECT {call} FROM r", schema)
        assert exact_sql(query, "r", SqlDialect.SPARK, None, None)
        for part in query.aggregates:
            functions.add(part.function)
            case = Case(0, query, answer({}, {}))
            assert (case.source(part), aggregate_name(part)) != ("unknown", ""), name
    assert functions == set(AggregateFunction)
    assert set(CALLS) >= set(AGGREGATES), "a name of an aggregate has no example here"
    assert {"COUNT(DISTINCT", "REGR_SLOPE", "HISTOGRAM", "FREQUENT"} <= documented() <= set(CALLS)


def test_there_is_an_exact_answer_over_every_window_and_the_workload_draws_each():
    schema = stream_schema("r", pa.table(columns()).schema)
    kinds = {kind.__name__ for kind in get_args(Window)}
    assert set(SPANS) == kinds
    for kind, clauses in SPANS.items():
        for clause in clauses:
            query = bound(f"SELECT COUNT(*) FROM r{clause}", schema)
            assert type(query.window).__name__ == kind
    assert set(WINDOWS) == kinds


@pytest.mark.parametrize("clause", ["[ROWS 10]", "[PARTITION BY s ROWS 10]", "[NOW]"])
def test_windows_of_rows_are_refused_so_no_baseline_is_due(clause):
    schema = stream_schema("r", pa.table(columns()).schema)
    with pytest.raises(ShedderError):
        bound(f"SELECT COUNT(*) FROM r {clause}", schema)


def test_the_workload_asks_for_every_name_of_the_language():
    spelled = {name.split("(")[0] for name in FUNCTIONS}
    assert spelled >= {function.value.split("_DISTINCT")[0] for function in AggregateFunction}
    assert {"CDF", "HISTOGRAM", "COUNT(DISTINCT)"} <= set(FUNCTIONS)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    directory = tmp_path_factory.mktemp("baselines")
    with shedder.open(directory / "data") as db:
        db.execute(
            "CREATE STREAM r (ts TIMESTAMP NOT NULL, b BOOLEAN, i INTEGER, l BIGINT, d DOUBLE, "
            "s VARCHAR, ts2 TIMESTAMP, day DATE) TIMESTAMP BY ts LATENESS INTERVAL '2' SECOND"
        )
        table = pa.table(columns())
        db.push("r", table.slice(0, 150))
        db.seal("r")
        db.push("r", table.slice(150))
        db.seal("r")
        yield db, directory / "data", table


CLAUSES = [clause for kind in SPANS.values() for clause in kind]
FEW = ", ".join(CALLS[name] for name in ("COUNT", "SUM", "LAST", "MEDIAN", "FREQUENT"))
CASES = [
    ("s AS g, ", EVERYTHING, CLAUSES[2], " GROUP BY s"),
    ("", EVERYTHING, CLAUSES[-1], ""),
    *(("", FEW, clause, "") for clause in CLAUSES),
]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("key", "calls", "clause", "by"), CASES)
def test_spark_duckdb_and_a_look_at_every_row_agree(spark, world, key, calls, clause, by):
    db, directory, table = world
    sealed = sealed_stream(directory, "r")
    text = f"SELECT {key}{calls} FROM r{clause} WHERE l % 3 <> 1{by}"
    query = bound(text, sealed.schema)
    theirs = db.execute(text)
    span = span_of(query.window, theirs.watermark_us)
    assert (span.start_us, span.end_us) == (theirs.start_us, theirs.end_us)
    inside = span.holds(table["ts"].cast(pa.int64()).to_numpy())
    assert 50 < inside.sum() <= ROWS
    numbered = table.append_column(POSITION, pa.array(range(ROWS), pa.int64()))
    rows = numbered.filter(pa.array(inside)).combine_chunks().to_batches()[0]
    ours = exact_answer(spark, sealed, query, watermark_us=theirs.watermark_us)
    alike(ours.rows(), theirs.rows(), clause)
    assert ours.window == theirs.window
    if calls is FEW or by:
        raw = exact(spark, sealed, query, theirs).to_pylist()
        check(query, rows, [{k: plain(v) for k, v in row.items()} for row in raw])


@pytest.mark.spark
@pytest.mark.slow
def test_the_whole_answer_has_outputs_having_order_and_limit(spark, world):
    db, directory, _ = world
    sealed = sealed_stream(directory, "r")
    text = (
        "SELECT s, SUM(d) / COUNT(*) + 1 AS share, COUNT(*) AS n FROM r "
        "GROUP BY s HAVING n > 20 ORDER BY share DESC LIMIT 3"
    )
    theirs = db.execute(text)
    ours = exact_answer(spark, sealed, bound(text, sealed.schema), watermark_us=None)
    assert len(ours.rows()) == 3
    assert [row["s"] for row in ours.rows()] == [row["s"] for row in theirs.rows()]
    alike(ours.rows(), theirs.rows(), text)
    first = exact_answer(
        spark,
        sealed,
        bound("SELECT COUNT(*) AS n FROM r", sealed.schema),
        watermark_us=None,
        position=99,
    )
    assert first.rows()[0]["n"] == 99
    assert first.sources == ("spark",)


def alike(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], what: str) -> None:
    """Equal, but for the order of groups and the last bits of doubles."""
    left, right = (sorted(rows, key=lambda row: repr(row.get("g"))) for rows in (ours, theirs))
    assert len(left) == len(right), what
    for mine, other in zip(left, right, strict=True):
        for name, value in mine.items():
            if isinstance(value, float) and isinstance(other[name], float):
                same = value == pytest.approx(other[name], rel=1e-9, abs=1e-9, nan_ok=True)
                assert same, (what, name, value, other[name])
            else:
                assert value == other[name], (what, name)


def plain(value: Any) -> Any:
    """As the rows have it: moments without a zone, what is not a number is none."""
    if isinstance(value, list):
        return [{k: plain(v) for k, v in item.items()} for item in value]
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return None if isinstance(value, float) and math.isnan(value) else value
