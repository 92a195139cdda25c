"""EXPLAIN PRECISION of joins with CONFIDENCE: parts of sampled and of heavy keys add up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from tests.seeds import seed

SLIDE_US = 10_000_000
WINDOW = "[RANGE 30 SECONDS SLIDE 10 SECONDS]"
ROWS = 12_000  # Of a slide and stream.
KEYS = 60_000
JOIN = f"FROM a {WINDOW} JOIN b {WINDOW} ON a.k = b.k"
QUERIES = {
    "totals": f"SELECT COUNT(*) AS n, SUM(a.v) AS s, COUNT(b.v) AS c, AVG(a.v) AS m {JOIN} "
    "CONFIDENCE 95 PERCENT",
    "groups": f"SELECT b.k AS k, COUNT(*) AS n, SUM(a.v) AS s {JOIN} GROUP BY b.k "
    "CONFIDENCE 95 PERCENT",
    "labels": f"SELECT a.k % 9 AS g, COUNT(*) AS n {JOIN} GROUP BY a.k % 9 CONFIDENCE 95 PERCENT",
}


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    rng = np.random.default_rng(seed("parts of joins"))
    path = tmp_path_factory.mktemp("joins") / "d"
    with Engine.open(path, row_query_bytes_max=1 << 20) as engine:
        for name in "ab":
            engine.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v BIGINT) "
                           "TIMESTAMP BY ts")  # fmt: skip
        for name, text in QUERIES.items():
            engine.register(name, text)
        for slide in range(4):
            for name in "ab":
                keys = rng.zipf(1.2, ROWS) % KEYS
                # The hottest keys are others in each pane, so they are heavy in some panes only.
                keys = np.where(keys < 8, keys + 100 * slide, keys)
                ts = np.sort(rng.integers(slide * SLIDE_US, (slide + 1) * SLIDE_US, ROWS))
                values = rng.integers(-20, 100, ROWS)
                engine.push(name, pa.table({"ts": pa.array(ts, pa.timestamp("us")), "k": keys,
                                            "v": values}))  # fmt: skip
        for name in "ab":
            engine.heartbeat(name, 4 * SLIDE_US)
        yield engine


def parts(db: Engine, name: str) -> dict[tuple[int, str], list[dict]]:
    found: dict[tuple[int, str], list[dict]] = {}
    for row in db.execute(f"EXPLAIN PRECISION {name}").table.to_pylist():
        found.setdefault((row["row"], row["output"]), []).append(row)
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_parts_of_each_value_add_up_to_the_interval_of_the_answer(db, name):
    rows, found = db.query(name).answer().rows(), parts(db, name)
    found.pop((None, None), None)
    assert found
    for (place, output), (*own, whole) in found.items():
        row = rows[place - 1]
        shown = [row[output + end] for end in ("", "_low", "_high", "_bound")]
        assert [whole[end] for end in ("value", "low", "high", "bound")] == shown
        if shown[0] is None:  # No pair with a value is known.
            assert (whole["lower"], whole["reason"]) == (None, "the value is NULL")
            continue
        for side, distance in (("lower", shown[0] - shown[1]), ("upper", shown[2] - shown[0])):
            assert sum(part[side] for part in own) == pytest.approx(distance, rel=1e-9, abs=1e-9)
            assert whole[side] == distance


def test_totals_have_parts_of_sampled_and_of_heavy_keys_and_averages_one_for_both(db):
    found = parts(db, "totals")
    for output in ("n", "s", "c"):
        sampled, heavy, rounding, whole = found[1, output]
        assert [each["part"] for each in (sampled, heavy)] == ["sampled keys", "heavy keys"]
        assert (sampled["confidence"], heavy["confidence"]) == (0.95, 1.0)
        assert 0.0 < sampled["lower"] <= whole["lower"]
        assert 0.0 <= abs(rounding["lower"]) <= 2.0
        assert sampled["saved_per_kib"] is None
        assert "not predicted" in sampled["reason"]
    average, _ = found[1, "m"]
    assert average["part"] == "sampled keys and heavy keys"
    assert "neither is told apart" in average["reason"]


def test_rows_with_an_interval_come_first(db):
    table = db.execute("EXPLAIN PRECISION groups").table
    rows = db.query("groups").answer().rows()
    wide = {at for at, row in enumerate(rows, 1) if row["n_bound"] != "exact"}
    explained = list(dict.fromkeys(table["row"].drop_null().to_pylist()))
    assert set(explained[: len(wide)]) == wide if len(wide) < 50 else set(explained) <= wide
    groups = set(table["group"].to_pylist())
    assert "b.k = other keys" in groups
    others = [row for row in table.to_pylist() if row["group"] == "b.k = other keys"]
    assert {"sampled keys", "heavy keys", "rounding"} <= {row["part"] for row in others}
    last = table.slice(table.num_rows - 1).to_pylist()[0]
    assert last["reason"] == f"{len(rows) - 50:,} more rows of the answer"
