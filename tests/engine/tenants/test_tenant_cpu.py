"""CPU by tenant: a tenant above its quota is thinned, alone, and read in full again."""

from __future__ import annotations

import pytest

from shedder.engine.runtime.caller import Caller
from tests.engine.flooded import CREATE, LOOKED, Flooded, run


@pytest.fixture
def world(tmp_path):
    world = Flooded(tmp_path / "db")
    run(world, 12 * LOOKED)  # Until rates and costs are known.
    yield world
    world.engine.close()


@pytest.mark.slow
def test_who_is_over_his_quota_of_cpu_is_thinned_without_any_overload(world):
    engine = world.engine
    assert set(world.levels("wide")) == {0}
    whole = float(world.facts("tenant", "default")["cpu_ns_per_s"])
    assert whole > 0
    engine.quotas.set_quota("default", "cpu_ns_per_s", str(0.6 * whole))
    run(world, 4 * LOOKED)
    assert not engine.overload.state.overloaded
    assert max(world.levels("wide")) > 0
    facts = world.facts("tenant", "default")
    assert float(facts["cpu_ns_per_s"]) <= 1.1 * float(facts["cpu_ns_per_s_max"])
    run(world, LOOKED)
    [ledger] = [q for q in engine.ledger("s").queries if q.query == "wide"]
    assert ledger.thinned > 0
    assert ledger.read + ledger.thinned + ledger.late == engine.ledger("s").applied
    engine.quotas.set_quota("default", "cpu_ns_per_s", "none")
    run(world, 3 * LOOKED)
    assert set(world.levels("wide")) == {0}


@pytest.mark.slow
def test_levels_are_steady_under_a_quota(world):
    engine = world.engine
    whole = float(world.facts("tenant", "default")["cpu_ns_per_s"])
    engine.quotas.set_quota("default", "cpu_ns_per_s", str(0.6 * whole))
    run(world, 8 * LOOKED)
    seen = []
    for _ in range(10):
        run(world, LOOKED)
        seen.append(world.levels("wide"))
    for levels in zip(*seen, strict=True):
        assert max(levels) - min(levels) <= 1


@pytest.mark.slow
def test_a_quota_of_cpu_thins_nobody_elses_queries(world):
    engine = world.engine
    engine.execute(CREATE.replace("STREAM s", "STREAM t"), caller=Caller("acme"))
    engine.register("t_wide", "SELECT COUNT(*) AS n, TOP(k, 5) AS t FROM t", caller=Caller("acme"))
    engine.quotas.set_quota("acme", "cpu_ns_per_s", "1")
    run(world, 4 * LOOKED)
    assert set(world.levels("wide")) == {0}


@pytest.mark.slow
def test_stopping_the_controller_lifts_its_quotas(world):
    world.engine.quotas.set_quota("default", "cpu_ns_per_s", "1000")
    run(world, 4 * LOOKED)
    assert max(world.levels("wide")) > 0
    world.engine.set_control("overload", "", "mode", "off")
    run(world, 2)
    assert set(world.levels("wide")) == {0}
