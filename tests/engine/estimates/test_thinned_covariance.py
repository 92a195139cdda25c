"""Functions of pairs of thinned parts: exact where everything was read after all."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shedder.cql.expressions.expression import AggregateFunction
from shedder.engine.estimates.thinned_covariance import thinned_cross
from shedder.engine.panes.level_segment import Segment
from synopses.model.estimate import Bound
from synopses.moments.covariance import GroupedCrossMoments


def moments_of(x: np.ndarray, y: np.ndarray) -> GroupedCrossMoments:
    moments = GroupedCrossMoments(1)
    moments.update(None, x, y)
    return moments


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_was_skipped_the_answer_is_exact(seed: int) -> None:
    """Made of four variances it was an interval without width, beside the truth."""
    rng = np.random.default_rng(seed)
    x = rng.normal(1e3, 1, 60)
    y = x / 2 + rng.normal(0, 1, 60)
    whole, rest = moments_of(x[:30], y[:30]), moments_of(x[30:], y[30:])
    ends = [float(end(part[30:])) for part in (x, y) for end in (np.min, np.max)]
    segment = Segment(rest, 30, 30, *ends)
    found = thinned_cross(AggregateFunction.COVAR_SAMP, whole, [segment], 0.95, ungrouped=True)
    xs, ys = ([Fraction(value) for value in column.tolist()] for column in (x, y))
    mean_x, mean_y = sum(xs) / 60, sum(ys) / 60
    true = sum((a - mean_x) * (b - mean_y) for a, b in zip(xs, ys, strict=True)) / 59
    assert found.bound.tolist() == [Bound.EXACT]
    assert found.value[0] == pytest.approx(float(true), rel=1e-13)
    assert whole.sums().pairs.tolist() == [30]  # It is as it was.


def test_a_correlation_of_a_thinned_pane_is_certified_by_the_ranges() -> None:
    """From four variances, each at delta/4, its half width was 0.39."""
    rng = np.random.default_rng(3)
    x, y = rng.random((2, 8_000))
    read = rng.choice(8_000, 1_000, replace=False)
    segment = Segment(moments_of(x[read], y[read]), 8_000, 1_000, 0.0, 1.0, 0.0, 1.0)
    empty = GroupedCrossMoments(1)
    for function in (AggregateFunction.CORR, AggregateFunction.REGR_SLOPE):
        found = thinned_cross(function, empty, [segment], 0.95, ungrouped=True)
        assert found.low[0] < 0.02 < found.high[0]
        assert found.high[0] - found.low[0] < 2 * 0.15


def test_a_column_that_is_constant_by_its_range_has_no_covariance() -> None:
    """It was +-0.05 beside the true 0."""
    x = np.random.default_rng(4).normal(size=500)
    segment = Segment(moments_of(x, np.full(500, 3.0)), 4_000, 500, -4.0, 4.0, 3.0, 3.0)
    for function in (AggregateFunction.COVAR_POP, AggregateFunction.COVAR_SAMP):
        found = thinned_cross(function, GroupedCrossMoments(1), [segment], 0.95, ungrouped=True)
        assert (found.low[0], found.high[0]) == (0.0, 0.0)
