"""CountSketch per group: occurrences of keys, and second moments, without bias."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses.counters import bounds as hashed
from synopses.counters import inner_products as counter_products
from synopses.counters.exact_small_groups import counts_of
from synopses.counters.hybrid_counters import (
    LG_WIDTH_MAX,
    LG_WIDTH_MIN,
    GroupedHashedCounters,
    bytes_of,
    keys_max,
)
from synopses.model.binary_header import Kind
from synopses.model.estimate import Bound, Estimates
from synopses.model.parameters import error_share
from synopses.model.profile import Profile, Share, Statistics, Thinning

SOURCE = "count-sketch"


def _error_of(lg_width: int, statistics: Statistics, confidence: float) -> float:
    """Of the second moment."""
    if statistics.tuples <= keys_max(lg_width):
        return 0.0
    return hashed.second_moment_error(1 << lg_width, 1 - confidence, statistics.tuples)


class GroupedCountSketch(GroupedHashedCounters):
    """Occurrences per key, their sum of squares, and inner products with another's, per group.

    Counters: int64 [DEPTH, width] per large group; small groups are exact (hybrid_counters.py).
    Bounds: by Chebyshev's inequality over the five rows (counters/bounds.py); half-widths about
    sqrt(0.8 F / width) for a count and sqrt(8 / width) F for the second moment F at 95 %.
    Source: Charikar, Chen, Farach-Colton 2002; Alon, Matias, Szegedy 1999.
    """

    profile: ClassVar = Profile(
        question="sums of squared counts, counts of any value",
        size="lg_width",
        sizes=range(LG_WIDTH_MIN, LG_WIDTH_MAX + 1),
        default=11,
        linear=True,
        thinning=Thinning.NEVER,
        thinned="none: of pairs of tuples, far more than the share that was skipped is missing",
        share=Share.VALUE,
        error_of=_error_of,
        bytes_of=bytes_of,
    )
    __slots__ = ()
    _kind: ClassVar[Kind] = Kind.COUNT_SKETCH
    _signed: ClassVar[int] = 1

    @classmethod
    def of_tables(cls, like: GroupedHashedCounters, dense: NDArray[np.int64]) -> Self:
        """The small groups of another summary, and these tables for its large ones."""
        made = cls(like.groups, like.lg_width - 1, like.seed)
        made._adopt(like)
        made._dense, made._dense_used = np.ascontiguousarray(dense), len(dense)
        large = np.flatnonzero(made._held[: made._groups] > keys_max(made.lg_width))
        if large.size:
            made._make_dense(large)
        return made

    def count(self, hashes: NDArray[np.uint64], confidence: float, *, group: int = 0) -> Estimates:
        """Return how often keys occur in a group: float64 [keys]; exact where it is small.

        Args:
          hashes: uint64 [keys], as in update.
          confidence: of each interval by itself.
          group: which one.

        Raises:
          BadParameter: the confidence is not inside (0, 1).
        """
        miss = error_share(confidence)
        if self.exact[group]:
            found = counts_of(self.entries(), group, hashes)
            return Estimates.exact(found.astype(np.float64), SOURCE)
        cells = self.cells(hashes)
        table = np.take_along_axis(self.tables(group), np.where(cells < 0, ~cells, cells), axis=1)
        rows = np.where(cells < 0, -table, table).astype(np.float64).T
        moment = self._moments_most(np.array([group]), hashed.moments_miss(miss))
        value, low, high = hashed.occurrences(rows, float(moment[0]), width=self.width, miss=miss)
        value = np.maximum(value, 0.0)
        null = np.zeros(value.size, np.bool_)
        bound = np.full(value.size, Bound.INTERVAL, np.uint8)
        low, high = np.clip(low, 0.0, value), np.maximum(high, value)
        return Estimates(value, low, high, bound, null, confidence, SOURCE)

    def second_moment(self, confidence: float) -> Estimates:
        """Sum of squared counts per group: float64.

        Raises:
          BadParameter: the confidence is not inside (0, 1).
        """
        miss = error_share(confidence)
        value = counter_products.of_keys(self, self)
        low, high = value.copy(), value.copy()
        large = np.flatnonzero(~self.exact)
        value[large], low[large], high[large] = hashed.second_moment(
            counter_products.of_tables(self, self, large), width=self.width, miss=miss
        )
        return _estimates(value, low, high, large, confidence)

    def inner_product(self, other: Self, confidence: float) -> Estimates:
        """Sum over keys of count here times count there, per group: float64.

        Raises:
          CannotMerge: widths or seeds differ.
          BadParameter: the confidence is not inside (0, 1).
        """
        miss = error_share(confidence)
        self.check(other)
        other.grow(self.groups)
        value = counter_products.of_keys(self, other)
        low, high = value.copy(), value.copy()
        large = np.flatnonzero(~(self.exact & other.exact))
        moments = hashed.moments_miss(miss)
        value[large], low[large], high[large] = hashed.inner_product(
            counter_products.of_tables(self, other, large),
            (self._moments_most(large, moments), other._moments_most(large, moments)),
            width=self.width,
            miss=miss,
        )
        return _estimates(value, low, high, large, confidence)

    def _moments_most(self, groups: NDArray[np.int64], miss: float) -> NDArray[np.float64]:
        """What the second moments of these groups are not above."""
        exact = counter_products.of_keys(self, self)[groups]
        most = hashed.second_moment_most(
            counter_products.of_tables(self, self, groups), width=self.width, miss=miss
        )
        return np.where(self.exact[groups], exact, most)


def _estimates(
    value: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    large: NDArray[np.int64],
    confidence: float,
) -> Estimates:
    bound = np.zeros(value.size, np.uint8)
    bound[large] = Bound.INTERVAL
    value = np.maximum(value, 0.0)
    low, high = np.clip(low, 0.0, value), np.maximum(high, value)
    null = np.zeros(value.size, np.bool_)
    return Estimates(value, low, high, bound, null, confidence, SOURCE)
