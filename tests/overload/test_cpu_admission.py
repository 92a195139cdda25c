"""The door of what cannot be thinned: its tenant's share of the CPU, and what others leave."""

from __future__ import annotations

import pytest

from shedder.overload.cpu_admission import PART, CpuDoor, StreamCost

CPU = 1e9
GREEDY = StreamCost(pinned_ns=90_000.0, full_ns=100_000.0, tenant="greedy", weight=1.0)
MODEST = StreamCost(pinned_ns=0.0, full_ns=100_000.0, tenant="modest", weight=1.0)


def let_in(door, offered, seconds, *, overloaded, from_s=0.0):
    """Rows that come in of batches of ten that are offered at rates, in rows/s."""
    came = dict.fromkeys(offered, 0)
    for tick in range(round(seconds * 10)):
        now_s = from_s + tick / 10
        door.hold(CPU, now_s, 0.1, overloaded=overloaded)
        for part in range(10):
            for name, rate in offered.items():
                for _ in range(rate // 1_000):
                    came[name] += 10 * (door.wait_ms(name, 10, now_s + part / 100) == 0)
    return came


def test_who_cannot_be_thinned_has_what_others_leave_and_they_are_never_refused():
    """10,000 rows/s take the whole core: 2,000 of the modest tenant, eight tenths less that."""
    door = CpuDoor()
    door.know({"g": GREEDY, "m": MODEST})
    came = let_in(door, {"g": 20_000, "m": 2_000}, 10, overloaded=True)
    assert came["m"] == 20_000
    assert came["g"] == pytest.approx(10 * (PART * 10_000 - 2_000), rel=0.05)
    # Also when the overload is over, until it asks for less.
    came = let_in(door, {"g": 20_000, "m": 2_000}, 10, overloaded=False, from_s=10.0)
    assert came["g"] == pytest.approx(10 * (PART * 10_000 - 2_000), rel=0.05)
    let_in(door, {"g": 1_000, "m": 2_000}, 2, overloaded=False, from_s=20.0)
    assert let_in(door, {"g": 1_000}, 1, overloaded=False, from_s=22.0) == {"g": 1_000}
    door.know({"g": GREEDY, "m": MODEST})
    assert door.wait_ms("g", 1_000_000, 23.0) == 0
    assert door.wait_ms("g", 1_000_000, 23.0) == 0


def test_two_who_cannot_be_thinned_share_by_weight():
    heavy = StreamCost(pinned_ns=100_000.0, full_ns=100_000.0, tenant="heavy", weight=3.0)
    door = CpuDoor()
    door.know({"g": GREEDY, "h": heavy})
    came = let_in(door, {"g": 20_000, "h": 20_000}, 10, overloaded=True)
    assert came["h"] == pytest.approx(3 * came["g"], rel=0.05)


@pytest.mark.parametrize(
    "costs", [{"g": GREEDY}, {"m": MODEST}, {"m": MODEST, "n": StreamCost(0.0, 1.0, "n", 1.0)}, {}]
)
def test_who_is_alone_and_whoever_can_be_thinned_is_held_back_by_nothing(costs):
    door = CpuDoor()
    door.know(costs)
    door.hold(1.0, 0.0, 0.1, overloaded=True)
    assert all(door.wait_ms(name, 1 << 30, 0.0) == 0 for name in "gmn" for _ in range(3))


def test_what_has_not_come_is_given_back_and_an_open_door_holds_nobody():
    door = CpuDoor()
    door.know({"g": GREEDY, "m": MODEST})
    door.hold(CPU, 0.0, 0.1, overloaded=True)
    assert door.wait_ms("g", 100_000, 1.0) == 0
    assert door.wait_ms("g", 1, 1.0) > 0
    door.give_back("g", 100_000)
    assert door.wait_ms("g", 100_000, 1.0) == 0
    assert door.pinned_ns("g", 10) == 900_000
    door.open()
    assert door.wait_ms("g", 100_000, 1.0) == 0
    assert door.pinned_ns("g", 10) == 0
