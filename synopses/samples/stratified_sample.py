"""Samples of strata: the rows with the smallest keys of each, in sizes that follow the strata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_ids
from synopses.kernels.grouped_arrays import grown
from synopses.kernels.growable_array import appended
from synopses.kernels.hashing import GOLDEN, chosen_keys, splitmix
from synopses.kernels.radix_sort import smallest_by_group
from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.errors import CorruptSynopsis
from synopses.model.parameters import INT64_MAX, as_groups, as_whole
from synopses.model.profile import Profile
from synopses.model.resizing import ResizableSample
from synopses.samples.bottom_k import KEY_MAX, Kept
from synopses.samples.neyman_allocation import neyman
from synopses.samples.profiles import STRATIFIED
from synopses.samples.regrowth import surely_held

FLOOR_SHARE: Final = 0.5  # Half of the rows evenly, half after Neyman.
_NOTHING: Final = np.zeros(0, np.int64)
_TUPLES_MAX: Final = 2**53  # Beyond, doubles, in which sizes are reckoned, are not whole.

Integers = NDArray[np.int64]


@njit(nogil=True, cache=True)
def _entering(
    start: np.uint64, ids: NDArray[np.int32], thresholds: NDArray[np.uint64], population: Integers
) -> Integers:
    """Rows whose position has a key below the threshold of their stratum; all are counted."""
    found = np.empty(ids.size, np.int64)
    size = 0
    for row in range(ids.size):
        stratum = ids[row]
        population[stratum] += 1
        found[size] = row
        size += int(splitmix(start + np.uint64(row) * GOLDEN) < thresholds[stratum])
    return found[:size].copy()


@dataclass(frozen=True, slots=True, eq=False)
class SampleStrata:
    """What a stratified sample is of. rows: int64 [chosen], which of the held rows it is.

    ids: int32 [chosen], the stratum of each. population, read: int64 [strata], N_h and n_h; the
      rows of a stratum are a simple random sample without replacement of its N_h.
    """

    rows: Integers
    ids: NDArray[np.int32]
    population: Integers
    read: Integers


class StratifiedBottomK(ResizableSample):
    """Of each stratum the rows with the smallest keys: simple random samples, one per stratum.

    k: rows in all; up to about twice as many are held between cuts.
    Bound: the n_h smallest of N_h random keys are of a simple random sample of the N_h tuples if
    n_h does not depend on the keys. So nothing here does but the keys themselves:
      - When to cut, and to which sizes, follows from how many tuples came, and from what is told of
        their spread; never from what was kept of them.
      - A stratum that was cut to n at M tuples keeps, from then on, all rows below its threshold.
        Of M + L tuples the n + b smallest can be had (`available`; `regrowth.surely_held`), so a
        stratum grows with what comes. Cuts ask for less.
    A stratum never cut holds all of its tuples.
    Source: Cohen & Kaplan 2007 (bottom-k sketches); neyman_allocation.py.
    """

    profile: ClassVar[Profile] = STRATIFIED
    __slots__ = (
        "_base",
        "_base_population",
        "_groups",
        "_ids",
        "_ids_room",
        "_keys",
        "_keys_room",
        "_population",
        "_thresholds",
        "k",
    )

    def __init__(self, groups: int, k: int) -> None:
        """Make the empty samples of so many strata.

        Args:
          groups: how many strata there are. k: rows that they have in all, >= 1.

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        self.k = as_whole("k", k, 1, INT64_MAX)
        self._groups = as_groups(groups)
        room = max(groups, 1)
        self._thresholds = np.full(room, KEY_MAX, np.uint64)
        self._population = np.zeros(room, np.int64)
        self._base = np.zeros(room, np.int64)
        self._base_population = np.zeros(room, np.int64)
        self._keys = np.zeros(0, np.uint64)
        self._ids = np.zeros(0, np.int32)
        self._keys_room: NDArray[Any] = np.zeros(0, np.uint64)
        self._ids_room: NDArray[Any] = np.zeros(0, np.int32)

    @property
    def groups(self) -> int:
        """Return how many strata there are."""
        return self._groups

    @property
    def population(self) -> Integers:
        """int64 [groups], tuples of each stratum so far."""
        return self._population[: self._groups]

    @property
    def size_bytes(self) -> int:
        """Bytes held for keys and strata (the caller's payload comes on top)."""
        axes = (self._thresholds, self._population, self._base, self._base_population)
        held = max(self._keys.nbytes, self._keys_room.nbytes)
        held += max(self._ids.nbytes, self._ids_room.nbytes)
        return int(held + sum(axis.nbytes for axis in axes))

    def grow(self, groups: int) -> None:
        """Make room for strata up to this many; the new ones are empty."""
        if groups > self._groups:
            self._thresholds = grown(self._thresholds, groups, KEY_MAX)
            self._population = grown(self._population, groups)
            self._base = grown(self._base, groups)
            self._base_population = grown(self._base_population, groups)
            self._groups = groups

    def update(self, ids: NDArray[np.int32], start: np.uint64) -> Kept:
        """Offer a batch.

        Args:
          ids: int32 [n], the stratum of each row.
          start: `position_start` of the first row's position; others follow.

        Raises:
          BadParameter: an id is not that of a stratum.
        """
        strata = as_ids(ids, len(ids), self._groups)
        entered = _entering(start, strata, self._thresholds, self._population)
        if len(entered):
            keys = chosen_keys(start, entered)
            self._keys, self._keys_room = appended(self._keys, keys, self._keys_room)
            self._ids, self._ids_room = appended(self._ids, strata[entered], self._ids_room)
        return Kept(None, entered)

    @property
    def is_full(self) -> bool:
        """Return whether it is time to cut: twice the rows are expected to be held."""
        return float(self.expected().sum()) > 2 * self.k

    def expected(self) -> NDArray[np.float64]:
        """float64 [groups], how many rows of each stratum are expected to be held."""
        population = self.population
        share = self._base[: self._groups] / np.maximum(self._base_population[: self._groups], 1)
        found: NDArray[np.float64] = np.where(self._cut_once, share * population, population)
        return found

    def available(self) -> Integers:
        """int64 [groups], how many smallest keys of each stratum are held, all but for certain."""
        base, before = self._base[: self._groups], self._base_population[: self._groups]
        held = surely_held(base, before, self.population)
        found: Integers = np.where(self._cut_once, held, self.population)
        return found

    def cut(self, deviation: NDArray[np.float64]) -> Kept:
        """Give each stratum the size that it deserves now; sizes grow only with what came since.

        Args:
          deviation: float64 [groups], of one tuple of each stratum, >= 0; not found by looking at
            the rows that are kept.
        """
        population, available = self.population, self.available()
        whole = ~self._cut_once
        # A cut leaves out a row at least, so that the next smallest key is known.
        most = np.where(whole, population, np.maximum(available - 1, 0))
        sizes = neyman(
            self.k,
            population=population,
            deviation=deviation,
            most=most,
            floor_share=FLOOR_SHARE,
        )
        return self._keep(sizes, ~(whole & (sizes >= population)))

    def merge(self, other: Self) -> Kept:
        """Take in the samples of other tuples of the same strata, by the same key function.

        What is not held of one side is no part of the union either: of a stratum that either has
        cut, as many smallest keys stay as that side surely has (the smaller number of both).
        """
        self.k = min(self.k, other.k)
        self.grow(other.groups)
        other.grow(self._groups)
        whole = ~self._cut_once & ~other._cut_once
        endless = np.iinfo(np.int64).max
        had = [np.where(s._cut_once, s.available(), endless) for s in (self, other)]
        sizes = np.where(whole, 0, np.maximum(np.minimum(*had) - 1, 0))
        held = len(self._keys)
        self._keys = np.concatenate([self._keys, other._keys])
        self._ids = np.concatenate([self._ids, other._ids])
        self._population[: self._groups] += other.population
        self._thresholds[: self._groups] = np.minimum(
            self._thresholds[: self._groups], other._thresholds[: self._groups]
        )
        stay = self._keep(sizes, ~whole).old
        assert stay is not None
        return Kept.of(stay, held, np.arange(len(other._keys)))

    def resize(self, k: int, /, deviation: NDArray[np.float64] | None = None) -> Kept:
        """Change k, and cut if more are held than that allows; deviation as for `cut`, or equal."""
        self.k = as_whole("k", k, 1, INT64_MAX)
        if not self.is_full:
            return Kept(None, _NOTHING)
        return self.cut(np.ones(self._groups) if deviation is None else deviation)

    def _keep(self, sizes: Integers, cut: NDArray[np.bool_]) -> Kept:
        """Keep the `sizes` smallest keys of the strata that are cut."""
        limits = np.where(cut, sizes, np.iinfo(np.int64).max)
        stay, nexts = smallest_by_group(self._keys, self._ids, limits)
        shrunk = np.flatnonzero(nexts != KEY_MAX)
        self._thresholds[shrunk] = nexts[shrunk]
        self._base[: self._groups][cut] = sizes[cut]
        self._base_population[: self._groups][cut] = self.population[cut]
        held = len(self._keys)
        self._keys, self._ids = self._keys[stay], self._ids[stay]
        self._keys_room, self._ids_room = np.zeros(0, np.uint64), np.zeros(0, np.int32)
        return Kept.of(stay, held, _NOTHING)

    def chosen(self) -> SampleStrata:
        """The samples as they are to be read; changes nothing."""
        rows, _ = smallest_by_group(self._keys, self._ids, self.available())
        ids = self._ids[rows]
        read = np.bincount(ids, minlength=self._groups)
        return SampleStrata(rows, ids, self.population.copy(), read)

    @property
    def _cut_once(self) -> NDArray[np.bool_]:
        cut: NDArray[np.bool_] = self._thresholds[: self._groups] != KEY_MAX
        return cut

    def to_bytes(self) -> bytes:
        """The state in its envelope: per stratum its counts and threshold, then held keys."""
        kept = slice(0, self._groups)
        arrays: list[NDArray[Any]] = [
            self._thresholds[kept],
            self._population[kept],
            self._base[kept],
            self._base_population[kept],
            self._keys,
            self._ids,
        ]
        return seal(Kind.STRATIFIED, (self._groups, self.k), arrays)

    @classmethod
    def from_bytes(cls, image: bytes) -> Self:
        """Rebuild what `to_bytes` wrote.

        Raises:
          CorruptSynopsis: the bytes are something else, or damaged.
        """
        body = unseal(image, Kind.STRATIFIED)
        groups, k = body.parameters
        thresholds = body.array(np.uint64, (groups,))
        counts = [body.array(np.int64, (groups,)) for _ in range(3)]
        keys = body.array(np.uint64)
        ids = body.array(np.int32, keys.shape)
        body.end()
        if k < 1:
            raise CorruptSynopsis("k", k, ">= 1")
        if ids.size and not (ids.min() >= 0 and ids.max() < groups):
            raise CorruptSynopsis("stratum", int(ids.max()), f"0 to {groups - 1}")
        if not all((a >= 0).all() and (a <= b).all() for a, b in _ordered(counts)):
            raise CorruptSynopsis("counts of strata", groups, "0 <= size <= tuples, then and now")
        most = int(counts[0].max(initial=0))
        if most > _TUPLES_MAX:
            raise CorruptSynopsis("tuples of a stratum", most, f"<= {_TUPLES_MAX}")
        made = cls(groups, k)
        if groups:
            made._thresholds, made._keys, made._ids = thresholds, keys, ids
            made._population, made._base, made._base_population = counts
        return made


def _ordered(counts: list[Integers]) -> list[tuple[Integers, Integers]]:
    population, base, before = counts
    return [(base, before), (before, population)]
