"""Hashes against DataSketches' own, and the random keys of positions."""

from __future__ import annotations

from typing import Any

import datasketches
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import (
    combine,
    murmur_float64,
    murmur_int64,
    murmur_utf8,
    position_keys,
    uniforms,
)
from tests.synopses.subjects import arrow_of

INT64 = st.integers(-(2**63), 2**63 - 1)
DOUBLES = st.floats(allow_nan=True, allow_infinity=True)


def library_registers(values: list[Any]) -> bytes:
    sketch = datasketches.hll_sketch(12, datasketches.HLL_8, True)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize_updatable()[40:])


def our_registers(halves: tuple[NDArray[np.uint64], NDArray[np.uint64]]) -> bytes:
    summary = GroupedDistinct(1, 12)
    summary.update(None, *halves)
    return summary.registers(0).tobytes()


@given(values=st.lists(INT64, max_size=50))
def test_integers_hash_as_in_datasketches(values: list[int]) -> None:
    assert our_registers(murmur_int64(np.array(values, np.int64))) == library_registers(values)


@given(values=st.lists(DOUBLES, max_size=50))
def test_doubles_hash_as_in_datasketches(values: list[float]) -> None:
    assert our_registers(murmur_float64(np.array(values, np.float64))) == library_registers(values)


@pytest.mark.slow
@given(values=st.lists(st.text(min_size=1), max_size=30))
def test_texts_hash_as_in_datasketches(values: list[str]) -> None:
    offsets, data = arrow_of(np.array(values, object))
    assert our_registers(murmur_utf8(offsets, data)) == library_registers(values)


@pytest.mark.parametrize("length", range(40))
def test_texts_of_every_length_hash_as_in_datasketches(length: int) -> None:
    texts = np.array(["z" * length + chr(65 + i) for i in range(20)], object)
    assert our_registers(murmur_utf8(*arrow_of(texts))) == library_registers(texts.tolist())


def test_the_empty_text_is_a_value() -> None:
    offsets, data = arrow_of(np.array(["", "", "a"], object))
    h1, h2 = murmur_utf8(offsets, data)
    assert (h1[0], h2[0]) == (h1[1], h2[1])
    assert h1[0] != h1[2]


def test_a_slice_of_a_text_column_hashes_as_its_texts() -> None:
    offsets, data = arrow_of(np.array(["no", "yes", "maybe", "no"], object))
    whole = murmur_utf8(offsets, data)
    part = murmur_utf8(offsets[1:4], data)
    np.testing.assert_array_equal(whole[0][1:3], part[0])


def test_position_keys_depend_on_seed_and_position_alone() -> None:
    keys = position_keys(9, 100, 50)
    np.testing.assert_array_equal(position_keys(9, 120, 5), keys[20:25])
    assert not np.isin(keys, position_keys(10, 100, 50)).any()
    assert len(np.unique(position_keys(9, 0, 100_000))) == 100_000


@pytest.mark.parametrize("seed", [0, 1, 2, 2**63, -1])
def test_position_keys_are_uniform(seed: int) -> None:
    uniform = uniforms(position_keys(seed, 0, 20_000))
    assert uniform.min() > 0
    assert uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 1e-6
    assert abs(np.corrcoef(uniform[1:], uniform[:-1])[0, 1]) < 0.05


def test_uniforms_stay_inside_at_the_ends() -> None:
    ends = uniforms(np.array([0, 2**64 - 1], np.uint64))
    assert 0 < ends[0] < ends[1] < 1


def test_combined_hashes_tell_order_and_columns_apart() -> None:
    a, _ = murmur_int64(np.arange(1000))
    b, _ = murmur_int64(np.arange(1000, 2000))
    assert not (combine(a, b) == combine(b, a)).any()
    assert len(np.unique(combine(np.repeat(a, 30), np.tile(b[:30], 1000)))) == 30_000
