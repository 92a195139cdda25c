"""EXPLAIN PRECISION: the parts of each interval add up to the interval that `answer` shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import shedder
from shedder import errors
from shedder.cql.expressions.expression import AggregateFunction
from shedder.engine.engine import Engine
from shedder.streams.batches import encode
from shedder.streams.dropped_counts import Dropped
from tests.engine.rebuild.worlds import QUERIES as STORED
from tests.engine.rebuild.worlds import Deleting

SECOND = 1_000_000
CREATE = """CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT, m BIGINT, g VARCHAR, x DOUBLE,
  y DOUBLE, ok BOOLEAN) TIMESTAMP BY ts LATENESS INTERVAL '0' SECOND"""
ALL = """COUNT(*) AS n, COUNT(x) AS c, SUM(x) AS s, SUM(k) AS sk, AVG(x) AS a, MIN(x) AS lo,
  MAX(ts) AS hi, MIN(g) AS text, FIRST(x) AS f, LAST(g) AS l, VARIANCE(x) AS v, STDDEV(k) AS sd,
  COVAR_POP(x, y) AS cp, COVAR_SAMP(x, y) AS cs, CORR(x, y) AS r, REGR_SLOPE(x, y) AS b,
  REGR_INTERCEPT(x, y) AS i, COUNT(DISTINCT k) AS d, QUANTILE(x, 0.9) AS q,
  QUANTILE(ts, 0.5) AS middle, TOP(k, 2) AS top, FREQUENT(k, 0.1) AS often,
  SELF_JOIN_SIZE(k) AS own, JOIN_SIZE(k, m) AS joined, DISTINCT_BOTH(k, m < 20, ok) AS both_sets,
  DISTINCT_ONLY(k, m < 20, ok) AS one_set, JACCARD(k, m < 20, ok) AS alike, CDF(x, 3.0) AS share,
  HISTOGRAM(x, [1, 3]) AS h, SUM(x) / COUNT(x) AS ratio, AVG(x) > 2.0 AS above"""
WINDOW = "[RANGE 10 SECONDS SLIDE 5 SECONDS]"
QUERIES = {
    "whole": f"SELECT {ALL} FROM s",
    "slides": f"SELECT {ALL} FROM s {WINDOW}",
    "by_group": f"SELECT g, {ALL} FROM s {WINDOW} GROUP BY g",
    "ranked": "SELECT QUANTILE(x, 0.9) AS q FROM s WITHIN 1 PERCENT RANK",
    "chosen": "SELECT g, SUM(x) AS s, COUNT(*) AS n FROM s GROUP BY g HAVING COUNT(*) > 10 "
    "ORDER BY s DESC LIMIT 2",
}


def rows(count: int, seed: int, begin_s: float = 0.0, seconds: float = 10.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(begin_s * SECOND, (begin_s + seconds) * SECOND, count))
    x = rng.lognormal(1, 0.5, count)
    return pa.table(
        {
            "ts": pa.array(times.astype(np.int64), pa.timestamp("us")),
            "k": np.minimum(rng.zipf(1.3, count), 400),
            "m": rng.integers(1, 40, count),
            "g": rng.choice(list("abcd"), count, p=[0.5, 0.3, 0.1, 0.1]),
            "x": pa.array(x, mask=rng.random(count) < 0.03),
            "y": 2 * x + rng.normal(0, 2, count),
            "ok": rng.random(count) < 0.9,
        }
    )


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with shedder.open(tmp_path / "data", clock_us=lambda: 10_000 * SECOND) as engine:
        assert isinstance(engine, Engine)
        engine.execute(CREATE)
        yield engine


def explained(db: Engine, name: str) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """The rows of EXPLAIN PRECISION by row and output; each answer's value must have its own."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in db.execute(f"EXPLAIN PRECISION {name}").table.to_pylist():
        found.setdefault((row["row"], row["output"]), []).append(row)
    return found


def shown_values(db: Engine, name: str) -> dict[tuple[int, str], tuple[Any, Any, Any, str]]:
    """Value, ends and bound of each value that `answer` shows, items of lists apart."""
    answer = db.query(name).answer()
    found: dict[tuple[int, str], tuple[Any, Any, Any, str]] = {}
    for output in answer.approximate:
        columns = [answer.table[output]]
        if pa.types.is_list(columns[0].type):
            columns.append(answer.table[output + "_bound"])
            for at, (items, bound) in enumerate(
                zip(*(c.to_pylist() for c in columns), strict=True), 1
            ):
                for item in items:
                    own = item["value"] if "value" in item else f"{item['from']} to {item['to']}"
                    width = item["count"], item["low"], item["high"]
                    found[at, f"{output}[{own}]"] = (*width, bound)
                if not items:
                    found[at, output] = None, None, None, bound
            continue
        columns += [answer.table[output + end] for end in ("_low", "_high", "_bound")]
        whole = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in columns]
        for at, value in enumerate(zip(*(c.to_pylist() for c in whole), strict=True), 1):
            found[at, output] = value
    return found


def check(db: Engine, name: str) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """The parts of every value of a query add up to what `answer` shows."""
    parts, shown = explained(db, name), shown_values(db, name)
    if parts.pop((None, None), None) is None:
        assert parts.keys() == shown.keys()
    for key in parts:
        value, low, high, bound = shown[key]
        *own, whole = parts[key]
        assert own, key
        assert (whole["part"], whole["bound"]) == ("interval", bound)
        assert all(None not in (p["lower"], p["upper"]) or p["reason"] for p in own)
        if bound == "none" or (bound == "interval" and value is None):
            assert whole["lower"] is None
            assert whole["reason"], key
            continue
        distances = (0.0, 0.0)
        if bound == "interval":
            assert not isinstance(value, str), key
            distances = float(value) - float(low), float(high) - float(value)
        for side, distance in zip(("lower", "upper"), distances, strict=True):
            total = math.fsum(part[side] for part in own if part[side] is not None)
            assert total == pytest.approx(distance, rel=1e-9, abs=1e-9), (key, side)
            assert whole[side] == pytest.approx(distance, rel=1e-12, abs=1e-12), (key, side)
        if 0 < sum(distances) < math.inf:
            known = [part["share"] for part in own if part["share"] is not None]
            assert sum(known) == pytest.approx(1.0, rel=1e-9)
    return parts


def parts_of(found: dict[tuple[int, str], list[dict[str, Any]]], output: str) -> list[str]:
    return [part["part"] for part in found[1, output]]


def test_queries_here_ask_every_function(db):
    db.register("whole", QUERIES["whole"])
    functions = {
        each.function for each in db.core.standing_query("whole")[1].state.query.aggregates
    }
    assert functions == set(AggregateFunction)


@pytest.mark.parametrize("name", QUERIES)
def test_parts_add_up_to_the_interval_with_and_without_thinning_and_late_tuples(db, name):
    db.register(name, QUERIES[name])
    db.push("s", rows(3_000, 1))
    exact = check(db, name)
    if name == "whole":
        assert parts_of(exact, "a") == ["synopsis", "interval"]
        assert parts_of(exact, "d") == ["sketch", "interval"]
        assert all(part["lower"] == part["upper"] == 0.0 for part in exact[1, "a"])
    db.execute(f"ALTER QUERY {name} SET THINNING 1/4")
    db.push("s", rows(6_000, 2, begin_s=10.0, seconds=20.0))
    thinned = check(db, name)
    if name == "whole":
        assert parts_of(thinned, "a") == ["thinning", "interval"]
        assert parts_of(thinned, "d") == ["thinning and sketch", "interval"]
        assert parts_of(thinned, "q") == ["thinning and sketch", "interval"]
        assert all(part["lower"] == part["upper"] == 0.0 for part in thinned[1, "n"])
    db.push("s", rows(25, 3, begin_s=22.0, seconds=2.0))
    late = check(db, name)
    if name == "slides":
        assert parts_of(late, "n") == ["thinning", "late tuples", "interval"]
        of_late = late[1, "n"][1]
        assert (of_late["lower"], of_late["upper"], of_late["confidence"]) == (0.0, 25.0, 1.0)
    if name == "by_group":
        assert late[1, "n"][1]["upper"] == 25.0
    if name == "chosen":
        assert parts_of(thinned, "s") == ["thinning", "selection", "interval"]


def test_before_the_first_window_and_without_groups_there_is_no_interval(db):
    for name in ("slides", "by_group"):
        db.register(name, QUERIES[name])
    found = check(db, "slides")
    assert found[1, "n"][-1]["bound"] == "none"
    assert "no window has closed yet" in found[1, "n"][0]["reason"]
    assert check(db, "by_group") == {}
    printed = str(db.execute("EXPLAIN PRECISION by_group"))
    assert printed.startswith("the answer has no value with an interval\n")


def test_a_contract_that_fails_has_its_interval_explained(db):
    db.register("q", "SELECT SUM(x) AS s FROM s WITHIN 1 PERCENT ELSE FAIL")
    db.execute("ALTER QUERY q SET THINNING 1/64")
    db.push("s", rows(3_000, 1))
    with pytest.raises(errors.PrecisionUnavailable):
        db.query("q").answer()
    part, whole = explained(db, "q")[1, "s"]
    assert (part["part"], whole["bound"]) == ("thinning", "interval")
    assert (part["lower"], part["upper"]) == (whole["lower"], whole["upper"])


def test_a_thinned_sketch_that_holds_all_it_read_adds_no_error(db):
    db.register("q", "SELECT COUNT(DISTINCT k) AS few, COUNT(DISTINCT ts) AS many FROM s")
    db.set_control("budget", "synopses", "bytes", "12KiB")
    db.execute("ALTER QUERY q SET THINNING 1/2")
    db.push("s", rows(20_000, 1))
    found = check(db, "q")
    assert parts_of(found, "few") == ["thinning", "interval"]
    assert parts_of(found, "many") == ["thinning and sketch", "interval"]
    few, many = found[1, "few"][0], found[1, "many"][0]
    assert few["saved_per_kib"] is None
    assert "holds all values that were read" in few["reason"]
    assert many["saved_per_kib"] > 0.0


def test_what_a_resource_buys_is_the_allocators_price_for_the_width(db):
    db.register("q", "SELECT COUNT(DISTINCT ts) AS d, AVG(x) AS a FROM s")
    db.set_control("budget", "synopses", "bytes", "8KiB")
    db.push("s", rows(20_000, 1))
    predicted = {row["answers"]: row for row in db.execute("EXPLAIN ALLOCATION").rows()}
    [distinct, whole], [average, _] = (explained(db, "q")[1, name] for name in ("d", "a"))
    assert (average["saved_per_kib"], average["saved_per_ns"]) == (None, None)
    assert distinct["saved_per_ns"] is None
    assert "new panes read all tuples" in distinct["reason"]
    assert "answers when its window closes" in distinct["reason"]
    price = predicted["COUNT(DISTINCT ts)"]
    share = price["saved_per_kib"] / price["expected_error"]
    half = (whole["lower"] + whole["upper"]) / 2
    assert distinct["saved_per_kib"] == pytest.approx(share * half)
    assert 0.0 < distinct["saved_per_kib"] < half
    db.execute("ALTER QUERY q SET THINNING 1/8")
    db.push("s", rows(4_000, 2, begin_s=10.0))
    for name in ("d", "a"):
        part, whole = explained(db, "q")[1, name]
        assert 0.0 < part["saved_per_ns"] <= (whole["lower"] + whole["upper"]) / 2


def test_an_answer_of_the_archive_has_one_part_of_no_width(db):
    db.register("q", f"SELECT SUM(x) AS s FROM s {WINDOW} WITHIN 1 PERCENT ELSE EXACT")
    db.execute("ALTER QUERY q SET THINNING 1/64")
    answers = db.query("q").subscribe()
    db.push("s", rows(3_000, 1, seconds=16.0))
    exact = (each.end_us for each in answers if each.archive_share_read == 1.0)
    assert 15 * SECOND in exact  # Thinned ones come first.
    *parts, whole = explained(db, "q")[1, "s"]
    assert [(part["part"], part["lower"], part["upper"]) for part in parts] == [("archive", 0, 0)]
    assert whole["bound"] == "exact"
    assert whole["value"] == db.query("q").answer().rows()[0]["s"]


def test_tuples_that_were_dropped_are_a_part(db):
    db.register("q", f"SELECT {ALL} FROM s")
    db.push("s", rows(500, 1))
    [batch] = rows(7, 2).combine_chunks().to_batches()
    later = encode(rows(1, 3, begin_s=11.0).to_batches()[0])
    gone = Dropped.of(batch, "ts")
    db.append("s", later, producer="p", epoch=0, sequence=0, left_out=gone).result()
    found = check(db, "q")
    assert parts_of(found, "n") == ["synopsis", "dropped tuples", "interval"]
    assert found[1, "n"][1]["lower"] + found[1, "n"][1]["upper"] == 7.0
    assert found[1, "f"][-1]["bound"] == "none"


def test_rows_that_were_deleted_are_a_part(tmp_path):
    world = Deleting(tmp_path / "data", {"whole": STORED["whole"]})
    world.push(40, 1)
    world.delete("k > 2")
    found = check(world.engine, "whole")
    assert parts_of(found, "n") == ["synopsis", "deleted rows", "interval"]
    assert found[1, "n"][1]["lower"] == found[1, "n"][-1]["lower"] > 0.0
    assert (found[1, "sk"][1]["lower"], found[1, "sk"][-1]["bound"]) == (None, "none")
    world.close()


def test_groups_without_room_are_a_part(tmp_path):
    with Engine.open(tmp_path / "data", group_bytes_max=64 << 10) as db:
        db.execute(CREATE)
        db.register("q", "SELECT m, COUNT(*) AS n, AVG(x) AS a FROM s GROUP BY m")
        few = rows(6_000, 1)
        db.push("s", few.set_column(2, "m", pa.array(np.arange(few.num_rows))))
        found = check(db, "q")
        assert "groups without room" in parts_of(found, "n")


def test_rows_beyond_the_limit_are_counted(db):
    db.register("q", "SELECT k, AVG(x) AS a FROM s GROUP BY k")
    db.push("s", rows(4_000, 1))
    table = db.execute("EXPLAIN PRECISION q").table
    groups = db.query("q").answer().table.num_rows
    assert pc.max(table["row"]).as_py() == 50
    [last] = table.slice(table.num_rows - 1).to_pylist()
    assert (last["part"], last["row"]) == ("not shown", None)
    assert last["reason"].startswith(f"{groups - 50} more rows of the answer")


def test_names_without_an_answer_of_aggregates_are_refused(db):
    db.register("joined", "SELECT k, x FROM s [RANGE 1 SECOND SLIDE 1 SECOND]")
    with pytest.raises(errors.UnknownQuery, match="nothing"):
        db.execute("EXPLAIN PRECISION nothing")
    with pytest.raises(errors.BadQuery, match="the rows of 'joined' have no intervals"):
        db.execute("EXPLAIN PRECISION joined")
