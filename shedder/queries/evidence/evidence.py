"""Evidence: what a source knows about a query's aggregates, before outputs are made of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate
from shedder.queries.answers.answer import ArchiveRead, MissingGroups
from synopses.model.estimate import Estimates
from synopses.moments.covariance import CrossSums

Rows = NDArray[np.int64]


class Again(Protocol):
    """Asks evidence at a part of its delta."""

    def __call__(
        self, share: float, of: Collection[Aggregate], rows: Rows | None = None, /
    ) -> Evidence:
        """Of these aggregates, and of these groups in this order; None: of all."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Group keys and, for each aggregate of a bound query, an estimate per group.

    keys: one array per GROUP BY expression, in order, of its type; () without GROUP BY.
    estimates: every aggregate of the query; all columns have one length (1 without GROUP BY).
      Value arrays as in Estimates: numbers, object arrays of str for VARCHAR, object arrays of
      list[TopItem] for LISTS.
    others: the row that stands for all groups that found no room (its keys are null), or None.
    missing: a bound on groups that the source may not have seen; None: none can be missing.
    start_us, end_us, watermark_us, position, late, complete, thinning, archive_share_read,
      archive, sources, notes: as in Answer.
    rank_errors: for quantiles that were asked by rank: float64 [groups], as a fraction of rank,
      at the confidence of the estimate; absent means unknown.
    share_errors: for lists of items: float64 [groups], by what share of all values of a group the
      count of one may be too low, nan for groups without values; absent means unknown.
    counts: how many values an aggregate is made of, int64 [groups], where the source knows;
    quantiles: q -> the discrete q-quantile, for those that can be asked again; and
    frequents: late -> the values of a share with up to so many more tuples, for FREQUENT; and
    crosses: the sums of pairs, for functions of pairs; and
    times: int64 [groups], when the value of a FIRST or LAST was, with
    late_span: event times, half open, that all late tuples lie in. These are for `widen_late`
      alone, which is narrower with them.
    allowed: so many tuples, beside those that it has, its intervals allow for already.
    again: (share, aggregates, groups) -> the same of some of them, asked at that part, in (0, 1],
      of the delta of every interval. None: it cannot be asked again. What changes estimates changes
      these, too (`changed`).
    levels: finds, where tuples were skipped, at which level (1 and up) all of the values of an
      aggregate were read, if it was one; to be asked before the source goes on.
    """

    keys: tuple[pa.Array[Any], ...]
    estimates: Mapping[Aggregate, Estimates]
    others: int | None = None
    missing: MissingGroups | None = None
    start_us: int | None = None
    end_us: int | None = None
    watermark_us: int | None = None
    position: int = 0
    late: int = 0
    complete: bool = True
    thinning: float = 1.0
    archive_share_read: float = 0.0
    archive: ArchiveRead | None = None
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rank_errors: Mapping[Aggregate, NDArray[np.float64]] = field(default_factory=dict)
    share_errors: Mapping[Aggregate, NDArray[np.float64]] = field(default_factory=dict)
    counts: Mapping[Aggregate, NDArray[np.int64]] = field(default_factory=dict)
    quantiles: Mapping[Aggregate, Callable[[float], Estimates]] = field(default_factory=dict)
    frequents: Mapping[Aggregate, Callable[[int], Estimates]] = field(default_factory=dict)
    crosses: Mapping[Aggregate, CrossSums] = field(default_factory=dict)
    times: Mapping[Aggregate, NDArray[np.int64]] = field(default_factory=dict)
    late_span: tuple[int, int] | None = None
    allowed: int = 0
    levels: Callable[[], Mapping[Aggregate, int]] = dict
    again: Again | None = None

    def __post_init__(self) -> None:
        lengths = {len(key) for key in self.keys} | {len(e) for e in self.estimates.values()}
        assert len(lengths) <= 1, lengths

    def changed(self, change: Callable[[Evidence], Evidence]) -> Evidence:
        """This evidence changed, and what it says when it is asked again.

        change: of each group by itself.
        """
        again = self.again
        if again is None:
            return change(self)
        return replace(
            change(self), again=lambda share, of, rows=None: change(again(share, of, rows))
        )

    def take(self, rows: Rows) -> Evidence:
        """Some groups, in this order, without what late tuples are allowed for with."""
        places = [] if self.others is None else np.flatnonzero(rows == self.others).tolist()
        return replace(
            self,
            keys=tuple(key.take(pa.array(rows, pa.int64())) for key in self.keys),
            estimates={each: column.take(rows) for each, column in self.estimates.items()},
            others=places[0] if places else None,
            rank_errors={each: errors[rows] for each, errors in self.rank_errors.items()},
            share_errors={each: errors[rows] for each, errors in self.share_errors.items()},
            counts={},
            quantiles={},
            frequents={},
            crosses={},
            times={},
            again=None,
        )

    @property
    def groups(self) -> int:
        """Return how many rows there are, the others row included."""
        for key in self.keys:
            return len(key)
        for column in self.estimates.values():
            return len(column)
        return 1
