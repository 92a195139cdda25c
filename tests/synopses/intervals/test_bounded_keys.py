"""Totals over sampled keys with a common bound: coverage against exact totals."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.intervals.key_totals.bounded_keys import CertainRange, bounded_key_total
from tests.seeds import seed
from tests.sequential import holds

POPULATIONS = {
    "equal": lambda rng: np.full(400, 3.0),
    "one large": lambda rng: np.append(np.full(300, 1.0), 500.0),
    "skewed": lambda rng: np.sort(rng.pareto(0.8, 500) + 1.0),
    "rare": lambda rng: (rng.random(2_000) < 0.01) * 10.0,
}


def _known(values, looseness: float) -> CertainRange:
    return CertainRange(
        float(values.max()) * looseness,
        float(np.square(values).sum()) * looseness**2,
        float(values.sum()) * looseness,
    )


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize(("share", "looseness"), [(0.5, 1.0), (1 / 16, 3.0)])
def test_intervals_hold_the_total(name, share, looseness):
    def is_held(trial: int) -> bool:
        rng = np.random.default_rng(seed("bounded keys", name, trial))
        values = POPULATIONS[name](rng)
        kept = values[rng.random(len(values)) < share]
        total = bounded_key_total(kept, share, _known(values, looseness), confidence=0.95)
        return bool(total.low[0] <= values.sum() <= total.high[0])

    assert holds(is_held, 0.95, trials=300)


def test_a_total_of_all_keys_is_exact():
    values = np.array([1.0, 2.0, 4.0])
    total = bounded_key_total(values, 1.0, _known(values, 2.0), confidence=0.95)
    assert (total.low[0], total.value[0], total.high[0], total.bound[0]) == (7.0, 7.0, 7.0, 0)


def test_what_is_certain_limits_both_ends():
    known = CertainRange(value_max=5.0, squares_max=250.0, total_max=50.0)
    total = bounded_key_total(np.array([5.0]), 0.25, known, confidence=0.99)
    assert total.low[0] == 5.0
    assert total.high[0] <= 50.0
