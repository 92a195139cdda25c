"""Bottom-k samples: which rows a stream keeps, by a random key per row.

The three samples hold keys, never rows: `update` says which held rows stay and which rows of the
batch enter, and the caller moves its payload with two takes. To make an update cheap, up to twice
the wanted rows are held between cuts; `settle` cuts to the sample proper before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input
from synopses.kernels.growable_array import appended
from synopses.kernels.radix_sort import ranked, smallest
from synopses.model.binary_header import Kind, parameters_of_bytes, seal, unseal
from synopses.model.errors import BadParameter, CorruptSynopsis
from synopses.model.parameters import INT64_MAX, as_whole
from synopses.model.profile import Profile
from synopses.model.resizing import ResizableSample
from synopses.samples.admission_kernels import few_below, heaviest
from synopses.samples.profiles import BY_HASH, BY_WEIGHT, UNIFORM

KEY_MAX: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What one change did to the held rows: first the old that stay, then the new, in this order.

    old: int64 [stay], indices into the rows held before; None when all of them stay as they are
      (nothing needs to be moved).
    new: int64 [enter], ascending indices into the batch (or, for merge, the other's held rows).
    """

    old: NDArray[np.int64] | None
    new: NDArray[np.int64]

    @staticmethod
    def of(stay: NDArray[np.int64], held: int, entered: NDArray[np.int64]) -> Kept:
        """Split survivors of `held` old rows followed by the `entered` rows of a batch."""
        split = int(np.searchsorted(stay, held))
        return Kept(stay[:split], entered[stay[split:] - held])

    def within(self, rows: NDArray[np.int64]) -> Kept:
        """The same change, when what was offered were only these rows of the batch."""
        return Kept(self.old, rows[self.new])


_ROUNDING: Final = 1e-15  # More than a product and a quotient can be off by together.
_LEAST: Final = 1.0 - _ROUNDING  # Of its weight a priority is, for uniforms below 1.
_SHARE_MAX: Final = 1.0 - 2.0**-53  # Of a sample that is not all: rounded, it might be 1.
_NOTHING: Final = np.zeros(0, np.int64)
_NO_ROOM: Final = np.zeros(0)


def _check_keys(keys: NDArray[np.uint64], most: int) -> None:
    """Keys read from bytes: what is above this went out.

    Raises:
      CorruptSynopsis: one is above.
    """
    if keys.size and int(keys.max()) > most:
        raise CorruptSynopsis("key", int(keys.max()), f"<= {most}")


@dataclass(slots=True, eq=False)
class BottomK(ResizableSample):
    """The rows with the k smallest keys: with uniform keys, a simple random sample.

    keys: uint64 [held]; every key seen that is below `threshold`; at most 2k between cuts, and at
      most k after `settle`. The keys must be distinct or ties are broken arbitrarily.
    threshold: the (k+1)-th smallest key seen, as of the last cut; KEY_MAX before there was one.
    Bound: after `settle` the rows are an SRS without replacement of all rows seen (keys uniform
    and independent of the rows); given their number, nothing else is needed to estimate.
    Source: Cohen & Kaplan 2007 (bottom-k sketches); Ting 2018 (adaptive thresholds).
    """

    profile: ClassVar[Profile] = UNIFORM
    k: int
    threshold: int = KEY_MAX
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    _room: NDArray[Any] = field(default_factory=lambda: _NO_ROOM, init=False, repr=False)

    def __post_init__(self) -> None:
        self.k = as_whole("k", self.k, 1, INT64_MAX)
        self.threshold = as_whole("threshold", self.threshold, 0, KEY_MAX)

    @property
    def size_bytes(self) -> int:
        """Bytes held for keys (the caller's payload comes on top)."""
        return int(max(self.keys.nbytes, self._room.nbytes))

    def update(self, keys: NDArray[np.uint64]) -> Kept:
        """Offer a batch. keys: uint64 [n], one per row."""
        entered = few_below(as_input(keys, np.uint64), np.uint64(self.threshold))
        return self._enter(keys if len(entered) == len(keys) else keys[entered], entered)

    def settle(self) -> Kept:
        """Cut to at most k rows and the exact threshold; do this before reading the sample."""
        if len(self.keys) <= self.k:
            return Kept(None, _NOTHING)
        held = len(self.keys)
        return Kept.of(self._cut(), held, _NOTHING)

    def chosen(self) -> NDArray[np.int64]:
        """Indices of the held rows that `settle` would keep, ascending; changes nothing."""
        return (
            smallest(self.keys, self.k)[0] if len(self.keys) > self.k else np.arange(len(self.keys))
        )

    def merge(self, other: Self) -> Kept:
        """Take in a sample of other rows, by the same key function; both are settled after.

        The result is cut to the smaller k and to the smaller threshold: what only one side kept
        above the other's threshold is not a fair part of the union.
        """
        self.k = min(self.k, other.k)
        other.settle()
        held = len(self.keys)
        joined = np.concatenate([self.keys, other.keys])
        below = np.flatnonzero(joined < np.uint64(min(self.threshold, other.threshold)))
        self.threshold = min(self.threshold, other.threshold)
        self.keys = joined[below]
        stay = below if len(below) <= self.k else below[self._cut()]
        return Kept.of(stay, held, np.arange(len(other.keys)))

    def resize(self, k: int, /) -> Kept:
        """Change k. A larger k fills up with the tuples still to come below the threshold."""
        self.k = as_whole("k", k, 1, INT64_MAX)
        return self.settle()

    def lower(self, threshold: int) -> Kept:
        """Keep only keys below `threshold` (a thinned stretch had this one), from now on too."""
        self.settle()
        self.threshold = min(self.threshold, threshold)
        held = len(self.keys)
        stay = np.flatnonzero(self.keys < np.uint64(self.threshold))
        self.keys = self.keys[stay]
        return Kept.of(stay, held, _NOTHING)

    def to_bytes(self) -> bytes:
        """The state in its envelope: k and threshold, then the held keys."""
        return seal(Kind.BOTTOM_K, (self.k, self.threshold), [self.keys])

    @classmethod
    def from_bytes(cls, image: bytes) -> Self:
        """Rebuild what `to_bytes` wrote.

        Raises:
          CorruptSynopsis: the bytes are something else, or damaged.
        """
        body = unseal(image, Kind.BOTTOM_K)
        k, threshold = body.parameters
        keys = body.array(np.uint64)
        body.end()
        _check_keys(keys, threshold)  # Of equal ones some may stay.
        with parameters_of_bytes():
            return cls(k, threshold, keys)

    def _enter(self, keys: NDArray[np.uint64], entered: NDArray[np.int64]) -> Kept:
        held = len(self.keys)
        if not len(entered):
            return Kept(None, _NOTHING)
        self.keys, self._room = appended(self.keys, keys, self._room)
        if len(self.keys) <= 2 * self.k:
            return Kept(None, entered)
        return Kept.of(self._cut(), held, entered)

    def _cut(self) -> NDArray[np.int64]:
        stay, threshold = smallest(self.keys, self.k)
        self.threshold = int(threshold)
        self.keys, self._room = self.keys[stay], _NO_ROOM
        return stay


@dataclass(slots=True, eq=False)
class HashSample(ResizableSample):
    """All rows of a random part of a column's values: rows of one value stay or go together.

    hashes: uint64 [held], a hash of the row's value; every row seen whose hash is below
      `threshold` is held, so what is known of a held value is exact.
    threshold: the smallest hash that was put out; KEY_MAX before. At most 2 * rows_max rows are
      held between cuts, at most rows_max after `settle`. A value with more rows than rows_max
      goes out whole, like any other: then the sample is small, and says so by `share`.
    Bound: the number of held values among D is binomial(D, share): see intervals/distinct.py.
    Source: Gibbons 2001 (distinct sampling); Dasgupta et al. 2016 (theta sketches).
    """

    profile: ClassVar[Profile] = BY_HASH
    rows_max: int
    threshold: int = KEY_MAX
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    _room: NDArray[Any] = field(default_factory=lambda: _NO_ROOM, init=False, repr=False)

    def __post_init__(self) -> None:
        self.rows_max = as_whole("rows_max", self.rows_max, 1, INT64_MAX)
        self.threshold = as_whole("threshold", self.threshold, 0, KEY_MAX)

    @property
    def size_bytes(self) -> int:
        """Bytes held for hashes (the caller's payload comes on top)."""
        return int(max(self.hashes.nbytes, self._room.nbytes))

    @property
    def share(self) -> float:
        """The probability with which a value was kept, in (0, 1]; 1.0 when nothing went out."""
        return 1.0 if self.threshold == KEY_MAX else min(self.threshold / 2.0**64, _SHARE_MAX)

    def update(self, hashes: NDArray[np.uint64]) -> Kept:
        """Offer a batch. hashes: uint64 [n], equal where the values are equal."""
        entered = few_below(as_input(hashes, np.uint64), np.uint64(self.threshold))
        if not len(entered):
            return Kept(None, _NOTHING)
        held = len(self.hashes)
        self.hashes, self._room = appended(self.hashes, hashes[entered], self._room)
        if len(self.hashes) <= 2 * self.rows_max:
            return Kept(None, entered)
        return Kept.of(self._cut(), held, entered)

    def settle(self) -> Kept:
        """Cut to at most rows_max rows by lowering the threshold."""
        if len(self.hashes) <= self.rows_max:
            return Kept(None, _NOTHING)
        held = len(self.hashes)
        return Kept.of(self._cut(), held, _NOTHING)

    def merge(self, other: Self) -> Kept:
        """Take in a sample of other rows, by the same hash function; both are settled after."""
        self.rows_max = min(self.rows_max, other.rows_max)
        other.settle()
        held = len(self.hashes)
        joined = np.concatenate([self.hashes, other.hashes])
        self.threshold = min(self.threshold, other.threshold)
        stay = np.flatnonzero(joined < np.uint64(self.threshold))
        self.hashes = joined[stay]
        if len(stay) > self.rows_max:
            stay = stay[self._cut()]
        return Kept.of(stay, held, np.arange(len(other.hashes)))

    def resize(self, rows_max: int, /) -> Kept:
        """Change how many rows may be held; values that went out do not come back."""
        self.rows_max = as_whole("rows_max", rows_max, 1, INT64_MAX)
        return self.settle()

    def to_bytes(self) -> bytes:
        """The state in its envelope: rows_max and threshold, then the held hashes."""
        return seal(Kind.HASH_SAMPLE, (self.rows_max, self.threshold), [self.hashes])

    @classmethod
    def from_bytes(cls, image: bytes) -> Self:
        """Rebuild what `to_bytes` wrote.

        Raises:
          CorruptSynopsis: the bytes are something else, or damaged.
        """
        body = unseal(image, Kind.HASH_SAMPLE)
        rows_max, threshold = body.parameters
        hashes = body.array(np.uint64)
        body.end()
        _check_keys(hashes, threshold - 1)
        with parameters_of_bytes():
            return cls(rows_max, threshold, hashes)

    def _cut(self) -> NDArray[np.int64]:
        # The first hash that does not fit goes out with all its rows: strictly below stays.
        self.threshold = int(ranked(as_input(self.hashes, np.uint64), self.rows_max))
        stay = np.flatnonzero(self.hashes < np.uint64(self.threshold))
        self.hashes, self._room = self.hashes[stay], _NO_ROOM
        return stay


@dataclass(slots=True, eq=False)
class WeightedBottomK(ResizableSample):
    """The rows with the k largest priorities weight / u: heavy rows for certain, light by chance.

    weights: float64 [held], > 0. priorities: float64 [held], weight / u with u uniform in (0, 1).
    tau: the (k+1)-th largest priority seen, as of the last cut; 0.0 before there was one (then
      every row with a weight is held). Rows with weight >= tau are certain; every other held row
      was kept with probability weight / tau and stands for exactly tau.
    Bound: intervals/weighted.py, for sums of non-negative weights behind any filter.
    Source: Duffield, Lund & Thorup 2007, J. ACM 54(6) (priority sampling).
    """

    profile: ClassVar[Profile] = BY_WEIGHT
    k: int
    tau: float = 0.0
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    priorities: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _weights_room: NDArray[Any] = field(default_factory=lambda: _NO_ROOM, init=False, repr=False)
    _priorities_room: NDArray[Any] = field(default_factory=lambda: _NO_ROOM, init=False, repr=False)

    def __post_init__(self) -> None:
        self.k = as_whole("k", self.k, 1, INT64_MAX)
        if not (isinstance(self.tau, (int, float)) and self.tau >= 0.0):
            raise BadParameter("tau", self.tau, "a number, 0 or more")

    @property
    def size_bytes(self) -> int:
        """Bytes held for weights and priorities (the caller's payload comes on top)."""
        room = self._weights_room.nbytes + self._priorities_room.nbytes
        return int(max(self.weights.nbytes + self.priorities.nbytes, room))

    @property
    def bar(self) -> float:
        """No row enters whose weight, rounding included, is less than this times its uniform."""
        return self.tau * (1.0 - _ROUNDING)

    def update(self, weights: NDArray[np.float64], uniforms: NDArray[np.float64]) -> Kept:
        """Offer a batch; rows whose weight is not > 0 and finite are passed over.

        Infinite values decide a sum by themselves: the column's maximum tells that they are there.

        Args:
          weights: float64 [n]. For a signed column give max(x, 0) to one sample, max(-x, 0) to
            another.
          uniforms: float64 [n] in (0, 1), independent of the weights.
        """
        entered, weights, priorities = heaviest(
            as_input(weights, np.float64), as_input(uniforms, np.float64), self.bar, self.tau
        )
        if not len(entered):
            return Kept(None, _NOTHING)
        held = len(self.weights)
        self._append(weights, priorities)
        if len(self.weights) <= 2 * self.k:
            return Kept(None, entered)
        return Kept.of(self._cut(), held, entered)

    def settle(self) -> Kept:
        """Cut to at most k rows and the exact tau; do this before reading the sample."""
        if len(self.weights) <= self.k:
            return Kept(None, _NOTHING)
        held = len(self.weights)
        return Kept.of(self._cut(), held, _NOTHING)

    def merge(self, other: Self) -> Kept:
        """Take in a sample of other rows; both are settled after, at the larger tau."""
        self.k = min(self.k, other.k)
        other.settle()
        held = len(self.weights)
        self._append(other.weights, other.priorities)
        self.tau = max(self.tau, other.tau)
        stay = np.flatnonzero(self.priorities > self.tau)
        self.weights, self.priorities = self.weights[stay], self.priorities[stay]
        if len(stay) > self.k:
            stay = stay[self._cut()]
        return Kept.of(stay, held, np.arange(len(other.weights)))

    def resize(self, k: int, /) -> Kept:
        """Change k. A larger k fills up with the tuples still to come above tau."""
        self.k = as_whole("k", k, 1, INT64_MAX)
        return self.settle()

    def to_bytes(self) -> bytes:
        """The state in its envelope: k and tau, then weights and priorities."""
        parameters = (self.k, self.tau)
        return seal(Kind.WEIGHTED_BOTTOM_K, parameters, [self.weights, self.priorities])

    @classmethod
    def from_bytes(cls, image: bytes) -> Self:
        """Rebuild what `to_bytes` wrote.

        Raises:
          CorruptSynopsis: the bytes are something else, or damaged.
        """
        body = unseal(image, Kind.WEIGHTED_BOTTOM_K)
        k, tau = body.parameters
        weights = body.array(np.float64)
        priorities = body.array(np.float64, weights.shape)
        body.end()
        with np.errstate(invalid="ignore"):  # A NaN that signals is still none.
            are_these = (weights > 0.0) & (weights < np.inf) & (priorities >= weights * _LEAST)
        if not are_these.all():
            raise CorruptSynopsis("weights", "not below priorities", "0 < weight <= priority")
        with parameters_of_bytes():
            return cls(k, tau, weights, priorities)

    def _append(self, weights: NDArray[np.float64], priorities: NDArray[np.float64]) -> None:
        self.weights, self._weights_room = appended(self.weights, weights, self._weights_room)
        self.priorities, self._priorities_room = appended(
            self.priorities, priorities, self._priorities_room
        )

    def _cut(self) -> NDArray[np.int64]:
        # Of positive numbers the bits stand in the order of the values: the largest come first.
        stay, threshold = smallest(~self.priorities.view(np.uint64), self.k)
        self.tau = float((~threshold).view(np.float64))
        self.weights, self.priorities = self.weights[stay], self.priorities[stay]
        self._weights_room = self._priorities_room = _NO_ROOM
        return stay
