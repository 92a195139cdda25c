"""Operator scheduling: rows, their order and a restart are the same by every policy."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest

from shedder.dataflow.scheduling.operator_scheduler import SchedulingPolicy
from shedder.engine.administration.control_table import control_table
from shedder.engine.engine import Engine
from shedder.errors import BadSetting
from tests.engine.dataflow.worlds import PICKED, Picked, Row, applied, batch, outcome, sharers
from tests.engine.killed import copy_killed
from tests.seeds import seed

WINDOW = "[RANGE INTERVAL '0.00004' SECOND]"
QUERIES = {
    "picked": PICKED,
    "pairs": f"SELECT a.id, b.id AS other FROM s {WINDOW} a JOIN t {WINDOW} b "
    "ON a.kind = b.kind WHERE a.id % 3 = 0 AND b.id % 2 = 0",
    "kinds": f"SELECT DISTINCT kind FROM s {WINDOW} WHERE kind < 4",
    "kinds_again": f"SELECT DISTINCT kind FROM s {WINDOW} WHERE kind < 4",
    "newest": "SELECT a.id, b.kind FROM s [ROWS 5] a JOIN t [ROWS 7] b ON a.kind = b.kind",
    "named": f"SELECT a.id, n.name FROM s {WINDOW} a JOIN n ON a.kind = n.kind WHERE a.id % 2 = 0",
}
BATCHES = 12


def create_streams(db: Engine) -> None:
    for name in ("s", "t"):
        db.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts "
            "LATENESS INTERVAL '0.00002' SECOND"
        )


def begun(path) -> Engine:
    db = Engine.open(path)
    create_streams(db)
    db.execute("CREATE TABLE n (kind BIGINT PRIMARY KEY, name VARCHAR)")
    db.execute("INSERT INTO n VALUES (1, 'one'), (3, 'three')")
    for name, text in QUERIES.items():
        db.register(name, text)
    return db


def drawn() -> list[tuple[str, list[Row]]]:
    """Tuples of both streams, some of them late."""
    rng, made = np.random.default_rng(seed(28)), []
    for at in range(BATCHES):
        for name in ("s", "t"):
            times = 12 * at + rng.integers(-40, 20, 40)
            kinds = rng.integers(0, 6, 40)
            rows = zip(times.tolist(), range(40 * at, 40 * at + 40), kinds.tolist(), strict=True)
            made.append((name, list(rows)))
    return made


def outcomes(db: Engine) -> dict[str, object]:
    return {name: outcome(db.query(name)) for name in QUERIES}


def pushed_at_once(db: Engine, batches: list[tuple[str, list[Row]]], between) -> object:
    """Push batches that wait together; half of them are applied before `between` is called.

    between: called on the apply thread while the other half waits.
    """
    held, half = Event(), len(batches) // 2
    db.core.executor.post(held.wait)
    for name, rows in batches[:half]:
        db.push(name, batch(rows))
    looked = db.core.executor.call(between)
    for name, rows in batches[half:]:
        db.push(name, batch(rows))
    held.set()
    return looked.result()


def waiting(db: Engine) -> list[str]:
    return [name for name, each in db.core.rows.queries.items() if each.waits]


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, object]:
    """Outcomes of the queries if each batch is applied before the next one comes."""
    with begun(tmp_path_factory.mktemp("each")) as db:
        for name, rows in drawn():
            db.push(name, batch(rows))
            db.core.executor.call(lambda: None).result()
        return outcomes(db)


@pytest.mark.parametrize("policy", SchedulingPolicy)
def test_rows_do_not_depend_on_the_policy_nor_on_a_kill(policy, tmp_path, expected):
    with begun(tmp_path / "db") as db:
        db.set_control("scheduler", "", "policy", policy.value)
        db.set_control("scheduler", "", "latency_ms", "3600000")
        names = pushed_at_once(db, drawn(), lambda: waiting(db))
        if policy is SchedulingPolicy.FIFO:
            assert names == []
        elif policy is SchedulingPolicy.ROUND_ROBIN:
            assert {"pairs", "newest"} & set(names)
        assert not {"kinds", "kinds_again"} & set(names)  # They have one relation.
        oracle = Picked()
        for name, rows in drawn():
            oracle.push(rows if name == "s" else [])
        copy_killed(db, tmp_path / "copy")
        assert outcomes(db)["picked"][0] == oracle.made
        assert outcomes(db) == expected
    with Engine.open(tmp_path / "copy") as db:
        assert outcomes(db) == expected


def test_a_checkpoint_and_a_change_of_a_table_come_behind_the_steps_that_wait(tmp_path):
    found = {}
    for policy in ("fifo", "round_robin"):
        with begun(tmp_path / policy) as db:
            db.set_control("scheduler", "", "policy", policy)
            pushed_at_once(db, drawn(), lambda db=db: db.core.rows.states({}))
            db.execute("INSERT INTO n VALUES (2, 'two')")
            if policy != "fifo":
                db.set_control("scheduler", "", "policy", "chain")
            pushed_at_once(db, drawn(), lambda db=db: waiting(db))
            found[policy] = outcomes(db)
    assert found["round_robin"] == found["fifo"]


def test_the_control_table_has_policy_queues_and_chains(tmp_path):
    with begun(tmp_path) as db:
        db.set_control("scheduler", "", "policy", "CHAIN")
        pushed_at_once(db, drawn(), lambda: None)
        outcomes(db)
        rows = control_table(db.services, "scheduler").to_pylist()
        facts = {(row["name"], row["key"]): row["value"] for row in rows}
        assert facts["", "policy"] == "chain"
        assert facts["", "latency_ms"] == "1000"
        assert facts["", "queue_bytes"] == "0"
        assert int(facts["", "peak_bytes"]) > 0
        assert facts["pairs", "operators"] == "read, filter, rows"
        assert facts["newest", "operators"] == "read, rows"
        assert facts["pairs", "chains"].endswith("MiB/s")
        db.query("pairs").drop()
        assert "pairs" not in control_table(db.services, "scheduler")["name"].to_pylist()
        for key, value, words in (
            ("policy", "lifo", "'lifo'; there are fifo, greedy, round_robin, chain"),
            ("latency_ms", "soon", "'soon'; it must be a number of milliseconds"),
        ):
            with pytest.raises(BadSetting, match=words):
                db.set_control("scheduler", "", key, value)


JOIN = f"FROM s {WINDOW} a JOIN s {WINDOW} b ON a.kind = b.kind"
PAIRS = f"SELECT a.id, b.id AS other {JOIN}"
COUNT = 200


def equal_kinds(at: int) -> list[Row]:
    """Tuples of one event time and one kind, which all join; the watermark passes them."""
    first = 100 * at
    return [*((first, COUNT * at + n, 1) for n in range(COUNT)), (first + 60, -1, 0)]


def in_turn(path, queries: dict[str, str], **settings) -> Engine:
    """Queries by round robin whose operators are measured; the last read is of t."""
    db = Engine.open(path, **settings)
    create_streams(db)
    for name, text in queries.items():
        db.register(name, text)
    db.set_control("scheduler", "", "policy", "round_robin")
    db.set_control("scheduler", "", "latency_ms", "3600000")
    for name in ("s", "t"):
        db.push(name, batch([(0, 0, 1), (60, -1, 0)]))
        applied(db)
    return db


def scheduled(db: Engine) -> set[str]:
    """Queries that have a path in the schedule."""
    return set(control_table(db.services, "scheduler")["name"].to_pylist()) - {""}


def test_memory_is_taken_from_the_query_whose_step_was_made_and_not_from_the_last_reader(tmp_path):
    """The step of `pairs` waits until the batch of t, which `tail` reads."""
    with in_turn(tmp_path, {"pairs": PAIRS, "tail": "SELECT id FROM t"}) as db:
        rows = db.core.rows
        rows.limits.all_bytes_max = rows.size_bytes + (4 << 20)
        batches = [("s", equal_kinds(1)), ("t", [(200, 1, 1)]), ("s", [(400, 0, 0)])]
        assert pushed_at_once(db, batches, lambda: waiting(db)) == ["pairs"]
        applied(db)
        assert {name for name, it in rows.queries.items() if it.failed} == {"pairs"}
        assert rows.size_bytes <= rows.limits.all_bytes_max
        assert scheduled(db) == {"tail"}


def test_another_policy_holds_the_queries_whose_steps_it_makes_to_the_limit(tmp_path):
    with in_turn(tmp_path, {"pairs": PAIRS}) as db:
        rows = db.core.rows
        rows.limits.all_bytes_max = rows.size_bytes + (4 << 20)

        def set_policy() -> tuple[list[str], bool]:
            before = waiting(db)
            rows.set_policy(SchedulingPolicy.CHAIN)
            return before, rows.size_bytes <= rows.limits.all_bytes_max

        batches = [("s", equal_kinds(1)), ("s", [(400, 0, 0)])]
        assert pushed_at_once(db, batches, set_policy) == (["pairs"], True)
        assert rows.queries["pairs"].failed


def test_a_join_stays_shared_while_the_schedule_has_one_reader_wait(tmp_path):
    """One query reads the pairs of the join a step before the other one."""
    texts = {name: f"SELECT DISTINCT {name}.kind {JOIN}" for name in "ab"}
    with in_turn(tmp_path, texts, row_query_bytes_max=1 << 20) as db:
        assert sharers(db, "a") == {"b"}
        batches = [("s", equal_kinds(at)) for at in range(1, 4)]
        assert pushed_at_once(db, batches, lambda: waiting(db)) == ["a", "b"]
        applied(db)
        assert sharers(db, "a") == {"b"}


def test_a_step_does_not_wait_for_a_query_whose_streams_have_no_batch(tmp_path):
    """It is the turn of `pairs` to read or to make rows, and no batch of s waits."""
    with in_turn(tmp_path, {"pairs": PAIRS, "tail": "SELECT id FROM t"}) as db:
        batches = [("s", equal_kinds(1)), ("t", [(200, 1, 1)])]
        assert pushed_at_once(db, batches, lambda: waiting(db)) == []
