"""The door: shares by weight, and a bucket per stream."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.overload.admission_rate import BURST_S, Door, weighted_shares

OPEN = float("inf")


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.floats(0, 1e9), st.floats(0.01, 100)), min_size=1, max_size=8),
    st.floats(0, 1e9),
)
def test_nobody_gets_more_than_he_asks_for_and_nothing_is_left_over(streams, budget):
    demand, weight = (np.array(column) for column in zip(*streams, strict=True))
    share = weighted_shares(demand, weight, budget)
    assert (share <= demand * (1 + 1e-9)).all()
    assert share.sum() == pytest.approx(min(budget, demand.sum()))
    short = share < demand * (1 - 1e-6)
    if short.any():
        least = (share / weight)[short].min()
        assert (share / weight <= least * (1 + 1e-6) + 1e-6).all()


def test_shares_by_hand():
    """Of 90: the first takes its 10, the others split 80 as 3 to 1."""
    share = weighted_shares(np.array([10.0, 500.0, 500.0]), np.array([1.0, 3.0, 1.0]), 90.0)
    assert share.tolist() == [10, 60, 20]


@pytest.mark.parametrize("weight", [[1e-320, 1.0], [1.0, 1e308], [1e308, 1e308], [5e-324, 1e-320]])
def test_shares_of_extreme_weights_are_shares(weight):
    share = weighted_shares(np.array([5.0, 5.0]), np.array(weight), 6.0)
    assert share.sum() == pytest.approx(6.0)
    assert (share <= 5.0).all()
    assert share[1] >= share[0]


def let_in(door, offered, seconds, admit, weights):
    """What comes in of batches of 1,000 bytes that are offered at rates, in bytes/s."""
    came = dict.fromkeys(offered, 0)
    for tick in range(round(seconds * 10)):
        door.hold(admit, weights, tick / 10, 0.1)
        for part in range(10):
            for name, rate in offered.items():
                for _ in range(round(rate / 100_000)):
                    came[name] += 1_000 * (door.wait_ms(name, 1_000, tick / 10 + part / 100) == 0)
    return came


def test_lower_weights_are_refused_first():
    weights = {"heavy": 4.0, "light": 1.0, "idle": 1.0}
    came = let_in(
        Door(), {"heavy": 1_000_000, "light": 1_000_000}, 20, admit=500_000, weights=weights
    )
    assert sum(came.values()) == pytest.approx(20 * 500_000, rel=0.1)
    assert came["heavy"] == pytest.approx(4 * came["light"], rel=0.1)


@pytest.mark.slow
def test_who_asks_for_less_than_his_share_is_not_refused():
    weights = {"modest": 1.0, "greedy": 1.0}
    came = let_in(
        Door(), {"modest": 100_000, "greedy": 5_000_000}, 20, admit=1_000_000, weights=weights
    )
    assert came["modest"] >= 0.95 * 20 * 100_000
    assert came["greedy"] <= 1.1 * 20 * 900_000


def test_an_open_door_refuses_nobody():
    door = Door()
    door.hold(OPEN, {"s": 1.0}, 0.0, 0.1)
    assert not door.held
    assert {door.wait_ms("s", 1 << 30, 0.0) for _ in range(10)} == {0}
    assert door.wait_ms("unknown", 1, 0.0) == 0


def test_a_refusal_says_when_there_will_be_room():
    door = Door()
    door.hold(1_000_000, {"s": 1.0}, 0.0, 0.1)
    assert door.wait_ms("s", 50_000, 0.1) == 0  # 0.1 s has brought room, 10 % of a second at most.
    assert door.wait_ms("s", 60_000, 0.1) == 0
    wait_ms = door.wait_ms("s", 1, 0.1)
    assert wait_ms in range(20, 5_001)
    assert door.wait_ms("s", 1, 0.1 + wait_ms / 1e3) == 0


@given(st.floats(1e3, 1e8), st.floats(0.05, 2.0), st.integers(1, 12))
def test_all_who_come_back_when_told_are_let_in_one_after_the_other(rate, seconds, clients):
    door, size = Door(), int(seconds * rate / clients) + 1
    door.hold(rate, {"s": 1.0}, 0.0, 0.1)
    assert door.wait_ms("s", size, 1.0) == 0
    waits_ms = [door.wait_ms("s", size, 1.0) for _ in range(clients)]
    assert waits_ms == sorted(waits_ms)
    for wait_ms in filter(None, waits_ms):
        assert door.wait_ms("s", size, 1.0 + wait_ms / 1e3) == 0


def test_turns_are_given_again_after_five_seconds_and_when_nobody_comes():
    """Ten batches a second: of a hundred clients, fifty have turns of their own."""
    door = Door()
    door.hold(1e6, {"s": 1.0}, 0.0, 0.1)
    assert door.wait_ms("s", 200_000, 1.0) == 0  # 0.1 s' worth into debt.
    waits_ms = [door.wait_ms("s", 100_000, 1.0) for _ in range(100)]
    assert waits_ms[:49] == [pytest.approx(101 + 100 * turn, abs=1) for turn in range(49)]
    assert set(waits_ms) == set(waits_ms[:49])
    assert door.wait_ms("s", 100_000, 1.0, reserve=False) == door.wait_ms("s", 1, 1.0)
    assert door.wait_ms("s", 100_000, 1.5) == 0  # The bucket is full: no caller kept its slot.
    assert door.wait_ms("s", 100_000, 1.5) == 20  # So earlier slots do not count.


def test_while_too_much_waits_the_time_to_come_back_is_that_of_the_drain():
    door = Door()
    door.hold(OPEN, {"s": 1.0}, 0.0, 0.1, waiting_bytes_max=10_000.0)
    waits_ms = [
        door.wait_ms("s", 1_000, 1.0, 30_000, drain_s=lambda size_bytes: size_bytes / 1e4)
        for _ in range(3)
    ]
    assert waits_ms == [2_000, 2_100, 2_200]


def test_a_stall_tells_callers_to_return_when_the_queue_has_been_worked_off():
    """A twentieth of what can be worked off is let in while 0.3 s of work waits."""
    door = Door()
    door.hold(50_000, {"s": 1.0}, 0.0, 0.1, works_bytes_per_s=1e6)
    assert door.wait_ms("s", 500_000, 0.1, 300_000) == 0  # 10 s of the present rate into debt.
    wait_ms = door.wait_ms("s", 500_000, 0.1, 300_000, drain_s=lambda size_bytes: size_bytes / 1e6)
    assert wait_ms == pytest.approx(300 + 500, abs=5)
    door.hold(1e6, {"s": 1.0}, 0.4, 0.3, works_bytes_per_s=1e6)
    assert door.wait_ms("s", 500_000, 0.1 + wait_ms / 1e3) == 0


def test_tenants_share_before_their_streams_do():
    """Of 900: the tenant of many streams gets as much as the one of a single stream."""
    weights = {"a1": 1.0, "a2": 2.0, "b": 1.0}
    owners = {"a1": ("a", 1.0), "a2": ("a", 1.0), "b": ("b", 1.0)}
    door = Door()
    for tick in range(30):
        for name in weights:
            door.wait_ms(name, 1_000_000, tick / 10)
        door.hold(900.0, weights, tick / 10, 0.1, owners)
    for name in weights:
        assert door.wait_ms(name, 300, 1e6) == 0  # Spends more than BURST_S has saved.
    waits_ms = {name: door.wait_ms(name, 1, 1e6, reserve=False) for name in weights}
    rates = {name: 301 / (ms / 1e3 + BURST_S) for name, ms in waits_ms.items()}
    assert rates == pytest.approx({"a1": 150.0, "a2": 300.0, "b": 450.0}, rel=2e-3)


def test_what_has_not_come_makes_room_for_others():
    door = Door()
    door.hold(1_000_000, {"s": 1.0}, 0.0, 0.1)
    assert door.wait_ms("s", 1 << 30, 0.1) == 0
    assert door.wait_ms("s", 1, 1.0) > 0
    door.give_back("s", 1 << 30)
    assert door.wait_ms("s", 1, 1.0) == 0
    door.give_back("unknown", 1)
    door.hold(OPEN, {"s": 1.0}, 2.0, 0.1)
    door.give_back("s", 1 << 30)  # Of an open door nothing was taken.
    door.hold(1_000_000, {"s": 1.0}, 3.0, 0.1)
    assert door.wait_ms("s", 200_000, 4.0) == 0
    assert door.wait_ms("s", 1, 4.0) > 0  # No more has gathered than the burst.


def test_while_too_much_waits_nobody_is_let_in_whether_the_door_is_held_or_not():
    door = Door()
    for admit in (OPEN, 1e9):
        door.hold(admit, {"s": 1.0}, 0.0, 0.1, waiting_bytes_max=10_000.0)
        assert door.wait_ms("s", 1, 1.0, 10_000) == 0
        assert door.wait_ms("s", 1, 1.0, 10_001, reserve=False) == 100
    assert door.wait_ms("drops", 1, 1.0, 1 << 40) == 0  # A stream that is not held here.
    door.hold(OPEN, {"s": 1.0}, 0.0, 0.1)
    assert door.wait_ms("s", 1, 1.0, 1 << 40) == 0
