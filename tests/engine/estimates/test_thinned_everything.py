"""Every aggregate can be read thinned: pairs, ends in time, sizes of joins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.cql.expressions.expression import LISTS, AggregateFunction
from shedder.engine.engine import Engine
from tests.truth import gate

SECOND = 1_000_000
CREATE = """CREATE STREAM s (ts TIMESTAMP, k BIGINT, m BIGINT, g VARCHAR, x DOUBLE, y DOUBLE)
TIMESTAMP BY ts LATENESS INTERVAL '1' SECOND"""
PAIRS = """CORR(x, y) AS c, COVAR_POP(x, y) AS p, COVAR_SAMP(x, y) AS v, REGR_SLOPE(x, y) AS b,
  REGR_INTERCEPT(x, y) AS i, CDF(x, 3.0) AS f"""
ENDS = "FIRST(x) AS fx, LAST(k) AS lk, FIRST(g) AS fg, LAST(g) AS lg"
JOINS = "SELF_JOIN_SIZE(k) AS own, JOIN_SIZE(k, m) AS joined"
QUERIES = {
    "pairs": f"SELECT {PAIRS} FROM s",
    "pairs_by": f"SELECT g, {PAIRS} FROM s GROUP BY g",
    "ends": f"SELECT {ENDS} FROM s WHERE k > 3",
    "ends_by": "SELECT g, FIRST(x) AS fx, LAST(k) AS lk FROM s GROUP BY g",
    "joins": f"SELECT {JOINS} FROM s",
    "joins_by": f"SELECT g, {JOINS} FROM s GROUP BY g",
    "sliding": f"SELECT g, {PAIRS}, FIRST(x) AS fx, LAST(k) AS lk, {JOINS} "
    "FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY g",
}


def rows(count: int, seed: int, begin_s: float = 0.0, seconds: float = 10.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = rng.uniform(begin_s * SECOND, (begin_s + seconds) * SECOND, count)
    x = rng.lognormal(1, 0.5, count)
    return pa.table(
        {
            "ts": pa.array(np.sort(times).astype(np.int64), pa.timestamp("us")),
            "k": np.minimum(rng.zipf(1.3, count), 400),
            "m": rng.integers(1, 40, count),
            "g": rng.choice(list("abc"), count, p=[0.6, 0.3, 0.1]),
            "x": pa.array(x, pa.float64(), mask=rng.random(count) < 0.03),
            "y": pa.array(2 * x + rng.normal(0, 2, count), mask=rng.random(count) < 0.03),
        }
    )


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with shedder.open(tmp_path, clock_us=lambda: 10_000 * SECOND) as engine:
        assert isinstance(engine, Engine)
        yield engine


def begin(engine: Engine) -> None:
    engine.execute(CREATE)
    for name, text in QUERIES.items():
        engine.register(name, text)


def thin(engine: Engine, share: str) -> None:
    for name in QUERIES:
        engine.execute(f"ALTER QUERY {name} SET THINNING {share}")


def end(engine: Engine) -> None:
    for name in QUERIES:
        engine.execute(f"DROP QUERY {name}")
    engine.execute("DROP STREAM s")


def outcomes(engine: Engine, name: str) -> dict[tuple[Any, str], tuple[str, bool]]:
    """By group and output: its bound, and whether it holds the truth."""
    text = QUERIES[name]
    truth = {row.get("g"): row for row in engine.execute(text).rows()}
    found = {}
    for row in engine.query(name).answer().rows():
        right = truth[row.get("g")]
        for column in [c.removesuffix("_bound") for c in row if c.endswith("_bound")]:
            bound, value = row[column + "_bound"], right[column]
            if bound == "none":
                held = True
            elif bound == "exact":
                near = value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
                held = row[column] == near
                assert held, (name, column, row[column], value)
            elif value is None:
                held = row[column] is None
            else:
                slack = 1e-9 * abs(value)
                held = row[column + "_low"] - slack <= value <= row[column + "_high"] + slack
            found[row.get("g"), column] = bound, held
    return found


@pytest.mark.slow
@pytest.mark.parametrize("shares", [("1/8",), ("1", "1/8", "1/2"), ("1/2", "1/32")])
def test_every_interval_holds_at_any_levels(db: Engine, shares: tuple[str, ...]) -> None:
    held: list[bool] = []
    for trial in range(3):
        begin(db)
        for part, share in enumerate(shares):
            thin(db, share)
            db.push("s", rows(4_000, 100 * trial + part, begin_s=10 * part))
        db.heartbeat("s", (10 * len(shares) + 1) * SECOND)
        for name in QUERIES:
            found = outcomes(db, name)
            held += [right for bound, right in found.values() if bound == "interval"]
        end(db)
    assert len(held) > 50
    assert sum(held) >= gate(len(held), 0.95)


@pytest.mark.slow
def test_every_aggregate_function_can_be_thinned(db: Engine) -> None:
    functions = {
        AggregateFunction.COUNT: "COUNT(x)",
        AggregateFunction.QUANTILE: "QUANTILE(x, 0.9)",
        AggregateFunction.TOP: "TOP(k, 3)",
        AggregateFunction.FREQUENT: "FREQUENT(k, 0.2)",
        AggregateFunction.COUNT_DISTINCT: "COUNT(DISTINCT k)",
        AggregateFunction.JOIN_SIZE: "JOIN_SIZE(k, m)",
        AggregateFunction.DISTINCT_BOTH: "DISTINCT_BOTH(k, m > 3, m < 9)",
        AggregateFunction.DISTINCT_ONLY: "DISTINCT_ONLY(k, m > 3, m < 9)",
        AggregateFunction.JACCARD: "JACCARD(k, m > 3, m < 9)",
    }
    pairs = ("CORR", "COVAR_POP", "COVAR_SAMP", "REGR_SLOPE", "REGR_INTERCEPT")
    db.execute(CREATE)
    for at, function in enumerate(AggregateFunction):
        of = f"{function.value}(x, y)" if function.value in pairs else f"{function.value}(x)"
        db.register(f"q{at}", f"SELECT {functions.get(function, of)} AS a FROM s")
        db.execute(f"ALTER QUERY q{at} SET THINNING 1/4")
    db.push("s", rows(2_000, 1))
    for at, function in enumerate(AggregateFunction):
        [row] = db.query(f"q{at}").answer().rows()
        if function not in LISTS:
            assert row["a"] is not None, function
        if not function.value.startswith(("CORR", "REGR")):
            assert row["a_bound"] in ("exact", "interval"), function


@pytest.mark.slow
def test_pairs_are_known_well_enough_to_be_of_use(db: Engine) -> None:
    begin(db)
    thin(db, "1/4")
    db.push("s", rows(200_000, 1))
    [row] = db.query("pairs").answer().rows()
    assert all(row[f"{name}_bound"] == "interval" for name in "pvf")
    assert row["f_high"] - row["f_low"] < 0.02


@pytest.mark.slow
def test_the_ends_of_a_stream_stay_exact(db: Engine) -> None:
    begin(db)
    thin(db, "1/1024")
    for part in range(3):
        db.push("s", rows(500, part, begin_s=10 * part))
    found = outcomes(db, "ends")
    assert {bound for bound, _ in found.values()} == {"exact"}


@pytest.mark.slow
def test_the_first_value_of_a_group_is_known_once_all_that_was_skipped_came_later(
    db: Engine,
) -> None:
    begin(db)
    db.push("s", rows(500, 1, begin_s=0))
    thin(db, "1/8")
    db.push("s", rows(500, 2, begin_s=20))
    found = outcomes(db, "ends_by")
    assert {bound for (_, column), (bound, _) in found.items() if column == "fx"} == {"exact"}
    assert {bound for (_, column), (bound, _) in found.items() if column == "lk"} == {"interval"}


def test_a_text_that_may_have_been_skipped_has_no_bound_and_says_why(db: Engine) -> None:
    db.execute(CREATE)
    query = db.register("q", "SELECT k, LAST(g) AS lg FROM s WHERE k < 5 GROUP BY k")
    db.execute("ALTER QUERY q SET THINNING 1/2")
    db.push("s", rows(2_000, 1))
    answer = query.answer()
    assert {row["lg_bound"] for row in answer.rows()} <= {"none", "exact"}
    assert "none" in {row["lg_bound"] for row in answer.rows()}
    assert "a text that was skipped may be the first or the last one" in answer.explain()


@pytest.mark.slow
def test_sizes_of_joins_narrow_with_what_is_read(db: Engine) -> None:
    widths = []
    for share in ("1/16", "1/4", "1"):
        begin(db)
        thin(db, share)
        db.push("s", rows(100_000, 7))
        [row] = db.query("joins").answer().rows()
        assert row["own_low"] <= row["own"] <= row["own_high"]
        widths.append((row["own_high"] - row["own_low"]) / row["own"])
        end(db)
    assert widths[0] > widths[1] > widths[2]
    assert widths[1] < 0.3


@pytest.mark.slow
def test_stored_segments_know_the_ranges_of_both_columns_again(tmp_path: Path) -> None:
    def opened() -> Engine:
        engine = shedder.open(tmp_path / "d", clock_us=lambda: 10_000 * SECOND)
        assert isinstance(engine, Engine)
        return engine

    with opened() as engine:
        begin(engine)
        thin(engine, "1/4")
        engine.push("s", rows(3_000, 3))
        before = {name: engine.query(name).answer().rows() for name in QUERIES}
    with opened() as engine:
        assert {name: engine.query(name).answer().rows() for name in QUERIES} == before


INFINITE = f"""SELECT g, SUM(x) AS s, AVG(x) AS a, VAR(x) AS w, STDDEV(x) AS d, MIN(x) AS lo,
  MAX(x) AS hi, MEDIAN(x) AS q, {PAIRS} FROM s GROUP BY g
  WITHIN 5 PERCENT CONFIDENCE 99.9999 PERCENT"""


@pytest.mark.slow
@pytest.mark.parametrize("later", [1, 3, 40])
def test_infinities_of_one_group_say_nothing_of_the_others(db: Engine, later: int) -> None:
    """What was read in full has infinite values; of what was thinned later all is finite."""
    db.execute(CREATE)
    query = db.register("q", INFINITE)
    first = rows(100, 1)
    x = np.where(np.isin(first["g"].to_numpy(), ["a"]), np.inf, first["x"].to_numpy())
    db.push("s", first.set_column(4, "x", pa.array(x, pa.float64(), from_pandas=True)))
    db.execute("ALTER QUERY q SET THINNING 1/8")
    db.push("s", rows(later, 2, begin_s=10))
    truth = {row["g"]: row for row in db.execute(INFINITE.split(" WITHIN", maxsplit=1)[0]).rows()}
    known = 0
    for row in query.answer().rows():
        for column in [c.removesuffix("_bound") for c in row if c.endswith("_bound")]:
            if row[column + "_bound"] == "none":
                continue
            right = truth[row["g"]][column]
            if right is None:
                assert row[column] is None, (row["g"], column)
                continue
            slack = 1e-9 * abs(right) if np.isfinite(right) else 0.0  # inf - inf is no number.
            low, high = row[column + "_low"], row[column + "_high"]
            assert low - slack <= right <= high + slack, (row["g"], column, low, right, high)
            known += row["g"] != "a"
    assert known >= 2 * 10  # Exact, where the tuples that came later all were read.


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-300, 1e-90, 1e150])
@pytest.mark.parametrize("first", [1.0, 1e-290, 1e140])
def test_values_of_any_unit_are_bounded_or_said_to_be_unknown(
    db: Engine, unit: float, first: float
) -> None:
    """Values of which squares, or squares of quotients, are no doubles."""
    of = f"{PAIRS}, AVG(x) AS a, SUM(x) AS s, VAR(x) AS w, STDDEV(x) AS d, QUANTILE(x, 0.9) AS q"
    db.execute(CREATE)
    query = db.register("q", f"SELECT {of} FROM s WITHIN 5 PERCENT CONFIDENCE 99.9999 PERCENT")
    for seed, scale in enumerate((first, unit)):
        table = rows(300, seed, begin_s=10 * seed)
        x = pa.array(table["x"].to_numpy() * scale, pa.float64(), from_pandas=True)
        db.push("s", table.set_column(4, "x", x))
        db.execute("ALTER QUERY q SET THINNING 1/8")
    [row] = query.answer().rows()
    [truth] = db.execute(f"SELECT {of} FROM s").rows()
    for name in "cpvbiaswdq":
        if row[name + "_bound"] == "none" or truth[name] is None:
            continue
        slack = 1e-9 * abs(truth[name])
        assert row[name + "_low"] - slack <= truth[name] <= row[name + "_high"] + slack, name
    assert row["a_bound"] == row["s_bound"] == row["q_bound"] == "interval"


def test_exact_parts_of_a_thinned_expression_spend_no_confidence(db: Engine) -> None:
    """COUNT(*) without groups is known though tuples are skipped; the sum has all of delta."""
    db.execute(CREATE)
    query = db.register("q", "SELECT SUM(y) / COUNT(*) AS r, MAX(x) - SUM(y) AS d FROM s")
    alone = db.register("alone", "SELECT SUM(y) AS s FROM s")
    for name in ("q", "alone"):
        db.execute(f"ALTER QUERY {name} SET THINNING 1/8")
    db.push("s", rows(4_000, 3))
    answer = query.answer()
    assert answer.confidence == pytest.approx(0.95)
    [row], [part] = answer.rows(), alone.answer().rows()
    width = part["s_high"] - part["s_low"]
    assert (row["r_high"] - row["r_low"]) * 4_000 == pytest.approx(width)
    assert row["d_high"] - row["d_low"] == pytest.approx(width)


@pytest.mark.slow
def test_values_of_which_none_was_read_lie_in_the_known_range(db: Engine) -> None:
    """Their groups are known by rows without the value; they had no bound."""
    of = """SUM(x) AS s, AVG(x) AS a, MIN(x) AS lo, MAX(k) AS hi, QUANTILE(x, 0.5) AS q,
      MEDIAN(k) AS m, VAR(x) AS v, CORR(x, y) AS c, COVAR_POP(x, y) AS p, CDF(x, 3.0) AS f"""
    db.execute(CREATE)
    queries = [
        db.register("q", f"SELECT g, {of} FROM s GROUP BY g"),
        db.register("r", "SELECT g, QUANTILE(x, 0.5) AS q FROM s GROUP BY g WITHIN 0.1 RANK"),
    ]
    for name in ("q", "r"):
        db.execute(f"ALTER QUERY {name} SET THINNING 1/8")
    rng = np.random.default_rng(8)
    table = rows(4_000, 8).set_column(3, "g", pa.array([f"g{at % 100}" for at in range(4_000)]))
    for name in ("x", "k"):
        rare = pa.array(table[name].to_numpy(), mask=rng.random(4_000) < 0.9)
        table = table.set_column(table.column_names.index(name), name, rare)
    db.push("s", table)
    truth = {row["g"]: row for row in db.execute(f"SELECT g, {of} FROM s GROUP BY g").rows()}
    unread = dict.fromkeys(["s", "a", "lo", "hi", "q", "m", "v", "c", "p", "f"], 0)
    for query in queries:
        for row in query.answer().rows():
            for name in unread.keys() & row.keys():
                assert row[f"{name}_bound"] != "none", name
                if row[name] is None and row[f"{name}_bound"] == "interval":
                    unread[name] += 1
                    right = truth[row["g"]][name]
                    slack = 1e-9 * abs(right or 0)
                    ends = row[f"{name}_low"], row[f"{name}_high"]
                    assert right is None or ends[0] - slack <= right <= ends[1] + slack, (
                        name,
                        ends,
                    )
    assert all(unread.values()), unread
