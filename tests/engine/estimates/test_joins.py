"""Standing queries for the sizes of joins, once groups are too large to be exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.errors import PrecisionUnavailable
from tests.engine.world import CREATE, between, requests

SLIDING = "[RANGE INTERVAL '60' SECOND SLIDE INTERVAL '20' SECOND]"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with shedder.open(tmp_path / "data", sample_rows=1024, run_rows=4_000) as engine:
        engine.execute(CREATE)
        yield engine


def alike(rows: pa.Table, left: str, right: str) -> int:
    sides = [Counter(rows[name].drop_null().to_pylist()) for name in (left, right)]
    return sum(n * sides[1][value] for value, n in sides[0].items())


@pytest.mark.slow
@pytest.mark.parametrize("group", ["", "ok"])
def test_windows_of_large_groups_hold_the_truth(db: Engine, group: str) -> None:
    keys = f"{group}, " if group else ""
    query = db.register(
        "alike",
        f"SELECT {keys}SELF_JOIN_SIZE(client) AS own, JOIN_SIZE(client, hits) AS joined, "
        f"SELF_JOIN_SIZE(ts) AS times FROM requests {SLIDING} "
        f"{f'GROUP BY {group}' if group else ''} WITHIN 60 PERCENT CONFIDENCE 99 PERCENT",
    )
    table = requests(60_000, seed=1, seconds=180.0)
    for start in range(0, 60_000, 7_000):
        receipt = db.push("requests", table.slice(start, 7_000))
    answer = query.answer(after=receipt)
    rows = between(table, answer.start_us, answer.end_us)
    assert rows.num_rows > 10_000
    for row in answer.rows():
        mine = rows
        if group:
            mine = rows.filter(pa.compute.equal(rows[group], row[group]))
        for name, pair in {"own": ("client",) * 2, "joined": ("client", "hits")}.items():
            assert row[f"{name}_low"] <= alike(mine, *pair) <= row[f"{name}_high"], row
        assert row["times_low"] <= alike(mine, "ts", "ts") <= row["times_high"]
        assert row["times_bound"] == "interval"
    plan = "\n".join(db.execute("EXPLAIN alike").table["plan"].to_pylist())
    assert "SELF_JOIN_SIZE: pane synopses (count-min)" in plan


def test_a_target_sets_the_width_and_one_beyond_all_widths_is_refused(db: Engine) -> None:
    wide = "SELECT SELF_JOIN_SIZE(client) AS own FROM requests WITHIN {} PERCENT ELSE FAIL"
    db.register("ten", wide.format(10))
    plan = "\n".join(db.execute("EXPLAIN ten").table["plan"].to_pylist())
    assert "self join size: Count-Min of 5 x 2^12 counters, predicted error 8.886%" in plan
    with pytest.raises(PrecisionUnavailable, match=r"no size reaches 0\.001%"):
        db.register("fine", wide.format(0.001))


@pytest.mark.slow
def test_a_checkpoint_brings_tables_back(tmp_path: Path) -> None:
    table = requests(30_000, seed=2)
    text = "SELECT SELF_JOIN_SIZE(ts) AS own, JOIN_SIZE(client, hits) AS joined FROM requests"
    with shedder.open(tmp_path / "data") as engine:
        engine.execute(CREATE)
        query = engine.register("alike", text)
        before = query.answer(after=engine.push("requests", table)).rows()
    with shedder.open(tmp_path / "data") as engine:
        assert engine.query("alike").answer().rows() == before
    assert before[0]["own_low"] <= alike(table, "ts", "ts") <= before[0]["own_high"]
