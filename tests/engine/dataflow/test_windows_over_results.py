"""[ROWS n] over the RSTREAM of an aggregate: a window over the results of another window."""

from __future__ import annotations

import numpy as np

from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import CREATE, LATENESS_US, START_US, batch
from tests.engine.killed import copy_killed
from tests.seeds import seed

SLIDE_US = 6
PARTS = "SELECT RSTREAM(SUM(id) AS part) FROM s [RANGE 6 MICROSECONDS SLIDE 6 MICROSECONDS]"
TEXTS = {
    "rows": f"SELECT SUM(part) AS total FROM ({PARTS}) t [ROWS 10]",
    "range": f"SELECT SUM(part) AS total FROM ({PARTS}) t [RANGE 60 MICROSECONDS]",
    "direct": "SELECT DISTINCT SUM(id) AS total FROM s "
    "[RANGE 60 MICROSECONDS SLIDE 6 MICROSECONDS]",
}


def expected(rows, now):
    """The sum over ten slides up to the last one before an instant."""
    end = (START_US + now) // SLIDE_US * SLIDE_US
    return sum(each for time, each, _ in rows if end - 60 <= START_US + time < end) or None


def totals(db: Engine, names=tuple(TEXTS)) -> list[int | None]:
    return [db.query(name).answer().table["total"][0].as_py() for name in names]


def test_sums_of_ten_sums_are_sums_over_their_time_also_after_a_kill(tmp_path):
    rng = np.random.default_rng(seed("results"))
    rows: list[tuple[int, int, int]] = []
    db = Engine.open(tmp_path / "0", run_rows=64)
    db.execute(CREATE)
    for name, text in TEXTS.items():
        db.register(name, text)
    now = 0
    for step in range(1, 25):
        now += int(rng.integers(1, 15))
        times = now - rng.integers(0, LATENESS_US // 2, 8)
        new = [(int(time), 100 * step + at, 0) for at, time in enumerate(times)]
        rows += new
        db.push("s", batch(new))
        db.heartbeat("s", START_US + now - LATENESS_US // 2)
        if step % 8 == 0:
            killed = copy_killed(db, tmp_path / str(step))
            db.close()
            db = Engine.open(killed, run_rows=64)
        if now > 90:
            truth = expected(rows, now - LATENESS_US // 2)
            assert totals(db) == [truth] * len(TEXTS), (step, now)
    db.close()
