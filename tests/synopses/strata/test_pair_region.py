"""The region that holds pairs: its edges against the places of a grid."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.strata.pair_region import PairRegion

A, B = (-1.5, 2.0), (-1.0, 3.0)
WEIGHTS = 1.0, 0.5
ENDS = (-np.inf, np.inf)
CUTS = {
    "box": (ENDS, ENDS),
    "all corners": ((-1.2, 2.2), (-1.5, 1.5)),
    "one corner": ((-np.inf, 2.0), ENDS),
    "narrow strip": (ENDS, (-0.1, 0.1)),
    "sum alone": ((-0.5, 0.25), ENDS),
}
GRID = 601
FORMS = [(0.0, 1.0, 0.0), (-0.3, 1.0, -0.3), (0.4, 1.0, 0.4), (0.5, 0.0, -0.5), (0.0, 1.0, -0.7)]


def region(cut: str) -> PairRegion:
    (p, q), (total, difference) = WEIGHTS, CUTS[cut]
    ends = [(np.array([low]), np.array([high])) for low, high in (A, B)]
    return PairRegion.of(*ends, (np.array([p]), np.array([q])), total, difference)


def places(cut: str) -> tuple[np.ndarray, np.ndarray]:
    """Places of a grid that are in the region."""
    (p, q), (total, difference) = WEIGHTS, CUTS[cut]
    a, b = (each.ravel() for each in np.meshgrid(np.linspace(*A, GRID), np.linspace(*B, GRID)))
    both, apart = p * a + q * b, p * a - q * b
    inside = (both >= total[0]) & (both <= total[1])
    inside &= (apart >= difference[0]) & (apart <= difference[1])
    return a[inside], b[inside]


@pytest.mark.parametrize("cut", list(CUTS))
@pytest.mark.parametrize(
    "form",
    [(0.0, 1.0, 0.0), (-0.3, 1.0, -0.3), (0.4, 1.0, 0.4), (0.5, 0.0, -0.5), (0.0, 1.0, -0.7)],
)
def test_a_saddle_has_its_range_on_the_edges(cut: str, form: tuple[float, float, float]) -> None:
    a, b = places(cut)
    values = form[0] * a**2 + form[1] * a * b + form[2] * b**2
    low, high = region(cut).range_of(*form)
    assert low[0] <= values.min() + 1e-12
    assert high[0] >= values.max() - 1e-12
    assert low[0] >= values.min() - 0.06
    assert high[0] <= values.max() + 0.06


@pytest.mark.parametrize("cut", list(CUTS))
def test_the_largest_sum_and_difference_are_at_corners_also_after_a_move(cut: str) -> None:
    a, b = places(cut)
    for shift, scale in (((0.0, 0.0), 1.0), ((0.3, -0.2), 1.4)):
        moved = region(cut).moved(shift, scale)
        x, y = (a - shift[0]) * scale, (b - shift[1]) / scale
        for value in (np.add, np.subtract):
            largest = float(np.abs(value(x, y)).max())
            assert largest - 1e-12 <= moved.largest(value)[0] <= largest + 0.03


def test_a_region_without_a_place_has_no_range() -> None:
    ends = np.array([0.0]), np.array([1.0])
    empty = PairRegion.of(ends, ends, (np.ones(1), np.ones(1)), (5.0, 6.0), ENDS)
    assert np.isnan(empty.range_of(0.0, 1.0, 0.0)[0][0])
    assert np.isnan(empty.largest(np.add)[0])
