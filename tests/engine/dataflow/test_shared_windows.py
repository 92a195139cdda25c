"""Self-joins of standing queries: one window for all aliases, also over a restart."""

from __future__ import annotations

from collections import defaultdict

from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import CREATE, START_US, batch, subscribed

STOPPED = (
    "SELECT a.id, a.kind AS x, b.kind AS y FROM s [PARTITION BY id ROWS 3] a "
    "JOIN s [PARTITION BY id ROWS 3] b ON a.id = b.id AND a.kind < b.kind"
)
ROWS = [(at, at % 5, at) for at in range(200)]


def pairs(rows):
    """Pairs of the three newest rows of each id, by brute force."""
    newest = defaultdict(list)
    for _, id_, kind in rows:
        newest[id_] = [*newest[id_][-2:], kind]
    return sorted(
        (id_, x, y) for id_, kinds in newest.items() for x in kinds for y in kinds if x < y
    )


def answered(query):
    return sorted(tuple(row.values()) for row in query.answer().table.to_pylist())


def test_self_join_has_the_past_of_its_window_and_survives_a_restart(tmp_path):
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE)
        db.push("s", batch(ROWS[:60]))
        db.heartbeat("s", START_US + 60)
        db.seal("s")
        query = db.register("q", STOPPED)
        assert answered(query) == pairs(ROWS[:60])
        db.push("s", batch(ROWS[60:130]))
        db.heartbeat("s", START_US + 130)
        assert answered(query) == pairs(ROWS[:130])
        assert [each.alias for each in query.answer().inputs] == ["a", "b"]
        made = subscribed(query)
    with Engine.open(tmp_path / "data") as db:
        query = db.query("q")
        assert subscribed(query) == made
        db.push("s", batch([ROWS[0], *ROWS[130:]]))  # The first is late.
        db.heartbeat("s", START_US + 200)
        assert answered(query) == pairs(ROWS)
        assert [each.late for each in query.answer().inputs] == [1, 1]
