"""Ids of small integers by value are those that the table of hashes gave."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synopses.kernels.group_table import GroupTable
from synopses.kernels.hashing import murmur_int64
from synopses.kernels.small_integer_keys import VALUES_MAX, SmallKeys

KEYS = st.integers(-2, 40) | st.sampled_from(
    [VALUES_MAX - 1, VALUES_MAX, -(1 << 63), (1 << 63) - 1]
)


@pytest.mark.slow
@given(batches=st.lists(st.lists(KEYS, max_size=30), max_size=8), room=st.integers(0, 30))
def test_what_is_known_is_what_the_table_says(batches: list[list[int]], room: int) -> None:
    table, small = GroupTable(room), SmallKeys()
    for batch in batches:
        values = np.array(batch, np.int64)
        known = small.ids(values)
        ids, _ = table.assign(murmur_int64(values)[0])
        if known is not None:
            np.testing.assert_array_equal(known, ids)
        small.learn(values, ids)


def test_learnt_values_are_known_and_others_are_not() -> None:
    small = SmallKeys()
    values = np.array([3, 5, 3], np.int64)
    assert small.ids(values) is None
    small.learn(values, np.array([1, 2, 1], np.int32))
    ids = small.ids(values)
    assert ids is not None
    assert ids.tolist() == [1, 2, 1]
    assert small.ids(np.array([3, 4], np.int64)) is None
    small.learn(np.array([4], np.int64), np.zeros(1, np.int32))  # It found no room.
    assert small.ids(np.array([4], np.int64)) is None


def test_many_values_are_all_looked_at() -> None:
    small = SmallKeys()
    values = np.arange(5000)
    small.learn(values, np.arange(1, 5001, dtype=np.int32))
    ids = small.ids(values[::-1])
    assert ids is not None
    np.testing.assert_array_equal(ids, np.arange(5000, 0, -1))
    assert small.ids(np.append(values, 5000)) is None
