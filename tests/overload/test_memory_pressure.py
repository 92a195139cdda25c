"""Memory pressure: smaller synopses step by step, back again later, and no door that stays shut."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shedder.errors import BudgetExceeded, Overloaded
from shedder.overload.load import MachineReading
from shedder.overload.memory_pressure import (
    GROW_S,
    HALVINGS_MAX,
    NONE,
    SHRINK_S,
    Pressure,
    next_pressure,
)
from shedder.overload.process_usage import MachineReader
from tests.engine.flooded import Flooded, Priced


def of(share: float) -> MachineReading:
    return MachineReading(memory_bytes=round(1_000 * share), memory_limit_bytes=1_000)


def test_where_there_is_room_or_no_limit_nothing_is_asked_for():
    assert next_pressure(NONE, of(0.5), 0.0) == NONE
    assert next_pressure(NONE, MachineReading(memory_bytes=1 << 40), 0.0) == NONE


def test_synopses_are_halved_one_step_at_a_time_and_never_to_nothing():
    pressure, halvings = NONE, []
    for second in range(60):
        pressure = next_pressure(pressure, of(0.9), float(second))
        halvings.append(pressure.halvings)
    assert halvings[:6] == [1, 1, 1, 1, 1, 2]
    assert halvings[-1] == HALVINGS_MAX
    assert all(later - sooner <= 1 for sooner, later in pairwise(halvings))
    assert SHRINK_S == 5.0


def test_they_grow_again_later_and_not_while_memory_is_still_taken():
    pressure = Pressure(halvings=2, since_s=0.0)
    assert next_pressure(pressure, of(0.8), 1_000.0).halvings == 2
    assert next_pressure(pressure, of(0.5), GROW_S - 1).halvings == 2
    assert next_pressure(pressure, of(0.5), GROW_S).halvings == 1


def test_the_door_is_narrow_only_at_the_limit():
    assert not next_pressure(NONE, of(0.9), 0.0).full
    assert next_pressure(NONE, of(0.96), 0.0).full


class Short(Priced):
    """A machine on which a share of the memory is in use."""

    share = 0.0

    def reader(self) -> MachineReader:
        return Taken(self)


class Taken(MachineReader):
    def __init__(self, machine: Short) -> None:
        self.machine = machine

    def read(self, at_s: float) -> MachineReading:
        return of(self.machine.share)


@pytest.fixture
def flooded(tmp_path):
    world = Flooded(tmp_path / "db", machine=Short())
    yield world
    world.engine.close()


@pytest.mark.slow
def test_under_pressure_the_budget_shrinks_and_no_query_is_taken(flooded):
    core = flooded.engine.core
    whole = core.synopsis_bytes
    flooded.machine.share = 0.9
    for _ in range(12):
        flooded.tick(1)
    assert core.synopsis_bytes == whole // 2
    assert flooded.facts("overload", "")["memory_halvings"] == "1"
    with pytest.raises(BudgetExceeded, match="near its limit of memory"):
        flooded.engine.register("more", "SELECT COUNT(*) AS n FROM s")
    assert flooded.rows("wide")[0]["n"] == core.stream("s").applied
    flooded.machine.share = 0.5
    for _ in range(10 * int(GROW_S) + 12):
        flooded.tick()
    assert core.synopsis_bytes == whole
    flooded.engine.register("more", "SELECT COUNT(*) AS n FROM s")


def test_at_the_limit_batches_come_in_one_by_one_and_never_not_at_all(flooded):
    flooded.machine.share = 1.0
    for _ in range(12):
        flooded.tick()
    for _ in range(5):
        flooded.send()  # Nothing waits, so it comes in.
        with pytest.raises(Overloaded, match="memory is at its limit"):
            flooded.send()
        flooded.machine.settle()
    assert flooded.engine.ledger("s").applied == flooded.engine.core.stream("s").position > 0
    flooded.engine.overload.stop()
    flooded.send(3)
