"""Levels of a row query that keeps a sample of keys: from which instant on it kept how many.

A key has a stratum by its salted hash: half of all keys have stratum 0, a quarter stratum 1, and
so on; what is left has stratum LEVEL_MAX. At level n the query has the keys of strata n and above,
2^-n of all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.key_directory import canonical, hash_columns
from synopses.kernels.hashing import position_keys, salted

THINNING = "thinning"  # Of the parameters of a query in the catalog.
WEIGHT = "weight"  # The same.
LEVEL_MAX = 6
LEVELS_KEPT = 64  # Changes of the level that are stored; a restart begins behind older ones.

_LEAST = np.array([1 << bit for bit in range(64 - LEVEL_MAX, 64)], np.uint64)


@dataclass(frozen=True, slots=True)
class KeyThinning:
    """Which keys a query has at each instant.

    seed: secret of the hash. levels: (first instant, level) by rising instant; 0 before the first.
    level_min: that an operator has set; more keys are not kept, whatever the room.
    """

    seed: int
    levels: tuple[tuple[int, int], ...] = ()
    level_min: int = 0

    def to_json(self) -> list[Any]:
        """Return what the catalog keeps."""
        return [self.seed, [[*each] for each in self.levels], self.level_min]

    @classmethod
    def from_json(cls, stored: list[Any]) -> KeyThinning:
        """Read what `to_json` wrote."""
        seed, levels, level_min = stored
        return cls(seed, tuple((first_us, level) for first_us, level in levels), level_min)

    @property
    def level(self) -> int:
        """The newest level."""
        return self.levels[-1][1] if self.levels else 0

    def with_level(self, first_us: int, level: int) -> KeyThinning:
        """Return the same with another level from an instant on."""
        before = tuple(each for each in self.levels if each[0] < first_us)
        return replace(self, levels=(*before, (first_us, level))[-LEVELS_KEPT:])

    def least_level(self, from_us: int | None) -> int:
        """Return the lowest level at an instant and later; None: at any instant."""
        first = 0 if from_us is None else self._at(from_us)
        return min(self._every[first:])

    def highest_level(self, first_us: int, last_us: int) -> int:
        """Return the highest level at the instants from one to another."""
        return max(self._every[self._at(first_us) : self._at(last_us) + 1])

    def has(self, stratum: int, instants_us: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return at which instants the keys of a stratum are in the rows."""
        firsts = np.array([first_us for first_us, _ in self.levels], np.int64)
        levels = np.array(self._every)
        return np.asarray(levels[np.searchsorted(firsts, instants_us, side="right")] <= stratum)

    def end_us(self, stratum: int) -> int | None:
        """Return the instant from which on a stratum is in no rows; None: it is in the newest."""
        found: int | None = None
        for first_us, level in self.levels:
            found = None if level <= stratum else first_us if found is None else found
        return found

    @property
    def _every(self) -> list[int]:
        return [0, *(level for _, level in self.levels)]

    def _at(self, instant_us: int) -> int:
        return bisect_right([first_us for first_us, _ in self.levels], instant_us)


class LevelStore(Protocol):
    """Where the levels of a query are made durable before rows depend on them."""

    @property
    def is_new(self) -> bool:
        """Return whether the query is being registered, so that it has made no rows."""
        ...

    def put(self, thinning: KeyThinning) -> bool:
        """Store levels; return False if they may not change now.

        Raises:
          DiskFull, StorageFailed: nothing was stored.
        """
        ...


class KeyStrata:
    """Strata of keys by one secret."""

    def __init__(self, seed: int) -> None:
        self._salt = position_keys(seed, 0, 1)[0]

    def hashes(self, columns: Sequence[pa.Array[Any]]) -> NDArray[np.uint64]:
        """Return the salted hash of the key of each row; equal keys have equal hashes."""
        return salted(hash_columns([canonical(each) for each in columns]), self._salt)


def strata_of(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the stratum of each hash, 0 to LEVEL_MAX."""
    return LEVEL_MAX - np.searchsorted(_LEAST, hashes, side="right")
