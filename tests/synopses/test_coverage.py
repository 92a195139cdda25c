"""The gate: intervals hold the truth as often as they say, and are no wider than they must be."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from synopses.intervals.quantiles import sampled_quantile
from tests.scale import scaled
from tests.synopses.coverage import (
    Cell,
    Outcome,
    World,
    ideal_width,
    measure,
    missing_pairs,
    narrowest_width,
    near_ideal,
    pairwise,
    shortest_width,
)
from tests.synopses.coverage_grid import failures, sketch_failures
from tests.synopses.sketch_coverage import SketchCell, SketchOutcome, measure_sketch, sketch_cells

CELLS_MAX = 150
POPULATION = 20_000
TRIALS = scaled(200, 300)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    found = [measure(cell, size=POPULATION, trials=TRIALS) for cell in pairwise() + near_ideal()]
    return [outcome for outcome in found if outcome is not None]


def test_few_cells_bring_every_two_conditions_together():
    cells = pairwise()
    assert len(cells) + len(near_ideal()) <= CELLS_MAX
    assert not missing_pairs(cells)


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_intervals_hold_as_often_as_they_say_and_are_not_too_wide(outcomes):
    assert failures(outcomes) == []


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_the_gate_saw_certified_intervals_and_cells_near_the_ideal(outcomes):
    trials = sum(o.trials for o in outcomes if o.cell.method == "sum")
    certified = sum(o.certified for o in outcomes if o.cell.method == "sum")
    assert 0.1 * trials < certified < 0.9 * trials
    assert {o.cell.method for o in outcomes if o.gated} >= {
        "count",
        "sum",
        "median",
        "weighted sum",
    }


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_sketches_hold_as_often_as_they_say_and_certain_bounds_always():
    cells = [cell for cell in sketch_cells() if cell.confidence == 0.95]
    outcomes = [
        measure_sketch(cell, trials=400 if cell.sketch.startswith("HLL") else 20) for cell in cells
    ]
    assert sketch_failures(outcomes) == []


def test_a_certain_bound_may_not_miss_once():
    sure = SketchOutcome(SketchCell("any", "any", 0.95), 400, 399, certain=True, half_width=0.0)
    assert len(sketch_failures([sure])) == 1
    assert sketch_failures([replace(sure, certain=False)]) == []


def test_the_gate_objects_to_intervals_that_miss_and_to_wide_ones():
    cell = near_ideal()[0]
    good = Outcome(cell, 400, hits=380, certified=0, certified_hits=0, width=1.0, gated=True)
    missed = replace(good, hits=350)
    wide = replace(good, width=1.6)
    assert failures([good]) == []
    assert len(failures([missed])) == 1
    assert len(failures([wide])) == 1
    # One cell at 0.93 passes alone, a pool of them does not.
    assert failures([replace(good, hits=372)]) == []
    assert len(failures([replace(good, hits=372)] * 10)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("distribution", "selectivity", "confidence"),
    [("zipf", 0.01, 0.95), ("zipf", 1.0, 0.68), ("uniform", 0.1, 0.95)],
)
def test_a_median_that_asks_for_too_much_is_too_wide_in_whole_numbers_too(
    distribution: str, selectivity: float, confidence: float
) -> None:
    cell = Cell("median", distribution, 1 / 2, selectivity, confidence)
    outcome = measure(cell, size=POPULATION, trials=120)
    assert outcome is not None
    assert failures([outcome]) == []
    world = World(cell, POPULATION, 120)
    sample, members = world.sample(), np.sort(world.values[world.match])
    ideal = ideal_width(members, len(members) // 2, share=0.5, confidence=confidence)
    more = 1 - (1 - confidence) / 50
    wide = sampled_quantile(sample, rank_share=0.5, confidence=more)
    width = float((wide.high - wide.low).mean()) / ideal
    assert len(failures([replace(outcome, width=width)])) == 1


def test_the_narrowest_pair_of_ranks_is_that_of_all_samples() -> None:
    members = np.array([1.0, 2.0, 4.0, 5.0, 9.0, 20.0, 21.0, 30.0, 70.0])
    samples = np.array(list(combinations(range(9), 5)))
    best = math.inf
    for low, high in combinations(range(5), 2):  # Ranks; the median is the fifth member.
        held = (samples[:, low] <= 4) & (samples[:, high] >= 4)
        if held.mean() >= 0.8:
            best = min(best, float((members[samples[:, high]] - members[samples[:, low]]).mean()))
    found = narrowest_width(members, 5, share=0.5, confidence=0.8)
    assert found == pytest.approx(best)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_the_shortest_pair_is_the_narrowest_of_evenly_spaced_members(share: float) -> None:
    members = np.arange(1000.0)
    found = shortest_width(members, 300, share=share, confidence=0.9)
    assert found == pytest.approx(narrowest_width(members, 300, share=share, confidence=0.9))


def test_who_knows_the_edge_of_an_atom_wins_without_limit_and_not_on_both_sides() -> None:
    ratios = []
    for size in (200, 400, 800, 1600):
        # The median is an atom whose lower edge is near; above, there is nothing else for long.
        members = np.sort(np.where(np.arange(size) < 0.44 * size, 1.0, 2.0))
        given = members, size // 2
        narrow = narrowest_width(*given, share=0.5, confidence=0.68)
        ratios.append(shortest_width(*given, share=0.5, confidence=0.68) / narrow)
        assert ideal_width(*given, share=0.5, confidence=0.68) == ratios[-1] * narrow
    assert ratios == sorted(ratios)
    assert ratios[-1] > 3 * ratios[0]
