"""Standing row queries in an engine that is killed and restarted, against a loop over tuples."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import (
    CREATE,
    PICKED,
    START_US,
    Picked,
    Subscriber,
    applied,
    batch,
    drawn_tuples,
)
from tests.engine.killed import copy_killed
from tests.scale import scaled
from tests.seeds import seed

pytestmark = pytest.mark.slow

RANGE_US = 50
QUERIES = {
    "picked": PICKED,
    "window": f"SELECT kind, id FROM s [RANGE INTERVAL '0.0000{RANGE_US}' SECOND] WHERE kind > 2",
    "kinds": "SELECT DISTINCT kind FROM s [RANGE INTERVAL '0.00003' SECOND "
    "SLIDE INTERVAL '0.00001' SECOND]",
    "newest": "SELECT kind, id FROM s [PARTITION BY kind ROWS 3]",
    "previous": "SELECT a.kind, a.id, b.id AS before FROM s [PARTITION BY kind ROWS 3] a, "
    "s [PARTITION BY kind ROWS 3] b WHERE a.kind = b.kind AND b = PREV(a)",
    "last": "SELECT id, kind FROM s [ROWS 5] WHERE kind > 1",
    "enter": "SELECT ISTREAM(DISTINCT kind) FROM s [RANGE INTERVAL '0.00002' SECOND]",
    "leave": f"SELECT DSTREAM(kind, id) FROM s [RANGE INTERVAL '0.0000{RANGE_US}' SECOND] "
    "WHERE kind > 2",
    "pairs": "SELECT a.id, b.id AS later FROM s [RANGE INTERVAL '0.00004' SECOND] a "
    "JOIN s [RANGE INTERVAL '0.00002' SECOND] b ON a.kind = b.kind AND a.id < b.id",
}
STEPS = {"push": 0.5, "promise": 0.1, "seal": 0.08, "checkpoint": 0.1, "read": 0.14, "kill": 0.08}


@pytest.mark.parametrize("world", range(scaled(1, 40)))
def test_subscribers_get_every_row_once_over_kills(world, tmp_path):
    rng = np.random.default_rng(seed("row queries", world))
    truth = Picked()
    steady, db = (Engine.open(tmp_path / name, run_rows=64) for name in ("steady", "0"))
    readers, lazy, undisturbed = ([Subscriber(name) for name in QUERIES] for _ in range(3))
    for engine, subscribers in ((db, (*readers, *lazy)), (steady, undisturbed)):
        engine.execute(CREATE)
        for name, text in QUERIES.items():
            engine.register(name, text)
        for subscriber in subscribers:
            subscriber.begin(engine)
    ids = now = 0
    for step in range(1, 60):
        now += int(rng.integers(0, 15))
        match rng.choice(list(STEPS), p=list(STEPS.values())):
            case "push":
                rows = drawn_tuples(rng, ids, now)
                ids += len(rows)
                db.push("s", batch(rows))
                steady.push("s", batch(rows))
                truth.push(rows)
            case "promise":
                db.heartbeat("s", START_US + now)
                steady.heartbeat("s", START_US + now)
                truth.promise(now)
            case "seal":
                db.seal("s")
            case "checkpoint":
                db.core.executor.call(db.checkpoints.now).result()
            case "read":
                for reader in readers:
                    reader.read(db, batches=int(rng.integers(1, 4)))
            case "kill":
                copied = copy_killed(db, tmp_path / str(step))
                db.close()
                db = Engine.open(copied, run_rows=64)
    applied(db)
    applied(steady)
    for reader in (*readers, *lazy):
        reader.read(db)
    for reader in undisturbed:
        reader.read(steady)
    progress = db.query("picked").answer().inputs[0]
    relations = {name: db.query(name).answer().table for name in ("window", "kinds")}
    db.close()
    steady.close()
    assert [reader.got for reader in readers] == [reader.got for reader in undisturbed]
    assert [reader.got for reader in lazy] == [reader.got for reader in undisturbed]
    assert readers[0].got == truth.made
    assert progress.late == truth.late
    assert progress.as_of_us == (None if truth.watermark is None else START_US + truth.watermark)
    by_name = {reader.name: Counter(row[:-2] for row in reader.got) for reader in readers}
    content = {
        name: Counter(tuple(row.values()) for row in table.to_pylist())
        for name, table in relations.items()
    }
    assert content["window"] == by_name["window"] - by_name["leave"]  # The law of CQL, section 4.
    assert content["kinds"] <= by_name["kinds"]
    if truth.watermark is not None:
        held = {
            (next_ - 1, id_)
            for id_, next_, time, _ in truth.made
            if truth.watermark - RANGE_US <= time
        }
        assert set(content["window"]) == held


def test_rows_of_a_whole_relation_come_in_an_order_that_no_past_decides(tmp_path):
    """Kind 5 is in the window since a tuple which the newer query does not read."""
    text = "SELECT RSTREAM(DISTINCT kind) FROM s [RANGE INTERVAL '0.00003' SECOND]"
    with Engine.open(tmp_path / "d") as db:
        db.execute(CREATE)
        db.register("older", text)
        db.push("s", batch([(0, 1, 5), (20, 2, 3), (28, 3, 5)]))
        db.heartbeat("s", START_US + 45)
        applied(db)
        readers = [Subscriber("older"), Subscriber("newer")]
        db.register("newer", text)
        for reader in readers:
            reader.begin(db)
        db.push("s", batch([(46, 4, 4)]))
        db.heartbeat("s", START_US + 48)
        applied(db)
        for reader in readers:
            reader.read(db)
            assert reader.got == [(kind, 46, 1) for kind in (3, 4, 5)]
