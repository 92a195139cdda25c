"""The gate of thinned panes: intervals hold as often as they say, at any levels in the window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.thinned_coverage import (
    METHODS,
    Cell,
    Outcome,
    measure,
    missing_pairs,
    near_ideal,
    pairwise,
)
from tests.engine.thinned_coverage_grid import failures, report

CELLS_MAX = 150


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    found = [measure(cell, size=20_000, trials=150) for cell in pairwise() + near_ideal()]
    return [outcome for outcome in found if outcome is not None]


@pytest.mark.slow
def test_few_cells_bring_every_two_conditions_together() -> None:
    cells = pairwise()
    assert len(cells) + len(near_ideal()) <= CELLS_MAX
    assert not missing_pairs(cells)


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_thinned_intervals_hold_as_often_as_they_say(outcomes: list[Outcome]) -> None:
    assert failures(outcomes) == []


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_the_gate_saw_every_aggregate_bounded_and_some_near_the_ideal(
    outcomes: list[Outcome],
) -> None:
    assert {o.cell.method for o in outcomes if o.trials} == set(METHODS)
    assert {o.cell.method for o in outcomes if o.gated and o.width > 0} >= {"count", "sum", "avg"}


def test_the_gate_objects_to_what_misses_and_to_what_is_wide() -> None:
    cell = Cell("sum", "uniform", "of all", "1/2", 1.0, 0.95)
    good = Outcome(cell, 400, 380, 0, certain=False, width=1.0, half_width=0.1, gated=True)
    assert failures([good]) == []
    for bad in (replace(good, hits=350), replace(good, width=1.6)):
        assert len(failures([bad])) == 1
    assert len(failures([replace(good, certain=True, hits=399)])) == 1
    assert len(failures([replace(good, hits=372)] * 10)) == 1  # One passes, a pool does not.
    assert failures([replace(good, trials=0, hits=0, unbounded=400)]) == []


def test_the_page_says_what_failed() -> None:
    cell = Cell("sum", "uniform", "of all", "1/2", 1.0, 0.95)
    bad = Outcome(cell, 400, 1, 0, certain=False, width=1.0, half_width=0.1, gated=True)
    page = report([bad], size=10, trials=400)
    assert "Failures: 1." in page
    assert "held 1 of 400" in page
