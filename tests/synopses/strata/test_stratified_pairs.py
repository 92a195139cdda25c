"""Certified intervals of pairs from cross moments, of strata that were read at different shares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.intervals.linearised_pairs import Certified
from synopses.strata.pair_stratum import PairSquares, PairStratum
from synopses.strata.stratified_pairs import (
    certified_correlation,
    certified_covariance,
    certified_slope,
)
from tests.scale import scaled
from tests.truth import gate

Column = NDArray[np.float64]
SIZE = 3_000
TRIALS = scaled(100, 400)
LEVELS = {"1/4": ((1.0, 4),), "1, 1/8, 1/2": ((0.2, 1), (0.4, 8), (0.4, 2))}


def columns() -> dict[str, tuple[Column, Column]]:
    rng = np.random.default_rng(23)
    u, v = rng.random((2, SIZE))
    z, w = rng.standard_normal((2, SIZE))
    ones = (u < 0.45).astype(np.float64)
    return {
        "normal, r = 0.5": (z, 0.5 * z + np.sqrt(0.75) * w),
        "uniform": (u, v),
        "uniform, r = 0.7": (u, (u + v) / 2.0),
        "ones": (ones, (v < 0.5).astype(np.float64)),
        "ones, r = 0.6": (ones, np.where(v < 0.8, ones, 1.0 - ones)),
        "ones, alike": (ones, ones),
        "parabola": (u - 0.5, (u - 0.5) ** 2),
        "far from zero": (1e6 + u, 1e6 + (u + 3.0 * v)),
    }


def strata(
    x: Column, y: Column, levels: str, *, whole: bool, on_axes: bool = False
) -> list[PairStratum]:
    """As many readings of the pairs as there are trials, each of a group.

    on_axes: with what is known of sums and differences.
    """
    rng = np.random.default_rng([len(levels), whole])
    found, first = [], 0
    for part, share in LEVELS[levels]:
        rows = np.arange(first, first + round(part * SIZE))
        first = rows[-1] + 1
        # Of a group that is one of three, the others' rows are read, too.
        others = 0 if whole else 2 * len(rows)
        read = (len(rows) + others) // share
        each, squares = np.zeros((6, TRIALS)), np.zeros((5, TRIALS))
        for trial in range(TRIALS):
            mine = read if whole else rng.hypergeometric(len(rows), others, read)
            chosen = rng.choice(rows, mine, replace=False)
            a, b = x[chosen], y[chosen]
            each[:, trial] = (
                mine,
                a.mean(),
                b.mean(),
                ((a - a.mean()) ** 2).sum(),
                ((b - b.mean()) ** 2).sum(),
                ((a - a.mean()) * (b - b.mean())).sum(),
            )
            both, apart = (a + b) ** 2, (a - b) ** 2
            squares[:, trial] = (
                both.mean(),
                apart.mean(),
                ((both - both.mean()) ** 2).sum(),
                ((apart - apart.mean()) ** 2).sum(),
                ((both - both.mean()) * (apart - apart.mean())).sum(),
            )
        known = (
            (((x + y).min(), (x + y).max()), ((x - y).min(), (x - y).max())),
            PairSquares((squares[0], squares[1]), (squares[2], squares[3]), squares[4]),
        )
        found.append(
            PairStratum(
                len(rows) + others,
                read,
                each[0].astype(np.int64),
                (each[1], each[2]),
                (each[3], each[4]),
                each[5],
                (x.min(), x.max()),
                (y.min(), y.max()),
                whole,
                *(known if on_axes else ()),
            )
        )
    return found


def moment(x: Column, y: Column) -> float:
    return float(((x - x.mean()) * (y - y.mean())).mean())


TRUTHS: dict[Callable[..., Certified], Callable[[Column, Column], float]] = {
    certified_covariance: moment,
    certified_correlation: lambda x, y: moment(x, y) / np.sqrt(moment(x, x) * moment(y, y)),
    certified_slope: lambda x, y: moment(x, y) / moment(y, y),
}


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("levels", list(LEVELS))
@pytest.mark.parametrize("confidence", [0.6, 0.95])
def test_certified_intervals_of_strata_hold_the_truth_as_often_as_they_say(
    levels, whole, confidence
):
    some = 0
    for name, (x, y) in columns().items():
        parts = strata(x, y, levels, whole=whole)
        for function, true in TRUTHS.items():
            found, right = function(parts, confidence=confidence), true(x, y)
            count = int(found.holds.sum())
            some += count
            held = ((found.low <= right) & (right <= found.high))[found.holds].sum()
            if count == TRIALS:  # Certified by luck is a choice that the claim does not cover.
                assert held >= gate(count, confidence), (name, function.__name__, held / count)
    assert some > 5 * TRIALS


def standardised(column: Column) -> Column:
    return (column - column.mean()) / column.std()


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("whole", scaled([False], [True, False]))
@pytest.mark.parametrize("levels", list(LEVELS))
@pytest.mark.parametrize("confidence", [0.6, 0.95])
def test_intervals_by_sums_and_differences_hold_also_off_the_axes(levels, whole, confidence):
    for name, (x, y) in columns().items():
        for shift, scale in ((0.0, 1.0), (0.7, 2.0)):  # Of a group that is not as all others are.
            a, b = standardised(x) * scale + shift, standardised(y) - shift
            parts = strata(a, b, levels, whole=whole, on_axes=True)
            for function, true in TRUTHS.items():
                found, right = function(parts, confidence=confidence), true(a, b)
                count = int(found.holds.sum())
                held = ((found.low <= right) & (right <= found.high))[found.holds].sum()
                if count == TRIALS:
                    where = name, shift, function.__name__, held / count
                    assert held >= gate(count, confidence), where


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("name", ["normal, r = 0.5", "uniform, r = 0.7"])
def test_known_squares_of_sums_and_differences_give_the_error_of_a_correlation(name, shift):
    x, y = map(standardised, columns()[name])
    parts = strata(x + shift, y - shift, "1/4", whole=True, on_axes=True)
    found = certified_correlation(parts, confidence=0.95)
    influence = x * y - (x * y).mean() / 2.0 * (x**2 + y**2)
    ideal = influence.std() * np.sqrt(0.75 / (SIZE / 4))
    assert found.holds.all()
    assert np.median(found.error) < (1.1 if shift == 0.0 else 2.0) * ideal


@pytest.mark.parametrize("name", ["ones", "ones, r = 0.6"])
def test_moments_of_zeros_and_ones_know_the_error_of_a_correlation(name):
    """Products of zeros and ones do not vary more than the bound by the range says."""
    x, y = columns()[name]
    found = certified_correlation(strata(x, y, "1/4", whole=True), confidence=0.95)
    a, b = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    influence = a * b - (a * b).mean() / 2.0 * (a**2 + b**2)
    ideal = 1.96 * influence.std() * np.sqrt(0.75 / (SIZE / 4))
    assert found.holds.all()
    assert np.median(found.high - found.low) / 2.0 < 1.35 * ideal


def test_what_was_read_in_full_has_no_error():
    x, y = (column[:400] for column in columns()["uniform"])
    stratum = PairStratum(
        400,
        400,
        np.array([400]),
        (np.array([x.mean()]), np.array([y.mean()])),
        (np.array([400 * moment(x, x)]), np.array([400 * moment(y, y)])),
        np.array([400 * moment(x, y)]),
        (0.0, 1.0),
        (0.0, 1.0),
        whole=True,
    )
    for function in TRUTHS:
        assert function([stratum], confidence=0.95).error.tolist() == [0.0]
