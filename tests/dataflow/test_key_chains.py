"""Chains by key keep their rows while older ones are dropped, whatever numbers rows have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column
from shedder.dataflow.changes import NEVER_US
from shedder.dataflow.stores.chain_kernels import (
    BORN,
    EXPIRES,
    GIVEN_TS,
    SINCE,
    WEIGHT,
    probe_window,
)
from shedder.dataflow.stores.chain_walks import WALKS
from shedder.dataflow.stores.key_chains import NUMBER_MAX, KeyChains, hashes_of

KEYS, RANGE_US, STEPS = 40, 900, 60


def pairs_of(
    chains: KeyChains, keys: NDArray[np.int64], now_us: int, ts_us: NDArray[np.int64]
) -> set[tuple[int, int]]:
    """Which given keys are those of which positions, for rows of the window at an instant."""
    given = np.empty((len(keys), 5), np.int64)
    given[:, BORN], given[:, EXPIRES], given[:, GIVEN_TS] = now_us, NEVER_US, now_us - 1
    given[:, SINCE], given[:, WEIGHT] = now_us - RANGE_US, 1
    first = int(np.searchsorted(ts_us, now_us - RANGE_US))
    found: set[tuple[int, int]] = set()
    walks, made = np.zeros((2, 1 + WALKS), np.int64), 50
    while made == 50:
        pairs = np.empty((6, 50), np.int64)
        index = chains.heads, chains.links, chains.base, first, len(ts_us) - 3
        hashes = hashes_of([pa.array(keys)], len(keys))
        made = probe_window(walks, hashes, given, *index, RANGE_US, 1, pairs)
        found |= set(zip(pairs[0, :made].tolist(), pairs[1, :made].tolist(), strict=True))
    return found


@pytest.mark.parametrize("base", [0, NUMBER_MAX - 2_000])
def test_walks_find_the_rows_of_the_window_and_none_that_were_dropped(base: int) -> None:
    """Rows come in batches of many sizes, so they wrap around, move and grow."""
    rng = np.random.default_rng(5)
    chains = KeyChains((Column("k", ColumnType.BIGINT),))
    chains.base = base
    ts, keys = np.empty(0, np.int64), np.empty(0, np.int64)
    last_us = 0
    for step in range(STEPS):
        rows = int(rng.integers(1, 900 if step < STEPS // 2 else 90))
        new_us = last_us + np.sort(rng.integers(1, rows + 1, rows))
        new = rng.integers(0, KEYS, rows)
        absent = rng.random(rows) < 0.1
        batch = pa.RecordBatch.from_arrays([pa.array(new, mask=absent)], names=["k"])
        chains.append(len(ts), batch, new_us)
        ts, keys = np.append(ts, new_us), np.append(keys, np.where(absent, -1, new))
        last_us = int(ts[-1])
        probed = rng.integers(0, KEYS, 30)
        there = np.flatnonzero((ts >= last_us + 1 - RANGE_US) & (np.arange(len(ts)) < len(ts) - 3))
        expected = {
            (at, int(row)) for at, key in enumerate(probed) for row in there[keys[there] == key]
        }
        assert pairs_of(chains, probed, last_us + 1, ts) == expected
        left = int(np.searchsorted(ts, last_us + 1 - RANGE_US))
        if step % 3 == 2:
            chains.drop(left, len(ts))
            ts, keys = ts[left:], keys[left:]
    assert chains.base < NUMBER_MAX // 2
