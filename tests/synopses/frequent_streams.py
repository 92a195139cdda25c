"""Streams of int64 values for lists of frequent items, and a summary of such a stream."""

from __future__ import annotations

import numpy as np

from synopses.frequent.frequent_items import GroupedFrequent
from synopses.kernels.hashing import murmur_int64


def of(values: np.ndarray, entries: int = 16, batch: int = 500) -> GroupedFrequent:
    summary = GroupedFrequent(1, entries)
    for start in range(0, len(values), batch):
        part = values[start : start + batch]
        summary.update(None, murmur_int64(part)[0], part)
    return summary


STREAMS = {
    "zipf": lambda rng: np.minimum(rng.zipf(1.3, 5000), 10**6),
    "unique": lambda _rng: np.arange(5000),
    "few": lambda rng: rng.integers(0, 10, 5000),
    "constant": lambda _rng: np.full(5000, 7),
    "late and heavy": lambda _rng: np.concatenate((np.arange(4000), np.full(1000, -1))),
    "early and heavy": lambda _rng: np.concatenate((np.full(1000, -1), np.arange(4000))),
    "in turns": lambda _rng: np.tile(np.arange(50), 100),
    "two runs": lambda _rng: np.concatenate((np.repeat(np.arange(500), 5), np.arange(2500))),
}
