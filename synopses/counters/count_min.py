"""Count-Min per group: occurrences of keys, never too low."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from synopses.counters import bounds as hashed
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.counters.exact_small_groups import counts_of
from synopses.counters.hybrid_counters import (
    LG_WIDTH_MAX,
    LG_WIDTH_MIN,
    GroupedHashedCounters,
    bytes_of,
    keys_max,
)
from synopses.model.binary_header import Kind
from synopses.model.errors import BadParameter, CorruptSynopsis
from synopses.model.estimate import Bound, Estimates
from synopses.model.parameters import error_share
from synopses.model.profile import Cost, Profile, Share, Statistics, Thinning

SOURCE = "count-min"


def _error_of(lg_width: int, statistics: Statistics, confidence: float) -> float:
    """Return the error of a self join's size, for join_size.py; with skew it is far smaller."""
    if statistics.tuples <= keys_max(lg_width):
        return 0.0
    return hashed.second_moment_error(1 << (lg_width - 1), (1 - confidence) / 2, statistics.tuples)


class GroupedCountMin(GroupedHashedCounters):
    """Occurrences per key and group; an answer is never too low.

    Counters: int64 [DEPTH, width] per large group; small groups are exact (hybrid_counters.py).
    Bound: truth <= value always; value - truth <= t (total - truth), t = miss^(-1/5) / width, with
    probability 1 - miss (1.82 / width at 95 %).
    Its tables hold a CountSketch of half the width: `signed`.
    Source: Cormode & Muthukrishnan 2005, J. Algorithms 55(1), Theorems 1 and 3.
    """

    profile: ClassVar = Profile(
        question="SELF_JOIN_SIZE(x), JOIN_SIZE(x, y)",
        size="lg_width",
        sizes=range(LG_WIDTH_MIN + 1, LG_WIDTH_MAX + 1),
        default=12,
        linear=True,
        thinning=Thinning.ROWS,
        thinned="scaled counts are near the true ones as vectors, Cauchy-Schwarz, union bound",
        share=Share.VALUE,
        error_of=_error_of,
        bytes_of=bytes_of,
        cost=Cost(read=5.0, read_grouped=8.8, kept=7.1, kept_grouped=8.9, always=1.2),
    )
    __slots__ = ()
    _kind: ClassVar[Kind] = Kind.COUNT_MIN
    _signed: ClassVar[int] = 0

    @classmethod
    def _check(cls, dense: NDArray[np.int64]) -> None:
        """As of all hashed counters; and each row has counted the same tuples."""
        super()._check(dense)
        if dense.min(initial=0) < 0:
            raise CorruptSynopsis("counter", int(dense.min()), ">= 0")
        totals = dense.sum(axis=2)
        if (totals != totals[:, :1]).any():
            raise CorruptSynopsis("sums of rows", "different", "one total per group")

    def totals(self) -> NDArray[np.int64]:
        """Return how many keys each group was given; int64 [groups]."""
        groups, _, counts = self.entries()
        found = np.zeros(self.groups, np.int64)
        np.add.at(found, groups, counts)
        for group in np.flatnonzero(~self.exact).tolist():
            found[group] = self.tables(group)[0].sum()  # Every key is in every row once.
        return found

    def count(self, hashes: NDArray[np.uint64], confidence: float, *, group: int = 0) -> Estimates:
        """Return how often keys occur in a group: int64 [keys].

        Args:
          hashes: uint64 [keys], as in update.
          confidence: of each interval by itself.
          group: which one.

        Raises:
          BadParameter: the confidence is not inside (0, 1).
        """
        miss = error_share(confidence)
        if self.exact[group]:
            return Estimates.exact(counts_of(self.entries(), group, hashes), SOURCE)
        found = np.take_along_axis(self.tables(group), self.cells(hashes), axis=1).min(axis=0)
        total = float(self.totals()[group])
        most = found.astype(np.float64)
        low = hashed.least_with_excess(most, np.full(most.size, total), width=self.width, miss=miss)
        null = np.zeros(found.size, np.bool_)
        bound = np.full(found.size, Bound.INTERVAL, np.uint8)
        return Estimates(
            found, np.ceil(low - 1e-9 * most).astype(np.int64), found, bound, null, confidence,
            SOURCE,
        )  # fmt: skip

    def signed(self) -> GroupedCountSketch:
        """The CountSketch of half the width over the same keys.

        Its cell is the difference of two of these, ups less downs, as Cormode & Muthukrishnan 2005
        (SDM, "Summarizing and mining skewed data streams") read second moments off a Count-Min.

        Raises:
          BadParameter: this one is as narrow as can be.
        """
        if self.lg_width == LG_WIDTH_MIN:
            raise BadParameter("lg_width", self.lg_width, f"> {LG_WIDTH_MIN}")
        half = self.width // 2
        dense = self._dense[: self._dense_used]
        return GroupedCountSketch.of_tables(self, dense[..., :half] - dense[..., half:])
