"""Work for which nobody waits keeps to its share of a core."""

from __future__ import annotations

import pytest

from shedder.engine.machine import Machine
from shedder.engine.pace import REST_S_MAX, ROWS_MAX, ROWS_MIN, SHARE_MIN, STEP_S, Pace
from tests.engine.flooded import Flooded


class Clock(Machine):
    """A machine whose time passes by steps and rests alone."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 5.0
        self.rested_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def rest(self, seconds: float) -> None:
        self.now_s += seconds
        self.rested_s += seconds


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25, 0.1])
@pytest.mark.parametrize("ns_per_row", [10.0, 1_000.0, 20_000.0])
def test_of_a_long_piece_of_work_the_share_is_work_and_the_rest_is_rest(share, ns_per_row):
    clock = Clock()
    pace = Pace(clock, lambda: share)
    worked_s = 0.0
    for _ in range(200):
        took_s = pace.rows * ns_per_row / 1e9
        clock.now_s += took_s
        worked_s += took_s
        pace.rest()
    assert worked_s / (worked_s + clock.rested_s) == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize("ns_per_row", [10.0, 1_000.0, 3_000.0, 20_000.0])
def test_steps_get_as_long_as_they_may(ns_per_row):
    clock = Clock()
    pace = Pace(clock, lambda: 1.0)
    for _ in range(50):
        clock.now_s += pace.rows * ns_per_row / 1e9
        pace.rest()
    wanted = min(max(STEP_S * 1e9 / ns_per_row, ROWS_MIN), ROWS_MAX)
    assert pace.rows == pytest.approx(wanted, rel=0.02)


def test_a_rest_ends_and_what_was_before_the_work_is_no_step():
    clock = Clock()
    pace = Pace(clock, lambda: 0.0)
    clock.now_s += 1_000.0
    pace.begin()
    clock.now_s += STEP_S
    pace.rest()
    assert clock.rested_s == pytest.approx(min(STEP_S / SHARE_MIN - STEP_S, REST_S_MAX))


def test_repair_may_take_what_applying_leaves_and_nothing_under_overload(tmp_path):
    world = Flooded(tmp_path / "db")
    overload = world.engine.overload
    for _ in range(5):
        world.tick()
    assert overload.spare == 1.0
    spares = []
    for batches in (1, 2):
        for _ in range(20):
            world.tick(batches)
        spares.append(overload.spare)
    assert 1.0 > spares[0] > spares[1]
    world.flood()
    assert overload.state.overloaded
    assert overload.spare == 0.0
    world.engine.close()
