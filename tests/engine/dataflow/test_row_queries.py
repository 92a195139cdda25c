"""Standing row queries in an engine that is killed and restarted, against a loop over tuples."""

from __future__ import annotations

import numpy as np
import pytest

from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import (
    CREATE,
    LATENESS_US,
    PICKED,
    START_US,
    Picked,
    Subscriber,
    applied,
    batch,
)
from tests.engine.killed import copy_killed
from tests.scale import scaled
from tests.seeds import seed

pytestmark = pytest.mark.slow


def tuples(rng: np.random.Generator, first_id: int, now: int) -> list[tuple[int, int, int]]:
    """Up to 30 tuples around an instant; some of them too late."""
    rows = int(rng.integers(0, 31))
    times = now + rng.integers(-2 * LATENESS_US, LATENESS_US, rows)
    kinds = rng.integers(0, 6, rows)
    return [
        (int(time), first_id + at, int(kind))
        for at, (time, kind) in enumerate(zip(times, kinds, strict=True))
    ]


@pytest.mark.parametrize("world", range(scaled(4, 40)))
def test_subscriber_gets_every_row_once_over_kills(world, tmp_path):
    rng = np.random.default_rng(seed("row queries", world))
    truth, reader, lazy = Picked(), Subscriber("q"), Subscriber("q")
    db = Engine.open(tmp_path / "0", run_rows=64)
    db.execute(CREATE)
    db.register("q", PICKED)
    reader.begin(db)
    lazy.begin(db)
    ids = now = 0
    for step in range(1, 60):
        now += int(rng.integers(0, 15))
        match rng.choice(["push", "promise", "seal", "checkpoint", "read", "kill"], p=_ODDS):
            case "push":
                rows = tuples(rng, ids, now)
                ids += len(rows)
                db.push("s", batch(rows))
                truth.push(rows)
            case "promise":
                db.heartbeat("s", START_US + now)
                truth.promise(now)
            case "seal":
                db.seal("s")
            case "checkpoint":
                db.core.executor.call(db.checkpoints.now).result()
            case "read":
                reader.read(db, batches=int(rng.integers(1, 4)))
            case "kill":
                copied = copy_killed(db, tmp_path / str(step))
                db.close()
                db = Engine.open(copied, run_rows=64)
    applied(db)
    reader.read(db)
    lazy.read(db)
    progress = db.query("q").answer().inputs[0]
    db.close()
    assert reader.got == truth.made
    assert lazy.got == truth.made
    assert progress.late == truth.late
    assert progress.as_of_us == (None if truth.watermark is None else START_US + truth.watermark)


_ODDS = [0.5, 0.1, 0.08, 0.1, 0.14, 0.08]
