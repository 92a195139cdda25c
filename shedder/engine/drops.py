"""All that was dropped at a stream's door: what its answers must allow for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expression import AggregateFunction
from shedder.cql.query import BoundQuery
from shedder.engine.late_panes import LatePanes
from shedder.queries.evidence import Evidence
from shedder.queries.lacking import allow_for
from shedder.streams.basics import ColumnBasics
from shedder.streams.dropped import (
    BUCKET_US,
    Dropped,
    basics_from_lists,
    basics_to_lists,
    counted,
)
from synopses.estimate import Bound, Estimates, TopItem

_SCALED = (AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.TOP)
_BECAME = "were dropped at the door"
_WIDTH_MAX = 1 << 40  # Buckets of a window that are looked through.


@dataclass(slots=True)
class Drops:
    """Counts by event time, and the range of what was dropped. Used by the apply thread only.

    rows: ever. by_time: dropped tuples by bucket. kept: tuples that were let in, by bucket, where
    others of it were dropped. basics: of all dropped tuples.
    """

    rows: int = 0
    by_time: LatePanes = field(default_factory=LatePanes)
    kept: LatePanes = field(default_factory=LatePanes)
    basics: dict[str, ColumnBasics] = field(default_factory=dict)

    def add(self, dropped: Dropped) -> None:
        """These were dropped."""
        self.rows += dropped.rows
        for bucket, count in dropped.times:
            self.by_time.add(bucket, count, needed_from=None)
        for name, basics in dropped.basics.items():
            self.basics[name] = self.basics.get(name, ColumnBasics()).merged(basics)

    def let_in(self, times_us: NDArray[np.int64]) -> None:
        """These were not, of a stream that drops: by them an answer is scaled."""
        for bucket, count in counted(times_us):
            self.kept.add(bucket, count, needed_from=None)

    def forget_before(self, time_us: int) -> None:
        """No window that ends before is asked for any more."""
        self.by_time.drop_before(time_us // BUCKET_US)
        self.kept.drop_before(time_us // BUCKET_US)

    def within(self, start_us: int | None, end_us: int | None) -> int:
        """How many tuples a window may lack, at most; None is open."""
        return self.by_time.count_in(_buckets(start_us, end_us)) if self.rows else 0

    def widen(self, query: BoundQuery, evidence: Evidence, *, by_chance: bool) -> Evidence:
        """The evidence with every interval wide enough for what was dropped of its window.

        Of a dropped tuple it is known when it was, about, and in which range its values lay; not
        whether it passes WHERE, nor which group it is of. So it may be anything there, and the
        interval holds the truth for certain, if it did before. Counts, sums and lists are scaled
        up to the tuples that came, where chance has chosen them: that is the likeliest value, and
        inside of the interval.

        Args:
          query: whose evidence it is. evidence: of a window.
          by_chance: tuples were dropped by chance.
        """
        lacking = self.within(evidence.start_us, evidence.end_us)
        if not lacking:
            return evidence
        wide = allow_for(query, evidence, lacking, self.basics, became=_BECAME)
        let_in = self.kept.count_in(_buckets(evidence.start_us, evidence.end_us))
        factor = 1.0 + lacking / let_in if by_chance and let_in else 1.0
        estimates = {
            aggregate: _scaled(column, factor if aggregate.function in _SCALED else 1.0)
            for aggregate, column in wide.estimates.items()
        }
        return replace(wide, estimates=estimates)

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "rows": self.rows,
            "by_time": self.by_time.to_json(),
            "kept": self.kept.to_json(),
            "basics": basics_to_lists(self.basics),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of to_json."""
        return cls(
            state["rows"],
            LatePanes.from_json(state["by_time"]),
            LatePanes.from_json(state["kept"]),
            basics_from_lists(state["basics"]),
        )


def _buckets(start_us: int | None, end_us: int | None) -> range:
    first = -_WIDTH_MAX if start_us is None else start_us // BUCKET_US
    end = _WIDTH_MAX if end_us is None else -(-end_us // BUCKET_US)
    return range(first, max(first, end))


def _scaled(column: Estimates, factor: float) -> Estimates:
    """The likeliest value; never outside of its interval, nor where there is none."""
    if factor == 1.0:
        return column
    if column.value.dtype == np.dtype(object):
        lists = np.empty(len(column), object)
        lists[:] = [[_scaled_item(item, factor) for item in found or []] for found in column.value]
        return replace(column, value=lists, low=lists, high=lists)
    likely = np.clip(np.asarray(column.value, np.float64) * factor, column.low, column.high)
    changed = (column.bound == Bound.INTERVAL) & ~column.null & np.isfinite(likely)
    if column.value.dtype.kind == "i":
        changed &= np.abs(likely) < 2.0**53
        likely = np.where(changed, np.rint(likely), 0.0).astype(np.int64)
    return replace(column, value=np.where(changed, likely, column.value))


def _scaled_item(item: TopItem, factor: float) -> TopItem:
    likely = min(max(round(item.count * factor), item.low), item.high)
    return TopItem(item.value, likely, item.low, item.high, item.guaranteed)
