"""Tables of counts by key: their order, with collisions and keys that begin again at the front."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.joins.key_tables import FREE, move_sampled, ordered, place_of, put, sampled_number
from synopses.joins.pane_kernels import sampled
from tests.seeds import seed

SIZE = 64


def _table(size: int):
    return np.zeros(size, np.uint64), np.full(size, FREE), np.zeros((size, 1))


@pytest.mark.parametrize("shift", [0, 44, 58, 63])
@pytest.mark.parametrize("number", [0, 1, 47, SIZE - 1])
def test_keys_come_in_their_order_wherever_they_collide(shift, number):
    """shift: the keys of a high one are alike in their upper halves, at the end of the table."""
    rng = np.random.default_rng(seed("key tables", shift, number))
    secret = rng.integers(0, 1 << 64, dtype=np.uint64)
    ends = ~np.uint64(0) - (rng.integers(0, 1 << 64, 4 * SIZE, dtype=np.uint64) >> np.uint64(shift))
    anywhere = rng.integers(0, 1 << 64, 4 * SIZE, dtype=np.uint64)
    keys = np.unique(np.where(rng.random(4 * SIZE) < 0.7, ends, anywhere))
    keys = rng.permutation(keys)[:number]
    table = _table(SIZE)
    places = put(*table, keys, np.arange(len(keys)), np.arange(len(keys))[:, None] / 2)
    assert table[0][places].tolist() == keys.tolist()
    for level in (0, 1, 3):
        found = ordered(*table[:2], secret, level)
        kept = np.sort(keys[sampled(keys, secret, level)])
        assert table[0][found].tolist() == kept.tolist()
        assert sampled_number(*table[:2], secret, level) == len(kept)
        moved = _table(2 * SIZE)
        move_sampled(*table, secret, level, *moved)
        again = [place_of(*moved[:2], key) for key in kept]
        for ours, theirs in zip(moved, table, strict=True):
            assert ours[again].tolist() == theirs[found].tolist()
        assert np.count_nonzero(moved[1] >= 0) == len(kept)
