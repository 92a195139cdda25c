"""Theta sketches: distinct values per group, thinnable and comparable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.distinct import distinct_by_hash
from synopses.kernels.array_inputs import as_column, as_ids
from synopses.kernels.grouped_arrays import apart_from, grown, same_kind, scattered
from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.errors import CannotMerge, CorruptSynopsis
from synopses.model.estimate import Estimates
from synopses.model.parameters import as_groups, as_whole
from synopses.model.resizing import Resizable
from synopses.theta import kernels
from synopses.theta.datasketches_format import THRESHOLD_MAX, read_image, shares_of, write_image
from synopses.theta.profile import LG_K_MAX, LG_K_MIN, THETA

_SLACK = 4  # A quarter of an arena of many groups is room for those that grow.


class GroupedTheta(Resizable):
    """The 2^lg_k smallest hashes of each group: distinct values, and sets to be compared.

    thresholds: a group's theta times 2^63. Every value seen whose hash is below it is held; it is
    the (k+1)-th smallest hash of the values seen (theta 1 while there are at most k: then all is
    exact), or what `thin` says if that is less. Hashes are DataSketches' (the first half of
    murmur_*, shifted right by 1), so images merge with those of Spark and Druid. Between
    questions a group holds up to 1.5 k hashes; answers, merges and bytes are of its k smallest, so
    they do not depend on the order of arrival.
    Bound: given theta a value is held with probability theta, independently of all others; see
    intervals/distinct.py and set_operations.py. Relative error about 1/sqrt(k).
    Source: Bar-Yossef et al. 2002; Dasgupta, Lang, Rhodes, Thaler 2016 (theta sketches).
    """

    profile: ClassVar = THETA
    __slots__ = ("_arena", "_end", "_groups", "_held", "_sizes", "_starts", "_thresholds", "lg_k")

    def __init__(self, groups: int, lg_k: int = 12) -> None:
        """Make the sketches of so many empty groups.

        Args:
          groups: how many.
          lg_k: log2 of the hashes that a group keeps, 5 to 26.

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        self.lg_k = as_whole("lg_k", lg_k, LG_K_MIN, LG_K_MAX)
        self._groups = as_groups(groups)
        room = max(groups, 1)
        self._thresholds = np.full(room, THRESHOLD_MAX, np.uint64)
        self._starts = np.zeros(room, np.int64)
        self._sizes = np.zeros(room, np.int64)
        self._held = np.zeros(room, np.int64)
        self._arena = np.zeros(0, np.uint64)
        self._end = 0

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        axes = (self._thresholds, self._starts, self._sizes, self._held)
        return self._arena.nbytes + sum(axis.nbytes for axis in axes)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Theta of each group: the probability with which a value is held; 1.0: all are."""
        self._settle()
        return shares_of(self._thresholds[: self._groups])

    def thresholds(self, groups: int) -> NDArray[np.uint64]:
        """Theta times 2^63 of so many groups, those beyond the last one's are empty; uint64."""
        self._settle()
        beyond = np.full(groups - self._groups, THRESHOLD_MAX, np.uint64)
        return np.concatenate([self._thresholds[: self._groups], beyond])

    @property
    def held(self) -> NDArray[np.int64]:
        """Different values held of each group."""
        self._settle()
        return self._held[: self._groups]

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._thresholds = grown(self._thresholds, groups, THRESHOLD_MAX)
            self._starts = grown(self._starts, groups)
            self._sizes = grown(self._sizes, groups)
            self._held = grown(self._held, groups)
            self._groups = groups

    # --- taking values in --------------------------------------------------------------------

    def update(self, ids: NDArray[np.int32] | None, hashes: NDArray[np.uint64]) -> None:
        """Take values in by their hashes.

        Args:
          ids: int32 [n], group of each value; None: all are of group 0.
          hashes: uint64 [n], the first halves of murmur_*.

        Raises:
          BadParameter: an id is not that of a group, or there are not as many as hashes.
        """
        if ids is None and not self._groups:
            self.grow(1)
        words = as_column(hashes, np.uint64)
        groups = None if ids is None else as_ids(ids, words.size, self._groups)
        row = 0
        while True:
            if groups is None:
                row, self._end = kernels.take_one(*self._state, row, words)
            else:
                row, self._end = kernels.take_many(*self._state, row, groups, words)
            if row == words.size:
                return
            self._make_room()

    def thin(self, level: int) -> None:
        """Say that values were left out whose hash is not below 2^-level, or may have been.

        Theta becomes min(theta, 2^-level), from now on too, for all groups. A stream is thinned at
        this level by keeping the rows whose first half of murmur_* is below 2^(64 - level): what
        it left out is exactly what theta then says is not known.

        Args:
          level: 0 (nothing was left out) to 62.

        Raises:
          BadParameter: it is another one.
        """
        if as_whole("level", level, 0, 62):
            to = np.uint64(1 << (63 - level))
            state = self._arena, self._starts, self._sizes, self._held, self._thresholds
            kernels.lower_all(*state, to, self._groups)

    def merge(self, other: Self) -> Self:
        """Add the other's values, in place; theta becomes the smaller one, or less.

        Raises:
          CannotMerge: the two keep different numbers of hashes.
        """
        same_kind(self, other)
        if self.lg_k != other.lg_k:
            raise CannotMerge("lg_k", self.lg_k, other.lg_k)
        other = apart_from(self, other)
        self.grow(other.groups)
        other._settle()
        if not self._end and (self._thresholds == THRESHOLD_MAX).all():
            self._copy(other)
            return self
        theirs = other._arena, *other._tables, other._thresholds[: other._groups]
        group = 0
        while True:
            group, self._end = kernels.take_tables(*self._state, group, theirs)
            if group == other.groups:
                return self
            self._make_room()

    def _copy(self, other: Self) -> None:
        """Hold what the other's groups do, which are here: there has been nothing yet."""
        starts, sizes = other._tables
        mine = slice(other._groups)
        self._starts[mine], self._sizes[mine] = _starts_of(sizes), sizes
        self._held[mine], self._thresholds[mine] = other._held[mine], other._thresholds[mine]
        self._end = int(sizes.sum())
        self._arena = np.zeros(self._end, np.uint64)
        kernels.move_tables(other._arena, starts, sizes, self._arena, self._starts[mine], sizes)

    @property
    def _state(
        self,
    ) -> tuple[
        NDArray[np.uint64],
        int,
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.uint64],
        int,
    ]:
        return (
            self._arena,
            self._end,
            self._starts,
            self._sizes,
            self._held,
            self._thresholds,
            1 << self.lg_k,
        )

    @property
    def _tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self._starts[: self._groups], self._sizes[: self._groups]

    def _settle(self) -> None:
        """Keep no more than k hashes; this changes no answer."""
        state = self._arena, self._starts, self._sizes, self._held, self._thresholds
        kernels.settle(*state, 1 << self.lg_k, self._groups)

    def _make_room(self) -> None:
        """A new arena: tables that are or will soon be full double, those that moved leave no gap.

        Groups that grow alike would else fill one arena after the other.
        """
        starts, sizes = self._tables
        full = 8 * self._held[: self._groups] >= 5 * sizes
        growing = full & (sizes > 0) & (sizes < 2 << self.lg_k)
        wider = np.where(growing, 2 * sizes, sizes)
        room = int(wider.sum())
        if self._groups > 1 or not room:
            room += room // _SLACK + 4 * kernels.SMALLEST
        arena, places = np.zeros(room, np.uint64), _starts_of(wider)
        kernels.move_tables(self._arena, starts, sizes, arena, places, wider)
        self._arena, self._end = arena, int(wider.sum())
        self._starts[: self._groups] = places
        self._sizes[: self._groups] = wider

    def settle(self) -> None:
        """Nothing more is counted: give back the room for what would come. No answer changes."""
        self._settle()
        starts, sizes = self._tables
        arena, places = np.zeros(int(sizes.sum()), np.uint64), _starts_of(sizes)
        kernels.move_tables(self._arena, starts, sizes, arena, places, sizes)
        self._arena, self._end = arena, int(sizes.sum())
        self._starts[: self._groups] = places

    def resize(self, lg_k: int, /) -> Self:
        """Keep the 2^lg_k smallest hashes from now on, in place.

        Smaller is as if there had never been more; larger fills up below the theta that there is.

        Raises:
          BadParameter: lg_k is not 5 to 26.
        """
        self.lg_k = as_whole("lg_k", lg_k, LG_K_MIN, LG_K_MAX)
        resized = type(self).from_bytes(self.to_bytes())
        return self._become(resized)

    # --- questions ---------------------------------------------------------------------------

    def distinct(self, confidence: float) -> Estimates:
        """Distinct values per group: int64, with an interval of this confidence; exact at theta 1.

        The value, held/theta, is unbiased; the ends invert the binomial, so they hold for one value
        as for millions (intervals/distinct.py).
        """
        found = distinct_by_hash(kept=self.held, share=self.shares, confidence=confidence)
        return found.counts(confidence=confidence, source="theta")

    def hashes(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """All held hashes, by group, ascending in each, and where each group's end. Below 2^63."""
        self._settle()
        ends = np.cumsum(self._held[: self._groups])
        hashes = np.empty(int(ends[-1]) if ends.size else 0, np.uint64)
        kernels.sorted_hashes(self._arena, *self._tables, hashes)
        return hashes, ends

    # --- images of DataSketches --------------------------------------------------------------

    def image(self, group: int) -> bytes:
        """A group as DataSketches' compact theta sketch (compact_theta_sketch.deserialize, Spark).

        Its bounds are the library's, which are not ours. A thinned group is never an empty sketch.
        """
        one = self.select(np.array([group]))
        return write_image(one.hashes()[0], int(one._thresholds[0]))

    @classmethod
    def from_images(cls, images: Sequence[bytes], lg_k: int = 12) -> Self:
        """The groups whose sketches DataSketches, Spark or Druid wrote, in this order.

        Args:
          images: compact theta sketches of version 3 or 4.
          lg_k: how many hashes to keep; of what they hold more, the smallest stay.

        Raises:
          CorruptSynopsis: one is no such image.
        """
        made = cls(len(images), lg_k)
        for group, image in enumerate(images):
            hashes, threshold = read_image(image)
            made._thresholds[group] = threshold
            made.update(np.full(hashes.size, group, np.int32), hashes << np.uint64(1))
        return made

    # --- groups and bytes --------------------------------------------------------------------

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        return self._of(self._starts[ids], self._sizes[ids], self._held[ids], self._thresholds[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        starts, sizes = self._tables
        held, thresholds = self._held[: self._groups], self._thresholds[: self._groups]
        return self._of(
            scattered(starts, ids, groups),
            scattered(sizes, ids, groups),
            scattered(held, ids, groups),
            scattered(thresholds, ids, groups, THRESHOLD_MAX),
        )

    def _of(
        self,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        held: NDArray[np.int64],
        thresholds: NDArray[np.uint64],
    ) -> Self:
        """A new summary of these tables of the arena."""
        made = type(self)(sizes.size, self.lg_k)
        made._arena, made._end = np.zeros(int(sizes.sum()), np.uint64), int(sizes.sum())
        made._starts[: sizes.size] = _starts_of(sizes)
        made._sizes[: sizes.size] = sizes
        made._held[: sizes.size] = held
        made._thresholds[: sizes.size] = thresholds
        kernels.move_tables(self._arena, starts, sizes, made._arena, *made._tables)
        return made

    def to_bytes(self) -> bytes:
        """Theta and hashes as bytes; equal values seen give equal bytes."""
        hashes, _ = self.hashes()
        body = [self._thresholds[: self._groups], self._held[: self._groups], hashes]
        return seal(Kind.THETA, (self._groups, self.lg_k), body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.THETA)
        groups, lg_k = body.parameters
        if not LG_K_MIN <= lg_k <= LG_K_MAX:
            raise CorruptSynopsis("lg_k", lg_k, f"{LG_K_MIN} to {LG_K_MAX}")
        thresholds = body.array(np.uint64, (groups,))
        held = body.array(np.int64, (groups,))
        hashes = body.array(np.uint64)
        body.end()
        _check(thresholds, held, hashes, 1 << lg_k)
        made = cls(groups, lg_k)
        sizes = _sizes_for(held)
        made._arena, made._end = np.zeros(int(sizes.sum()), np.uint64), int(sizes.sum())
        made._starts[:groups], made._sizes[:groups] = _starts_of(sizes), sizes
        made._held[:groups], made._thresholds[:groups] = held, thresholds
        kernels.put_all(made._arena, *made._tables, np.cumsum(held), hashes)
        return made


def _check(
    thresholds: NDArray[np.uint64], held: NDArray[np.int64], hashes: NDArray[np.uint64], k: int
) -> None:
    """What was read must be a summary: ascending hashes below each group's threshold."""
    if held.size and not (held.min() >= 0 and held.max() <= k):
        raise CorruptSynopsis("hashes of a group", int(held.max()), f"0 to {k}")
    if int(held.sum()) != hashes.size:
        raise CorruptSynopsis("hashes", hashes.size, int(held.sum()))
    if thresholds.size and not 0 < int(thresholds.min()) <= int(thresholds.max()) <= THRESHOLD_MAX:
        raise CorruptSynopsis("threshold", int(thresholds.max()), f"1 to {THRESHOLD_MAX}")
    owners = np.repeat(np.arange(held.size), held)
    ascending = (hashes[1:] > hashes[:-1]) | (owners[1:] > owners[:-1])
    if not (ascending.all() and (hashes > 0).all() and (hashes < thresholds[owners]).all()):
        raise CorruptSynopsis("hashes", "out of order", "ascending and below the threshold")


def _starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where tables of these sizes begin when they stand side by side."""
    starts: NDArray[np.int64] = np.cumsum(sizes) - sizes
    return starts


def _sizes_for(held: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places that hold so many hashes and at least one more; 0 for none."""
    places = np.maximum(4 * held // 3 + 1, kernels.SMALLEST)
    powers = 2 ** np.ceil(np.log2(places)).astype(np.int64)
    return np.where(held > 0, powers, 0)
