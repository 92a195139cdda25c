"""The controller in virtual time: in soon, out soon, steady between, and never stuck."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from shedder.overload.controller import (
    AGE_MS,
    NORMAL,
    STARTING_QUEUE_BYTES,
    ControllerState,
    CostRange,
    step,
    waiting_bytes_max,
)
from shedder.overload.load import Load
from tests.overload.queue_world import CAPACITY, FULL_NS, OVERHEAD_NS, World


def flood(times, start=2.0, end=12.0, base=0.5):
    return lambda t: CAPACITY * (times if start <= t < end else base)


def first(world, condition):
    """When a tick's (age, levels) first meet the condition, seconds."""
    found = [condition(a, lv) for a, lv in zip(world.ages, world.levels, strict=True)]
    return (found.index(True) + 1) * 0.1 if True in found else float("inf")


@pytest.mark.slow
@pytest.mark.parametrize("times", [1.3, 10])
@pytest.mark.parametrize("truth", [(1, 1), (2, 2), (0.5, 0.5), (1, 2), (2, 1)])
def test_overload_is_entered_within_300_ms_of_the_signal_and_left_within_5_s_of_its_end(
    times, truth
):
    factor = (OVERHEAD_NS + FULL_NS) / (OVERHEAD_NS + truth[0] * FULL_NS)
    rate = flood(times)
    world = World(lambda t: factor * rate(t), truth=truth[0], thinned_truth=truth[1]).run(20)
    signal = first(world, lambda age, _: age >= AGE_MS)
    assert 2.0 < signal < 3.0
    assert first(world, lambda _, levels: any(levels)) <= signal + 0.3
    assert world.states[world.between(17.0, 20.0)] == [NORMAL] * 30


@pytest.mark.slow
@pytest.mark.parametrize("times", [1.2, 2, 5])
@pytest.mark.parametrize("seed", [None, 1])
def test_at_steady_overload_no_level_moves_by_more_than_one_step_of_its_curve(times, seed):
    world = World(flood(times, end=30.0), seed=seed).run(30)
    steady = np.array(world.levels[world.between(8.0, 30.0)])
    for unit in steady.T:  # A unit's steps are the levels of its hull, which may leave some out.
        seen = np.unique(unit)
        assert len(seen) <= 2, seen
    assert max(world.ages[world.between(8.0, 30.0)]) < 500


@pytest.mark.slow
@given(
    bursts=st.lists(st.tuples(st.floats(0.1, 3.0), st.floats(0.2, 10.0)), min_size=1, max_size=6),
    truth=st.floats(0.5, 2.0),
    thinned=st.floats(0.5, 2.0),
    stall=st.floats(0.0, 3.0),
)
@example_settings(max_examples=10)
def test_whatever_has_come_it_is_over_5_s_after_the_load_and_the_queue_end(
    bursts, truth, thinned, stall
):
    ends = np.cumsum([length for length, _ in bursts])

    def rate(t):
        at = int(np.searchsorted(ends, t, side="right"))
        return CAPACITY * (bursts[at][1] if at < len(bursts) else 0.2)

    over = float(ends[-1])
    world = World(rate, truth=truth, thinned_truth=thinned, stalls=((over - stall, over),))
    world.run(over + 16.0)
    last = max((t for t, age in enumerate(world.ages) if age >= AGE_MS), default=0) * 0.1
    drained = max(over, last)
    assert drained <= over + 10.0
    assert set(world.states[world.between(drained + 5.0, over + 16.0)]) <= {NORMAL}


def test_bursts_that_are_over_before_the_signal_shed_nothing():
    world = World(lambda t: CAPACITY * (1.5 if round(10 * t) % 10 == 0 else 0.5)).run(20)
    assert set(world.states) == {NORMAL}


def test_a_baseline_close_to_capacity_is_read_in_full_again_after_a_flood():
    world = World(flood(6, base=0.9)).run(20)
    assert world.states[world.between(17.0, 20.0)] == [NORMAL] * 30


def test_beyond_what_thinning_can_drain_freshness_goes_first_then_help_is_asked_then_the_door():
    most = (FULL_NS + OVERHEAD_NS) / (OVERHEAD_NS + 75.0)
    world = World(flood(3 * most), answers_share=0.1).run(20)
    stretched = next(t for t, s in enumerate(world.states) if s.period_times > 1)
    refused = next(t for t, s in enumerate(world.states) if s.admit_bytes_per_s < float("inf"))
    helped = next(t for t, s in enumerate(world.states) if s.asks_help)
    assert stretched < helped < refused
    assert world.states[refused].asks_help
    assert max(world.ages[world.between(6.0, 12.0)]) < 1_500
    assert world.states[world.between(17.0, 20.0)] == [NORMAL] * 30


@pytest.mark.slow
def test_answers_that_take_nothing_are_not_put_off_and_help_and_door_come_when_they_would():
    most = (FULL_NS + OVERHEAD_NS) / (OVERHEAD_NS + 75.0)
    dear, free = (World(flood(3 * most), answers_share=share).run(20) for share in (0.1, 0.009))
    assert {state.period_times for state in free.states} == {1}
    assert max(state.period_times for state in dear.states) == 16
    for said in ("asks_help", "admit_bytes_per_s"):
        helped = [[getattr(state, said) for state in world.states] for world in (dear, free)]
        assert helped[0] == helped[1]


def test_answers_that_are_put_off_and_take_less_therefore_stay_so_until_there_is_room():
    state = ControllerState(budget_ns=10.0)
    ends = CostRange(1_000.0, 10.0)
    short = Load(at_s=1.0, tuples_per_s=1e9, age_ms=500.0, overhead_ns_per_tuple=100.0)
    seen = []
    for share in (0.05, 0.02, 0.01, 0.002, 0.001):
        state = step(state, replace(short, answers_share=share), ends)
        seen.append(state.period_times)
    assert seen == [2, 4, 8, 16, 16]
    room = Load(at_s=1.0, tuples_per_s=1.0)
    while state.period_times > 1:
        state = step(state, room, ends)
    state = step(replace(state, budget_ns=10.0, rooms=()), short, ends)
    assert (state.stretch, state.period_times) == (2, 1)


def test_thinning_alone_does_not_refuse_what_it_can_drain():
    world = World(flood(4)).run(16)
    assert world.refused == 0
    assert max(state.stretch for state in world.states) == 1


def test_what_thinning_does_not_make_cheaper_is_never_thinned():
    world = World(flood(10)).run(8)
    kept = np.array(world.levels)[:, 4::5]  # Thinned, it costs 3 + 1; in full 2.
    assert (kept == 0).all()


def test_without_the_signal_no_model_however_wrong_sheds_anything():
    load = Load(at_s=1.0, tuples_per_s=1e9, age_ms=AGE_MS - 1, overhead_ns_per_tuple=60.0)
    assert step(NORMAL, load, CostRange(1e6, 1e3)) == NORMAL


def test_a_stalled_thread_is_no_reason_to_shed_while_its_queue_can_be_drained():
    load = Load(at_s=1.0, tuples_per_s=1e5, queue_tuples=40_000, age_ms=400.0)
    assert step(NORMAL, load, CostRange(1_000.0, 10.0)) == NORMAL


def test_the_budget_by_hand():
    """A million tuples/s and half a million waiting, to be gone in 0.5 s: 2 M/s, 475 ns each."""
    load = Load(
        at_s=1.0,
        tuples_per_s=1e6,
        queue_tuples=500_000,
        age_ms=500.0,
        overhead_ns_per_tuple=75.0,
    )
    assert step(NORMAL, load, CostRange(1_000.0, 10.0)).budget_ns == 400.0


@pytest.mark.parametrize("wrong", [0.4, 0.7, 1.0, 1.5, 3.0])
def test_a_held_door_keeps_the_thread_at_work_and_the_queue_short_whatever_is_believed(wrong):
    """A million tuples/s can be worked off, and ten million are offered; costs are wrong."""
    works, size, tick_s = 1e6, 30, 0.1
    ends = CostRange(5_000.0, wrong * 900.0)
    state = ControllerState(budget_ns=ends.least_ns, stretch=16)
    queue, came, refused = 0.9e6, 1e6, 9e6
    waits_s, idle = [], 0.0
    for tick in range(300):
        load = Load(
            at_s=tick_s * tick,
            tuples_per_s=came,
            bytes_per_s=size * came,
            refused_bytes_per_s=size * refused,
            queue_tuples=round(queue),
            queue_bytes=round(size * queue),
            age_ms=1e3 * queue / works,
            overhead_ns_per_tuple=wrong * 100.0,
        )
        state = step(state, load, ends)
        assert state.admit_bytes_per_s < float("inf")
        came = min(state.admit_bytes_per_s / size, 10e6)
        refused = 10e6 - came
        queue += tick_s * (came - works)
        idle += max(-queue, 0.0) / works
        queue = max(queue, 0.0)
        waits_s.append(queue / works)
    assert idle <= 1.0  # Of thirty seconds, until it was found how much can be worked off.
    assert max(waits_s[100:]) <= 0.5
    assert min(waits_s[100:]) >= 0.05


def test_what_may_wait_before_the_door_is_held_is_what_half_a_second_can_work_off():
    """400 ns of a tuple, thinned as far as can be: 1.25 million of 30 bytes in half a second."""
    load = Load(at_s=1.0, tuples_per_s=1e6, bytes_per_s=3e7, overhead_ns_per_tuple=100.0)
    assert waiting_bytes_max(load, CostRange(5_000.0, 300.0)) == pytest.approx(30 * 1.25e6)
    assert waiting_bytes_max(Load(at_s=1.0), CostRange(5_000.0, 300.0)) == float("inf")
    assert waiting_bytes_max(replace(load, overhead_ns_per_tuple=0.0), CostRange(0, 0)) == float(
        "inf"
    )
    unknown = replace(load, has_applied=False)  # It is not known yet what a tuple costs.
    assert waiting_bytes_max(unknown, CostRange(5_000.0, 300.0)) == STARTING_QUEUE_BYTES


def test_precision_waits_for_the_door_to_open_however_little_is_let_in():
    ends = CostRange(5_000.0, 500.0)
    state = ControllerState(
        budget_ns=500.0, stretch=16, admit_bytes_per_s=1e6, works_bytes_per_s=1e6
    )
    for tick in range(50):  # 10,000 tuples/s come in: there were room for all that there is.
        load = Load(
            at_s=0.1 * tick,
            tuples_per_s=1e4,
            bytes_per_s=3e5,
            refused_bytes_per_s=3e8,
            overhead_ns_per_tuple=100.0,
        )
        state = step(state, load, ends)
        assert (state.budget_ns, state.stretch) == (500.0, 16)
        assert state.admit_bytes_per_s < float("inf")


def test_overload_does_not_end_before_the_signal_does_and_everything_is_read_meanwhile():
    """The thread is kept from its work for a while, and nothing comes: there is room."""
    ends = CostRange(full_ns=100.0, least_ns=10.0)
    state, waits = ControllerState(budget_ns=50.0), Load(at_s=0.0, queue_tuples=10, age_ms=1_400.0)
    for _ in range(30):
        state = step(state, waits, ends)
    assert state.overloaded
    assert state.budget_ns == ends.full_ns
    assert step(state, replace(waits, age_ms=90.0), ends) == NORMAL


def test_a_door_is_opened_once_nothing_comes_and_nothing_waits():
    """Refused producers have gone, and admitted batches went at once, as in a dropped stream."""
    state = ControllerState(
        budget_ns=10.0, stretch=16, admit_bytes_per_s=1e6, works_bytes_per_s=1e6
    )
    for _ in range(50):
        state = step(state, Load(at_s=0.0), CostRange(full_ns=100.0, least_ns=10.0))
    assert state == NORMAL


def test_a_stall_behind_a_held_door_is_made_up_for_at_once():
    """Half a second's work waits, and for a second nothing is worked off; then it goes on."""
    ends = CostRange(5_000.0, 900.0)
    state = ControllerState(
        budget_ns=900.0, stretch=16, admit_bytes_per_s=3e7, works_bytes_per_s=2.85e7, trim=1.0
    )

    def load(queue_s, free):
        return Load(
            at_s=0.0,
            tuples_per_s=1e6,
            bytes_per_s=3e7,
            refused_bytes_per_s=3e8,
            queue_tuples=round(1e6 * queue_s),
            queue_bytes=round(3e7 * queue_s),
            age_ms=1e3 * queue_s,
            overhead_ns_per_tuple=100.0,
            free_share=free,
        )

    for _ in range(10):
        state = step(state, load(0.6, 0.1), ends)
    assert state.admit_bytes_per_s < 0.06 * 3e7
    state = step(state, load(0.0, 0.4), ends)
    assert state.admit_bytes_per_s > 0.9 * 3e7
