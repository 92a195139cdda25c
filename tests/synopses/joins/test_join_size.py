"""Coverage and width of sizes of joins from panes in bounded bytes, against exact counts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from synopses.joins.join_size import join_size
from synopses.joins.pane_counts import NO_KEYS, ClosedPane, PaneRoom
from tests.scale import scaled
from tests.seeds import seed
from tests.sequential import holds
from tests.synopses.joins.joined_panes import CELLS, PANES, Cell, drawn, hashes_of
from tests.truth import RUN_ALARM, gate

CONFIDENCE = 0.95
TRIALS = 1_000
WIDE = PaneRoom(heavy=4_096, keys=8_192, buckets=1 << 18)  # As of the widths in docs/answers.md.


def _is_held(cell: Cell, at: int, number: int) -> bool:
    world = drawn(cell, seed("join size", at, number))
    size = world.size(CONFIDENCE)
    return bool(size.low[0] <= world.truth <= size.high[0])


@pytest.mark.parametrize("number", range(5))
def test_intervals_hold_the_exact_size(number):
    at = random.Random(seed("join size cell", number)).randrange(len(CELLS))
    assert holds(lambda trial: _is_held(CELLS[at], at, trial), CONFIDENCE, trials=300)


@pytest.mark.nightly  # 120 cells of 1,000 trials: 10 minutes of CPU.
@pytest.mark.timeout(3600)
def test_intervals_hold_in_each_kind_of_world():
    held = {
        at: sum(_is_held(cell, at, number) for number in range(TRIALS))
        for at, cell in enumerate(CELLS)
    }
    least = gate(TRIALS, CONFIDENCE, RUN_ALARM)
    assert {at: hits for at, hits in held.items() if hits < least} == {}
    assert sum(held.values()) >= CONFIDENCE * TRIALS * len(CELLS)


@pytest.mark.parametrize("same", [True, False])
def test_the_width_is_near_that_of_the_deviation_and_far_below_that_of_a_sample_alone(same):
    keys, rows = scaled((30_000, 60_000), (100_000, 250_000))
    sizes = PaneRoom(WIDE.heavy, scaled(1_500, 6_000), WIDE.buckets)
    world = drawn(Cell(1.1, same, "steady", sizes, keys, rows), seed("join width", int(same)))
    size = world.size(CONFIDENCE)
    assert size.low[0] <= world.truth <= size.high[0]
    every = [set.intersection(*(set(pane.heavy_keys) for pane in side)) for side in world.panes]
    is_light = ~np.isin(hashes_of(np.arange(keys)), list(every[0] & every[1]))
    pairs = world.counts[0] * world.counts[1]
    odds = 2.0**world.level - 1.0
    assert odds > 0
    ideal, alone = (
        1.96 * np.sqrt(odds * np.square(of.astype(float)).sum()) for of in (pairs[is_light], pairs)
    )
    half_width = (size.high[0] - size.low[0]) / 2
    assert half_width <= 5 * ideal
    # With other hot keys on each side, no single key has most of the pairs: 16 to 230 times in 16
    # worlds of both sizes. With the same ones, 10,000 times and more.
    assert alone >= (50 if same else 2) * half_width


def test_a_join_whose_keys_all_find_room_is_exact():
    world = drawn(Cell(0.8, True, "steady", PaneRoom(16, 4_096, 256)), seed("exact join"))
    size = world.size(CONFIDENCE)
    assert size.value[0] == size.low[0] == size.high[0] == world.truth
    assert size.bound[0] == 0


def test_a_size_that_doubles_do_not_hold_is_not_called_exact():
    secrets = np.array([1, 2], np.uint64)
    keys, counts = hashes_of(np.arange(2)), np.array([2 * 10**9, 1])
    none = np.empty(0, np.int64)
    pane = ClosedPane(keys, counts, NO_KEYS, none, np.zeros(256, np.int64), 0)
    size = join_size([pane], [pane], secrets, confidence=CONFIDENCE)
    assert size.bound[0] == 1
    assert size.low[0] < 4 * 10**18 + 1 < size.high[0]
    with pytest.raises(OverflowError, match="4000000002 rows join 4000000002 rows"):
        join_size([pane, pane], [pane, pane], secrets, confidence=CONFIDENCE)


def test_a_side_without_panes_has_no_pairs():
    world = drawn(Cell(0.8, True, "steady", PaneRoom(16, 64, 256)), seed("one side"))
    size = join_size(world.panes[0], [], world.secrets, confidence=CONFIDENCE)
    assert (size.value[0], size.low[0], size.high[0], size.bound[0]) == (0, 0, 0, 0)
    assert len(world.panes[0]) == PANES
