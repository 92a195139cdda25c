"""The share that is let in: by the signal, down at once, up with patience, and never nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shedder.overload.controller import HOLD, USE
from shedder.overload.drop_share import ALL, LEAST, DropShare, next_share
from shedder.overload.load import Load

CALM = Load(at_s=0.0, tuples_per_s=1_000.0, overhead_ns_per_tuple=100.0)
FULL_NS = 999_900.0  # With the overhead: a tuple takes a millisecond.


def step(share: DropShare, load: Load, offered: float) -> DropShare:
    return next_share(share, load, offered=offered, others=0.0, full_ns=FULL_NS)


def test_without_the_signal_nothing_is_dropped_however_much_is_offered():
    assert step(ALL, CALM, 10_000.0) == ALL


def test_with_the_signal_what_can_be_worked_off_is_let_in_at_once():
    late = replace(CALM, age_ms=150.0)
    assert step(ALL, late, 10_000.0).let_in == pytest.approx(USE * 0.1)


def test_a_queue_that_can_be_worked_off_drops_nothing():
    late = replace(CALM, age_ms=150.0)
    assert step(ALL, late, 500.0) == ALL


def test_a_queue_has_to_be_drained_too_and_something_always_comes_in():
    late = replace(CALM, age_ms=150.0, queue_tuples=10_000)
    assert step(ALL, late, 10_000.0).let_in == LEAST


def test_others_are_served_first():
    late = replace(CALM, age_ms=150.0)
    share = next_share(ALL, late, offered=1_000.0, others=800.0, full_ns=FULL_NS)
    assert share.let_in == pytest.approx(USE - 0.8)


def test_more_is_let_in_when_there_has_been_room_for_a_while():
    share = DropShare(0.1)
    for _ in range(HOLD - 1):
        share = step(share, CALM, 1_900.0)
        assert share.let_in == 0.1
    share = step(share, CALM, 1_900.0)
    assert share.let_in == pytest.approx(0.4)
    for _ in range(HOLD):
        share = step(share, CALM, 900.0)
    assert share == ALL


def test_noise_does_not_move_it():
    share = DropShare(0.095)
    for turn in range(50):
        share = step(share, CALM, 10_000.0 * (1.04 if turn % 2 else 0.97))
        assert 0.09 <= share.let_in <= 0.095


def test_a_stream_to_which_nothing_comes_is_open():
    assert step(DropShare(0.1), CALM, 0.0) == ALL
