"""Strata that read along: when they begin, when they are whole, and how long a failed try waits."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.engine.dataflow.growing_strata import TRIES_MAX, GrowingStrata
from shedder.engine.dataflow.thinning_levels import LEVEL_MAX

SPAN_US, BYTES = 10, 100


@dataclass(eq=False)
class _Flow:
    """Operators of one stratum, of which only the bytes are asked."""

    size_bytes: int = BYTES


def growing(bytes_max: int = 2 * BYTES) -> GrowingStrata:
    return GrowingStrata(_Flow, span_us=SPAN_US, bytes_max=bytes_max)


def first_due(strata: GrowingStrata, from_us: int) -> int:
    return next(at for at in range(from_us, from_us + 100 * SPAN_US) if strata.is_due(at))


def test_strata_are_whole_one_window_behind_the_tuples_that_they_lack():
    strata = growing()
    strata.note_tuples(500)
    strata.note_tuples(480)
    strata.begin(LEVEL_MAX - 1)
    strata.note_tuples(600)
    assert [strata.is_whole(at) for at in (510, 511)] == [False, True]
    assert not strata.is_due(10_000)
    assert strata.has_room
    assert list(strata.take(511)) == [LEVEL_MAX - 1, LEVEL_MAX]
    assert (strata.size_bytes, first_due(strata, 500)) == (0, 511)


def test_each_failed_try_doubles_the_windows_until_the_next_and_a_new_level_waits_one():
    strata = growing(BYTES)
    waits = []
    for _ in range(9):
        strata.begin(LEVEL_MAX - 1)
        assert not strata.has_room
        strata.give_up(1_000)
        waits.append((first_due(strata, 1_000) - 1_000) // SPAN_US)
    assert waits == [1, 2, 4, 8, 16, 32, TRIES_MAX, TRIES_MAX, TRIES_MAX]
    strata.restart(2_000)
    assert first_due(strata, 2_000) == 2_000 + SPAN_US


def test_strata_that_break_in_one_step_are_one_failed_try():
    strata = growing()
    strata.begin(LEVEL_MAX - 2)
    for _ in range(3):
        strata.give_up(1_000)
    assert first_due(strata, 1_000) == 1_000 + SPAN_US
    strata.begin(LEVEL_MAX - 2)
    strata.give_up(2_000)
    assert first_due(strata, 2_000) == 2_000 + 2 * SPAN_US


def test_strata_of_windows_without_end_never_begin():
    assert not GrowingStrata(_Flow, span_us=None, bytes_max=BYTES).is_due(1 << 60)
