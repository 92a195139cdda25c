"""Intervals of groups that are shown only if a row of them was read, by exact probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from synopses.intervals.hypergeometric import matching_count, seen_count
from synopses.intervals.seen_groups import shown_delta

POPULATION = 20_000
SIZES = (1, 2, 3, 5, 8, 13, 20, 50, 100, 400)
READS = (10_000, 2_000, 100)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_counts_of_groups_hold_if_the_group_is_shown(read: int, confidence: float):
    most = min(read, max(SIZES))
    rows = np.arange(1, most + 1)
    found = seen_count(population=POPULATION, read=read, matched=rows, confidence=confidence)
    for size in SIZES:
        chances = stats.hypergeom(POPULATION, size, read).pmf(rows)
        held = (found.low <= size) & (size <= found.high)
        assert chances[held].sum() >= confidence * chances.sum() * (1 - 1e-9), size


def test_counts_of_which_one_tuple_was_read_begin_at_one():
    before = matching_count(population=POPULATION, read=100, matched=1, confidence=0.95)
    found = seen_count(population=POPULATION, read=100, matched=1, confidence=0.95)
    assert before.low[0] == 6.0
    assert (found.low[0], found.high[0]) == (1.0, before.high[0])


@pytest.mark.parametrize("read", READS)
def test_counts_of_groups_with_many_tuples_read_are_as_narrow_as_before(read: int):
    rows = np.arange(10, 80)
    before = matching_count(population=POPULATION, read=read, matched=rows, confidence=0.95)
    found = seen_count(population=POPULATION, read=read, matched=rows, confidence=0.95)
    assert (found.high == before.high).all()
    wider = (found.high - found.low) / (before.high - before.low)
    assert wider.min() >= 1.0
    assert wider[0] < 1.001
    assert (wider[10:] == 1.0).all()


@pytest.mark.parametrize("elsewhere", [0, 1, 3])
def test_counts_hold_if_the_group_may_be_shown_by_other_tuples(elsewhere: int):
    read, share, rows = 1_000, 0.3, np.arange(0, 101)
    unread = (1.0 - share) ** elsewhere
    found = seen_count(
        population=POPULATION, read=read, matched=rows, confidence=0.95, unread=unread
    )
    for size in SIZES[:-1]:
        chances = stats.hypergeom(POPULATION, size, read).pmf(rows)
        shown = chances * np.where(rows == 0, 1.0 - unread, 1.0)
        held = (found.low <= size) & (size <= found.high)
        assert shown[held].sum() >= 0.95 * shown.sum() * (1 - 1e-9), size


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_a_part_of_delta_is_seldom_more_than_the_probability_of_being_shown(
    read: int, confidence: float
):
    most = min(read, max(SIZES))
    rows = np.arange(1, most + 1)
    parts = shown_delta(rows, read / POPULATION, confidence=confidence)
    assert (np.diff(parts) >= 0).all()
    for size in SIZES:
        chances = stats.hypergeom(POPULATION, size, read).pmf(rows)
        shown = -np.expm1(stats.hypergeom(POPULATION, size, read).logpmf(0))
        misses = chances[parts > shown * (1 + 1e-9)].sum() / shown
        assert misses <= 0.01 * (1.0 - confidence), size


def test_groups_of_which_many_rows_were_read_lose_no_part_of_delta():
    parts = shown_delta(np.array([1, 16, 64]), 0.005, confidence=0.95)
    assert 0.25 * 0.005 <= parts[0] <= 0.005
    assert 0.97 < parts[1] < 1.0
    assert parts[2] == 1.0


def test_groups_that_are_sure_to_be_shown_lose_no_part_of_delta():
    rows = np.array([[1, 0, 0], [0, 2, 0]])
    parts = shown_delta(rows, [[1.0], [0.01]], confidence=0.95)
    assert parts[0] == 1.0
    assert parts[1] < 0.05
    assert 0.9 < parts[2] < 0.95
