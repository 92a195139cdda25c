"""Queries of different streams that share operators, each at the pace of its own watermarks."""

from __future__ import annotations

import pytest

from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import START_US, applied, batch, memory, outcome, sharers
from tests.engine.killed import copy_killed
from tests.engine.query_worlds import Advanced

pytestmark = pytest.mark.slow

WINDOW = "[RANGE INTERVAL '0.001' SECOND]"
R = f"SELECT id, kind FROM r {WINDOW} WHERE kind > 0"
LARGEST = f"SELECT ISTREAM(kind, MAX(id) AS m) FROM r {WINDOW} GROUP BY kind"
RS = f"SELECT a.id, b.id AS other FROM r {WINDOW} a JOIN s {WINDOW} b ON a.id = b.id"
RST = (
    f"SELECT x.id, z.kind FROM r {WINDOW} x JOIN s {WINDOW} y ON x.id = y.id "
    f"JOIN t {WINDOW} z ON x.id = z.id"
)
SHORTER = (
    "SELECT a.id, b.kind FROM r [RANGE INTERVAL '0.0004' SECOND] a JOIN "
    f"t {WINDOW} b ON a.kind = b.kind AND a.id = b.id"
)
QUERIES = {
    "r": R,
    "shorter": SHORTER,
    "rs": RS,
    "rst": RST,
    "largest": LARGEST,
    "whole": f"SELECT RSTREAM(id, kind) FROM r {WINDOW}",
    "whole again": f"SELECT RSTREAM(q.id, q.kind) FROM r {WINDOW} q",
}


def opened(path, queries=None) -> Engine:
    db = Engine.open(path, machine=Advanced(), idle_seconds=60.0)
    for name in "rst":
        db.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts "
            "LATENESS INTERVAL '0.00001' SECOND"
        )
    for name in queries or ():
        db.register(name, QUERIES[name])
    return db


def keepers(db: Engine, name: str) -> dict[str, set[str]]:
    """By what the rows of each stream of a query are kept, and for which other queries."""
    found = db.core.executor.call(lambda: db.core.rows.operators(db.core.rows.queries[name]))
    kept = (each for each in found.result() if each.kept is not None)
    return {f"{each.text}: {each.kept_text}": set(each.keepers) for each in kept}


def push(dbs, stream: str, begin: int, count: int = 40) -> None:
    """Tuples with equal event times, out of order within the lateness."""
    rows = [(begin + at + 7 * (at % 3 == 0), at % 9, at % 4) for at in range(count)]
    for db in dbs:
        db.push(stream, batch(rows))


def test_queries_of_different_streams_have_the_rows_of_queries_alone(tmp_path):
    """t is behind the others for a while; a query is dropped, and the server is killed."""
    names = list(QUERIES)
    together = opened(tmp_path / "together")
    alone = {name: opened(tmp_path / name.replace(" ", "_"), [name]) for name in names}
    every = [together, *alone.values()]
    push(every, "r", 0)
    for name in names:  # All are new, and read the past of r.
        together.register(name, QUERIES[name])
        alone[name].execute(f'DROP QUERY "{name}"')
        alone[name].register(name, QUERIES[name])
    for step in range(1, 4):
        for stream in "rs":
            push(every, stream, 100 * step)
    assert sharers(together, "rst") == {"r", "rs", "shorter", "largest", "whole", "whole again"}
    assert keepers(together, "rs") == {
        "r AS a: kind, id, and by id": {"rst", "shorter", "largest"},
        "s AS b: id": {"rst"},
    }
    assert "s AS b [also in rst], rows kept [also for " in together.query("rs").explain()
    assert "whole again" in sharers(together, "whole")
    waiting = together.core.rows.queries["rst"]
    assert waiting.frontier.as_of_us is None
    push(every, "t", 150)
    killed = copy_killed(together, tmp_path / "killed")
    together.execute("DROP QUERY r")
    for stream in "rst":
        push(every, stream, 400)
    for name in names[1:]:
        assert outcome(together.query(name)) == outcome(alone[name].query(name)), name
    together.close()
    with Engine.open(killed) as again:
        for stream in "rst":
            push([again], stream, 400)
        assert sharers(again, "rst") == {"r", "rs", "shorter", "largest", "whole", "whole again"}
        for name in names:
            assert outcome(again.query(name)) == outcome(alone[name].query(name)), name
    for db in alone.values():
        db.close()


def test_a_window_is_in_memory_once_for_queries_of_different_streams(tmp_path):
    """The join of r and s is held once, whichever query comes first."""
    for names in (("rs", "rst"), ("rst", "rs")):
        with opened(tmp_path / names[0]) as db:
            for stream in "rst":
                db.push(stream, batch([(at // 20, at, at % 7) for at in range(20_000)]))
            db.register(names[0], QUERIES[names[0]])
            applied(db)
            first = memory(db)
            db.register(names[1], QUERIES[names[1]])
            applied(db)
            own = db.core.rows.queries[names[1]]
            shared = sum(each.size_bytes for each in own.shared_parts)
            assert shared > 20_000 * 2 * 16
            assert memory(db) - first <= own.size_bytes - shared + (1 << 16)


def test_a_stream_that_counts_as_idle_makes_queries_go_apart(tmp_path):
    """In `rs`, the watermark of r follows s: tuples are late there that the others have."""
    names = ["r", "largest", "rs"]
    together = opened(tmp_path / "together", names)
    alone = {name: opened(tmp_path / name, [name]) for name in names}
    every = [together, *alone.values()]
    for stream in "rs":
        push(every, stream, 100)
    assert sharers(together, "rs") == {"r", "largest"}
    for later in (300, 301):
        for db in every:
            db.heartbeat("s", START_US + later)
            applied(db)
            db.core.machine.now_s += 60.0
    for db in every:
        db.heartbeat("s", START_US + 302)
        applied(db)
        applied(db)
        db.heartbeat("s", START_US + 303)
        applied(db)
    assert sharers(together, "rs") == set()
    assert sharers(together, "r") == {"largest"}
    for stream in "rs":
        push(every, stream, 280)
    for stream in "rs":
        push(every, stream, 400)
    inputs = together.query("rs").answer().inputs
    assert {it.alias: it.late > 0 for it in inputs} == {"a": True, "b": True}
    assert [it.late for it in together.query("r").answer().inputs] == [0]
    for name in names:
        assert outcome(together.query(name)) == outcome(alone[name].query(name)), name
    for db in every:
        db.close()


def test_a_query_far_behind_the_others_goes_on_with_a_copy(tmp_path):
    """A join makes many pairs, which wait for the query that waits for t."""
    with opened(tmp_path / "d", ["rs", "rst"]) as db:
        limit = db.core.rows.limits.query_bytes_max
        pairs = [(at, 1, 1) for at in range(400)]
        for begin in range(0, 4_000, 1_000):
            for stream in "rs":
                db.push(stream, batch([(begin + ts, key, kind) for ts, key, kind in pairs]))
        applied(db)
        assert sharers(db, "rst") == set()
        slow = db.core.rows.queries["rst"]
        assert limit // 4 < slow.state_bytes < limit
        db.push("t", batch([(100, 1, 5), (900, 2, 5)]))
        db.heartbeat("t", START_US + 4_000)
        assert db.query("rst").answer().table.num_rows == 0
        assert db.core.rows.queries["rst"].output.rows >= 400 * 400
