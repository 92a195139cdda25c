"""Counts of a pane of a join that gets no more rows; it can be brought into fewer bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from synopses.joins.key_tables import Floats, Longs, Words
from synopses.joins.pane_kernels import (
    NEGATIVE,
    PARTS,
    POSITIVE,
    VALUE_BUCKET,
    buckets_of,
    sampled,
)

NO_KEYS = np.empty(0, np.uint64)
NO_CENTRES = np.empty(0)
Summed = TypeVar("Summed", Floats, Longs)
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

    def split(self, keys_max: int) -> tuple[KeySums, KeySums]:
        """Return the keys with the most rows, and the others that have rows."""
        most = np.argsort(-self.counts, kind="stable")[:keys_max]
        is_kept = np.zeros(len(self.keys), np.bool_)
        is_kept[most] = True
        return self.where(is_kept), self.where(~is_kept & (self.counts > 0))

    def merged(self, other: KeySums) -> KeySums:
        """Return these keys with other ones."""
        keys = np.concatenate([self.keys, other.keys])
        order = np.argsort(keys)
        counts = np.concatenate([self.counts, other.counts])
        values = np.concatenate([self.values, other.values])
        return KeySums(keys[order], counts[order], values[order])

    def add_to_buckets(self, secret: np.uint64, sums: Longs, value_sums: Floats) -> None:
        """Add the rows of these keys to the sums of their buckets.

        secret: of the buckets. value_sums: [buckets / VALUE_BUCKET, 2 * expressions].
        """
        places = buckets_of(self.keys, secret, len(sums))
        np.add.at(sums, places, self.counts)
        signed = [self.values[:, part::PARTS] for part in (POSITIVE, NEGATIVE)]
        parts = np.stack(signed, axis=2).reshape(len(self.keys), value_sums.shape[1])
        np.add.at(value_sums, places // VALUE_BUCKET, parts)


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

    def shrunk(self, secrets: Words, *, heavy: int, keys: int, buckets: int) -> ClosedPane:
        """Return the counts in fewer bytes.

        Heavy keys with the fewest rows become sampled ones, and go to their buckets. The level
        rises as the estimated number of distinct keys demands. Neither depends on the sample.

        Args:
          secrets: of the sample and of the buckets.
          heavy: keys that may stay heavy. keys: sampled keys that are aimed at.
          buckets: as `fewer_buckets`.
        """
        kept, light = self.heavy.split(heavy)
        distinct, level = self.distinct + len(light.keys), self.level
        while distinct * 2.0**-level > keys:
            level += 1
        sums = self.sums.astype(np.int64)
        value_sums = np.ascontiguousarray(self.value_sums.T, np.float64)
        light.add_to_buckets(secrets[1], sums, value_sums)
        found = self.sampled.merged(light)
        return ClosedPane(
            kept,
            found.where(sampled(found.keys, secrets[0], level)),
            narrowest(folded(sums, buckets)),
            rounded_up(folded(value_sums.T, buckets // VALUE_BUCKET)),
            self.ends,
            self.centres,
            level,
            distinct,
        )


def narrowest(sums: Longs) -> NDArray[np.uint32] | Longs:
    """Return sums in half of the bytes unless one is too large."""
    return sums if sums.max() > np.iinfo(np.uint32).max else sums.astype(np.uint32)


def fewer_buckets(buckets: int, buckets_max: int) -> int:
    """Return a number of buckets that are neighbours together, at most so many."""
    while buckets > buckets_max and not buckets % (2 * VALUE_BUCKET):
        buckets //= 2
    return buckets


def rounded_up(sums: Floats) -> NDArray[np.float32] | Floats:
    """Return sums that are not below these, in half of the bytes unless they are too large."""
    if sums.size and not sums.max() < _SINGLE_MAX:
        return np.ascontiguousarray(sums)
    single = sums.astype(np.float32)
    above = np.nextafter(single, np.float32(np.inf))
    return np.ascontiguousarray(np.where(single < sums, above, single))


def folded(sums: Summed, buckets: int) -> Summed:
    """Return sums over fewer buckets, whose number divides that of the last axis.

    Buckets are equal ranges of one hash (pane_kernels.py), so that neighbours have a common bucket.
    """
    parts = sums.shape[-1] // buckets
    assert parts * buckets == sums.shape[-1]
    fewer: Summed = sums.reshape(*sums.shape[:-1], buckets, parts).sum(axis=-1)
    return fewer
