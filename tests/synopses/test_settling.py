"""Summaries that are given back their room once nothing more is counted: the same, but smaller."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.count_min import GroupedCountMin
from synopses.hashing import murmur_int64
from synopses.theta import GroupedTheta

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
