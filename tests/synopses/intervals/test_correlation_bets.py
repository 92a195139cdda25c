"""Bounds for correlations by bets: hidden pairs, filters, long tails, and the least of a saddle."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.intervals.covariance import sampled_correlation
from synopses.intervals.linearised_pairs import certified_correlation
from synopses.intervals.pair_bets import bounded_correlation
from synopses.intervals.saddle_bets import least_of, terms_of
from synopses.intervals.sampled_pairs import CertainPairs, SampledPairs
from tests.scale import scaled
from tests.truth import gate

Column = NDArray[np.float64]
SIZE, READ = 800, 100
TRIALS = scaled(30, 400)
CONFIDENCES = scaled([0.95], [0.6, 0.95])


def bounds(
    x: Column,
    y: Column,
    kept: NDArray[np.bool_],
    *,
    read: int,
    trials: int,
    confidence: float,
    known: NDArray[np.bool_] | None = None,
) -> tuple[Column, Column]:
    """Bounds for the pairs that are kept, from as many samples of all pairs.

    known: the pairs that are known for certain.
    """
    pairs, certain = samples(x, y, kept, read, trials, known)
    parts = np.full((trials, 2), np.nan)
    return bounded_correlation(pairs, parts=parts, confidence=confidence, certain=certain)[:2]


def samples(
    x: Column,
    y: Column,
    kept: NDArray[np.bool_],
    read: int,
    trials: int,
    known: NDArray[np.bool_] | None,
) -> tuple[SampledPairs, CertainPairs | None]:
    """Samples of all pairs, and the pairs of each that are known for certain."""
    rng = np.random.default_rng([read, trials])
    rows = np.argsort(rng.random((trials, len(x))), axis=1)[:, :read].ravel()
    ids = np.repeat(np.arange(trials, dtype=np.int32), read)
    pairs = sample_of(x, y, rows, ids, kept, trials)
    if known is None:
        return pairs, None
    is_other, held = ~known, np.flatnonzero(known & kept)
    others = sample_of(x, y, rows[is_other[rows]], ids[is_other[rows]], kept, trials, is_other)
    owners = np.repeat(np.arange(trials), len(held))
    held = np.tile(held, trials)
    return pairs, CertainPairs.by_group(x[held], y[held], ids=owners, others=others)


def sample_of(
    x: Column,
    y: Column,
    rows: NDArray[np.int64],
    ids: NDArray[np.int32],
    kept: NDArray[np.bool_],
    trials: int,
    among: NDArray[np.bool_] | None = None,
) -> SampledPairs:
    """Samples of the pairs in `among`, of which only those in `kept` are pairs of the group."""
    there = np.ones(len(x), np.bool_) if among is None else among
    matches = kept[rows]
    return SampledPairs.by_group(
        x[rows[matches]],
        y[rows[matches]],
        ids=ids[matches],
        groups=trials,
        population=np.full(trials, np.count_nonzero(there)),
        read=np.bincount(ids, minlength=trials),
        ranges=((x[there].min(), x[there].max()), (y[there].min(), y[there].max())),
        shuffle_seed=len(rows),
    )


def extreme(column: Column, each: int) -> NDArray[np.bool_]:
    """The smallest and the largest values."""
    low, high = np.sort(column)[[each, -each - 1]]
    return (column < low) | (column > high)


def with_hidden(corner: tuple[float, float]) -> tuple[Column, Column]:
    """Pairs near a line, but for a few in one place: a third of all samples misses all of them."""
    u, v = np.random.default_rng(3).random((2, SIZE))
    x, y = u, 0.7 * u + 0.3 * v
    x[:8], y[:8] = corner
    return x, y


def columns() -> dict[str, tuple[Column, Column]]:
    z, w = np.random.default_rng(5).standard_normal((2, SIZE))
    corners = [(a, b) for a in (-2.0, 3.0) for b in (-2.0, 3.0)]
    return {str(at): with_hidden(at) for at in corners} | {
        "lognormal": (np.exp(z), np.exp(0.7 * (z + w))),
        "one lognormal": (np.exp(2.0 * z), w + z),
        "shifted, scaled": (1e6 * z + 1e9, -1e-3 * (z + 0.1 * w)),
        "few ones": ((w > 2.0) * 1.0, (z > 0.5) * 1.0),
    }


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("kept", ["all", "half"])
@pytest.mark.parametrize("name", list(columns()))
def test_bounds_hold_where_few_pairs_decide(name: str, kept: str) -> None:
    x, y = columns()[name]
    matches = np.arange(SIZE) % 2 == 0 if kept == "half" else np.ones(SIZE, np.bool_)
    right = float(np.corrcoef(x[matches], y[matches])[0, 1])
    for confidence in CONFIDENCES:
        low, high = bounds(x, y, matches, read=READ, trials=TRIALS, confidence=confidence)
        held = (low - 1e-9 <= right) & (right <= high + 1e-9)
        assert held.sum() >= gate(TRIALS, confidence), (confidence, held.mean())


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("kept", ["all", "half"])
@pytest.mark.parametrize("name", list(columns()))
def test_bounds_beside_certain_pairs_hold(name: str, kept: str) -> None:
    x, y = columns()[name]
    matches = np.arange(SIZE) % 2 == 0 if kept == "half" else np.ones(SIZE, np.bool_)
    right = float(np.corrcoef(x[matches], y[matches])[0, 1])
    known = extreme(x, 5) | extreme(y, 5)
    for confidence in CONFIDENCES:
        low, high = bounds(
            x, y, matches, read=READ, trials=TRIALS, confidence=confidence, known=known
        )
        held = (low - 1e-9 <= right) & (right <= high + 1e-9)
        assert held.sum() >= gate(TRIALS, confidence), (confidence, held.mean())


def test_one_end_is_not_normal_beside_certain_pairs() -> None:
    """A normal end knows nothing of these pairs."""
    rng = np.random.default_rng(3)
    x = rng.random(20_000)
    y = 0.7 * x + 0.3 * rng.random(20_000)
    everything = np.ones(len(x), np.bool_)
    pairs, certain = samples(x, y, everything, 1_000, 5, extreme(x, 5))
    normal = certified_correlation(pairs, confidence=0.95)
    assert (np.isnan(normal.low) != np.isnan(normal.high)).all()
    found = sampled_correlation(pairs, confidence=0.95, certain=certain)
    parts = np.full((5, 2), np.nan)
    low, high, _ = bounded_correlation(pairs, parts=parts, confidence=0.95, certain=certain)
    np.testing.assert_array_equal((found.low, found.high), (low, high))


def test_bets_end_where_the_first_rows_are_equal() -> None:
    """Rounding of equal rows was taken for a spread: a cell of c ended where it began, at -1."""
    x = np.full(1_000, -0.5)
    x[368] = 0.5
    ends = (-0.5, 0.5)
    pairs = SampledPairs.by_group(
        x, x, ids=None, groups=1, population=20_000, read=1_000, ranges=(ends, ends),
        shuffle_seed=875136727672280785,
    )  # fmt: skip
    low, high, _ = bounded_correlation(pairs, parts=np.full((1, 2), np.nan), confidence=0.9925)
    assert (low <= 1.0 <= high).all()


def test_certain_pairs_narrow_a_long_tail() -> None:
    x, y = columns()["lognormal"]
    everything = np.ones(SIZE, np.bool_)
    low, high = bounds(x, y, everything, read=400, trials=20, confidence=0.95)
    known = extreme(x, 16) | extreme(y, 16)
    least, most = bounds(x, y, everything, read=400, trials=20, confidence=0.95, known=known)
    assert np.mean(most - least) <= 0.6 * np.mean(high - low)


# Mean half width at 95 %.
WIDTHS = {"(3.0, 3.0)": 0.75, "lognormal": 0.9, "shifted, scaled": 0.45}


@pytest.mark.parametrize("name", list(WIDTHS))
def test_a_hundred_pairs_say_something_of_a_correlation(name: str) -> None:
    x, y = columns()[name]
    low, high = bounds(x, y, np.ones(SIZE, np.bool_), read=READ, trials=20, confidence=0.95)
    assert np.mean(high - low) / 2.0 <= WIDTHS[name]


def test_the_upper_end_is_the_lower_one_of_the_mirrored_column() -> None:
    x, y = columns()["lognormal"]
    everything = np.ones(SIZE, np.bool_)
    low, high = bounds(x, y, everything, read=400, trials=20, confidence=0.95)
    below, above = bounds(x, -y, everything, read=400, trials=20, confidence=0.95)
    assert (high - low).mean() == pytest.approx((above - below).mean(), rel=0.2)
    assert -above.mean() == pytest.approx(low.mean(), abs=0.1)
    assert -below.mean() == pytest.approx(high.mean(), abs=0.1)


@pytest.mark.parametrize("c", [-1.0, -0.3, 0.0, 0.6, 1.0])
@pytest.mark.parametrize("look", [(0.5, 0.5, 0.0, 0.0, 1.0), (2.0, -1.0, 0.4, 3.0, 0.0)])
@pytest.mark.parametrize("box", [((-1.0, 2.0), (-3.0, 0.5)), ((0.5, 2.0), (1.0, 4.0))])
def test_the_least_of_a_saddle_is_that_of_a_fine_grid(
    c: float, look: tuple[float, ...], box: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    h, k, u, v, g = look
    x, y = np.meshgrid(*(np.linspace(low, high, 701) for low, high in box))
    values = g * (x - u) * (y - v) - c * (h * (x - u) ** 2 + k * (y - v) ** 2) - 0.25
    found = least_of(terms_of(c, np.array(look), 0.25), np.array(box))
    assert found == pytest.approx(values.min(), abs=1e-4)
