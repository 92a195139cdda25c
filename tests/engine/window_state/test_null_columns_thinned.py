"""Thinned queries over batches in which a column has no value at all."""

from __future__ import annotations

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine

WINDOW = "[RANGE INTERVAL '10' SECOND SLIDE INTERVAL '10' SECOND]"
CONFIDENT = "CONFIDENCE 99.9999 PERCENT"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["", "WHERE k IS NULL OR k % 2 = 1"])
def test_a_batch_without_a_value_ends_no_thinned_query(tmp_path, where):
    with Engine.open(tmp_path) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT) TIMESTAMP BY ts")
        text = f"SELECT SUM(k) AS s, VAR(k) AS v FROM s {WINDOW} {where} {CONFIDENT}"
        query = db.register("q", text)
        db.execute("ALTER QUERY q SET THINNING 1/8")
        kept = [number for number in range(300) if not where or number % 2 == 1]
        for values, first in (([None] * 50, 0), (list(range(300)), 50), ([None] * 50, 350)):
            times = pa.array(
                [(first + at) * 1_000 for at in range(len(values))], pa.timestamp("us")
            )
            receipt = db.push("s", pa.table({"ts": times, "k": pa.array(values, pa.int64())}))
        db.heartbeat("s", 10_000_000)
        [row] = query.answer(after=receipt).rows()
        assert row["s_low"] <= sum(kept) <= row["s_high"]
