"""A tenant's pinned synopses are paid by its own share: no other tenant is thinned for them."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from shedder.engine.apply.level_records import submit_levels
from shedder.errors import Overloaded, RateExceeded
from tests.engine.flooded import LOOKED, ROWS, Flooded, Priced, run
from tests.engine.greedy_world import Shared

ALTER = {
    "thins": "THIN",
    "forced": "THIN",
    "blocks": "BLOCK",
    "drops": "DROP OLDEST",
}


def force(engine, machine, query):
    """Have a query read everything, whatever the load."""
    stream, standing_query = engine.core.standing_query(query)
    synopses = len(standing_query.state.levels)
    submit_levels(engine.core, stream, query, (0,) * synopses, range(synopses))
    machine.log.commit(machine.log.gather())
    machine.settle()


class Slow(Priced):
    """The greedy tenant's ten batches a tick take twice the time that there is."""

    slowness = 5_000.0


class Pinned(Shared):
    """Nothing of the greedy tenant may be thinned.

    refused: batches, by tenant. seen: levels of the modest tenant's query, tick by tick.
    """

    def __init__(self, directory, what):
        super().__init__(directory, machine=Slow(), ticks=100)
        self.refused = collections.Counter()
        self.seen = []
        self.engine.execute(f"ALTER STREAM greedy SET ON OVERLOAD {ALTER[what]}")
        if what == "forced":
            force(self.engine, self.machine, "of_greedy")

    def send(self, name):
        try:
            super().send(name)
        except Overloaded:
            self.refused[name] += 1
        if name == "modest":
            self.seen.append(self.levels(name))

    def levels(self, name):
        return self.engine.core.standing_query(f"of_{name}")[1].state.levels


@pytest.mark.slow
@pytest.mark.parametrize("what", ALTER)
def test_what_one_tenant_keeps_from_being_thinned_thins_and_delays_nobody_else(tmp_path, what):
    world = Pinned(tmp_path / "db", what)
    waits = world.waits_s(10)
    assert set(world.levels("modest")) == {0}
    assert set(world.seen[-30:]) == {(0, 0, 0, 0)}
    assert world.refused["modest"] == 0
    assert (world.refused["greedy"] > 100) is (what != "thins")
    assert np.percentile(waits, 99) <= 0.2
    assert waits.max() <= 0.3
    world.engine.close()


class Declaring(Flooded):
    """A producer that says how many rows it sends, and is refused by them."""

    def __init__(self, directory):
        super().__init__(directory)
        self.declared = {"rows": ROWS}
        self.refused = 0

    def send(self, batches=1):
        try:
            super().send(batches)
        except RateExceeded:
            self.refused += 1


@pytest.mark.slow
def test_a_quota_of_cpu_holds_whatever_its_tenant_has_forced(tmp_path):
    world = Declaring(tmp_path / "db")
    engine = world.engine
    run(world, 12 * LOOKED)
    whole = float(world.facts("tenant", "default")["cpu_ns_per_s"])
    engine.quotas.set_quota("default", "cpu_ns_per_s", str(0.1 * whole))
    force(engine, world.machine, "wide")
    force(engine, world.machine, "groups")
    run(world, 16 * LOOKED)  # Until nothing is seen any more of the rate before.
    facts = world.facts("tenant", "default")
    assert float(facts["cpu_ns_per_s"]) <= 1.2 * float(facts["cpu_ns_per_s_max"])
    assert set(world.levels("wide")) == {0}
    assert world.refused > 100
    engine.close()
