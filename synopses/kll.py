"""Quantiles with a bounded rank error: DataSketches' KLL, one sketch per group."""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from datasketches import kll_doubles_sketch
from numpy.typing import NDArray

from synopses.cardinality import z_of
from synopses.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.estimate import Bound, Estimates
from synopses.header import Kind, seal, unseal
from synopses.kll_batches import update_sorted
from synopses.kll_images import read_image
from synopses.log_buckets import discrete_rank
from synopses.profile import Profile, Share, Statistics, Thinning

K_MIN, K_MAX = 8, 65_535  # As in DataSketches.
_LIBRARY_CONFIDENCE = 0.99  # Of DataSketches' normalized rank error.
_PENDING_ROWS = 65_536
_PENDING_PARTS = 256
_PARAMETERS = struct.Struct("<qi")
_SOURCE = "kll"
_ITEM_BYTES = 8
_SKETCH_BYTES = 200  # What the library holds beside the items, about.


def rank_error(k: int, confidence: float) -> float:
    """By how much a rank may be off, as a share of the group's size, at this confidence."""
    library = kll_doubles_sketch.get_normalized_rank_error(k, False)
    return float(library) * z_of(confidence) / z_of(_LIBRARY_CONFIDENCE)


def _error_of(k: int, statistics: Statistics, confidence: float) -> float:
    return rank_error(k, confidence) if statistics.tuples > k else 0.0


def _bytes_of(k: int, statistics: Statistics) -> int:
    """Levels hold k, 2/3 k, 4/9 k ... items, never more than 3 k in all, and 8 at the least."""
    levels = max(1.0, math.log2(max(statistics.tuples / k, 1.0)))
    return _SKETCH_BYTES + _ITEM_BYTES * int(min(statistics.tuples, 3 * k + 8 * levels))


class GroupedKll:
    """Quantiles of one column per group with rank error about 1.7/k of the group's size.

    Used where a query asks for rank error; log buckets answer value error, faster and for certain.
    Rows gather until there are 65,536 of them, are sorted by group and enter the library's sketches
    at their level. Random bits are not seeded (the library's cannot be): a replay gives another
    sketch, which is as good, not the same.
    Source: Karnin, Lang, Liberty 2016 (FOCS); error constants of Apache DataSketches, the measured
    99th percentile of the largest error over all ranks, scaled to other confidences as the normal
    distribution would have it (the error is sub-Gaussian: sect. 3 there).
    """

    profile: ClassVar = Profile(
        question="QUANTILE(x, q) WITHIN ... RANK",
        size="k",
        sizes=range(K_MIN, K_MAX + 1),
        default=400,
        linear=False,
        thinning=Thinning.ROWS,
        thinned="rank error of the sketch plus that of the sample, union bound",
        share=Share.TUPLES,
        error_of=_error_of,
        bytes_of=_bytes_of,
        power=0.9,
    )
    __slots__ = ("_groups", "_pending", "_rows", "_sketches", "k")

    def __init__(self, groups: int, k: int = 200) -> None:
        """Make the sketches of so many empty groups.

        Args:
          groups: how many.
          k: size and accuracy of each sketch, 8 to 65,535.
        """
        if not K_MIN <= k <= K_MAX:
            raise BadParameter("k", k, f"{K_MIN} to {K_MAX}")
        self.k = k
        self._groups = groups
        self._sketches: dict[int, Any] = {}
        self._pending: list[tuple[NDArray[np.int32] | None, NDArray[np.float64]]] = []
        self._rows = 0

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held: retained items, rows that wait, about 200 for each sketch itself."""
        retained: int = sum(sketch.num_retained for sketch in self._sketches.values())
        return 12 * self._rows + _ITEM_BYTES * retained + _SKETCH_BYTES * len(self._sketches)

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        self._groups = max(self._groups, groups)

    def update(self, ids: NDArray[np.int32] | None, values: NDArray[np.float64]) -> None:
        """Take values in; NaN is taken for absent.

        Args:
          ids: int32 [n], group of each value; None: all are of group 0.
          values: float64 [n].
        """
        assert ids is None or len(ids) == len(values)
        if ids is None:
            self.grow(1)
        owned = None if ids is None else np.array(ids, np.int32)
        self._pending.append((owned, np.array(values, np.float64)))
        self._rows += len(values)
        if self._rows >= _PENDING_ROWS or len(self._pending) >= _PENDING_PARTS:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        for group, values in _by_group([part for part in self._pending if len(part[1])]):
            present = values[~np.isnan(values)]
            update_sorted(self._sketch(group), present)
        self._pending.clear()
        self._rows = 0

    def _sketch(self, group: int) -> Any:
        sketch = self._sketches.get(group)
        if sketch is None:
            sketch = self._sketches[group] = kll_doubles_sketch(self.k)
        return sketch

    def merge(self, other: Self) -> Self:
        """Add the other's values, in place.

        Raises:
          CannotMerge: k differs.
        """
        if self.k != other.k:
            raise CannotMerge("k", self.k, other.k)
        self.grow(other.groups)
        self._flush()
        other._flush()
        for group, sketch in other._sketches.items():
            self._sketch(group).merge(sketch)
        return self

    def resize(self, k: int) -> Self:
        """Keep sketches of this k from now on, in place; their error is that of the smaller k.

        Raises:
          BadParameter: k is more than now; what was forgotten does not come back.
        """
        if not K_MIN <= k <= self.k:
            raise BadParameter("k", k, f"{K_MIN} to {self.k}")
        self._flush()
        self.k = k
        for group, sketch in self._sketches.items():
            self._sketches[group] = kll_doubles_sketch(k)
            self._sketches[group].merge(sketch)
        return self

    def counts(self) -> NDArray[np.int64]:
        """Values per group; int64 [groups]."""
        self._flush()
        counts = np.zeros(self._groups, np.int64)
        for group, sketch in self._sketches.items():
            counts[group] = sketch.n
        return counts

    def quantile(self, q: float, confidence: float) -> Estimates:
        """The discrete q-quantile per group: float64; null where the group is empty.

        Raises:
          BadParameter: q is not in [0, 1] or the confidence not in (0, 1).
        """
        counts = self.counts()
        ranks = discrete_rank(q, counts)
        error = rank_error(self.k, confidence)
        ends = np.zeros((3, self._groups))
        bound = np.full(self._groups, Bound.EXACT, np.uint8)
        for group, sketch in self._sketches.items():
            rank = (ranks[group] - 0.5) / max(counts[group], 1)
            if sketch.n and sketch.is_estimation_mode():
                ends[:, group] = [_at(sketch, rank + away) for away in (0.0, -error, error)]
                bound[group] = Bound.INTERVAL
            elif sketch.n:
                ends[:, group] = _at(sketch, rank)
        value, low, high = ends
        return Estimates(value, low, high, bound, counts == 0, confidence, _SOURCE)

    def image(self, group: int) -> bytes:
        """A group as DataSketches writes it (kll_doubles_sketch.deserialize, Spark, Druid)."""
        self._flush()
        sketch = self._sketches.get(group)
        return bytes((kll_doubles_sketch(self.k) if sketch is None else sketch).serialize())

    @classmethod
    def from_images(cls, images: Sequence[bytes], k: int = 200) -> Self:
        """The groups whose sketches of doubles DataSketches, Spark or Druid wrote, in this order.

        Args:
          images: KLL sketches of this k or a larger one.
          k: of the sketches; larger ones shrink to it.

        Raises:
          CorruptSynopsis: one is no such image.
          CannotMerge: one has a smaller k, which no merge makes good.
        """
        made = cls(len(images), k)
        for group, image in enumerate(images):
            sketch = read_image(image)
            if sketch.k < k:
                raise CannotMerge("k", k, sketch.k)
            made._sketches[group] = kll_doubles_sketch(k)
            made._sketches[group].merge(sketch)
        return made

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        self._flush()
        made = type(self)(len(ids), self.k)
        for place, group in enumerate(ids.tolist()):
            if group in self._sketches:
                made._sketches[place] = copy.copy(self._sketches[group])
        return made

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        self._flush()
        made = type(self)(groups, self.k)
        for group, sketch in self._sketches.items():
            made._sketches[int(ids[group])] = copy.copy(sketch)
        return made

    def to_bytes(self) -> bytes:
        """The sketches' images, by group."""
        self._flush()
        held = sorted(self._sketches)
        images = [bytes(self._sketches[group].serialize()) for group in held]
        sizes = np.array([len(image) for image in images], np.int64)
        body: list[NDArray[Any] | bytes] = [np.array(held, np.int64), sizes, b"".join(images)]
        return seal(Kind.KLL, _PARAMETERS.pack(self._groups, self.k), body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.KLL)
        groups, k = body.unpack(_PARAMETERS)
        made = cls(groups, k)
        held = body.array(np.int64, (-1,)).tolist()
        ends = np.cumsum(body.array(np.int64, (len(held),))).tolist()
        images = body.raw()
        body.end()
        for group, start, end in zip(held, [0, *ends], ends, strict=False):
            if not 0 <= group < groups:
                raise CorruptSynopsis("group", group, f"0 to {groups - 1}")
            sketch = made._sketches[group] = read_image(images[start:end])
            if sketch.k != k:
                raise CorruptSynopsis("k of a KLL image", sketch.k, k)
        return made


def _by_group(
    parts: list[tuple[NDArray[np.int32] | None, NDArray[np.float64]]],
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The values of each group that has any, in their order of arrival."""
    if not parts:
        return
    values = parts[0][1] if len(parts) == 1 else np.concatenate([part for _, part in parts])
    if all(ids is None for ids, _ in parts):
        yield 0, values
        return
    ids = np.concatenate(
        [np.zeros(len(part), np.int32) if ids is None else ids for ids, part in parts]
    )
    order = np.argsort(ids, kind="stable")
    ids, values = ids[order], values[order]
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        yield int(ids[start]), values[start:end]


def _at(sketch: Any, rank: float) -> float:
    """The value at a normalised rank; the extremes are exact."""
    if rank <= 0.0:
        return float(sketch.get_min_value())
    if rank >= 1.0:
        return float(sketch.get_max_value())
    return float(sketch.get_quantile(rank, True))
