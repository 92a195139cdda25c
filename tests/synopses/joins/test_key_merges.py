"""Unions of ascending lists of keys, and places in them, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.joins.key_merges import places_among, united
from tests.seeds import seed


@pytest.mark.parametrize("lists", [0, 1, 2, 3, 7, 16])
def test_a_union_has_each_key_once_and_finds_the_keys_of_each_list(lists):
    rng = np.random.default_rng(seed("key merges", lists))
    sizes = rng.choice([0, 1, 10, 3_000], lists)
    given = [np.unique(rng.integers(0, 4_000, size).astype(np.uint64) << 51) for size in sizes]
    found = united(given)
    truth = np.unique(np.concatenate([np.empty(0, np.uint64), *given]))
    assert found.dtype == np.uint64
    assert found.tolist() == truth.tolist()
    for each in given:
        assert places_among(each, found).tolist() == np.searchsorted(truth, each).tolist()
