"""Dropped tuples of a stream: counts by time, and the bounds that they widen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.panes.late_tuples import LatePanes
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.missing_tuple_bounds import allow_for
from shedder.streams.basics import ColumnBasics
from shedder.streams.dropped_counts import (
    BUCKET_US,
    Dropped,
    basics_from_lists,
    basics_to_lists,
    counted,
)
from shedder.streams.frame import Frame
from synopses.model.estimate import Bound, Estimates, TopItem

_SCALED = (AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.TOP)
_BECAME = "were dropped at the door"  # Or before: it makes no difference to what may be said.
SECONDS_MAX = 1 << 15  # Buckets that are told apart; twice as many would share another count.
_CALM_SECONDS_MAX = 256  # ... of what was let in, while nothing has been dropped.
_WIDTH_MAX = 1 << 40  # Buckets of a window that are looked through.


@dataclass(slots=True)
class Drops:
    """Counts by event time, and the range of what was dropped. Used by the apply thread only.

    rows: ever. by_time: dropped tuples by bucket. kept: tuples that were let in, by bucket.
    basics: of all dropped tuples. before: the last of the oldest buckets, that are not told apart
    any more, and how many were dropped of them.
    """

    rows: int = 0
    by_time: LatePanes = field(default_factory=LatePanes)
    kept: LatePanes = field(default_factory=LatePanes)
    basics: dict[str, ColumnBasics] = field(default_factory=dict)
    before: tuple[int, int] | None = None

    def add(self, dropped: Dropped) -> None:
        """These were dropped."""
        self.rows += dropped.rows
        for bucket, count in dropped.times:
            self.by_time.add(bucket, count, needed_from=None)
            self._fold()
        for name, basics in dropped.basics.items():
            self.basics[name] = self.basics.get(name, ColumnBasics()).merged(basics)

    def let_in(self, frame: Frame) -> None:
        """These were not: by them an answer is scaled, once others are.

        Until then the newest seconds will do, for windows that are open when it begins.
        """
        for bucket, count in _seconds_of(frame):
            self.kept.add(bucket, count, needed_from=None)
        known, most = self.kept.by_pane, SECONDS_MAX if self.rows else _CALM_SECONDS_MAX
        if len(known) > most:
            self.kept.drop_before(sorted(known)[-most // 2])

    def _fold(self) -> None:
        """The oldest seconds share one count, once there are too many."""
        known = self.by_time.by_pane
        if len(known) > SECONDS_MAX:
            old = sorted(known)[: SECONDS_MAX // 2]
            last, count = self.before or (old[-1], 0)
            self.before = max(last, old[-1]), count + sum(known.pop(each) for each in old)

    def within(self, start_us: int | None, end_us: int | None) -> int:
        """Return how many tuples a window may lack, at most; None is open."""
        if not self.rows:
            return 0
        wanted = _buckets(start_us, end_us)
        reaches = self.before is not None and bool(wanted) and wanted[0] <= self.before[0]
        old = self.before[1] if self.before is not None and reaches else 0
        return old + self.by_time.count_in(wanted)

    def widen(
        self,
        query: BoundQuery,
        evidence: Evidence,
        others: Mapping[str, ColumnBasics],
        *,
        by_chance: bool,
    ) -> Evidence:
        """The evidence with every interval wide enough for what was dropped of its window.

        Of a dropped tuple it is known when it was, about, and in which range its values lay; not
        whether it passes WHERE, nor which group it is of. So it may be anything there, and the
        interval holds the truth for certain, if it did before. Counts, sums and lists are scaled
        up to the tuples that came, where chance has chosen them: that is the likeliest value, and
        inside of the interval.

        Args:
          query: whose evidence it is. evidence: of a window.
          others: basics of the columns of all tuples that were not dropped.
          by_chance: tuples were dropped by chance.
        """
        lacking = self.within(evidence.start_us, evidence.end_us)
        if not lacking:
            return evidence
        none, dropped = ColumnBasics(), self.basics
        among = {name: known.merged(dropped.get(name, none)) for name, known in others.items()}
        wide = allow_for(query, evidence, lacking, dropped, became=_BECAME, among=among)
        let_in = self.kept.count_in(_buckets(evidence.start_us, evidence.end_us))
        factor = 1.0 + lacking / let_in if by_chance and let_in else 1.0
        return wide.changed(lambda each: _with_likeliest(each, factor))

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "rows": self.rows,
            "by_time": self.by_time.to_json(),
            "kept": self.kept.to_json(),
            "basics": basics_to_lists(self.basics),
            "before": self.before,
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of to_json."""
        before = state.get("before")  # Absent in checkpoints of earlier versions.
        return cls(
            state["rows"],
            LatePanes.from_json(state["by_time"]),
            LatePanes.from_json(state["kept"]),
            basics_from_lists(state["basics"]),
            None if before is None else (before[0], before[1]),
        )


def _seconds_of(frame: Frame) -> Sequence[tuple[int, int]]:
    """Count the tuples of a frame for each second; a batch nearly always has one second."""
    first, last = (end // BUCKET_US for end in frame.time_ends_us)
    if first == last:
        return ((first, len(frame)),)
    if not frame.is_in_time_order or last - first > len(frame):
        return counted(frame.times_us)
    ends = np.searchsorted(frame.times_us, np.arange(first + 1, last + 1) * BUCKET_US)
    counts = np.diff(ends, prepend=0, append=len(frame))
    return [(first + at, int(counts[at])) for at in np.flatnonzero(counts).tolist()]


def _buckets(start_us: int | None, end_us: int | None) -> range:
    first = -_WIDTH_MAX if start_us is None else start_us // BUCKET_US
    end = _WIDTH_MAX if end_us is None else -(-end_us // BUCKET_US)
    return range(first, max(first, end))


def _with_likeliest(evidence: Evidence, factor: float) -> Evidence:
    """The evidence with counts, sums and lists scaled up by a factor."""
    estimates = {
        aggregate: _scaled(column, factor if aggregate.function in _SCALED else 1.0)
        for aggregate, column in evidence.estimates.items()
    }
    return replace(evidence, estimates=estimates)


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
