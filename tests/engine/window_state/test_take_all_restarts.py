"""Take-all rows of queries that share panes and began at different times, over a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.settings import Settings
from tests.engine.machines import ByHand

BATCH, STEP_US, GROUPS = 10_000, 1_000, 10
FIRST, SECOND, ALL = 80_000, 140_000, 190_000  # The second query begins; the restart; the end.
SETTINGS = Settings(audit="off", overload="off")
CONFIDENT = "GROUP BY g CONFIDENCE 99.9999 PERCENT"


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """One value in a thousand is 10^5, the others are about 10."""
    rng = np.random.default_rng(28)
    values = np.where(rng.random(ALL) < 0.001, 1e5, rng.uniform(9.0, 11.0, ALL))
    times = pa.array(np.arange(ALL) * STEP_US, pa.timestamp("us"))
    return pa.table({"ts": times, "g": rng.integers(0, GROUPS, ALL), "x": values})


def push(db: Engine, rows: pa.Table, first: int, last: int) -> None:
    for at in range(first, last, BATCH):
        db.push("s", rows.slice(at, BATCH))


def check(db: Engine, name: str, rows: pa.Table, seconds: int) -> None:
    """The last window's sums hold; not one of the large values is in doubt."""
    answer = db.query(name).answer()
    assert answer.end_us == ALL * STEP_US
    assert answer.thinning == 1 / 8
    shown = rows.slice(ALL - seconds * 1_000_000 // STEP_US)
    ids, values = shown["g"].to_numpy(), shown["x"].to_numpy()
    found = answer.rows()
    assert len(found) == GROUPS
    for row in found:
        truth = values[ids == row["g"]].sum()
        assert row["s_low"] * (1 - 1e-9) <= truth <= row["s_high"] * (1 + 1e-9)
        assert row["s_bound"] == "interval"
        assert row["s_high"] - row["s_low"] < 1e5


@pytest.mark.slow
def test_queries_of_different_ages_read_extreme_rows_in_full_after_a_restart(
    tmp_path: Path, rows: pa.Table
) -> None:
    windows = {"old": 40, "young": 20}
    machine = ByHand(lambda: 10**10)
    with Engine.open(tmp_path, SETTINGS, machine=machine) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP NOT NULL, g BIGINT, x DOUBLE) TIMESTAMP BY ts")
        for name, first, last in (("old", 0, FIRST), ("young", FIRST, SECOND)):
            window = f"[RANGE {windows[name]} SECONDS SLIDE 10 SECONDS]"
            db.register(name, f"SELECT g, SUM(x) AS s FROM s {window} {CONFIDENT}")
            db.execute(f"ALTER QUERY {name} SET THINNING 1/8")
            push(db, rows, first, last)
    with Engine.open(tmp_path, SETTINGS, machine=ByHand(lambda: 10**10)) as db:
        push(db, rows, SECOND, ALL)
        db.heartbeat("s", ALL * STEP_US)
        for name, seconds in windows.items():
            check(db, name, rows, seconds)
        db.drop_query("old")
        check(db, "young", rows, windows["young"])
