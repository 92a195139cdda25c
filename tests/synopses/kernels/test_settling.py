"""Summaries that are given back their room once nothing more is counted: the same, but smaller."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.counters.count_min import GroupedCountMin
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_int64
from synopses.theta.theta_sketch import GroupedTheta

GROUPS = 40


def updated(made, seed, rows=30_000):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, GROUPS, rows).astype(np.int32)
    # Group 0 is large: a table of its own, and more hashes than it may keep.
    groups[rng.random(rows) < 0.3] = 0
    keys = rng.integers(0, 1 << 40, rows)
    made.update(groups, murmur_int64(keys)[0])
    return made


@pytest.mark.parametrize(
    "make", [lambda: GroupedCountMin(GROUPS, 7), lambda: GroupedTheta(GROUPS, 9)]
)
def test_settling_changes_nothing_but_the_room(make):
    settled, plain = updated(make(), 1), updated(make(), 1)
    settled.settle()
    assert settled.to_bytes() == plain.to_bytes()
    assert settled.size_bytes < plain.size_bytes
    again = settled.size_bytes
    settled.settle()
    assert settled.size_bytes == again
    # It may still be merged into, and counted on.
    other = updated(make(), 2)
    assert settled.merge(other).to_bytes() == plain.merge(other).to_bytes()
    assert updated(settled, 3).to_bytes() == updated(plain, 3).to_bytes()


@pytest.mark.parametrize(
    "make", [lambda: GroupedCountMin(GROUPS, 7), lambda: GroupedTheta(GROUPS, 9)]
)
def test_what_is_empty_settles_to_nothing_much_and_still_counts(make):
    settled = make()
    settled.settle()
    assert updated(settled, 1).to_bytes() == updated(make(), 1).to_bytes()


def test_dense_registers_are_all_that_settled_groups_hold_beside_where_they_are() -> None:
    """Of groups that become dense one after the other, so that there is room for more."""
    rng, made = np.random.default_rng(5), GroupedDistinct(GROUPS, 9)
    while made.distinct(0.95).value.min() < 1_000:  # Beyond a list's room: 512 bytes.
        made.update(
            rng.integers(0, GROUPS, 300).astype(np.int32),
            *murmur_int64(rng.integers(0, 1 << 60, 300)),
        )
    before = made.to_bytes()
    made.settle()
    assert GROUPS * (512 + 28) <= made.size_bytes <= GROUPS * (512 + 28) + 256
    assert made.to_bytes() == before
