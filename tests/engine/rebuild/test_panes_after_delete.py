"""DELETE and standing queries: an exact answer equals a scan of the rows that are left."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shedder.engine.standing_queries.deletion_notes import NOTED_MAX
from tests.engine import summary_world
from tests.engine.rebuild.worlds import QUERIES, SECOND, Deleting
from tests.scale import scaled


def bounds(world, name, output="n"):
    return {row[f"{output}_bound"] for row in world.answer(name).rows()}


def assert_exact(world):
    """No answer allows for deleted rows any more."""
    for name in QUERIES:
        world.check(name)
        assert bounds(world, name) <= {"exact"}, name
        assert not world.answer(name).notes, name


def filled(directory, queries=QUERIES, batches=6, **settings):
    world = Deleting(directory, queries, **settings)
    for seed in range(batches):
        world.push(40, seed)
    return world


@pytest.mark.slow
def test_no_answer_is_exact_between_the_delete_and_the_rebuild_and_all_are_after_it(tmp_path):
    world = filled(tmp_path / "data")
    for name in QUERIES:
        world.check(name)
        assert bounds(world, name) == {"exact"}, name
    world.delete("k > 2")
    for name in QUERIES:
        world.check(name)
        assert bounds(world, name) == {"interval"}, name
        assert "still counted" in " ".join(world.answer(name).notes), name
    assert bounds(world, "whole", "sk") == {"none"}
    world.rebuild()
    assert_exact(world)
    world.close()


def test_rows_of_no_window_leave_its_answer_exact(tmp_path):
    world = filled(tmp_path / "data", {"narrow": QUERIES["narrow"]}, batches=2)
    world.engine.seal("s")
    for seed in range(2, 8):
        world.push(40, seed)
    world.delete("ts < TIMESTAMP '1970-01-01 00:16:43'")
    world.check("narrow")
    assert bounds(world, "narrow") == {"exact"}
    assert not world.answer("narrow").notes
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_restart_keeps_which_panes_were_rebuilt(tmp_path, killed, rebuilt):
    world = filled(tmp_path / "data")
    world.delete("k > 2")
    if rebuilt:
        world.rebuild()
    world.reopen(killed=killed)
    noted = [name for name in QUERIES if world.answer(name).notes]
    assert noted == ([] if rebuilt else list(QUERIES))
    for name in QUERIES:
        world.check(name)
    world.rebuild()
    assert_exact(world)
    world.close()


def test_a_query_registered_while_rows_are_deleted_does_not_count_them_as_exact(tmp_path):
    """Its replay may have read them before they were deleted."""
    world = filled(tmp_path / "data", {}, batches=3)
    world.queries = {"whole": QUERIES["whole"]}
    world.machine.at_registration.append(lambda: world.delete("k > 2"))
    world.engine.register("whole", QUERIES["whole"])
    world.push(40, 3)
    assert bounds(world, "whole") == {"interval"}
    world.check("whole")
    world.rebuild()
    assert bounds(world, "whole") == {"exact"}
    world.check("whole")
    world.close()


@pytest.mark.slow
def test_late_tuples_are_in_a_pane_that_was_rebuilt(tmp_path):
    world = filled(tmp_path / "data", {"sliding": QUERIES["sliding"]}, batches=4)
    world.push(40, 9, late=5)
    assert world.answer("sliding").notes
    world.delete("k > 7")
    world.rebuild()
    assert world.check("sliding") >= {"exact"}
    assert not world.answer("sliding").notes
    world.close()


@pytest.mark.slow
def test_a_pane_whose_rows_are_all_deleted_is_empty(tmp_path):
    world = filled(tmp_path / "data")
    world.delete("TRUE")
    world.rebuild()
    for name in QUERIES:
        world.check(name)
    (row,) = world.answer("whole").rows()
    assert (row["n"], row["n_bound"], row["sk"], row["sk_bound"]) == (0, "exact", None, "exact")
    assert world.answer("grouped").rows() == world.answer("sliding").rows() == []
    world.close()


@pytest.mark.slow
def test_panes_that_retention_has_cut_stay_as_they_are(tmp_path):
    world = filled(tmp_path / "data", {"whole": QUERIES["whole"]}, batches=3)
    world.engine.seal("s")
    for seed in range(3, 6):
        world.push(40, seed)
    core = world.engine.core
    assert core.store.retention.apply(core.streams["s"].id, 1_006 * SECOND) == 120
    world.delete("k > 2")
    world.rebuild()
    assert bounds(world, "whole") == {"interval"}
    world.close()


def test_panes_of_a_damaged_run_are_not_exact_and_are_not_tried_for_ever(tmp_path):
    world = filled(tmp_path / "data", {"whole": QUERIES["whole"]}, batches=2)
    world.engine.seal("s")
    world.push(40, 2)
    world.delete("k > 2")
    store = world.engine.core.store
    path = store.directory / "runs" / store.runs(world.engine.core.streams["s"].id)[0].file
    world.reopen()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    world.rebuild()
    assert bounds(world, "whole") == {"interval"}
    facts = {row["key"]: row["value"] for row in world.engine.control("repair").to_pylist()}
    assert facts["given_up"] == "whole"
    world.close()


@pytest.mark.slow
def test_panes_with_summaries_built_elsewhere_are_not_exact_after_a_delete(tmp_path):
    """The archive has no rows of them, so it cannot tell what the pane would be without others."""
    queries = {"whole": "SELECT COUNT(*) AS n, SUM(k) AS s FROM s"}
    with summary_world.created(tmp_path / "data", queries) as engine:
        engine.push("s", summary_world.rows(60, 1))
        made = summary_world.built(summary_world.plans_of(engine), summary_world.rows(40, 2))
        engine.merge("s", made.to_bytes())
        engine.execute("DELETE FROM s WHERE k > 1")
        (row,) = engine.query("whole").answer().rows()
        (left,) = engine.execute("SELECT COUNT(*) AS n FROM s").rows()
        assert (row["n_bound"], row["s_bound"]) == ("interval", "none")
        assert row["n_low"] <= left["n"] + 40 <= row["n_high"]


@pytest.mark.slow
def test_cells_of_collapsed_panes_are_not_exact_after_a_delete(tmp_path):
    collapsed = "SELECT COUNT(*) AS n FROM s [RANGE 8 SECONDS SLIDE 1 SECOND COLLAPSE BY 2 AFTER 2]"
    world = filled(tmp_path / "data", {"collapsed": collapsed})
    assert bounds(world, "collapsed") == {"exact"}
    world.delete("k > 2")
    world.rebuild()
    assert world.check("collapsed") == {"interval"}
    world.close()


@pytest.mark.slow
def test_an_answer_has_a_note_for_each_of_the_newest_deletes(tmp_path):
    world = filled(tmp_path / "data", {"whole": QUERIES["whole"]}, batches=3)
    for k in range(NOTED_MAX + 5):
        world.delete(f"k = {k % 10} AND x < {1 + k // 10}")
    world.check("whole")
    deleted = world.engine.ledger("s").deleted
    notes = [note for note in world.answer("whole").notes if "were deleted" in note]
    assert len(notes) <= NOTED_MAX + 1
    assert sum(int(note.split()[0].replace(",", "")) for note in notes) == deleted
    world.rebuild()
    assert world.answer("whole").notes == ()
    world.close()


STEPS = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 60)),
    st.tuples(st.just("push"), st.integers(1, 60)),
    st.tuples(st.just("delete"), st.integers(0, 10)),
    st.tuples(st.just("delete_group"), st.sampled_from("abc")),
    st.tuples(st.just("delete_before"), st.integers(0, 8)),
    st.tuples(st.just("rebuild"), st.just(0)),
    st.tuples(st.just("seal"), st.just(0)),
    st.tuples(st.just("purge"), st.just(0)),
    st.tuples(st.just("register"), st.just(0)),
    st.tuples(st.just("reopen"), st.booleans()),
)


@pytest.mark.slow
@settings(max_examples=scaled(4, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=4, max_size=10))
def test_an_exact_answer_equals_a_scan_whatever_was_pushed_and_deleted(tmp_path_factory, steps):
    world = Deleting(tmp_path_factory.mktemp("deleting") / "data")
    for number, (step, value) in enumerate(steps):
        match step:
            case "push":
                world.push(value, number, late=value // 10)
            case "delete":
                world.delete(f"k >= {value}")
            case "delete_group":
                world.delete(f"g = '{value}' AND x > 2")
            case "delete_before":
                world.delete(f"ts < TIMESTAMP '1970-01-01 00:16:4{value}'")
            case "rebuild":
                world.rebuild()
            case "seal":
                world.engine.seal("s")
            case "purge":
                world.engine.files.purge("s")
            case "register":
                world.engine.execute("DROP QUERY whole")
                world.engine.register("whole", QUERIES["whole"])
            case "reopen":
                world.reopen(killed=value)
        for name in QUERIES:
            world.check(name)
    world.rebuild()
    assert world.check("whole") <= {"exact", "interval"}
    assert bounds(world, "whole") == {"exact"}
    for name in QUERIES:
        world.check(name)
    world.close()
