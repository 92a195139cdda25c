"""Background work keeps to its share of a core."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.archive.tasks.progress import Progress
from shedder.engine.runtime.background_pace import (
    LOOK_S,
    ROWS_MAX,
    ROWS_MIN,
    SHARE_MIN,
    STEP_S,
    Pace,
)
from shedder.engine.runtime.environment import Environment
from shedder.errors import Cancelled
from tests.engine.flooded import Flooded


class Clock(Environment):
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
    assert clock.rested_s == pytest.approx(STEP_S / SHARE_MIN - STEP_S)


@pytest.mark.slow
@given(st.lists(st.floats(1e-5, 3.0), min_size=1))
def test_work_of_any_lengths_never_exceeds_the_share(steps):
    """But what was done since the last rest, which is less than a step."""
    clock = Clock()
    pace = Pace(clock, lambda: 0.1)
    worked_s = 0.0
    for took_s in steps:
        clock.now_s += took_s
        worked_s += took_s
        pace.rest_if_due()
        assert worked_s - STEP_S <= 0.1 * (worked_s - STEP_S + clock.rested_s) + 1e-9


def test_a_rest_ends_when_the_share_is_whole_again_and_is_told_of_all_the_while():
    clock = Clock()
    pace = Pace(clock, lambda: 1.0 if clock.rested_s >= 0.3 else 0.1)
    calls_s: list[float] = []
    clock.now_s += 1.0
    pace.rest(lambda: calls_s.append(clock.rested_s))
    assert clock.rested_s == pytest.approx(0.3, abs=LOOK_S)
    assert max(np.diff([*calls_s, clock.rested_s])) <= LOOK_S + 1e-9


def test_a_rest_that_is_called_off_ends():
    clock = Clock()
    pace = Pace(clock, lambda: 0.1)
    progress = Progress("work", "rows")
    progress.cancel()
    clock.now_s += 1.0
    with pytest.raises(Cancelled):
        pace.rest(progress.advance)
    assert clock.rested_s == 0.0


@pytest.mark.slow
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
