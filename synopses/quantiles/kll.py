"""Quantiles with a bounded rank error: DataSketches' KLL, one sketch per group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from datasketches import kll_doubles_sketch
from numpy.typing import NDArray

from synopses.kernels.value_buffers import waiting_bytes
from synopses.model.binary_header import Kind, parameters_of_bytes, seal, unseal
from synopses.model.cardinality_error import z_of
from synopses.model.errors import CannotMerge, CorruptSynopsis
from synopses.model.estimate import Bound, Estimates
from synopses.model.profile import Cost, Profile, Share, Statistics, Thinning
from synopses.model.ranks import discrete_rank
from synopses.quantiles.kll_bulk import update_sorted
from synopses.quantiles.kll_datasketches_format import read_image, smallest_k
from synopses.quantiles.rank_sketches import RankSketches, at_rank

K_MIN, K_MAX = 8, 65_535  # As in DataSketches.
_LIBRARY_CONFIDENCE = 0.99  # Of DataSketches' normalized rank error.
_SOURCE = "kll"
_ITEM_BYTES = 8
_SKETCH_BYTES = 200  # What the library holds beside the items, about.
_BATCH_MIN, _BATCH_MAX = 1 << 10, 1 << 16


def rank_error(k: int, confidence: float) -> float:
    """By how much a rank may be off, as a share of the group's size, at this confidence."""
    library = kll_doubles_sketch.get_normalized_rank_error(k, False)
    return float(library) * z_of(confidence) / z_of(_LIBRARY_CONFIDENCE)


def _batch(k: int) -> int:
    """Two values or more for each that enters the sketch, so many that sorting pays."""
    return min(max(2 * k, _BATCH_MIN), _BATCH_MAX)


def _error_of(k: int, statistics: Statistics, confidence: float) -> float:
    return rank_error(k, confidence) if statistics.tuples >= _batch(k) else 0.0


def _bytes_of(k: int, statistics: Statistics) -> int:
    """Levels hold k, 2/3 k, 4/9 k ... items, never more than 3 k in all, and 8 at the least."""
    waiting = waiting_bytes(_batch(k), statistics.tuples)
    if statistics.tuples < _batch(k):
        return waiting
    levels = max(1.0, math.log2(max(statistics.tuples / k, 1.0)))
    held = int(min(statistics.tuples, 3 * k + 8 * levels))
    return _SKETCH_BYTES + _ITEM_BYTES * held + waiting


class GroupedKll(RankSketches):
    """Quantiles of one column per group with a rank error of about 2/k of its size, at 95 %.

    Used where a query asks for rank error; log buckets answer value error, faster and for certain.
    Batches are sorted and enter the library's sketches at their level. Random bits are not seeded
    (the library's cannot be, and a merge tosses them, so that seeding the offsets of batches would
    not do): a replay gives another sketch, which is as good, not the same.
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
        cost=Cost(read=6.2, read_grouped=23.3, kept=9.3, kept_grouped=23.3, always=1.0),
    )
    item_bytes, sketch_bytes = _ITEM_BYTES, _SKETCH_BYTES
    __slots__ = ()

    def __init__(self, groups: int, k: int = 200) -> None:
        """Make the sketches of so many empty groups.

        Args:
          groups: how many.
          k: size and accuracy of each sketch, 8 to 65,535.

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        super().__init__(groups, k)

    def _made(self, k: int) -> Any:
        return kll_doubles_sketch(k)

    def _empty(self, groups: int) -> Self:
        return type(self)(groups, self.k)

    @staticmethod
    def _batch(k: int) -> int:
        return _batch(k)

    def _take(self, group: int, values: NDArray[np.float64]) -> None:
        update_sorted(self._sketch(group), values)

    def _read(self, image: bytes) -> Any:
        sketch = read_image(image)
        if not sketch.k == smallest_k(image) == self.k:
            raise CorruptSynopsis("k of a KLL image", (sketch.k, smallest_k(image)), self.k)
        return sketch

    def rank_error(self, q: float, confidence: float) -> NDArray[np.float64]:  # noqa: ARG002
        """By how much the rank of a quantile may be off, as a share of the group's size."""
        self._flush()
        errors = np.zeros(self._groups)  # All values are held.
        errors[list(self._sketches)] = rank_error(self.k, confidence)
        return errors

    def quantile(self, q: float, confidence: float) -> Estimates:
        """The discrete q-quantile per group: float64; null where the group is empty.

        Raises:
          BadParameter: q is not in [0, 1] or the confidence not in (0, 1).
        """
        counts = self.counts()
        self._settle()
        ranks = discrete_rank(q, counts)
        error = rank_error(self.k, confidence)
        ends = np.tile(self._exact(q), (3, 1))
        bound = np.full(self._groups, Bound.EXACT, np.uint8)
        for group, sketch in self._sketches.items():
            rank = (ranks[group] - 0.5) / max(counts[group], 1)
            if sketch.n and sketch.is_estimation_mode():
                ends[:, group] = [at_rank(sketch, rank + away) for away in (0.0, -error, error)]
                bound[group] = Bound.INTERVAL
            elif sketch.n:
                ends[:, group] = at_rank(sketch, rank)
        value, low, high = ends
        return Estimates(value, low, high, bound, counts == 0, confidence, _SOURCE)

    @classmethod
    def from_images(cls, images: Sequence[bytes], k: int = 200) -> Self:
        """The groups whose sketches of doubles DataSketches, Spark or Druid wrote, in this order.

        Args:
          images: KLL sketches of this k or a larger one.
          k: of the sketches; larger ones shrink to it.

        Raises:
          CorruptSynopsis: one is no such image.
          CannotMerge: one has a smaller k, or took in one that had: no merge makes that good.
        """
        made = cls(len(images), k)
        for group, image in enumerate(images):
            sketch = read_image(image)
            if smallest_k(image) < k:
                raise CannotMerge("k", k, smallest_k(image))
            made._sketches[group] = kll_doubles_sketch(k)
            made._sketches[group].merge(sketch)
        return made

    def to_bytes(self) -> bytes:
        """The sketches' images, by group."""
        return seal(Kind.KLL, (self._groups, self.k), self._packed())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.KLL)
        groups, k = body.parameters
        with parameters_of_bytes():
            made = cls(0, k)
        made._unpack(body, groups)
        return made
