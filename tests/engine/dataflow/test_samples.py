"""SAMPLE in standing row queries: the tuples of small random keys, as in a query asked once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from shedder.engine.engine import Engine
from synopses.kernels.hashing import position_keys
from tests.engine.dataflow.worlds import CREATE, START_US, applied, batch, subscribed
from tests.engine.killed import copy_killed
from tests.seeds import seed

ROWS, SHARE = 400, 0.25
QUERIES = {
    "emitted": "SELECT id FROM s SAMPLE(25)",
    "held": "SELECT id FROM s SAMPLE(25) [RANGE INTERVAL '1' HOUR]",
    "newest": "SELECT id FROM s SAMPLE(25) [ROWS 20]",
    "counted": "SELECT kind, COUNT(*) AS n FROM s SAMPLE(25) [RANGE INTERVAL '1' HOUR] q "
    "GROUP BY kind",
    "whole": "SELECT id FROM s [RANGE INTERVAL '1' HOUR]",
}


@pytest.fixture
def rows():
    rng = np.random.default_rng(seed("samples"))
    return [(at, at, int(kind)) for at, kind in enumerate(rng.integers(0, 5, ROWS))]


def relation(db: Engine, name: str) -> Counter[tuple[int, ...]]:
    table = db.query(name).answer().table
    columns = [
        table[each].to_pylist() for each in table.column_names if each in ("id", "kind", "n")
    ]
    return Counter(zip(*columns, strict=True))


def test_standing_samples_have_the_tuples_of_small_keys_also_after_a_kill(tmp_path, rows):
    with Engine.open(tmp_path / "0", run_rows=64) as db:
        db.execute(CREATE)
        db.register("before", QUERIES["held"])
        db.push("s", batch(rows[:150]))
        for name, text in QUERIES.items():
            db.register(name, text)
        db.push("s", batch(rows[150:250]))
        applied(db)
        copy_killed(db, tmp_path / "1")
    with Engine.open(tmp_path / "1", run_rows=64) as db:
        for first in range(250, ROWS, 50):
            db.push("s", batch(rows[first : first + 50]))
        db.heartbeat("s", START_US + ROWS)
        stream = db.services.core.streams["s"]
        small = position_keys(stream.schema.seed, 0, ROWS) < SHARE * 2**64
        kept = [row for row, is_kept in zip(rows, small, strict=True) if is_kept]
        ids = Counter((each,) for _, each, _ in kept)
        assert relation(db, "held") == relation(db, "before") == ids
        assert relation(db, "newest") == Counter((each,) for _, each, _ in kept[-20:])
        kinds = Counter(kind for _, _, kind in kept)
        assert relation(db, "counted") == Counter(kinds.items())
        assert relation(db, "whole") == Counter((each,) for _, each, _ in rows)
        emitted = [row[0] for row in subscribed(db.query("emitted"))]
        assert emitted == [each for _, each, _ in kept if each >= 150]
        once = db.execute("SELECT id FROM s SAMPLE(25)").table["id"].to_pylist()
        assert Counter((each,) for each in once) == ids
        plan = "\n".join(db.execute("EXPLAIN held").table["plan"].to_pylist())
        assert "s SAMPLE(25)" in plan


def test_a_sample_joins_its_own_tuples_alone(tmp_path, rows):
    """One side is a sample, the other one is whole, over one stream."""
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE)
        db.execute("CREATE TABLE names (id BIGINT PRIMARY KEY, name VARCHAR)")
        db.execute("INSERT INTO names VALUES " + ", ".join(f"({at}, 'n{at}')" for at in range(50)))
        hour = "[RANGE INTERVAL '1' HOUR]"
        pairs = f"FROM s SAMPLE(25) {hour} a, s {hour} b WHERE a.id = b.id"
        db.register("j", f"SELECT a.id, b.kind AS other {pairs}")
        db.register("named", "SELECT q.id, n.name FROM s SAMPLE(25) q JOIN names n ON q.id = n.id")
        db.push("s", batch(rows))
        db.heartbeat("s", START_US + ROWS)
        seed_of_stream = db.services.core.streams["s"].schema.seed
        small = np.flatnonzero(position_keys(seed_of_stream, 0, ROWS) < SHARE * 2**64).tolist()
        assert relation(db, "j") == Counter((each,) for each in small)
        named = [(row[0], row[1]) for row in subscribed(db.query("named"))]
        assert named == [(each, f"n{each}") for each in small if each < 50]
