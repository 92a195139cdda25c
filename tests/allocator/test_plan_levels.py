"""Levels of several plans within one budget, beside all choices that there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from allocator.errors import NothingFits
from allocator.plan_precision.plan_levels import best_levels
from tests.seeds import seed

LEVELS = 5


@pytest.mark.parametrize("case", range(40))
def test_levels_have_the_least_weighted_loss_of_all_that_fit(case):
    rng = np.random.default_rng(seed("plan levels", case))
    plans = int(rng.integers(1, 5))
    parts = rng.integers(0, 1_000, (plans, LEVELS))
    sizes = parts[:, ::-1].cumsum(axis=1)[:, ::-1].copy()  # A higher level holds less.
    loss = np.tile(1 - 0.5 ** np.arange(LEVELS), (plans, 1))
    loss[rng.random(loss.shape) < 0.2] = np.inf
    loss[:, -1] = 1 - 0.5 ** (LEVELS - 1)
    weight = rng.choice([0.1, 1.0, 3.0, 10.0], plans)
    least = int(sizes[:, -1].sum())
    budget = least + int(rng.random() * (sizes[:, 0].sum() - least))
    found = best_levels(sizes, loss, weight, budget)
    rows = np.arange(plans)

    def loss_of(choice: np.ndarray) -> float:
        return float((weight * loss[rows, choice]).sum())

    every = [np.array(choice) for choice in product(range(LEVELS), repeat=plans)]
    fitting = [choice for choice in every if sizes[rows, choice].sum() <= budget]
    assert sizes[rows, found].sum() <= budget
    assert loss_of(found) == pytest.approx(min(map(loss_of, fitting)))


def test_a_budget_below_the_highest_levels_is_refused():
    sizes, loss = np.array([[4, 2]]), np.array([[0.0, 0.5]])
    with pytest.raises(NothingFits):
        best_levels(sizes, loss, np.ones(1), 1)
    assert not len(best_levels(sizes[:0], loss[:0], np.ones(0), 0))
