"""What thinning is believed to cost behind a door that is held."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.load_shedding.shedding_units import Costs, units_of

ROWS = 1_000
NOW_US = 1_700_000_000_000_000


@pytest.mark.parametrize("times", [10.0, 1_000.0])
def test_the_little_that_is_let_in_does_not_make_thinning_dear(
    tmp_path: Path, times: float
) -> None:
    with Engine.open(tmp_path / "data", clock_us=lambda: NOW_US, checkpoint_seconds=1e6) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, v DOUBLE) TIMESTAMP BY ts")
        db.register("q", "SELECT QUANTILE(v, 0.9) AS high FROM s [RANGE INTERVAL '1' HOUR]")
        db.services.load_levels.want({("s", "q"): {1: 5}})
        for at in range(4):
            stamps = pa.array([NOW_US + at * ROWS + row for row in range(ROWS)], pa.timestamp("us"))
            values = pa.array([float(row) for row in range(ROWS)])
            db.push("s", pa.table({"ts": stamps, "v": values}))
        db.core.executor.call(lambda: None).result()

        def least_ns(let_in: float, offered: float) -> float:
            streams = db.core.streams.values()
            [unit] = units_of(streams, Costs(), {"s": let_in}, offered=offered)[1]
            return float(unit.cost_ns[-1])

        # Of the flood that it refuses, the door knows what could be read at once.
        flood = least_ns(times * 1e4, 1.0)
        assert least_ns(1e4, times) == flood
        assert flood < least_ns(1e4, 1.0) / 4
