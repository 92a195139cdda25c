"""A pane: the synopses of one slice of event time, merged into windows and stored when closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.types import ColumnType
from shedder.engine.plan import BY_HASH, Kind, Part, Plan
from shedder.engine.segment import Segment, selected
from shedder.streams.frame import Frame
from shedder.streams.text_extremes import GroupedTextExtremes
from shedder.streams.text_first_last import GroupedTextFirstLast
from synopses.count_min import GroupedCountMin
from synopses.counts import GroupedCount
from synopses.cross_moments import GroupedCrossMoments
from synopses.distinct import GroupedDistinct
from synopses.first_last import GroupedFirstLast
from synopses.frequent import GroupedFrequent
from synopses.frequent_entries import ItemKind
from synopses.kll import GroupedKll
from synopses.log_buckets import GroupedLogBuckets
from synopses.moments import GroupedMoments
from synopses.theta import GroupedTheta
from synopses.theta_profile import LG_K_MIN

_THETA_LG_K_MAX = 13  # 1.1 % at 128 KiB, when there is more than 2^13 * 2^level to count.

Synopsis = (
    GroupedCount
    | GroupedMoments
    | GroupedCrossMoments
    | GroupedFirstLast
    | GroupedTextFirstLast
    | GroupedTextExtremes
    | GroupedDistinct
    | GroupedTheta
    | GroupedLogBuckets
    | GroupedKll
    | GroupedFrequent
    | GroupedCountMin
)

_CLASSES: dict[Kind, Any] = {
    Kind.COUNT: GroupedCount,
    Kind.MOMENTS: GroupedMoments,
    Kind.CROSS: GroupedCrossMoments,
    Kind.FIRST_LAST: GroupedFirstLast,
    Kind.TEXT_FIRST_LAST: GroupedTextFirstLast,
    Kind.EXTREMES: GroupedTextExtremes,
    Kind.DISTINCT: GroupedDistinct,
    Kind.THETA: GroupedTheta,
    Kind.BUCKETS: GroupedLogBuckets,
    Kind.KLL: GroupedKll,
    Kind.FREQUENT: GroupedFrequent,
    Kind.COUNTERS: GroupedCountMin,
}


def make(part: Part, groups: int) -> Any:
    """An empty synopsis with room for this many groups."""
    match part.kind:
        case Kind.COUNT | Kind.CROSS | Kind.EXTREMES | Kind.BUCKETS:
            return _CLASSES[part.kind](groups)
        case Kind.MOMENTS:
            assert part.argument is not None
            integer = part.argument.type is not ColumnType.DOUBLE
            return GroupedMoments(groups, integer=integer, variance=part.variance)
        case Kind.TEXT_FIRST_LAST:
            return GroupedTextFirstLast(groups)
        case Kind.FIRST_LAST:
            assert part.argument is not None
            integer = part.argument.type is not ColumnType.DOUBLE
            return GroupedFirstLast(groups, integer=integer)
        case Kind.FREQUENT:
            return GroupedFrequent(groups, part.size, _item_kind(part))
        case _:
            return _CLASSES[part.kind](groups, part.size)


def _item_kind(part: Part) -> ItemKind:
    assert part.argument is not None
    match part.argument.type:
        case ColumnType.VARCHAR:
            return ItemKind.TEXT
        case ColumnType.DOUBLE:
            return ItemKind.DOUBLE
        case _:
            return ItemKind.INTEGER


class PartInput:
    """What one synopsis reads of a view: arrays without nulls, and the groups of their rows."""

    def __init__(
        self, part: Part, view: Frame, ids: NDArray[np.int32] | None, *, level: int = 0
    ) -> None:
        self._arrays: tuple[Any, ...] = ()
        self._rows: NDArray[np.int64] | None = None
        if part.argument is not None and part.second is not None:
            pairs = view.pairs(part.argument, part.second)
            self._rows, self._arrays = pairs.rows, (pairs.first, pairs.second)
        elif part.argument is not None:
            present = view.present(part.argument)
            self._rows = present.rows
            match part.kind:
                case Kind.COUNT:
                    pass
                case Kind.DISTINCT:
                    hashes = view.hashes(part.argument)
                    self._arrays = (hashes.first, hashes.second)[: 1 if level else 2]
                case Kind.COUNTERS | Kind.THETA:
                    self._arrays = (view.hashes(part.argument).first,)
                case Kind.FREQUENT:
                    keys = view.hashes(part.argument).first
                    self._arrays = (keys, _gatherable(present.values))
                case Kind.FIRST_LAST | Kind.TEXT_FIRST_LAST:
                    rows = slice(None) if present.rows is None else present.rows
                    self._arrays = (view.times_us[rows], view.positions[rows], present.values)
                case Kind.BUCKETS | Kind.KLL:
                    self._arrays = (np.asarray(present.values, np.float64),)
                case _:
                    self._arrays = (present.values,)
        self._ids = ids if ids is None or self._rows is None else ids[self._rows]
        self._is_count = part.kind is Kind.COUNT

    def feed(self, synopsis: Any, first: int, last: int) -> int:
        """Update the synopsis with the view's rows first to last (exclusive).

        Returns:
          How many values there were in these rows.
        """
        if self._rows is not None:
            first, last = np.searchsorted(self._rows, (first, last))
        if first == last:
            return 0
        ids = None if self._ids is None else self._ids[first:last]
        if self._is_count:
            synopsis.update(ids, int(last - first))
        else:
            synopsis.update(ids, *[array[first:last] for array in self._arrays])
        return int(last - first)


class TextValues:
    """Arrow text that becomes Python strings only for the rows somebody picks."""

    def __init__(self, values: pa.Array[Any]) -> None:
        self._values = values
        self.dtype = np.dtype(object)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Any:
        if isinstance(rows, slice):
            return TextValues(self._values[rows])
        return self._values.take(rows).to_numpy(zero_copy_only=False)


def _gatherable(values: Any) -> Any:
    return TextValues(values) if isinstance(values, pa.Array) else values


class Pane:
    """One synopsis per part of a plan, over the same group ids, and its segments of other levels.

    parts: what was read in full. segments: by part and level (1 and up), what was read thinned.
    """

    def __init__(self, plan: Plan, groups: int) -> None:
        self._plan = plan
        self.parts = [make(part, groups) for part in plan.parts]
        self.segments: dict[tuple[int, int], Segment] = {}

    def grow(self, groups: int) -> None:
        """Make room for more groups."""
        for synopsis in self.parts:
            synopsis.grow(groups)

    def update(self, inputs: Sequence[PartInput], first: int, last: int) -> None:
        """Read the rows first to last of the inputs' view."""
        for synopsis, given in zip(self.parts, inputs, strict=True):
            given.feed(synopsis, first, last)

    def update_at(
        self, part: int, level: int, given: PartInput, rows: tuple[int, int], groups: int
    ) -> int:
        """Let one part read rows of its input (the view, thinned to the level) at that level.

        Returns:
          How many values there were in these rows.
        """
        synopsis = self.segment(part, level).synopsis if level else self.parts[part]
        synopsis.grow(groups)
        return given.feed(synopsis, *rows)

    def segment(self, part: int, level: int) -> Segment:
        """A part's segment of a level; a new one when there is none."""
        found = self.segments.get((part, level))
        if found is None:
            found = self.segments[part, level] = Segment(_make_thinned(self._plan.parts[part]))
        return found

    def settle(self, plan: Plan) -> None:
        """Nothing more is counted: tables of frequent items take their size in this plan."""
        self._plan = plan
        read = [*enumerate(self.parts)]
        read += [(part, segment.synopsis) for (part, _), segment in self.segments.items()]
        for part, synopsis in read:
            if isinstance(synopsis, GroupedFrequent) and synopsis.entries > plan.parts[part].size:
                synopsis.resize(plan.parts[part].size)

    def merge(self, other: Pane) -> Self:
        """Fold in another pane over the same group ids."""
        for synopsis, more in zip(self.parts, other.parts, strict=True):
            synopsis.merge(more)
        for key, segment in other.segments.items():
            self.segment(*key).merge(segment)
        return self

    def select(self, ids: NDArray[np.int64]) -> Pane:
        """These groups, in this order."""
        chosen = Pane(self._plan, 0)
        chosen.parts = [selected(synopsis, ids) for synopsis in self.parts]
        chosen.segments = {key: segment.select(ids) for key, segment in self.segments.items()}
        return chosen

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Pane:
        """The inverse of select: group i goes to ids[i]."""
        spread = Pane(self._plan, 0)
        spread.parts = [synopsis.scatter(ids, groups) for synopsis in self.parts]
        spread.segments = {k: segment.scatter(ids, groups) for k, segment in self.segments.items()}
        return spread

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows per group that were read; the rows are read at the smallest level of all parts."""
        counts: NDArray[np.int64] = self.parts[0].count().value
        for (part, _), segment in self.segments.items():
            if part == 0:
                counts = _added(counts, segment.synopsis.count().value)
        return counts

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which groups have anything here: rows that were counted, or values kept by their hash."""
        present: NDArray[np.bool_] = self.counts > 0
        for (part, _), segment in self.segments.items():
            if self._plan.parts[part].kind in BY_HASH:
                present = _added(present, segment.synopsis.held > 0)
        return present

    @property
    def part_bytes(self) -> list[int]:
        """What each synopsis holds, its segments included."""
        held = [int(synopsis.size_bytes) for synopsis in self.parts]
        for (part, _), segment in self.segments.items():
            held[part] += int(segment.synopsis.size_bytes)
        return held

    def to_bytes(self) -> list[bytes]:
        """Each synopsis in its own format."""
        return [synopsis.to_bytes() for synopsis in self.parts]

    @classmethod
    def from_bytes(cls, plan: Plan, parts: Sequence[bytes]) -> Pane:
        """Read what to_bytes wrote for the same plan; it has no segments yet."""
        pane = cls(plan, 0)
        pane.parts = [
            _CLASSES[part.kind].from_bytes(data)
            for part, data in zip(plan.parts, parts, strict=True)
        ]
        return pane

    def adopt_segment(self, part: int, level: int, data: bytes, basics: Sequence[Any]) -> None:
        """Take back a segment of which the synopsis' bytes and the basics were stored."""
        kind = self._plan.parts[part].kind
        stored = GroupedTheta if kind is Kind.DISTINCT else _CLASSES[kind]
        synopsis = stored.from_bytes(data)
        self.segments[part, level] = Segment(synopsis, *basics)


def _make_thinned(part: Part) -> Any:
    """A synopsis that is read thinned.

    An interval for a sum needs the squares, too; distinct values survive thinning as theta only.
    """
    match part.kind:
        case Kind.MOMENTS:
            return make(replace(part, variance=True), 0)
        case Kind.DISTINCT:
            return GroupedTheta(0, min(max(part.size, LG_K_MIN), _THETA_LG_K_MAX))
        case _:
            return make(part, 0)


def _added(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """The sum of two columns, the shorter one filled up with zeros."""
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total
