"""ON OVERLOAD BLOCK and DROP: what each gives up, that all of it is counted, and answers know."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shedder.archive.operations.verify import check
from shedder.engine.engine import Engine
from shedder.engine.load_shedding.controller_loop import Overload
from shedder.errors import BadQuery, UnknownStream
from shedder.queries.answers.answer import Answer
from shedder.simulation.virtual_environment import VirtualEnvironment
from shedder.streams.batches import encode
from tests.engine.flooded import QUERIES, ROWS, Flooded

DOOR = ("DROP", "DROP LEAST x")


def flooded_with(tmp_path, policy: str) -> Flooded:
    world = Flooded(tmp_path / "db")
    world.engine.execute(f"ALTER STREAM s SET ON OVERLOAD {policy}")
    world.flood()
    world.machine.settle()
    return world


def truth(world: Flooded) -> pa.Table:
    return pa.Table.from_batches(world.sent)


def assert_the_ledger_is_exact(world: Flooded) -> None:
    ledger = world.engine.ledger("s")
    sent = len(world.sent) * ROWS
    assert ledger.accepted == ledger.applied + ledger.duplicate
    assert ledger.applied + ledger.dropped == sent
    for query in ledger.queries:
        assert query.read + query.thinned + query.late == ledger.applied


def assert_intervals_hold(world: Flooded, answer: Answer) -> None:
    """For certain: what was dropped may have been anything that such tuples were."""
    [row] = answer.rows()
    sent = truth(world)
    for name, true in (("n", len(sent)), ("s", pc.sum(sent["x"]).as_py())):
        assert row[f"{name}_bound"] in ("interval", "none")
        if row[f"{name}_bound"] == "interval":
            assert row[f"{name}_low"] * (1 - 1e-9) <= true <= row[f"{name}_high"] * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("policy", DOOR)
def test_what_is_dropped_at_the_door_is_acknowledged_and_counted_and_in_no_archive(
    tmp_path, policy
):
    world = flooded_with(tmp_path, policy)
    with world.engine as engine:
        ledger = engine.ledger("s")
        assert 0.2 * len(world.sent) * ROWS < ledger.dropped < len(world.sent) * ROWS
        assert_the_ledger_is_exact(world)
        assert set(world.levels("wide")) == {0}  # Nothing is thinned.
        assert world.facts("stream", "s")["dropped"] == str(ledger.dropped)
        assert world.facts("stream", "s")["on_overload"] == policy
        stream = engine.core.stream("s")
        assert engine.core.store.end_position(stream.id) == ledger.applied
        for query in QUERIES:
            assert engine.query(query).answer().late == 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", DOOR)
def test_answers_after_drops_hold_the_truth_and_say_why_they_are_wide(tmp_path, policy):
    world = flooded_with(tmp_path, policy)
    with world.engine as engine:
        answer = engine.query("wide").answer()
        dropped = engine.ledger("s").dropped
        assert f"{dropped:,} tuples were dropped at the door" in " ".join(answer.notes)
        assert_intervals_hold(world, answer)
        [row] = answer.rows()
        assert row["n_bound"] == "interval"
        assert row["n_high"] - row["n_low"] == dropped


@pytest.mark.slow
def test_counts_and_sums_after_random_drops_are_scaled_to_what_came(tmp_path):
    world = flooded_with(tmp_path, "DROP")
    with world.engine as engine:
        [row] = engine.query("wide").answer().rows()
        sent = truth(world)
        assert row["n"] == pytest.approx(len(sent), rel=0.01)
        assert row["s"] == pytest.approx(pc.sum(sent["x"]).as_py(), rel=0.1)


@pytest.mark.slow
def test_drop_least_keeps_the_most_of_the_value_in_the_least_room(tmp_path):
    world = flooded_with(tmp_path, "DROP LEAST x")
    with world.engine as engine:
        stream = engine.core.stream("s")
        kept = pa.concat_tables(
            pa.Table.from_batches([batch]) for _, batch in engine.core.store.scan(stream.id)
        )
        sent = truth(world)
        share_of_tuples = len(kept) / len(sent)
        share_of_value = pc.sum(kept["x"]).as_py() / pc.sum(sent["x"]).as_py()
        assert 1 - share_of_value < 0.5 * (1 - share_of_tuples)
        [row] = engine.query("wide").answer().rows()
        spread = (row["s_high"] - row["s_low"]) / pc.sum(sent["x"]).as_py()
        most = pc.max(sent["x"]).as_py() * engine.ledger("s").dropped
        assert spread < 0.2 * most / pc.sum(sent["x"]).as_py()  # Their range is known, too.


@pytest.mark.slow
@pytest.mark.parametrize("policy", DOOR)
def test_what_was_dropped_is_still_known_after_a_stop_with_and_without_a_checkpoint(
    tmp_path, policy
):
    world = flooded_with(tmp_path, policy)
    before = world.engine.ledger("s")
    [wide] = world.rows("wide")
    for checkpointed in (False, True):
        world.killed_and_opened(checkpointed=checkpointed)
        after = world.engine.ledger("s")
        assert (after.dropped, after.applied) == (before.dropped, before.applied)
        [row] = world.rows("wide")
        assert (row["n"], row["n_low"], row["n_high"]) == (wide["n"], wide["n_low"], wide["n_high"])
        assert world.engine.core.intakes["s"].drops is not None
    world.engine.close()
    assert check(tmp_path / "db").damages == []


@pytest.mark.slow
def test_one_time_answers_say_none_where_something_was_dropped_and_only_there(tmp_path):
    world = flooded_with(tmp_path, "DROP")
    with world.engine as engine:
        answer = engine.execute("SELECT COUNT(*) AS n FROM s")
        [row] = answer.rows()
        assert row["n_bound"] == "none"
        assert "dropped under overload" in " ".join(answer.notes)
        elsewhere = engine.execute(
            "SELECT COUNT(*) AS n FROM s [FROM TIMESTAMP '1971-01-01' TO TIMESTAMP '1972-01-01']"
        )
        assert elsewhere.rows()[0]["n_bound"] == "exact"
        (note,) = engine.execute("SELECT ts FROM s").notes
        assert note.startswith(f"stream s: {engine.ledger('s').dropped:,} tuples were dropped")
        assert engine.execute("SELECT ts FROM s WHERE ts > TIMESTAMP '1971-01-01'").notes == ()


@pytest.mark.slow
def test_a_replay_of_a_batch_that_was_dropped_from_drops_nothing_again(tmp_path):
    world = flooded_with(tmp_path, "DROP")
    with world.engine as engine:
        engine.core.intakes["s"].drops.share = 0.5
        world.machine.log.commit(world.machine.log.gather())
        payload = encode(world.sent[0])

        def append():
            return engine.append("s", payload, producer="again", epoch=0, sequence=0)

        first = append()
        world.machine.settle()
        second = append()
        assert 0 < first.result().dropped < ROWS
        assert first.result().rows == ROWS - first.result().dropped
        assert second.result().duplicate
        assert second.result().dropped == 0


@pytest.mark.slow
def test_drop_oldest_reads_what_is_fresh_and_the_archive_has_the_rest(tmp_path):
    world = flooded_with(tmp_path, "DROP OLDEST")
    with world.engine as engine:
        ledger = engine.ledger("s")
        assert ledger.dropped == 0
        assert ledger.applied == len(world.sent) * ROWS
        assert_the_ledger_is_exact(world)
        wide = next(query for query in ledger.queries if query.query == "wide")
        assert 0.2 * ledger.applied < wide.late < ledger.applied
        assert set(world.levels("wide")) == {0}
        assert_intervals_hold(world, engine.query("wide").answer())
        [row] = engine.execute("SELECT COUNT(*) AS n FROM s").rows()
        assert (row["n"], row["n_bound"]) == (ledger.applied, "exact")


@pytest.mark.slow
def test_block_thins_nothing_drops_nothing_and_closes_no_door(tmp_path):
    world = flooded_with(tmp_path, "BLOCK")
    with world.engine as engine:
        ledger = engine.ledger("s")
        assert (ledger.dropped, ledger.refused_rows) == (0, 0)
        assert ledger.applied == len(world.sent) * ROWS
        assert set(world.levels("wide")) == {0}
        assert engine.core.door.wait_ms("s", 1 << 30, 0.0) == 0
        assert engine.blocks("s")
        [row] = engine.query("wide").answer().rows()
        assert (row["n"], row["n_bound"]) == (ledger.applied, "exact")


@pytest.mark.slow
def test_a_stream_that_is_told_to_block_in_a_flood_is_read_in_full_again(tmp_path):
    world = Flooded(tmp_path / "db")
    with world.engine as engine:
        world.flood()
        assert max(world.levels("wide")) > 0
        engine.execute("ALTER STREAM s SET ON OVERLOAD BLOCK")
        for _ in range(12):
            world.tick()
        assert set(world.levels("wide")) == {0}
        assert engine.core.stream("s").schema.on_overload.policy.value == "BLOCK"


@pytest.mark.slow
def test_an_engine_that_does_not_shed_drops_nothing(tmp_path):
    world = Flooded(tmp_path / "db", overload="off")
    with world.engine as engine:
        assert isinstance(engine.overload, Overload)
        for policy in (*DOOR, "DROP OLDEST"):
            engine.execute(f"ALTER STREAM s SET ON OVERLOAD {policy}")
            world.flood()
        world.machine.settle()
        ledger = engine.ledger("s")
        assert ledger.dropped == 0
        assert ledger.applied == len(world.sent) * ROWS
        assert all(query.late == 0 for query in ledger.queries)


def test_a_policy_outlives_a_restart_and_the_definition_says_it(tmp_path):
    world = Flooded(tmp_path / "db")
    world.engine.execute("ALTER STREAM s SET ON OVERLOAD DROP LEAST x")
    world.engine.close()
    with Engine.open(tmp_path / "db", machine=VirtualEnvironment(2, 0)) as again:
        shown = again.execute("SHOW STREAMS").table.to_pylist()
        assert shown[0]["definition"].endswith("ON OVERLOAD DROP LEAST x")


def test_policies_of_what_is_not_there_are_refused(tmp_path):
    world = Flooded(tmp_path / "db")
    with world.engine as engine:
        with pytest.raises(UnknownStream):
            engine.execute("ALTER STREAM nothing SET ON OVERLOAD DROP")
        with pytest.raises(BadQuery, match="no such column; there are ts, k, g, x"):
            engine.execute("ALTER STREAM s SET ON OVERLOAD DROP LEAST worth")
