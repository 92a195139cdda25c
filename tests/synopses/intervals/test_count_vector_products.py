"""The distance of scaled vectors of counts from the true ones."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.intervals.count_vector_products import vector_error
from tests.truth import gate


def keys_of(kind: str, size: int, rng: np.random.Generator) -> np.ndarray:
    return {
        "one key": np.zeros(size, np.int64),
        "all different": np.arange(size),
        "zipf": np.minimum(rng.zipf(1.3, size), 1000),
        "uniform": rng.integers(0, 50, size),
    }[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one key", "all different", "zipf", "uniform"])
@pytest.mark.parametrize("shares", [((1000, 100),), ((600, 300), (400, 20)), ((500, 500), (90, 3))])
def test_the_distance_is_held_as_often_as_it_says(
    kind: str, shares: tuple[tuple[int, int], ...]
) -> None:
    rng = np.random.default_rng(5)
    trials, held = 300, 0
    strata = [keys_of(kind, size, rng) for size, _ in shares]
    read = np.array([[float(n)] for _, n in shares])
    population = np.array([[float(size)] for size, _ in shares])
    most = vector_error(read, population, confidence=0.9)[0]
    for _ in range(trials):
        away = np.zeros(1001 if kind == "zipf" else 1000)
        for keys, (size, n) in zip(strata, shares, strict=True):
            some = rng.choice(keys, n, replace=False)
            away += size / n * np.bincount(some, minlength=len(away))
            away -= np.bincount(keys, minlength=len(away))
        held += bool(np.linalg.norm(away) <= most)
    assert held >= gate(trials, 0.9)


def test_it_is_of_the_size_that_the_variances_have() -> None:
    """Of 10,000 different keys: within three standard deviations of the root of the variance."""
    n, size = 1_000.0, 10_000.0
    found = vector_error(np.array([[n]]), np.array([[size]]), confidence=0.95)[0]
    likely = np.sqrt(size**2 / n * (size - n) / (size - 1))
    assert likely < found < 3 * likely


def test_nothing_is_lost_where_everything_was_read_and_all_where_nothing_was() -> None:
    read = np.array([[5.0, 0.0, 0.0, 1.0]])
    population = np.array([[5.0, 0.0, 7.0, 1.0]])
    assert vector_error(read, population, confidence=0.95).tolist() == [0.0, 0.0, np.inf, 0.0]
