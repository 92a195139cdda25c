"""What Spark counts for many answers at once is what pyarrow and a second query find for each."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shedder.archive.archive_store import Store
from shedder.errors import FailedPrecondition, UnknownStream
from shedder.queries.answers.answer import CERTAIN
from shedder.queries.certification.claims import Case
from spark_ingest.baseline import exact, relation, sample_rows, sealed_stream
from spark_ingest.exact_counts import find_truths
from spark_ingest.flights import load_flights
from spark_ingest.judgement import judge
from spark_ingest.question_runner import bound
from spark_ingest.row_places import places_by_case
from spark_ingest.runtime.spark_session import having
from spark_ingest.scores import MISSING, PLACES
from tests.spark_ingest.archives import answer, archive, stream_schema

ROWS = 6_000
CUT = 2_500  # rows of the first run

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    spread = np.random.default_rng(3).choice(336_776, ROWS, replace=False)
    return load_flights().take(np.sort(spread)).combine_chunks()


@pytest.fixture(scope="module")
def sealed(rows, tmp_path_factory):
    batch = rows.to_batches()[0]
    parts = [batch.slice(0, CUT), batch.slice(CUT)]
    return archive(tmp_path_factory.mktemp("archive") / "data", "flights", parts)


@pytest.fixture(scope="module")
def truths_of(spark, sealed):
    def find(*cases: Case):
        with relation(spark, sealed) as name:
            return find_truths(spark, name, "ts", cases)

    return find


def case(sealed, number, sql, found):
    return Case(number, bound(sql, sealed.schema), found)


def test_the_runs_hold_every_row_at_its_position(spark, sealed, rows):
    assert (sealed.rows, sealed.end_position, len(sealed.runs)) == (ROWS, ROWS, 2)
    with relation(spark, sealed) as name:
        table = spark.sql(f"SELECT __position, flight FROM {name} ORDER BY 1").toArrow()
    assert table["__position"].to_pylist() == list(range(ROWS))
    assert table["flight"].to_pylist() == rows["flight"].to_pylist()


def alike(left, right) -> float:
    """How many pairs of a value of each column are equal."""
    counts = Counter(right.drop_null().to_pylist())
    return float(sum(counts[value] for value in left.drop_null().to_pylist()))


def test_sums_counts_extremes_and_spread_are_those_of_pyarrow(sealed, rows, truths_of):
    table = rows.filter(pc.fill_null(pc.greater(rows["dep_delay"], 10), False))
    late, both = table["arr_delay"], table.select(["arr_delay", "distance"]).drop_null()
    pairs = [column.to_numpy() for column in both.columns]
    present = table.filter(pc.is_valid(late))
    order = np.argsort(present["ts"].to_numpy(), kind="stable")
    by_time = present["arr_delay"].to_numpy()[order]
    far, jfk = (
        set(table.filter(condition)["tailnum"].drop_null().to_pylist())
        for condition in (pc.greater(table["distance"], 900), pc.equal(table["origin"], "JFK"))
    )
    slope = float(np.cov(pairs)[0, 1] / np.var(pairs[0], ddof=1))
    outputs = {
        "COUNT(*)": len(late),
        "COUNT(arr_delay)": len(late.drop_null()),
        "SUM(arr_delay)": pc.sum(late).as_py(),
        "AVG(arr_delay)": pc.mean(late).as_py(),
        "MIN(arr_delay)": pc.min(late).as_py(),
        "MAX(arr_delay)": pc.max(late).as_py(),
        "VAR(arr_delay)": pc.variance(late, ddof=1).as_py(),
        "STDDEV(arr_delay)": pc.stddev(late, ddof=1).as_py(),
        "CORR(arr_delay, distance)": float(np.corrcoef(pairs)[0, 1]),
        "COVAR_SAMP(distance, arr_delay)": float(np.cov(pairs)[0, 1]),
        "REGR_SLOPE(distance, arr_delay)": slope,
        "REGR_INTERCEPT(distance, arr_delay)": float(pairs[1].mean() - slope * pairs[0].mean()),
        "FIRST(arr_delay)": by_time[0],
        "LAST(arr_delay)": by_time[-1],
        "SELF_JOIN_SIZE(arr_delay)": alike(late, late),
        "JOIN_SIZE(arr_delay, dep_delay)": alike(late, table["dep_delay"]),
        "COUNT(DISTINCT arr_delay)": pc.count_distinct(late, mode="only_valid").as_py(),
        "DISTINCT_BOTH(tailnum, distance > 900, origin = 'JFK')": len(far & jfk),
        "DISTINCT_ONLY(tailnum, distance > 900, origin = 'JFK')": len(far - jfk),
        "JACCARD(tailnum, distance > 900, origin = 'JFK')": len(far & jfk) / len(far | jfk),
    }
    cases = [
        case(
            sealed,
            number,
            f"SELECT {text} AS answer FROM flights WHERE dep_delay > 10",
            answer({}, {"answer": [(truth, truth, truth, "exact")]}, position=ROWS),
        )
        for number, (text, truth) in enumerate(outputs.items())
    ]
    truths = truths_of(*cases)
    assert (
        truths.passes == 4
    )  # All at once, FIRST and LAST, and by values that are numbers and text.
    judged = judge(cases, truths).judged
    assert [one.aggregate for one in judged][:2] == ["COUNT(*)", "COUNT"]
    assert {one.aggregate: one.verdict.held for one in judged if not one.verdict.held} == {}
    one_off = [
        case(
            sealed,
            c.number,
            c.query.text,
            answer({}, {"answer": [(1, 1, 1, "exact")]}, position=ROWS),
        )
        for c in cases
    ]
    assert not any(one.verdict.held for one in judge(one_off, truths_of(*one_off)).judged)


def test_quantiles_by_group_are_judged_by_their_ranks(sealed, rows, truths_of):
    claims, keys = [], []
    for origin in ("EWR", "JFK", "LGA"):
        values = np.sort(rows.filter(pc.equal(rows["origin"], origin))["distance"].to_numpy())
        keys.append(origin)
        claims.append(float(values[math.ceil(0.9 * len(values)) - 1]))
    sql = "SELECT origin, QUANTILE(distance, 0.9) AS p90 FROM flights GROUP BY origin"
    right = answer({"origin": keys}, {"p90": [(c, c, c, "exact") for c in claims]}, position=ROWS)
    below = answer(
        {"origin": keys}, {"p90": [(c - 1, 0.0, c - 1, "interval") for c in claims]}, position=ROWS
    )
    cases = [case(sealed, 0, sql, right), case(sealed, 1, sql, below)]
    judged = [one for one in judge(cases, truths_of(*cases)).judged if one.aggregate == "QUANTILE"]
    assert [one.verdict.held for one in judged] == [True] * 3 + [False] * 3
    assert all(one.verdict.error == 0 for one in judged[:3])


def test_lists_of_frequent_values_are_judged_by_what_they_promised(sealed, rows, truths_of):
    counts = {item["values"]: item["counts"] for item in pc.value_counts(rows["dest"]).to_pylist()}
    ordered = sorted(counts, key=lambda value: (-counts[value], value))
    frequent = [value for value in ordered if counts[value] >= 0.03 * ROWS]
    assert 2 < len(frequent) < len(ordered)

    def judged(values, bound, promise):
        items = [
            {"value": v, "count": n, "low": n, "high": n, "guaranteed": v in frequent}
            for v, n in ((value, counts[value]) for value in values)
        ]
        found = answer({}, {"f": [(items, None, None, bound)]}, position=ROWS)
        one = case(sealed, 0, f"SELECT FREQUENT(dest, 0.03 {promise}) AS f FROM flights", found)
        verdicts = judge([one], truths_of(one)).judged
        assert [each.verdict.held for each in verdicts[:-1]] == [True] * len(values)
        return verdicts[-1].verdict.held

    negatives, positives = "NO FALSE NEGATIVES", "NO FALSE POSITIVES"
    more, fewer = ordered[: len(frequent) + 1], frequent[:-1]
    assert judged(frequent, "exact", negatives)
    assert not judged(more, "exact", positives)
    assert judged(more, "interval", negatives)
    assert not judged(more, "interval", positives)
    assert judged(fewer, "interval", positives)
    assert not judged(fewer, "interval", negatives)
    assert judged(fewer, "none", negatives)


def test_items_of_top_are_judged_by_their_counts(sealed, rows, truths_of):
    counts = {item["values"]: item["counts"] for item in pc.value_counts(rows["dest"]).to_pylist()}
    best = sorted(counts, key=lambda value: (-counts[value], value))[:3]
    items = [
        {
            "value": v,
            "count": counts[v],
            "low": counts[v] - 1,
            "high": counts[v],
            "guaranteed": True,
        }
        for v in best
    ]
    items[2] |= {"low": counts[best[2]] + 1, "high": counts[best[2]] + 5}
    found = answer({}, {"top": [(items, None, None, "interval")]}, position=ROWS)
    one = case(sealed, 0, "SELECT TOP(dest, 3) AS top FROM flights", found)
    *judged, listed = judge([one], truths_of(one)).judged
    assert [j.verdict.truth for j in judged] == [counts[v] for v in best]
    assert [j.verdict.held for j in judged] == [True, True, False]
    assert listed.verdict.held


@pytest.mark.parametrize(
    ("places", "bound", "guaranteed", "holds"),
    [
        ((0, 1), "exact", False, True),
        ((0, 2), "exact", False, False),
        ((0,), "exact", False, False),
        ((1, 2), "interval", True, False),
        ((1, 2), "interval", False, True),
        ((0, 2), "none", True, True),
    ],
)
def test_a_list_of_top_must_have_what_is_more_frequent_than_what_it_is_sure_of(
    sealed, rows, truths_of, places, bound, guaranteed, holds
):
    counts = Counter(rows["dest"].to_pylist()).most_common(4)
    assert len({count for _, count in counts}) == 4
    items = [
        {"value": value, "count": n, "low": n, "high": n, "guaranteed": guaranteed}
        for value, n in (counts[place] for place in places)
    ]
    found = answer({}, {"top": [(items, None, None, bound)]}, position=ROWS)
    one = case(sealed, 0, "SELECT TOP(dest, 2) AS top FROM flights", found)
    assert judge([one], truths_of(one)).judged[-1].verdict.held == holds


def test_how_many_passes_have_ended_is_told_after_each(spark, sealed):
    texts = ("COUNT(*) AS n", "TOP(dest, 2) AS n")
    found = [answer({}, {"n": [(9.0, 0.0, 9.0, "interval")]}, position=ROWS)]
    found += [answer({}, {"n": [([], None, None, "exact")]}, position=ROWS)]
    cases = [
        case(sealed, number, f"SELECT {text} FROM flights", it)
        for number, (text, it) in enumerate(zip(texts, found, strict=True))
    ]
    calls = []
    with relation(spark, sealed) as name:
        truths = find_truths(spark, name, "ts", cases, lambda done, of: calls.append((done, of)))
    assert truths.passes == len(calls) >= 2
    assert calls == [(done, len(calls)) for done in range(1, len(calls) + 1)]


@pytest.mark.parametrize("call", ["TOP(tailnum, 2)", "FREQUENT(tailnum, 0.1)"])
def test_lists_of_a_column_without_values_are_judged(spark, rows, tmp_path, call):
    nothing = rows.set_column(
        rows.schema.get_field_index("tailnum"), "tailnum", pa.nulls(ROWS, pa.string())
    )
    sealed = archive(tmp_path / "data", "flights", nothing.to_batches()[:1])
    found = answer({}, {"f": [([], None, None, "exact")]}, position=ROWS)
    one = case(sealed, 0, f"SELECT {call} AS f FROM flights", found)
    with relation(spark, sealed) as name:
        truths = find_truths(spark, name, "ts", [one])
    assert all(each.verdict.held for each in judge([one], truths).judged)


@pytest.mark.parametrize(("stream", "column"), [("s", "m0"), ("a`b", "c.d"), ("a.b", "c`d")])
def test_streams_and_columns_may_have_any_names(spark, tmp_path, stream, column):
    """A mask of the judge's has one of them; Spark has its own ideas of dots and backticks."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([0, 1, 2], pa.timestamp("us")), pa.array([4.0, 5.0, 6.0])], names=["ts", column]
    )
    sealed = archive(tmp_path / "data", stream, [batch])
    found = answer({}, {"n": [(9.0, 9.0, 9.0, "exact")]}, position=2)
    one = case(sealed, 0, f'SELECT SUM("{column}") AS n FROM "{stream}"', found)
    assert exact(spark, sealed, one.query, found)["a0"].to_pylist() == [9.0]
    with relation(spark, sealed) as name:
        truths = find_truths(spark, name, "ts", [one])
    assert [each.verdict.held for each in judge([one], truths).judged] == [True]


def test_texts_and_names_are_never_replaced(spark, tmp_path):
    """Spark's own language has variables, and knows two ways to write a backslash."""
    column, texts = "${path}", ["${env:HOME}", "${no such}", "a\\d", "it's", "$"]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(5), pa.timestamp("us")), pa.array(texts)], names=["ts", column]
    )
    sealed = archive(tmp_path / "data", "s", [batch])
    found = answer({}, {"n": [(1, 1, 1, "exact")]}, position=5)
    quoted = [text.replace("'", "''") for text in texts]
    cases = [
        case(sealed, at, f"""SELECT COUNT(*) AS n FROM s WHERE "{column}" = '{text}'""", found)
        for at, text in enumerate(quoted)
    ]
    with having(spark, "spark.sql.parser.escapedStringLiterals", "true"):
        for one in cases:
            assert exact(spark, sealed, one.query, found)["a0"].to_pylist() == [1]
        with relation(spark, sealed) as name:
            truths = find_truths(spark, name, "ts", cases)
    assert [each.verdict.held for each in judge(cases, truths).judged] == [True] * 5


def test_the_zone_of_the_session_changes_no_truth(spark, sealed, rows):
    """Times of a stream are in UTC; elsewhere a bound of the window would be hours off."""
    early = pc.min(rows["ts"]).cast(pa.int64()).as_py()
    end = early + 86_400_000_000 * 30
    found = answer({}, {"n": [(0, 0, 0, "none")]}, position=ROWS, start_us=early, end_us=end)
    query = bound("SELECT COUNT(*) AS n FROM flights", sealed.schema)
    here = exact(spark, sealed, query, found)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert exact(spark, sealed, query, found).equals(here)
        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_buckets_of_a_histogram_are_judged_by_their_counts(sealed, rows, truths_of):
    distance = rows["distance"].drop_null().to_numpy()
    true = np.bincount(np.digitize(distance, [500, 1000]), minlength=3).tolist()
    edges = [(None, 500), (500, 1000), (1000, None)]
    items = [
        {"from": low, "to": high, "count": n, "low": n - 1, "high": n + 1}
        for (low, high), n in zip(edges, true, strict=True)
    ]
    items[1] |= {"low": true[1] + 1, "high": true[1] + 5}
    found = answer({}, {"h": [(items, None, None, "interval")]}, position=ROWS)
    one = case(sealed, 0, "SELECT HISTOGRAM(distance, [500, 1000]) AS h FROM flights", found)
    judged = judge([one], truths_of(one)).judged
    assert [j.verdict.truth for j in judged] == true
    assert [j.verdict.held for j in judged] == [True, False, True]


def test_an_answer_is_judged_by_the_tuples_below_its_position_and_in_its_window(
    sealed, rows, truths_of
):
    ts = rows["ts"].cast(pa.int64()).to_numpy()
    start, end, position = int(ts[1_000]), int(ts[4_000]), 3_000
    truth = int(((ts >= start) & (ts < end))[:position].sum())
    found = answer(
        {}, {"n": [(truth, truth, truth, "exact")]}, position=position, start_us=start, end_us=end
    )
    one = case(sealed, 0, "SELECT COUNT(*) AS n FROM flights", found)
    assert judge([one], truths_of(one)).judged[0].verdict.held


def test_groups_that_an_answer_lacks_break_a_claim_that_none_is_missing(sealed, rows, truths_of):
    counts = {i["values"]: i["counts"] for i in pc.value_counts(rows["carrier"]).to_pylist()}
    small = min(counts, key=lambda value: counts[value])
    kept = [value for value in counts if value != small]
    sql = "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier"
    cells = {"n": [(counts[v], counts[v], counts[v], "exact") for v in kept]}
    one = case(sealed, 0, sql, answer({"carrier": kept}, cells, position=ROWS))
    verdicts = {j.aggregate: j.verdict.held for j in judge([one], truths_of(one)).judged}
    assert verdicts == {"COUNT(*)": True, MISSING: False}


def test_null_is_a_group_like_any_other(sealed, rows, truths_of):
    nulls = rows["tailnum"].null_count
    assert nulls > 0
    found = answer({"tailnum": pa.array([None], pa.string())}, {"n": [(nulls,) * 3 + ("exact",)]})
    sql = "SELECT tailnum, COUNT(*) AS n FROM flights WHERE tailnum IS NULL GROUP BY tailnum"
    one = case(sealed, 0, sql, found.__class__(found.table, position=ROWS, sources=("archive",)))
    assert [j.verdict.held for j in judge([one], truths_of(one)).judged] == [True, True]


def test_exact_answers_are_as_of_the_answers_position(spark, sealed, rows):
    sql = """SELECT origin, COUNT(*) AS n, QUANTILE(distance, 0.5) AS mid, TOP(dest, 2) AS best
      FROM flights GROUP BY origin"""
    query = bound(sql, sealed.schema)
    table = exact(spark, sealed, query, answer({}, {}, position=CUT + 100))
    assert sum(table["a0"].to_pylist()) == CUT + 100
    first = rows.slice(0, CUT + 100)
    for row in table.to_pylist():
        mine = first.filter(pc.equal(first["origin"], row["g0"]))
        distances = np.sort(mine["distance"].to_numpy())
        assert row["a1"] == distances[math.ceil(len(distances) / 2) - 1]
        assert len(row["a2"]) == 2


def test_an_answer_that_knows_more_than_the_runs_is_refused(spark, sealed):
    query = bound("SELECT COUNT(*) AS n FROM flights", sealed.schema)
    with pytest.raises(FailedPrecondition, match=r"below 6,001.*end at 6,000; seal"):
        exact(spark, sealed, query, answer({}, {}, position=ROWS + 1))


def test_a_stream_that_is_not_there_is_told_from_one_that_holds_nothing(tmp_path):
    store = Store.open(tmp_path)
    store.create_stream(stream_schema("flights", pa.schema([("ts", pa.timestamp("us"))])))
    store.close()
    with pytest.raises(UnknownStream, match="no stream 'trains'; there are flights"):
        sealed_stream(tmp_path, "trains")
    with pytest.raises(FailedPrecondition, match="'flights' has no tuples in its archive"):
        sealed_stream(tmp_path, "flights")


def test_sampled_rows_come_from_every_run(sealed):
    assert sample_rows(sealed, rows_max=200).num_rows == 200


def test_certain_rows_are_judged_by_their_places(spark, sealed, rows, truths_of):
    """A report said nothing of `certain`, however often a row was out of its place."""
    counts = Counter(rows["origin"].to_pylist())
    first, *_, last = [origin for origin, _ in counts.most_common()]
    text = "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin ORDER BY n DESC LIMIT 1"
    cases = []
    for number, origin in enumerate((first, last)):
        said = answer({"origin": [origin]}, {"n": [(1, 0, ROWS, "interval")]}, position=ROWS)
        shown = said.table.append_column(CERTAIN, pa.array([True]))
        cases.append(case(sealed, number, text, replace(said, table=shown)))
    with relation(spark, sealed) as name:
        places = places_by_case(spark, name, "ts", cases, archived=True)
    assert places == {0: True, 1: False}
    judged = judge(cases, truths_of(*cases), places=places).judged
    placed = {one.question: one.verdict.held for one in judged if one.aggregate == PLACES}
    assert placed == {0: True, 1: False}
