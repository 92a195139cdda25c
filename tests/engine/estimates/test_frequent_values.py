"""FREQUENT from text to answer: standing and one-time, sized by its share, honest when small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from tests.truth import keeps_its_promise

SECOND = 1_000_000
CREATE = """CREATE STREAM s (ts TIMESTAMP, k BIGINT, g VARCHAR) TIMESTAMP BY ts
LATENESS INTERVAL '1' SECOND"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with shedder.open(tmp_path, sample_rows=500, allocation_seconds=1e6) as engine:
        engine.execute(CREATE)
        yield engine


def tuples(count: int, seed: int, first_us: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    k = np.minimum(rng.zipf(1.2, count), 10**6)
    columns = {
        "ts": pa.array(first_us + np.arange(count) * 1_000, pa.timestamp("us")),
        "k": pa.array(k, mask=rng.random(count) < 0.05),
        "g": pa.array([f"g{n}" for n in rng.integers(0, 3, count)]),
    }
    return pa.table(columns)


def counts_of(table: pa.Table, group: str | None = None) -> Counter:
    rows = [row for row in table.to_pylist() if group is None or row["g"] == group]
    return Counter(row["k"] for row in rows if row["k"] is not None)


def test_standing_lists_keep_their_promise_in_every_window_and_group(db: Engine) -> None:
    window = "[RANGE 4 SECONDS SLIDE 1 SECOND]"
    lists = "FREQUENT(k, 0.01) AS f, FREQUENT(k, 0.01 NO FALSE POSITIVES) AS p"
    db.register("all", f"SELECT {lists} FROM s {window}")
    db.register("by", f"SELECT g, {lists} FROM s {window} GROUP BY g")
    table = tuples(8_000, 1)
    db.push("s", table)
    db.push("s", tuples(5, 2, first_us=60 * SECOND).slice(4))
    late = tuples(20, 3, first_us=3 * SECOND)
    receipt = db.push("s", late)
    for name in ("all", "by"):
        answer = db.query(name).answer(after=receipt)
        start, end = answer.start_us, answer.end_us
        everything = pa.concat_tables([table, late])
        times = everything["ts"].cast(pa.int64()).to_numpy()
        inside = everything.filter(pa.array((times >= start) & (times < end)))
        for row in answer.rows():
            exact = counts_of(inside, row.get("g"))
            for output, positives in (("f", False), ("p", True)):
                items, bound = row[output], row[output + "_bound"]
                assert keeps_its_promise(items, bound, exact, 0.01, positives=positives)


def test_an_answer_in_time_is_exact_where_all_values_fit(db: Engine) -> None:
    db.register("q", "SELECT FREQUENT(k, 0.05) AS f FROM s WHERE g = 'g1' WITHIN 1 PERCENT")
    table = tuples(3_000, 4)
    receipt = db.push("s", table)
    [row] = db.query("q").answer(after=receipt).rows()
    assert (row["f_bound"], row["f_met"]) == ("exact", True)
    assert keeps_its_promise(row["f"], "exact", counts_of(table, "g1"), 0.05, positives=False)


def test_the_table_is_as_large_as_the_share_needs(db: Engine) -> None:
    for share, entries in ((0.01, 1_024), (0.001, 8_192), (0.0001, 16_384)):
        name = f"q{entries}"
        granted = db.register(name, f"SELECT FREQUENT(k, {share}), TOP(k, 5) FROM s").granted
        assert granted[f"frequent {share:g}"].startswith(f"frequent items of {entries} entries")
        assert granted["top 5"].startswith("frequent items of 1024 entries")


def test_a_share_below_the_error_of_its_table_says_so(db: Engine) -> None:
    db.register(
        "q", "SELECT FREQUENT(k, 0.0001) AS f, FREQUENT(k, 0.0001 NO FALSE POSITIVES) AS p FROM s"
    )
    # As many of 40 tuples as are half of the counters: then the purge takes 40, and these are lost.
    # In small batches: of large ones a table of this size forgets less than such a share.
    k = np.concatenate((np.repeat(np.arange(6_200), 40), 10**6 + np.arange(6_200)))
    count = k.size
    table = pa.table(
        {
            "ts": pa.array(np.arange(count), pa.timestamp("us")),
            "k": pa.array(k),
            "g": pa.array(["g"] * count),
        }
    )
    for first in range(0, count, 10_000):
        receipt = db.push("s", table.slice(first, 10_000))
    [row] = db.query("q").answer(after=receipt).rows()
    assert (row["f_bound"], row["p"], row["p_bound"]) == ("none", [], "interval")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["", "WHERE g = 'g2'"])
def test_one_time_lists_are_exact_or_meet_their_target(db: Engine, where: str) -> None:
    table = tuples(20_000, 5)
    db.push("s", table)
    exact = counts_of(table, "g2" if where else None)
    for promise in ("NEGATIVES", "POSITIVES"):
        text = f"SELECT FREQUENT(k, 0.02 NO FALSE {promise}) AS f FROM s {where}"
        for target in ("", " WITHIN 60 PERCENT"):
            [row] = db.execute(text + target).rows()
            positives = promise == "POSITIVES"
            assert keeps_its_promise(row["f"], row["f_bound"], exact, 0.02, positives=positives)
            assert row["f_met"] is (True if target else None)
            assert row["f_bound"] == "exact" or target


@pytest.mark.parametrize(("copies", "listed"), [(1, 0), (2, 2)])
def test_a_list_that_lacks_values_is_never_exact(db: Engine, copies: int, listed: int) -> None:
    """All of 20,000 values occur once, but two that occur often: no other one has a counter."""
    db.register("q", "SELECT TOP(k, 3) AS t FROM s WITHIN 1 PERCENT")
    often = np.repeat(np.arange(2), 500) if copies > 1 else np.arange(0)
    k = np.concatenate((often, 100 + np.arange(20_000)))
    times = pa.array(np.arange(k.size), pa.timestamp("us"))
    receipt = db.push("s", pa.table({"ts": times, "k": k, "g": ["g"] * k.size}))
    [row] = db.query("q").answer(after=receipt).rows()
    assert len(row["t"]) == listed
    assert (row["t_bound"], row["t_met"]) == ("interval" if listed else "none", bool(listed))
    assert all(item["low"] <= 500 <= item["high"] for item in row["t"])
    db.register("few", "SELECT TOP(k, 3) AS t FROM s WHERE k < 2")
    [row] = db.query("few").answer(after=receipt).rows()
    assert (len(row["t"]), row["t_bound"]) == (listed, "exact")  # There are no others.
