"""Streams of keys for summaries of frequencies, and what is true of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.hashing import murmur_int64

Keys = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], Keys]


def _one_giant(rng: np.random.Generator, rows: int) -> Keys:
    """Half of all tuples are one key, the others are all different."""
    keys = rng.permutation(np.arange(1, rows + 1))
    keys[: rows // 2] = 0
    return keys


def _equals(_rng: np.random.Generator, rows: int) -> Keys:
    """Exactly as many keys as cells collide in pairs, all equally often."""
    return np.arange(rows) % 128


STREAMS: Mapping[str, Draw] = {
    "zipf-1.1": lambda rng, rows: np.minimum(rng.zipf(1.1, rows), 10**9),
    "zipf-1.5": lambda rng, rows: np.minimum(rng.zipf(1.5, rows), 10**9),
    "uniform": lambda rng, rows: rng.integers(0, 700, rows),
    "constant": lambda _rng, rows: np.full(rows, 7),
    "different": lambda _rng, rows: np.arange(rows),
    "one giant": _one_giant,
    "equals": _equals,
}


def hashes(keys: Keys) -> NDArray[np.uint64]:
    return murmur_int64(keys.astype(np.int64))[0]


def pairs(left: Keys, right: Keys) -> int:
    """How many pairs of tuples have the same key."""
    a, here = np.unique(left, return_counts=True)
    b, there = np.unique(right, return_counts=True)
    _, i, j = np.intersect1d(a, b, return_indices=True)
    return int((here[i] * there[j]).sum())


def how_often(keys: Keys, queried: Keys) -> NDArray[np.int64]:
    found, counts = np.unique(keys, return_counts=True)
    at = np.minimum(np.searchsorted(found, queried), max(found.size - 1, 0))
    if not found.size:
        return np.zeros(queried.size, np.int64)
    return np.where(found[at] == queried, counts[at], 0)
