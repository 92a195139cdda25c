"""Quantiles near one end with a rank error in proportion to the tail: DataSketches' REQ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from datasketches import req_floats_sketch
from numpy.typing import NDArray

from synopses.kernels.grouped_arrays import grown, same_kind
from synopses.kernels.value_buffers import waiting_bytes
from synopses.model.binary_header import Kind, parameters_of_bytes, seal, unseal
from synopses.model.cardinality_error import z_of
from synopses.model.errors import CannotMerge, CorruptSynopsis
from synopses.model.estimate import Bound, Estimates
from synopses.model.parameters import as_flag
from synopses.model.profile import Cost, Profile, Share, Statistics, Thinning
from synopses.model.ranks import discrete_rank
from synopses.quantiles.rank_sketches import RankSketches, at_rank
from synopses.quantiles.req_datasketches_format import (
    K_MAX,
    SECTION_MIN,
    SECTIONS_MIN,
    read_image,
    times_kept,
    unpaired,
)

# k times the standard error, of a tail's share and of any rank. The library's constants are those
# of values in random order; falling ones err up to 1.4 times as much.
_ANY_ORDER = 1.5
_TAIL_ERROR = _ANY_ORDER * math.sqrt(0.0512 / SECTIONS_MIN)
_RANK_ERROR = _ANY_ORDER * 0.084
K_MIN = 12  # Smaller ones do not keep their promise: sections cannot shrink, so errors grow.
_SOURCE = "req"
_BATCH = 1_024
_EMPTY = np.array([np.inf, -np.inf, 0.0])  # Of a group: least, most, 1 if any value was rounded.
_ROUNDED = 2
_SKETCH_BYTES, _LEVEL_BYTES, _ITEM_BYTES = 250, 64, 4  # What the library holds, about.
# log2 of the compactions at which a level's sections are halved and doubled in number: 4, 32, 2048.
_HALVED_AT, _HALVINGS = (2.0, 5.0, 11.0, 23.0), (0.5, 1.5, 2.5, 3.5)
_COMPACTED = 3.4  # Sections in one compaction, on average (measured).
_FULL = 0.95  # Of the nominal capacity that full levels hold (measured).


def rank_error(k: int, q: float, confidence: float, *, high: bool) -> float:
    """By how much the rank of the q-quantile may be off, as a share of the group's size.

    A rank r that is estimated is off by e(r) = min(a (1 - r), b) at most (high; else a r). So an
    end is far enough if it is c away and c >= e(q - c), which a (1 - q) / (1 - a) fulfils.
    """
    z, tail = z_of(confidence), (1.0 - q if high else q)
    slope = z * _TAIL_ERROR / k
    near = slope * tail / (1.0 - slope) if slope < 1.0 else 1.0
    return min(near, z * _RANK_ERROR / k, 1.0)


def _error_of(k: int, statistics: Statistics, confidence: float) -> float:
    """For ranks so near the end that the error is in proportion."""
    slope = z_of(confidence) * _TAIL_ERROR / k
    if statistics.tuples < max(_BATCH, 2 * SECTIONS_MIN * k):
        return 0.0
    return slope / (1.0 - slope) if slope < 1.0 else 1.0


def _bytes_of(k: int, statistics: Statistics) -> int:
    """Each level gets half the values of the one below, and is larger the more it got.

    A halved section is 1/sqrt(2) as long, and not shorter than 4.
    """
    waiting = waiting_bytes(_BATCH, statistics.tuples)
    if statistics.tuples < _BATCH:
        return waiting
    levels = max(1, math.ceil(math.log2(max(statistics.tuples, 2))))
    entering = statistics.tuples / 2.0 ** np.arange(levels)
    compactions = np.log2(np.maximum(entering / (_COMPACTED * k), 1.0))
    halvings = np.interp(compactions, _HALVED_AT, _HALVINGS, left=0.0)
    halvings = np.minimum(halvings, 2.0 * math.log2(k / SECTION_MIN))
    room = 2 * SECTIONS_MIN * k * 2.0 ** (halvings / 2.0)
    held = min(float(np.minimum(entering, _FULL * room).sum()), float(statistics.tuples))
    return _SKETCH_BYTES + _LEVEL_BYTES * levels + int(_ITEM_BYTES * held) + waiting


class GroupedReq(RankSketches):
    """Quantiles of one column per group with a rank error of about 0.39/k (95 %) of the tail.

    The tail is what lies above the quantile (`high`) or below it: the 0.999-quantile is off by a
    thousandth of what the median may be. Used where a query asks for rank error near an end; KLL
    is as good for all ranks, and there it is smaller.

    The library keeps floats of 32 bits. Rounding to the nearest one never changes the order, so
    that the float of the true quantile is the quantile of the floats: the truth is between the
    neighbours of the floats that bound it. Each end goes out to the neighbour (2^-23 of the value,
    to infinity beyond 3.4e38) and is cut at the group's extremes, which are kept as doubles.
    Values that become the same float are told apart no more: their share of the ranks is part of
    the rank error, unless every value of the group is a float.
    Any number of merges keeps the promise: tested up to 2,000, one after another and in a tree.
    Random bits are not seeded: a replay gives another sketch, which is as good, not the same.
    Source: Cormode, Karnin, Liberty, Thaler, Vesely 2021 (PODS); constants of Apache DataSketches
    (req_sketch_impl.hpp), measured there for values in random order.
    """

    profile: ClassVar = Profile(
        question="QUANTILE(x, q) WITHIN ... RANK, q near 0 or 1",
        size="k",
        sizes=range(K_MIN, K_MAX + 1, 2),
        default=50,
        linear=False,
        thinning=Thinning.ROWS,
        thinned="rank error of the sketch plus that of the sample, union bound",
        share=Share.TAIL,
        error_of=_error_of,
        bytes_of=_bytes_of,
        cost=Cost(read=41.0, read_grouped=73.0, kept=41.0, kept_grouped=85.0, always=1.0),
    )
    item_bytes, sketch_bytes = _ITEM_BYTES, _SKETCH_BYTES + 8 * _LEVEL_BYTES
    __slots__ = ("_range", "high")

    def __init__(self, groups: int, k: int = 50, *, high: bool = True) -> None:
        """Make the sketches of so many empty groups.

        Args:
          groups: how many.
          k: size and accuracy of each sketch, even, 12 to 254.
          high: whether quantiles near 1 are asked, rather than near 0.

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        super().__init__(groups, k)
        self.high = as_flag("high", high)
        self._range = _no_range(groups)

    def _made(self, k: int) -> Any:
        return req_floats_sketch(k, self.high)

    def _empty(self, groups: int) -> Self:
        return type(self)(groups, self.k, high=self.high)

    @staticmethod
    def _batch(k: int) -> int:  # noqa: ARG004
        return _BATCH

    def _take(self, group: int, values: NDArray[np.float64]) -> None:
        with np.errstate(over="ignore", under="ignore"):  # Infinity, which the bounds know.
            floats = values.astype(np.float32)
        self._sketch(group).update(floats)  # Three times as fast as unsorted ones.
        low, high, rounded = self._range[group]
        rounded = max(rounded, float((floats != values).any()))
        self._range[group] = min(low, values[0]), max(high, values[-1]), rounded

    def _to_merge(self, sketch: Any) -> Any:
        return unpaired(sketch)

    def _read(self, image: bytes) -> Any:
        sketch = read_image(image, high=self.high)
        if sketch.k != self.k:
            raise CorruptSynopsis("k of a REQ image", sketch.k, self.k)
        return sketch

    @property
    def size_bytes(self) -> int:
        """Bytes really held: retained items, rows that wait, and each sketch itself, about."""
        return super().size_bytes + self._range.nbytes

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        super().grow(groups)
        self._range = grown(self._range, self._groups, _EMPTY)

    def merge(self, other: Self) -> Self:
        """Add the other's values, in place.

        Raises:
          CannotMerge: k differs, or which ranks are precise.
        """
        same_kind(self, other)
        if self.high != other.high:
            raise CannotMerge("high", self.high, other.high)
        super().merge(other)
        theirs = other._range[: other.groups]
        ours = self._range[: other.groups]
        np.minimum(ours[:, 0], theirs[:, 0], out=ours[:, 0])
        np.maximum(ours[:, 1:], theirs[:, 1:], out=ours[:, 1:])
        return self

    def rank_error(self, q: float, confidence: float) -> NDArray[np.float64]:
        """By how much the rank of the q-quantile may be off, as a share of the group's size.

        float64 [groups]. Where values were rounded to floats, it includes the ranks of all that are
        the same float as the answer; not those that a single value of the sketch stands for, which
        the sketch's own error is about.
        """
        self._settle()
        errors = np.zeros(self._groups)  # All values are held.
        errors[list(self._sketches)] = rank_error(self.k, q, confidence, high=self.high)
        for group in np.flatnonzero(self._range[: self._groups, _ROUNDED]).tolist():
            errors[group] += _beside(self._sketches[group], q)
        capped: NDArray[np.float64] = np.minimum(errors, 1.0)
        return capped

    def quantile(self, q: float, confidence: float) -> Estimates:
        """The discrete q-quantile per group: float64; null where the group is empty.

        Raises:
          BadParameter: q is not in [0, 1] or the confidence not in (0, 1).
        """
        counts = self.counts()
        self._settle()
        ranks = (discrete_rank(q, counts) - 0.5) / np.maximum(counts, 1)
        ends = np.zeros((3, self._groups))
        for group, sketch in self._sketches.items():
            rank, error = float(ranks[group]), 0.0
            if sketch.is_estimation_mode():
                error = rank_error(self.k, rank, confidence, high=self.high)
            if sketch.n:
                ends[:, group] = [at_rank(sketch, rank + away) for away in (0.0, -error, error)]
        value, low, high = ends.astype(np.float32)
        low, high = np.nextafter(low, np.float32(-np.inf)), np.nextafter(high, np.float32(np.inf))
        empty, (least, most, _) = counts == 0, self._range[: self._groups].T
        exact, sketched = self._exact(q), np.zeros(self._groups, np.bool_)
        sketched[list(self._sketches)] = True
        lows = np.where(sketched, np.maximum(low, least), exact)
        highs = np.where(sketched, np.minimum(high, most), exact)
        bound = np.where(lows == highs, Bound.EXACT, Bound.INTERVAL).astype(np.uint8)
        values = np.clip(value.astype(np.float64), lows, highs)
        return Estimates(values, lows, highs, bound, empty, confidence, _SOURCE)

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        chosen = super().select(ids)
        chosen._range = self._range[ids]
        return chosen

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        spread = super().scatter(ids, groups)
        spread._range[ids] = self._range[: self._groups]
        return spread

    @classmethod
    def from_images(cls, images: Sequence[bytes], k: int = 50, *, high: bool = True) -> Self:
        """Return the groups whose sketches of floats DataSketches wrote, in this order.

        The values before their rounding to floats are unknown, so the floats count as exact.

        Args:
          images: REQ sketches of this k.
          k: of the sketches.
          high: whether their high ranks are the precise ones.

        Raises:
          CorruptSynopsis: one is no such image.
          CannotMerge: one has another k.
        """
        made = cls(len(images), k, high=high)
        for group, image in enumerate(images):
            sketch = read_image(image, high=high)
            if sketch.k != k:
                raise CannotMerge("k", k, sketch.k)
            if not sketch.n:
                continue
            made._sketches[group] = sketch
            ends = np.array([sketch.get_min_value(), sketch.get_max_value()], np.float32)
            made._range[group] = *np.nextafter(ends, np.array([-np.inf, np.inf], np.float32)), 1.0
        return made

    def to_bytes(self) -> bytes:
        """The groups' extremes, whether values were rounded, and the sketches' images."""
        parameters = (self._groups, self.k, self.high)
        packed = self._packed()  # What waits goes in first, and moves the extremes.
        return seal(Kind.REQ, parameters, [self._range[: self._groups], *packed])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.REQ)
        groups, k, high = body.parameters
        ranges = body.array(np.float64, (groups, len(_EMPTY)))
        with parameters_of_bytes():
            made = cls(0, k, high=high)
        made._unpack(body, groups)
        made._range = ranges
        return made


def _no_range(groups: int) -> NDArray[np.float64]:
    return np.tile(_EMPTY, (groups, 1))


def _beside(sketch: Any, q: float) -> float:
    """Return the distance from q, as a share, of ranks of the q-quantile's float."""
    value = at_rank(sketch, q)
    if times_kept(sketch, value) <= 1:
        return 0.0
    below, up_to = sketch.get_rank(value, False), sketch.get_rank(value, True)
    return float(max(up_to - q, q - below, 0.0))
