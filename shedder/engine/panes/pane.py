"""Pane: the synopses of one slice of event time, merged into windows and stored when closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.diagonal_ranges import DiagonalRanges, PairAxes
from shedder.engine.panes.level_segment import Segment, selected
from shedder.engine.panes.sparse_groups import SPAN_MIN, OwnGroups, are_few
from shedder.engine.panes.synopsis_input import PartInput
from shedder.engine.panes.synopsis_resizing import merged, settle, size_of
from shedder.engine.runtime.cpu_timer import CpuTimer
from shedder.engine.synopsis_plans.synopsis_factory import (
    class_of,
    make,
    make_thinned,
    thinned_size,
)
from shedder.engine.synopsis_plans.synopsis_plan import (
    BY_HASH,
    SynopsisKind,
    SynopsisPlan,
    SynopsisSpec,
)
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.kernels.grouped_arrays import united
from synopses.moments.covariance import GroupedCrossMoments

Place = tuple[int, int]
"""Of a synopsis in a pane: which part of the plan, and the level it is read at; 0: in full."""


class HandedOn(Protocol):
    """A receiver of the frames that a pane reads."""

    def read(self, place: Place, given: PartInput, first: int, last: int) -> None:
        """The synopsis there has read these rows of its input."""


class Pane:
    """One synopsis per part of a plan, over the same groups, and its segments of other levels.

    parts: synopses of the tuples that were read in full.
    segments: synopses of thinned tuples, by part and level (1 and up).
    own: groups that have rows; None: all have, row i is of group i. A synopsis may end before the
      rows of groups that it has not met.
    handed_on_to: receivers of what is read here; cleared once something else is merged in.
    """

    def __init__(
        self,
        plan: SynopsisPlan,
        groups: int,
        *,
        of_any_size: bool = False,
        of_few: bool = False,
        parts: list[Any] | None = None,
    ) -> None:
        """Make an empty one, or one of these parts.

        Args:
          plan: its synopses and their sizes. groups: that there is room for.
          of_any_size: what is merged into it first gives it the sizes, not the plan.
          of_few: few of the groups are to come: they get rows when they do.
        """
        self._plan = plan
        self._of_any_size = of_any_size
        rows = 0 if of_few else groups
        self.parts = [make(part, rows) for part in plan.parts] if parts is None else parts
        self.segments: dict[Place, Segment] = {}
        self.own = OwnGroups.none_yet(groups) if of_few else None
        self.handed_on_to: HandedOn | None = None

    def hand_on_to(self, reader: HandedOn) -> None:
        """Let another reader read what is read here from now on."""
        self.handed_on_to = reader

    def grow(self, groups: int) -> None:
        """Make room for more groups."""
        if self.own is not None:
            if groups:
                self.own.reach(groups)
            return
        for synopsis in self.parts:
            synopsis.grow(groups)

    def update(
        self, inputs: Sequence[PartInput], first: int, last: int, cpu_timer: CpuTimer
    ) -> None:
        """Read the rows first to last of the inputs' view, each part by the watch."""
        places = None
        if self.own is not None:
            rows = self.own.admit(inputs[0].groups_of(first, last))  # It counts all tuples.
            places = self.own.places
            for synopsis in self.parts:
                synopsis.grow(rows)
        for part, (synopsis, given) in enumerate(zip(self.parts, inputs, strict=True)):
            given.feed(synopsis, first, last, places=places)
            if self.handed_on_to is not None:
                self.handed_on_to.read((part, 0), given, first, last)
            cpu_timer.lap(part, last - first)

    def update_at(
        self,
        part: int,
        level: int,
        given: PartInput,
        rows: tuple[int, int],
        groups: int,
        axes: PairAxes | None = None,
    ) -> int:
        """Let one part read rows of its input (the view, thinned to the level) at that level.

        axes: of the pairs that the part reads; None: it reads none, or they are not set.

        Returns:
          How many values there were in these rows.
        """
        places = None
        if self.own is not None:
            self.own.reach(groups)
            groups, places = self.own.admit(given.groups_of(*rows)), self.own.places
        if self.handed_on_to is not None:
            self.handed_on_to.read((part, level), given, *rows)
        if not level:
            self.parts[part].grow(groups)
            return given.feed(self.parts[part], *rows, places=places)
        segment = self.segment(part, level)
        segment.grow(groups)
        return given.feed_thinned(segment.synopsis, segment.shape, *rows, places=places, axes=axes)

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

    def is_larger_than(self, plan: SynopsisPlan) -> bool:
        """Return whether any synopsis is larger than it is in this plan."""
        return any(True for _ in self.larger_than(plan))

    def larger_than(self, plan: SynopsisPlan) -> Iterator[tuple[Place, Any, int]]:
        """The synopses that are larger than in this plan: where, and their size there."""
        for place, synopsis, size in self._sizes_in(plan):
            if size_of(synopsis) > size:
                yield place, synopsis, size

    def settle(self, plan: SynopsisPlan, *, shrinks: bool = True) -> None:
        """Nothing more is counted: what is larger than in this plan takes its size there.

        shrinks: else it stays as large as it is.
        """
        self._plan, self.handed_on_to = plan, None
        for _, synopsis, size in self._sizes_in(plan):
            settle(synopsis, size if shrinks else size_of(synopsis))

    def with_others(self, others: Mapping[Place, Any], plan: SynopsisPlan) -> Pane:
        """A version with other synopses in some places, and a plan for segments that it begins."""
        parts = [others.get((at, 0), synopsis) for at, synopsis in enumerate(self.parts)]
        version = Pane(plan, 0, parts=parts)
        version.own = self.own
        version.segments = {
            place: replace(segment, synopsis=others[place]) if place in others else segment
            for place, segment in self.segments.items()
        }
        return version

    def _sizes_in(self, plan: SynopsisPlan) -> list[tuple[Place, Any, int]]:
        """Each synopsis, those of segments last, with the size that it has in a plan."""
        whole = zip(self.parts, plan.parts, strict=True)
        sizes = [((at, 0), synopsis, part.size) for at, (synopsis, part) in enumerate(whole)]
        return sizes + [
            ((part, level), segment.synopsis, thinned_size(plan.parts[part]))
            for (part, level), segment in self.segments.items()
        ]

    def merge(self, other: Pane) -> Self:
        """Fold in another pane of the same query's groups."""
        self.handed_on_to = None
        if self._of_any_size:
            self._take_sizes(other)
        if self.own is not None or other.own is not None:
            other = self._with_rows_of(other)
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

    # --- groups --------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Return how many rows the synopsis with the most has."""
        thinned = [int(segment.synopsis.groups) for segment in self.segments.values()]
        return max([int(synopsis.groups) for synopsis in self.parts] + thinned)

    def end(self, *, own_span_min: int = SPAN_MIN) -> None:
        """Nothing more is counted: where most groups have nothing here, rows are of those that do.

        Else keys that are new in every pane would have rows in all that come after.

        Args:
          own_span_min: with fewer groups, there are rows for all.
        """
        if self.own is None:
            if are_few(0, self.rows, span_min=own_span_min):
                rows = np.flatnonzero(self._present)
                if are_few(len(rows), self.rows, span_min=own_span_min):
                    self._take_rows(rows)
                    self.own = OwnGroups(rows.astype(np.int32))
        elif self.own.places is not None:
            ids = self.own.ids
            if self.own.are_many:
                self._put_rows(ids.astype(np.int64), int(ids.max()) + 1)
                self.own = None
            elif (ids[1:] > ids[:-1]).all():
                self.own = OwnGroups(ids)
            else:
                order = np.argsort(ids)
                whole = self._with_rows_at(np.argsort(order), len(ids))
                self.parts, self.segments = whole.parts, whole.segments
                self.own = OwnGroups(ids[order])

    def _take_rows(self, rows: NDArray[np.int64]) -> None:
        """Keep these rows, ascending; of each synopsis those that it has."""
        self.parts = [each.select(rows[: rows.searchsorted(each.groups)]) for each in self.parts]
        self.segments = {
            place: segment.select(rows[: rows.searchsorted(segment.synopsis.groups)])
            for place, segment in self.segments.items()
        }

    def _with_rows_of(self, other: Pane) -> Pane:
        """The other pane with the rows that this one has from now on: those of both."""
        if self.own is not None and self.own.places is not None:
            here = other.groups_here
            self.own.reach(int(here.max(initial=-1)) + 1)
            groups = self.own.admit(here)
            return other.select(here)._with_rows_at(self.own.rows_of(here), groups)
        if not self.rows:
            self.own = other.own
            return other
        if not other.rows:
            return other
        if self.own is not None and other.own is not None:
            ids, mine, theirs = united(self.own.ids, other.own.ids)
            both = OwnGroups(ids)
            if not both.are_many:
                if mine[-1] >= len(mine):  # Else the other's come behind: there is room.
                    self._put_rows(mine, len(ids))
                self.own = both
                return other._with_rows_at(theirs, len(ids))
        if self.own is not None:
            self._put_rows(self.own.ids.astype(np.int64), int(self.own.ids[-1]) + 1)
            self.own = None
        if other.own is None:
            return other
        return other._with_rows_at(other.own.ids.astype(np.int64), int(other.own.ids[-1]) + 1)

    def _with_rows_at(self, rows: NDArray[np.int64], groups: int) -> Pane:
        """A pane in which row i of this one is rows[i]; this one stays what it is."""
        moved = Pane(self._plan, 0, parts=self.parts)
        moved.segments = dict(self.segments)
        moved._put_rows(rows, groups)
        return moved

    def _put_rows(self, rows: NDArray[np.int64], groups: int) -> None:
        """Row i becomes rows[i] of so many; a synopsis without rows stays without."""
        self.parts = [
            each.scatter(rows[: each.groups], groups) if each.groups else each
            for each in self.parts
        ]
        self.segments = {
            place: segment.scatter(rows[: segment.synopsis.groups], groups)
            if segment.synopsis.groups
            else segment
            for place, segment in self.segments.items()
        }

    def select(self, ids: NDArray[np.int64]) -> Pane:
        """These groups, in this order, by their places in it."""
        rows = ids if self.own is None else self.own.rows_of(ids)
        parts = [selected(synopsis, rows) for synopsis in self.parts]
        chosen = Pane(self._plan, 0, parts=parts)
        chosen.segments = {key: segment.select(rows) for key, segment in self.segments.items()}
        return chosen

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Pane:
        """The inverse of select: group i goes to ids[i]."""
        assert self.own is None
        parts = [synopsis.scatter(ids, groups) for synopsis in self.parts]
        spread = Pane(self._plan, 0, parts=parts)
        spread.segments = {k: segment.scatter(ids, groups) for k, segment in self.segments.items()}
        return spread

    def renumbered(self, source: NDArray[np.int64]) -> Pane:
        """The same where group source[i] becomes group i; the others, if any, are left out."""
        if self.own is None:
            return self.select(source)
        other = Pane(self._plan, 0, parts=self.parts)
        other.segments = dict(self.segments)
        kept = np.flatnonzero(np.isin(self.own.ids, source, assume_unique=True))
        if len(kept) < len(self.own.ids):
            other._take_rows(kept)
        other.own = self.own.renumbered(kept, source)
        return other

    @property
    def counts(self) -> NDArray[np.int64]:
        """Tuples per row that were read, at the smallest level of all parts; to look at only."""
        counts: NDArray[np.int64] = self.parts[0].counts
        for (part, _), segment in self.segments.items():
            if part == 0:
                counts = _added(counts, segment.synopsis.count().value)
        return counts

    def count_of(self, group: int) -> int:
        """Of these tuples those of one group."""
        if self.own is not None:
            if not self.own.has(group):
                return 0
            group = int(self.own.rows_of(np.array([group]))[0])
        return int(self.counts[group : group + 1].sum())

    @property
    def _present(self) -> NDArray[np.bool_]:
        present: NDArray[np.bool_] = self.counts > 0
        for (part, _), segment in self.segments.items():
            if self._plan.parts[part].kind in BY_HASH:
                present = _added(present, segment.synopsis.held > 0)
        return present

    @property
    def groups_here(self) -> NDArray[np.int64]:
        """Groups that have anything here: tuples that were counted, or values kept by their hash.

        Ascending.
        """
        rows = np.flatnonzero(self._present)
        return rows if self.own is None else np.sort(self.own.ids[rows]).astype(np.int64)

    @property
    def part_bytes(self) -> list[int]:
        """What each synopsis holds, its segments included; the first one the ids of rows, too."""
        held = [int(synopsis.size_bytes) for synopsis in self.parts]
        held[0] += 0 if self.own is None else self.own.size_bytes
        for (part, _), segment in self.segments.items():
            held[part] += segment.size_bytes
        return held

    @property
    def merge_bytes(self) -> list[int]:
        """The same of a merge of panes that are held, too: its texts are theirs."""
        return [
            held - sum(int(getattr(synopsis, "text_bytes", 0)) for synopsis in self.read_by(part))
            for part, held in enumerate(self.part_bytes)
        ]

    def to_bytes(self) -> list[bytes]:
        """Each synopsis in its own format."""
        return [synopsis.to_bytes() for synopsis in self.parts]

    @classmethod
    def from_bytes(cls, plan: SynopsisPlan, parts: Sequence[bytes]) -> Pane:
        """Read what to_bytes wrote for the same plan; it has no segments yet."""
        read = [
            class_of(part).from_bytes(data) for part, data in zip(plan.parts, parts, strict=True)
        ]
        return cls(plan, 0, parts=read)

    def adopt_segment(
        self,
        place: Place,
        data: bytes,
        basics: Sequence[Any],
        shape: bytes | None,
        diagonals: DiagonalRanges | None,
    ) -> None:
        """Take back a segment (part, level) whose synopses' bytes and basics were stored."""
        synopsis = class_of(self._plan.parts[place[0]], thinned=True).from_bytes(data)
        held = None if shape is None else GroupedCrossMoments.from_bytes(shape)
        self.segments[place] = Segment(synopsis, *basics, shape=held, diagonals=diagonals)


def _make_segment(part: SynopsisSpec) -> Segment:
    varied = part.kind is SynopsisKind.CROSS or (
        part.kind is SynopsisKind.MOMENTS and part.variance
    )
    return Segment(make_thinned(part), shape=GroupedCrossMoments(0) if varied else None)


def _added(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """The sum of two columns, the shorter one filled up with zeros."""
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total
