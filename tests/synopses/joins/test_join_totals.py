"""Coverage and width of aggregates of joins from panes in bounded bytes, against exact sums."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from synopses.joins.closed_panes import NO_CENTRES, NO_KEYS, ClosedPane, KeySums
from synopses.joins.join_totals import JoinTotals
from synopses.joins.joined_windows import JoinedWindows
from synopses.joins.pane_counts import PaneCounts, PaneRoom
from synopses.joins.pane_kernels import sampled
from synopses.model.estimate import Bound
from tests.scale import scaled
from tests.seeds import seed
from tests.sequential import holds
from tests.synopses.joins.joined_panes import (
    AGGREGATES,
    CELLS,
    PANES,
    VALUES,
    Cell,
    JoinedPanes,
    drawn,
    hashes_of,
)
from tests.truth import RUN_ALARM, gate

CONFIDENCE = 0.95
TRIALS = 1_000
RESIZES = ("shrink", "back", "twice")
WIDE = PaneRoom(heavy=4_096, keys=8_192, buckets=1 << 18)  # As of the widths in docs/answers.md.


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("values", VALUES[1:])
def test_intervals_hold_the_exact_aggregate(aggregate, values):
    at = random.Random(seed("join cell", aggregate, values)).randrange(len(CELLS))
    cell = replace(CELLS[at], values=values)

    def is_held(trial: int) -> bool:
        return drawn(cell, seed("join", at, values, trial)).is_held(aggregate, CONFIDENCE)

    assert holds(is_held, CONFIDENCE, trials=300)


@pytest.mark.parametrize("resizes", RESIZES)
def test_intervals_across_a_resize_hold_the_exact_aggregate(resizes):
    draw = random.Random(seed("resized join cell", resizes))
    at, aggregate = draw.randrange(len(CELLS)), draw.choice(AGGREGATES)
    cell = replace(CELLS[at], resizes=resizes)

    def is_held(trial: int) -> bool:
        return drawn(cell, seed("resized join", at, trial)).is_held(aggregate, CONFIDENCE)

    assert holds(is_held, CONFIDENCE, trials=300)


@pytest.mark.nightly  # 40 cells of 300 trials: 6 minutes of CPU.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("resizes", RESIZES)
def test_intervals_across_a_resize_hold_in_each_kind_of_world(resizes):
    trials, missed = 300, {}
    for at, cell in list(enumerate(CELLS))[RESIZES.index(resizes) :: len(RESIZES)]:
        held = dict.fromkeys(AGGREGATES, 0)
        for number in range(trials):
            world = drawn(replace(cell, resizes=resizes), seed("resized join", at, number))
            for aggregate in AGGREGATES:
                held[aggregate] += world.is_held(aggregate, CONFIDENCE)
        least = gate(trials, CONFIDENCE, RUN_ALARM)
        missed |= {(at, each): hits for each, hits in held.items() if hits < least}
    assert missed == {}


@pytest.mark.nightly  # 120 cells of 1,000 trials: 40 minutes of CPU.
@pytest.mark.timeout(7200)
def test_intervals_hold_in_each_kind_of_world():
    held = {(at, each): 0 for at in range(len(CELLS)) for each in AGGREGATES}
    for at, cell in enumerate(CELLS):
        for number in range(TRIALS):
            world = drawn(cell, seed("join", at, number))
            for aggregate in AGGREGATES:
                held[at, aggregate] += world.is_held(aggregate, CONFIDENCE)
    least = gate(TRIALS, CONFIDENCE, RUN_ALARM)
    assert {at: hits for at, hits in held.items() if hits < least} == {}
    for aggregate in AGGREGATES:
        pooled = sum(held[at, aggregate] for at in range(len(CELLS)))
        assert pooled >= CONFIDENCE * TRIALS * len(CELLS), aggregate


@pytest.mark.parametrize("same", [True, False])
def test_the_width_is_near_that_of_the_deviation_and_far_below_that_of_a_sample_alone(same):
    keys, rows = scaled((30_000, 60_000), (100_000, 250_000))
    sizes = PaneRoom(WIDE.heavy, scaled(1_500, 6_000), WIDE.buckets)
    world = drawn(Cell(1.1, same, "steady", sizes, keys, rows), seed("join width", int(same)))
    size = world.found("pairs", CONFIDENCE)
    assert size.low[0] <= world.truth("pairs") <= size.high[0]
    every = [set.intersection(*(set(it.heavy.keys) for it in side)) for side in world.panes]
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
    total, average = (world.found(each, CONFIDENCE) for each in ("sum", "average"))
    relative = half_width / size.value[0]
    assert (total.high[0] - total.low[0]) / 2 <= 1.5 * relative * total.value[0]
    # Prices are within a sixth of their average: 1/9 to 1/18 of the width of counts in six worlds.
    assert (average.high[0] - average.low[0]) / 2 <= relative / 4 * average.value[0]


@pytest.mark.parametrize("inputs", [2, 3])
def test_a_join_whose_keys_all_find_room_is_exact(inputs):
    cell = Cell(0.8, True, "steady", PaneRoom(16, 4_096, 256), values="signed", inputs=inputs)
    world = drawn(cell, seed("exact join", inputs))
    for aggregate in ("pairs", "present"):
        found = world.found(aggregate, CONFIDENCE)
        assert found.value[0] == found.low[0] == found.high[0] == world.truth(aggregate)
        assert found.bound[0] == Bound.EXACT
    for aggregate in ("sum", "average"):  # Sums of doubles are rounded.
        found, truth = world.found(aggregate, CONFIDENCE), world.truth(aggregate)
        assert found.low[0] <= truth <= found.high[0]
        assert found.bound[0] == Bound.INTERVAL
        assert found.high[0] - found.low[0] <= 1e-6 * abs(truth)
    whole = JoinTotals(JoinedWindows(world.panes, world.secrets, ((True,), ())))
    total, average = (of(0, 0, confidence=CONFIDENCE) for of in (whole.sum, whole.average))
    if world.truth("sum").denominator == 1:
        assert total.low[0] == total.value[0] == world.truth("sum")
    assert average.value[0] == float(world.truth("average"))
    assert total.bound[0] == average.bound[0] == Bound.EXACT


@pytest.mark.parametrize(("aggregate", "values"), [("pairs", "prices"), ("sum", "tails")])
def test_panes_of_mixed_levels_are_each_read_at_their_own(aggregate, values):
    """Panes that were thinned to the highest level give wider intervals, from the same rows."""
    cell = Cell(0.5, True, "steady", PaneRoom(16, 256, 1 << 14), values=values)
    for number in range(6):
        world = drawn(cell, number)
        left, right = world.panes
        sides = [[_thinned(left[0], world, 6), *left[1:]], right]
        deep = [[_thinned(pane, world, 6) for pane in side] for side in world.panes]
        widths = []
        for panes in (sides, deep):
            found = replace(world, panes=tuple(panes)).found(aggregate, CONFIDENCE)
            widths.append(found.high[0] - found.low[0])
        assert widths[0] < widths[1]


@pytest.mark.parametrize("aggregate", ["pairs", "sum"])
def test_intervals_of_mixed_levels_hold(aggregate):
    """Pairs of panes at levels 0 to 6, in any order on each side."""
    cell = Cell(0.8, True, "steady", PaneRoom(16, 2_048, 1 << 10), rows=500, values="signed")

    def is_held(trial: int) -> bool:
        world = drawn(cell, seed("mixed", aggregate, trial))
        rng = np.random.default_rng(seed("mixed levels of panes", aggregate, trial))
        sides = [[_thinned(it, world, rng.integers(7)) for it in side] for side in world.panes]
        return replace(world, panes=tuple(sides)).is_held(aggregate, CONFIDENCE)

    assert holds(is_held, CONFIDENCE, trials=300)


def test_a_size_that_doubles_do_not_hold_is_not_called_exact():
    secrets = np.array([1, 2], np.uint64)
    counts = np.array([2 * 10**9, 1])
    pane = _pane(hashes_of(np.arange(2)), counts)
    size = JoinTotals(JoinedWindows([[pane], [pane]], secrets)).pairs(confidence=CONFIDENCE)
    assert size.bound[0] == Bound.INTERVAL
    assert size.low[0] < 4 * 10**18 + 1 < size.high[0]
    with pytest.raises(OverflowError, match="4000000002 rows join 4000000002 rows"):
        JoinTotals(JoinedWindows([[pane, pane], [pane, pane]], secrets)).pairs(
            confidence=CONFIDENCE
        )


def test_a_side_without_panes_has_no_pairs():
    world = drawn(Cell(0.8, True, "steady", PaneRoom(16, 64, 256)), seed("one side"))
    totals = JoinTotals(JoinedWindows([world.panes[0], []], world.secrets))
    size = totals.pairs(confidence=CONFIDENCE)
    assert (size.value[0], size.low[0], size.high[0], size.bound[0]) == (0, 0, 0, Bound.EXACT)
    assert len(world.panes[0]) == PANES
    for of in (totals.sum, totals.average):
        found = of(0, 0, confidence=CONFIDENCE)
        assert np.isnan(found.value[0])
        assert found.bound[0] == Bound.EXACT


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1.7e308])
def test_values_without_a_finite_sum_have_no_bound(value):
    secrets = np.array([3, 4], np.uint64)
    panes = []
    for _ in range(2):
        pane = PaneCounts(PaneRoom(16, 4, 256), secrets, NO_KEYS, np.zeros(1))
        pane.update(hashes_of(np.arange(100)), np.full((100, 1), value))
        panes.append([pane.closed()])
    totals = JoinTotals(JoinedWindows(panes, secrets))
    for of in (totals.sum, totals.average):
        assert of(0, 0, confidence=CONFIDENCE).bound[0] == Bound.NONE
    pairs = totals.present(0, 0, confidence=CONFIDENCE)
    assert pairs.low[0] <= 100 <= pairs.high[0]


def _thinned(pane: ClosedPane, world: JoinedPanes, level: int) -> ClosedPane:
    """A pane whose keys are sampled at a level, or its own if that is higher."""
    level = max(int(level), pane.level)
    kept = sampled(pane.sampled.keys, world.secrets[0], level)
    return replace(pane, sampled=pane.sampled.where(kept), level=level)


def _pane(keys, counts) -> ClosedPane:
    none = np.empty((len(keys), 0))
    heavy = KeySums(keys, counts, none)
    rest = KeySums(NO_KEYS, np.empty(0, np.int64), np.empty((0, 0)))
    sums, ends = np.zeros(256, np.int64), np.empty((2, 0))
    return ClosedPane(heavy, rest, sums, np.empty((0, 256)), ends, NO_CENTRES, 0, 0.0)
