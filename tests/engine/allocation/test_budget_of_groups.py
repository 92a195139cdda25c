"""Sketches of groups keep to any budget, and a refused one changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.apply.size_records import shrinks
from shedder.engine.engine import Engine
from shedder.engine.runtime.caller import Caller
from shedder.errors import BudgetExceeded

CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts"
WINDOW = "[RANGE INTERVAL '60' SECOND SLIDE INTERVAL '5' SECOND]"
JOINED = f"SELECT k % 2 AS g, JOIN_SIZE(k, v) AS j FROM s {WINDOW} GROUP BY g"
DISTINCT = f"SELECT COUNT(DISTINCT k) AS d FROM s {WINDOW} WEIGHT 1000"


def opened(directory: Path) -> Engine:
    return Engine.open(directory, allocation_seconds=1e6, checkpoint_seconds=1e6)


def batch(second: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(second)
    times = second * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rows))
    keys = rng.integers(0, 1 << 40, (2, rows))
    return pa.table({"ts": pa.array(times, pa.timestamp("us")), "k": keys[0], "v": keys[1]})


def free(engine: Engine) -> int:
    """What EXPLAIN says is free; all rows together are the budget."""
    while engine.core.executor.call(lambda: shrinks(engine.core)).result():
        pass
    rows = engine.execute("EXPLAIN ALLOCATION").rows()
    assert sum(row["size_bytes"] for row in rows) == engine.core.synopsis_bytes
    (left,) = [row["size_bytes"] for row in rows if row["query"] is None]
    return left


@pytest.mark.slow
def test_no_budget_is_overrun_by_sketches_of_groups(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        engine.execute(CREATE)
        engine.register("joined", JOINED)
        engine.register("distinct", DISTINCT)
        for second in range(0, 70, 5):
            engine.push("s", batch(second, 20_000))
        taken = 0
        for at in reversed(range(0, 60, 2)):
            try:
                engine.budgets.set_synopsis_bytes(int(300_000 * 1.07**at))
            except BudgetExceeded:
                continue
            taken += 1
            engine.heartbeat("s", 70_000_000)
            assert free(engine) >= 0, engine.core.synopsis_bytes
            held = [each.state.size_bytes for each in engine.core.streams["s"].queries.values()]
            assert sum(held) <= engine.core.synopsis_bytes
        assert taken > 5
        engine.budgets.set_synopsis_bytes(engine.core.synopsis_bytes * 2)
        engine.register("more", "SELECT COUNT(*) AS n FROM s")
        assert free(engine) >= 0
    with opened(tmp_path) as engine:
        assert free(engine) >= 0


def test_a_refused_quota_leaves_every_pane_as_it_was(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        engine.execute(CREATE, caller=Caller("acme"))
        text = "SELECT COUNT(DISTINCT k) AS d FROM s WITHIN 1 PERCENT ELSE FAIL"
        engine.register("exact enough", text)
        for second in range(3):
            engine.push("s", batch(second, 100_000))
        (before,) = engine.query("exact enough").answer().rows()
        with pytest.raises(BudgetExceeded, match="tenant 'acme'"):
            engine.quotas.set_quota("acme", "synopsis_bytes", "1024")
        engine.push("s", batch(0, 100_000))  # Of no new values, behind whatever was logged.
        assert free(engine) >= 0
        engine.sharing.tick()
        (after,) = engine.query("exact enough").answer().rows()
        assert after["d_met"]
        assert (after["d"], after["d_low"]) == (before["d"], before["d_low"])


def test_who_fits_with_coarser_sketches_of_groups_is_not_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        engine.execute(CREATE)
        engine.budgets.set_synopsis_bytes(3_000_000)
        text = JOINED.replace("k % 2", "k % 50")
        query = engine.register("joined", text)
        assert int(query.granted["bytes"]) <= 3_000_000
        assert free(engine) >= 0
        for second in range(0, 70, 5):
            engine.push("s", batch(second, 2_000))
        engine.heartbeat("s", 70_000_000)
        assert len(query.answer().rows()) > 0
        engine.budgets.set_synopsis_bytes(30_000_000)
        assert int(query.granted["bytes"]) > 3_000_000
