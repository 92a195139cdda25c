"""A pane: the synopses of one slice of event time, merged into windows and stored when closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.types import ColumnType
from shedder.engine.plan import BY_HASH, Kind, Part, Plan
from shedder.engine.resizing import merged, settle, size_of
from shedder.engine.segment import Segment, selected
from shedder.engine.stopwatch import Stopwatch
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
from synopses.req import GroupedReq
from synopses.theta import GroupedTheta
from synopses.theta_profile import LG_K_MIN

_THETA_LG_K_MAX = 13  # 1.1 % at 128 KiB, when there is more than 2^13 * 2^level to count.

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
    Kind.REQ_HIGH: GroupedReq,
    Kind.REQ_LOW: GroupedReq,
    Kind.FREQUENT: GroupedFrequent,
    Kind.COUNTERS: GroupedCountMin,
}


def class_of(part: Part, *, thinned: bool = False) -> Any:
    """What a part is read into, in full or thinned: distinct values survive thinning as theta."""
    return GroupedTheta if thinned and part.kind is Kind.DISTINCT else _CLASSES[part.kind]


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
        case Kind.REQ_HIGH | Kind.REQ_LOW:
            return GroupedReq(groups, part.size, high=part.kind is Kind.REQ_HIGH)
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
                    hashes = view.identities(part.argument)
                    self._arrays = (hashes.first, hashes.second)[: 1 if level else 2]
                case Kind.COUNTERS | Kind.THETA:
                    self._arrays = (view.hashes(part.argument).first,)
                case Kind.FREQUENT:
                    keys = view.hashes(part.argument).first
                    self._arrays = (keys, _gatherable(present.values))
                case Kind.FIRST_LAST | Kind.TEXT_FIRST_LAST:
                    rows = slice(None) if present.rows is None else present.rows
                    self._arrays = (view.times_us[rows], view.positions[rows], present.values)
                case Kind.BUCKETS | Kind.KLL | Kind.REQ_HIGH | Kind.REQ_LOW:
                    self._arrays = (np.asarray(present.values, np.float64),)
                case _:
                    self._arrays = (present.values,)
        self._ids = ids if ids is None or self._rows is None else ids[self._rows]
        self._is_count = part.kind is Kind.COUNT

    def feed(self, synopsis: Any, first: int, last: int, *, groups: int | None = None) -> int:
        """Update the synopsis with the view's rows first to last (exclusive).

        groups: the synopsis has only the first groups; None: all.

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
            return int(last - first)
        arrays = [array[first:last] for array in self._arrays]
        if ids is not None and groups is not None:
            rows = np.flatnonzero(ids < groups)
            ids, arrays = ids[rows], [array[rows] for array in arrays]
        synopsis.update(ids, *arrays)
        return int(last - first)

    def feed_shape(self, shape: GroupedCrossMoments | None, first: int, last: int) -> None:
        """Update what a segment knows of x and x^2, if it does, as `feed` does the synopsis."""
        if shape is None:
            return
        if self._rows is not None:
            first, last = np.searchsorted(self._rows, (first, last))
        if first < last:
            values = np.asarray(self._arrays[0][first:last], np.float64)
            ids = None if self._ids is None else self._ids[first:last]
            with np.errstate(over="ignore"):  # An infinite square makes the pair one that is apart.
                shape.update(ids, values, values * values)


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


Place = tuple[int, int]
"""Of a synopsis in a pane: which part of the plan, and the level it is read at; 0: in full."""


class HandedOn(Protocol):
    """Who reads what a pane reads."""

    def read(self, place: Place, given: PartInput, first: int, last: int) -> None:
        """The synopsis there has read these rows of its input."""


def _gatherable(values: Any) -> Any:
    return TextValues(values) if isinstance(values, pa.Array) else values


class Pane:
    """One synopsis per part of a plan, over the same group ids, and its segments of other levels.

    parts: what was read in full. segments: by part and level (1 and up), what was read thinned.
    handed_on_to: who reads what is read here; nobody any more once something else is merged in.
    """

    def __init__(
        self, plan: Plan, groups: int, *, of_any_size: bool = False, parts: list[Any] | None = None
    ) -> None:
        """Make an empty one, or one of these parts.

        Args:
          plan: its synopses and their sizes. groups: that there is room for.
          of_any_size: what is merged into it first gives it the sizes, not the plan.
        """
        self._plan = plan
        self._of_any_size = of_any_size
        self.parts = [make(part, groups) for part in plan.parts] if parts is None else parts
        self.segments: dict[Place, Segment] = {}
        self.handed_on_to: HandedOn | None = None

    def grow(self, groups: int) -> None:
        """Make room for more groups."""
        for synopsis in self.parts:
            synopsis.grow(groups)

    def update(self, inputs: Sequence[PartInput], first: int, last: int, watch: Stopwatch) -> None:
        """Read the rows first to last of the inputs' view, each part by the watch."""
        for part, (synopsis, given) in enumerate(zip(self.parts, inputs, strict=True)):
            given.feed(synopsis, first, last)
            if self.handed_on_to is not None:
                self.handed_on_to.read((part, 0), given, first, last)
            watch.lap(part, last - first)

    def update_at(
        self, part: int, level: int, given: PartInput, rows: tuple[int, int], groups: int
    ) -> int:
        """Let one part read rows of its input (the view, thinned to the level) at that level.

        Returns:
          How many values there were in these rows.
        """
        if self.handed_on_to is not None:
            self.handed_on_to.read((part, level), given, *rows)
        if not level:
            self.parts[part].grow(groups)
            return given.feed(self.parts[part], *rows)
        segment = self.segment(part, level)
        segment.grow(groups)
        given.feed_shape(segment.shape, *rows)
        return given.feed(segment.synopsis, *rows)

    def segment(self, part: int, level: int, *, size: int | None = None) -> Segment:
        """A part's segment of a level; when there is none a new one, of this size or the plan's."""
        found = self.segments.get((part, level))
        if found is None:
            made, whole = self._plan.parts[part], self.parts[part]
            found = _make_segment(made if size is None else replace(made, size=size))
            if isinstance(whole, GroupedLogBuckets):
                found.synopsis.resize(whole.mantissa_bits)
            self.segments[part, level] = found
        return found

    def read_by(self, part: int) -> list[Any]:
        """All synopses of a part: of what was read in full, and of each level."""
        thinned = [it.synopsis for (owner, _), it in self.segments.items() if owner == part]
        return [self.parts[part], *thinned]

    def is_larger_than(self, plan: Plan) -> bool:
        """Whether any synopsis is larger than it is in this plan."""
        return any(True for _ in self.larger_than(plan))

    def larger_than(self, plan: Plan) -> Iterator[tuple[Place, Any, int]]:
        """The synopses that are larger than in this plan: where, and their size there."""
        for place, synopsis, size in self._sizes_in(plan):
            if size_of(synopsis) > size:
                yield place, synopsis, size

    def settle(self, plan: Plan, *, shrinks: bool = True) -> None:
        """Nothing more is counted: what is larger than in this plan takes its size there.

        shrinks: else it stays as large as it is.
        """
        self._plan, self.handed_on_to = plan, None
        for _, synopsis, size in self._sizes_in(plan):
            settle(synopsis, size if shrinks else size_of(synopsis))

    def with_others(self, others: Mapping[Place, Any], plan: Plan) -> Pane:
        """A version with other synopses in some places, and a plan for segments that it begins."""
        parts = [others.get((at, 0), synopsis) for at, synopsis in enumerate(self.parts)]
        version = Pane(plan, 0, parts=parts)
        version.segments = {
            place: replace(segment, synopsis=others[place]) if place in others else segment
            for place, segment in self.segments.items()
        }
        return version

    def _sizes_in(self, plan: Plan) -> list[tuple[Place, Any, int]]:
        """Each synopsis, those of segments last, with the size that it has in a plan."""
        whole = zip(self.parts, plan.parts, strict=True)
        sizes = [((at, 0), synopsis, part.size) for at, (synopsis, part) in enumerate(whole)]
        return sizes + [
            ((part, level), segment.synopsis, _thinned_size(plan.parts[part]))
            for (part, level), segment in self.segments.items()
        ]

    def merge(self, other: Pane) -> Self:
        """Fold in another pane over the same group ids."""
        self.handed_on_to = None
        if self._of_any_size:
            self._take_sizes(other)
        self.parts = [merged(*two) for two in zip(self.parts, other.parts, strict=True)]
        for key, segment in other.segments.items():
            self.segment(*key, size=size_of(segment.synopsis)).merge(segment)
        return self

    def _take_sizes(self, other: Pane) -> None:
        """Nothing has been counted yet: be as large as the other."""
        self._of_any_size = False
        for at, more in enumerate(other.parts):
            if size_of(self.parts[at]) != size_of(more):
                part = replace(self._plan.parts[at], size=size_of(more))
                self.parts[at] = make(part, self.parts[at].groups)

    def select(self, ids: NDArray[np.int64]) -> Pane:
        """These groups, in this order."""
        parts = [selected(synopsis, ids) for synopsis in self.parts]
        chosen = Pane(self._plan, 0, parts=parts)
        chosen.segments = {key: segment.select(ids) for key, segment in self.segments.items()}
        return chosen

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Pane:
        """The inverse of select: group i goes to ids[i]."""
        parts = [synopsis.scatter(ids, groups) for synopsis in self.parts]
        spread = Pane(self._plan, 0, parts=parts)
        spread.segments = {k: segment.scatter(ids, groups) for k, segment in self.segments.items()}
        return spread

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows per group that were read, at the smallest level of all parts; to look at only."""
        counts: NDArray[np.int64] = self.parts[0].counts
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
            held[part] += segment.size_bytes
        return held

    def to_bytes(self) -> list[bytes]:
        """Each synopsis in its own format."""
        return [synopsis.to_bytes() for synopsis in self.parts]

    @classmethod
    def from_bytes(cls, plan: Plan, parts: Sequence[bytes]) -> Pane:
        """Read what to_bytes wrote for the same plan; it has no segments yet."""
        read = [
            class_of(part).from_bytes(data) for part, data in zip(plan.parts, parts, strict=True)
        ]
        return cls(plan, 0, parts=read)

    def adopt_segment(
        self, place: Place, data: bytes, basics: Sequence[Any], shape: bytes | None
    ) -> None:
        """Take back a segment (part, level) whose synopses' bytes and basics were stored."""
        synopsis = class_of(self._plan.parts[place[0]], thinned=True).from_bytes(data)
        held = None if shape is None else GroupedCrossMoments.from_bytes(shape)
        self.segments[place] = Segment(synopsis, *basics, shape=held)


def _make_segment(part: Part) -> Segment:
    varied = part.kind is Kind.MOMENTS and part.variance
    return Segment(make_thinned(part), shape=GroupedCrossMoments(0) if varied else None)


def make_thinned(part: Part) -> Any:
    """A synopsis that is read thinned.

    An interval for a sum needs the squares, too; distinct values survive thinning as theta only.
    """
    match part.kind:
        case Kind.MOMENTS:
            return make(replace(part, variance=True), 0)
        case Kind.DISTINCT:
            return GroupedTheta(0, _thinned_size(part))
        case _:
            return make(part, 0)


def _thinned_size(part: Part) -> int:
    """Of the synopsis that a thinned part is read into."""
    if part.kind is Kind.DISTINCT:
        return min(max(part.size, LG_K_MIN), _THETA_LG_K_MAX)
    return part.size


def _added(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """The sum of two columns, the shorter one filled up with zeros."""
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total
