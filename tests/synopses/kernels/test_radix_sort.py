"""Sorting and selecting by radix give what numpy's sorts give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from synopses.kernels.radix_sort import (
    distinct_pairs,
    ranked,
    smallest,
    smallest_by_group,
    sort_into,
    sorted_floats,
)

SIZES = (0, 1, 2, 64, 65, 1_000, 70_000)


def _into_another(values: NDArray[np.float64]) -> NDArray[np.float64]:
    ordered = np.empty_like(values)
    sort_into(values, ordered)
    return ordered


WAYS = pytest.mark.parametrize("ordered", [sorted_floats, _into_another], ids=["new", "into"])
Way = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def _floats(kind: str, size: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(size)
    signs = rng.choice([-1.0, 1.0], size)
    special = [np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308]
    made: NDArray[np.float64] = {
        "lognormal": lambda: rng.lognormal(0, 2, size) * signs,
        "one sign": lambda: rng.lognormal(0, 2, size),
        "constant": lambda: np.full(size, -3.5),
        "special": lambda: rng.choice(special, size),
        "descending": lambda: -np.arange(size, dtype=np.float64),
        "single precision": lambda: rng.normal(size=size).astype(np.float32).astype(np.float64),
    }[kind]()
    return made


@WAYS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "kind", ["lognormal", "one sign", "constant", "special", "descending", "single precision"]
)
def test_values_are_sorted_as_numpy_does(kind: str, size: int, ordered: Way) -> None:
    values = _floats(kind, size)
    before = values.copy()
    np.testing.assert_array_equal(ordered(values), np.sort(values))
    np.testing.assert_array_equal(values, before)


@WAYS
def test_a_zero_with_a_sign_comes_first(ordered: Way) -> None:
    assert np.signbit(ordered(np.array([0.0, -0.0, 0.0, -0.0]))).tolist() == [1, 1, 0, 0]


@WAYS
@given(values=arrays.arrays(np.float64, st.integers(0, 200), elements=st.floats(allow_nan=False)))
def test_any_values_are_sorted(values: NDArray[np.float64], ordered: Way) -> None:
    np.testing.assert_array_equal(ordered(values), np.sort(values))


def _keys(kind: str, size: int) -> NDArray[np.uint64]:
    rng = np.random.default_rng(size)
    made: NDArray[np.uint64] = {
        "hashes": lambda: rng.integers(0, 2**64, size, np.uint64),
        "few": lambda: rng.integers(0, 5, size, np.uint64),
        "all one": lambda: np.full(size, 2**64 - 1, np.uint64),
        "both ends": lambda: rng.choice(np.array([0, 2**64 - 1], np.uint64), size),
        "far apart": lambda: np.uint64(1) << rng.integers(0, 64, size).astype(np.uint64),
        "priorities": lambda: ~(1 / rng.random(size)).view(np.uint64),
    }[kind]()
    return made


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize(
    "kind", ["hashes", "few", "all one", "both ends", "far apart", "priorities"]
)
def test_the_smallest_are_chosen(kind: str, size: int) -> None:
    keys = _keys(kind, size)
    ordered = np.sort(keys)
    for k in {0, 1, size // 2, size - 1} & set(range(size)):
        places, limit = smallest(keys, k)
        assert limit == ordered[k] == ranked(keys, k)
        assert (np.diff(places) > 0).all()
        np.testing.assert_array_equal(np.sort(keys[places]), ordered[:k])
        first = np.flatnonzero(keys == limit)
        taken = np.intersect1d(places, first)  # Of equal ones, the first.
        np.testing.assert_array_equal(taken, first[: taken.size])


@pytest.mark.parametrize("most", [3, 2**64 - 1])  # Many equal keys, and none.
@pytest.mark.parametrize("groups", [1, 7, 300])
def test_the_smallest_of_each_group_are_chosen(groups: int, most: int) -> None:
    rng = np.random.default_rng(groups)
    keys = rng.integers(0, most, 5000, np.uint64)
    ids = rng.integers(0, groups, 5000).astype(np.int32)
    limits = rng.integers(0, 2 * (5000 // groups), groups)
    places, nexts = smallest_by_group(keys, ids, limits)
    expected = []
    for group in range(groups):
        rows = np.flatnonzero(ids == group)
        order = rows[np.argsort(keys[rows], kind="stable")]
        expected += order[: limits[group]].tolist()
        cut = limits[group] < rows.size
        assert nexts[group] == (keys[order[limits[group]]] if cut else 2**64 - 1)
    assert places.tolist() == sorted(expected)


@pytest.mark.parametrize("size", [0, 1, 3, 64, 5_000])
@pytest.mark.parametrize("ends", [(0, 1), (7, 8), (-5, 2_000_000_000), (-(2**63), 2**63 - 1)])
def test_pairs_are_distinct_and_in_order(size: int, ends: tuple[int, int]) -> None:
    rng = np.random.default_rng(size)
    keys = rng.integers(*ends, size, endpoint=True)
    keys[size // 2 :] = keys[: size - size // 2]
    groups = np.sort(rng.integers(0, 70, size)).astype(np.uint16)
    before = keys.copy()
    found, of = distinct_pairs(keys, groups)
    expected = sorted(set(zip(keys.tolist(), groups.tolist(), strict=True)))
    assert list(zip(found.tolist(), of.tolist(), strict=True)) == expected
    np.testing.assert_array_equal(keys, before)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**16 - 1))))
def test_any_pairs_are_distinct_and_in_order(pairs: list[tuple[int, int]]) -> None:
    pairs.sort(key=lambda pair: pair[1])
    keys = np.array([key for key, _ in pairs], np.int64)
    groups = np.array([group for _, group in pairs], np.uint16)
    found, of = distinct_pairs(keys, groups)
    assert list(zip(found.tolist(), of.tolist(), strict=True)) == sorted(set(pairs))
