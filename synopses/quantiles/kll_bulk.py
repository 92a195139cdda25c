"""A sorted batch as a KLL sketch: every 2^level-th value, at that level, in DataSketches' bytes.

A compactor of KLL sorts what it holds and keeps every other value, the first or the second by the
toss of a coin. Halving `level` times is keeping one value in 2^level from a random first one on; a
batch that is sorted once needs no lower compactors. The rank of any value is then off by less than
2^level, on average by nothing, with standard deviation at most 2^level / 2: what one compaction at
that level adds, and less than what all compactions below it would have added.
Source: Karnin, Lang, Liberty 2016 (FOCS), sect. 2; image: datasketches-cpp 5.2.0, kll_sketch.hpp.
"""

from __future__ import annotations

import random
import struct
from functools import lru_cache
from typing import Any

import numpy as np
from datasketches import kll_doubles_sketch
from numpy.typing import NDArray

from synopses.quantiles.kll_datasketches_format import CAPACITY_MIN, capacity

# Preamble ints, serial version, family, flags, k, m, unused; n, min k, levels, unused.
_PREAMBLE = struct.Struct("<BBBBHBBQHBB")
_EXTREMES = struct.Struct("<dd")  # Smallest and largest value.
_FULL, _VERSION, _FAMILY = 5, 1, 15


def update_sorted(sketch: Any, values: NDArray[np.float64]) -> None:
    """Put a batch (no NaN, in ascending order) into a sketch of doubles."""
    level = (values.size // sketch.k).bit_length() - 1
    if level < 1:
        sketch.update(values)
        return
    if values.size >> level > capacity(sketch.k, level + 1):
        level += 1
    whole = values.size >> level << level
    if whole < values.size:  # Weights are whole: what is left over goes in one by one.
        sketch.update(values[whole:])
    image = sketch_image(values[:whole], sketch.k, level, random.getrandbits(level))
    sketch.merge(kll_doubles_sketch.deserialize(image))


def sketch_image(values: NDArray[np.float64], k: int, level: int, first: int) -> bytes:
    """The sketch that keeps every 2^level-th of these sorted values, from `first` on.

    values: shape [n], n a multiple of 2^level; those kept must fit: 5/3 k at level 1, then more.
    """
    kept = values[first :: 1 << level]
    extremes = _EXTREMES.pack(values[0], values[-1])
    return b"".join((_head(k, level, values.size, kept.size), extremes, kept.tobytes()))


@lru_cache(maxsize=256)  # Batches have few sizes.
def _head(k: int, level: int, size: int, kept: int) -> bytes:
    """What comes before the values: the lower levels are empty."""
    start = capacity(k, level + 1) - kept
    assert start >= 0, (size, k, level)
    preamble = _PREAMBLE.pack(
        _FULL, _VERSION, _FAMILY, 0, k, CAPACITY_MIN, 0, size, k, level + 1, 0
    )
    return preamble + np.full(level + 1, start, np.uint32).tobytes()
