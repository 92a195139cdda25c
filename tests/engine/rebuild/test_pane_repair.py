"""Panes that a flood has thinned are built again from the archive, when nothing else is to do."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.text.durations import timestamp_text
from shedder.engine.engine import Engine
from shedder.engine.rebuild.pane_repair import Repair, rows_there
from shedder.simulation.virtual_environment import Later, VirtualEnvironment
from shedder.streams.batches import encode
from tests.engine.flooded import SECOND, START, Flooded, Priced

FLOOD, AFTER = 6, 50  # Ticks.
REPAIRED = {
    "whole": "SELECT COUNT(*) AS n, TOP(k, 5) AS t, QUANTILE(x, 0.9) AS q, SUM(x) AS s FROM s",
    "by_group": "SELECT g, COUNT(*) AS n, SUM(x) AS s, VAR(x) AS v FROM s GROUP BY g",
    "sliding": "SELECT g, COUNT(*) AS n, SUM(x) AS s, MAX(x) AS m, COUNT(DISTINCT k) AS d "
    "FROM s [RANGE 8 SECONDS SLIDE 2 SECONDS] GROUP BY g",
    "filtered": "SELECT QUANTILE(x, 0.5) AS q, SUM(x) AS s FROM s [RANGE 4 SECONDS] WHERE k > 3",
}


def corrected(world, number):
    """Rows of a batch deleted, and as many sent anew, which come too late; when, and how many."""
    table = world.sent[number]
    wrong = np.asarray(table["k"]) == 1
    us = int(table["ts"].cast("int64")[0].as_py())
    world.engine.seal("s")
    world.engine.execute(f"DELETE FROM s WHERE k = 1 AND ts = '{timestamp_text(us)}'")
    again = encode(table.filter(pa.array(wrong)))
    world.engine.append("s", again, producer="other", epoch=0, sequence=None)
    world.machine.log.commit(world.machine.log.gather())
    return us, np.count_nonzero(wrong)


class Unrepaired(Priced):
    """A machine whose engine never repairs panes; the test has its own `Repair`."""

    def __init__(self):
        super().__init__()
        self.never = Later()

    def pool(self, name):
        return self.never.pool() if name == "shedder-repair" else super().pool(name)


def repair_of(world, may_go=lambda: True):
    """Return a repair whose work the world's machine does."""
    core = world.engine.core
    core.machine.never = core.machine.later
    return Repair(core, world.engine.checkpoints, may_go)


def given_up(repair):
    """Return the queries of which repair has given up a pane."""
    return set(repair.facts()["given_up"].split("; "))


def lived(directory, *, overload="on", repairs=False):
    """An engine after a flood, with what it answered then."""
    world = Flooded(directory, machine=None if repairs else Unrepaired(), overload=overload)
    world.spacing_us = SECOND // 10
    world.machine.slowness *= 2  # Else the window of few tuples need not be thinned.
    for name, text in REPAIRED.items():
        world.engine.register(name, text)
    if overload == "off":
        for _ in range(5 + FLOOD * 20 + AFTER):
            world.send()
        world.machine.settle()
        return world, {name: world.rows(name) for name in REPAIRED}
    world.flood(FLOOD)
    query_states = [world.engine.core.standing_query(name)[1].state for name in REPAIRED]
    assert all(any(pane.segments for pane in it.panes.values()) for it in query_states)
    for _ in range(AFTER):
        world.tick(1)
    while world.machine.applier.waiting:
        world.machine.applier.step()
    return world, {name: world.rows(name) for name in REPAIRED}


@pytest.fixture(scope="module")
def flooded(tmp_path_factory):
    """A world after a flood, closed: its panes are thinned, and none was repaired."""
    world, _ = lived(tmp_path_factory.mktemp("flooded") / "db")
    world.machine.settle()
    world.engine.close()
    return world


@pytest.fixture
def world(flooded, tmp_path):
    """Another world that goes on from the flooded one, on a copy of its directory."""
    shutil.copytree(flooded.directory, tmp_path / "db")
    machine = Unrepaired()
    machine.time_us, machine.ns = flooded.machine.time_us, flooded.machine.ns
    machine.slowness = flooded.machine.slowness
    world = Flooded(tmp_path / "db", machine=machine)
    world.spacing_us, world.sent = flooded.spacing_us, list(flooded.sent)
    yield world
    world.engine.close()


@pytest.mark.slow
def test_repaired_answers_are_those_of_a_run_without_the_flood(tmp_path):
    quiet, truth = lived(tmp_path / "quiet", overload="off")
    world, before = lived(tmp_path / "db", repairs=True)
    assert any(before[name] != truth[name] for name in REPAIRED)
    for _ in range(40):
        world.tick()
    world.machine.settle()
    assert world.engine.repair.repaired_panes > 10
    for name in REPAIRED:
        assert world.rows(name) == truth[name], name
        assert world.engine.query(name).answer().thinning == 1.0
        assert world.facts("query", name)["thinned_panes"] == "0"
    world.engine.close()
    with Engine.open(tmp_path / "db", machine=VirtualEnvironment(3, START)) as again:
        assert {name: again.query(name).answer().rows() for name in REPAIRED} == truth
    quiet.engine.close()


@pytest.mark.slow
def test_repair_stops_when_load_returns_and_goes_on_later(world):
    looks = itertools.chain([True], itertools.repeat(False))
    calm = False
    repair = repair_of(world, lambda: calm or next(looks))
    repair.wake()
    world.machine.settle()
    first = repair.repaired_panes
    assert world.facts("query", "whole")["thinned_panes"] == "1"
    calm = True
    repair.wake()
    world.machine.settle()
    assert repair.repaired_panes > first
    assert world.facts("query", "whole")["thinned_panes"] == "0"


@pytest.mark.slow
def test_panes_whose_tuples_are_not_all_in_the_archive_stay_as_they_are(world):
    repair = repair_of(world)
    world.engine.seal("s")
    core = world.engine.core
    assert core.store.retention.apply(core.streams["s"].id, START + 10**12)
    before = world.rows("by_group")
    repair.wake()
    world.machine.settle()
    assert world.facts("query", "by_group")["thinned_panes"] == "1"
    assert world.rows("by_group") == before
    repair.wake()
    assert len(world.machine.later) == 0  # It is not tried for ever.
    assert {"whole", "by_group"} <= given_up(repair)
    world.engine.execute("DROP QUERY by_group")
    world.flood(FLOOD)  # Then there are other panes to repair.
    for _ in range(AFTER):
        world.tick(1)
    world.machine.settle()
    repaired = repair.repaired_panes
    repair.wake()
    world.machine.settle()
    assert repair.repaired_panes > repaired
    assert "whole" in given_up(repair)
    assert "by_group" not in given_up(repair)  # A query that no longer exists is forgotten.


@pytest.mark.slow
def test_a_corrected_pane_is_rebuilt_of_the_corrected_rows(world):
    """The pane has the deleted rows, and the archive as many others, which came too late."""
    query_state = world.engine.core.standing_query("sliding")[1].state
    number = max(
        at
        for at, it in query_state.panes.items()
        if it.segments and at not in query_state.panes.open_numbers()
    )
    width_us = query_state.grid.width_us
    us, rows = corrected(world, (number * width_us - START) // world.spacing_us + 3)
    assert us // width_us == number
    world.machine.settle()
    assert query_state.late_panes.by_pane == {number: rows}
    thin = query_state.panes[number]
    repair = repair_of(world)
    repair.wake()
    world.machine.settle()
    assert repair.repaired_panes
    assert not query_state.panes[number].segments
    assert rows_there(query_state.panes[number]) == rows_there(thin)
    assert number not in query_state.late_panes.by_pane
    assert number not in world.engine.core.standing_query("sliding")[1].deleted.behind
