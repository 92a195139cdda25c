"""Counts of a pane of a join that gets no more rows; it can be brought into fewer bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synopses.joins.pane_kernels import Floats, Longs, Words

NO_KEYS = np.empty(0, np.uint64)
NO_CENTRES = np.empty(0)
_SINGLE_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, eq=False)
class KeySums:
    """Sums of some keys.

    keys: uint64 [keys], ascending. counts: int64 [keys], rows.
    values: float64 [keys, PARTS * expressions], parts of each expression (pane_kernels.py).
    """

    keys: Words
    counts: Longs
    values: Floats

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.keys.nbytes + self.counts.nbytes + self.values.nbytes

    def where(self, kept: NDArray[np.bool_]) -> KeySums:
        """Return some of the keys."""
        return KeySums(self.keys[kept], self.counts[kept], self.values[kept])


@dataclass(frozen=True, slots=True, eq=False)
class ClosedPane:
    """Counts of a pane that gets no more rows.

    heavy: of the keys that were counted exactly. sampled: of the other keys that are sampled.
    sums: [buckets], rows without those of heavy keys.
    value_sums: [2 * expressions, buckets / VALUE_BUCKET], of the same rows, sums of positive values
      and of negative ones of each expression, rounded up.
    ends: [2, expressions], the least and the largest value; infinite where there is none.
    centres: [expressions], by which all values are less in parts.
    level: keys are sampled at 2^-level.
    distinct: estimated number of keys that are not heavy.
    """

    heavy: KeySums
    sampled: KeySums
    sums: NDArray[np.uint32] | Longs
    value_sums: NDArray[np.float32] | Floats
    ends: Floats
    centres: Floats
    level: int
    distinct: float

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        keys = self.heavy.size_bytes + self.sampled.size_bytes
        return keys + self.sums.nbytes + self.value_sums.nbytes + self.ends.nbytes


def rounded_up(sums: Floats) -> NDArray[np.float32] | Floats:
    """Return sums that are not below these, in half of the bytes unless they are too large."""
    if sums.size and not sums.max() < _SINGLE_MAX:
        return np.ascontiguousarray(sums)
    single = sums.astype(np.float32)
    above = np.nextafter(single, np.float32(np.inf))
    return np.ascontiguousarray(np.where(single < sums, above, single))


def folded(sums: Floats, buckets: int) -> Floats:
    """Return sums over fewer buckets, whose number divides that of the last axis.

    Buckets are equal ranges of one hash (pane_kernels.py), so that neighbours have a common bucket.
    """
    parts = sums.shape[-1] // buckets
    assert parts * buckets == sums.shape[-1]
    fewer: Floats = sums.reshape(*sums.shape[:-1], buckets, parts).sum(axis=-1)
    return fewer
