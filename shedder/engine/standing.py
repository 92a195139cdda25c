"""A standing query at work: frames in, panes kept, evidence for a window out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shedder.cql.query import BoundQuery
from shedder.engine.closed_panes import ClosedPanes
from shedder.engine.pane import Pane, PartInput
from shedder.engine.plan import BY_HASH, Kind, Plan, opened
from shedder.engine.stored_pane import pane_from_bytes, pane_to_bytes
from shedder.engine.time_range import with_time_range
from shedder.streams.frame import Frame, Known, Thinned
from shedder.streams.group_keys import OTHERS, GroupKeys
from shedder.streams.windows import PaneGrid, Span

LATE_PANES_MAX = 1 << 16  # Panes whose late tuples are counted apart.
# What a group takes in a pane before it has more than one value: its places in the arrays, and
# one entry of the maps (measured over 10,000 groups of one value).
GROUP_BYTES_LEAST = {
    Kind.COUNT: 8,
    Kind.MOMENTS: 80,
    Kind.CROSS: 72,
    Kind.FIRST_LAST: 48,
    Kind.TEXT_FIRST_LAST: 200,
    Kind.EXTREMES: 160,
    Kind.DISTINCT: 30,
    Kind.THETA: 79,
    Kind.BUCKETS: 52,
    Kind.KLL: 256,  # A sketch that has left its buffer.
    Kind.FREQUENT: 540,
    Kind.COUNTERS: 156,
}
GROUPS_MAX = 1 << 20  # Ids are int32, and an answer of a million rows is no answer.


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A window's panes as one, to be read only. ids: groups, ascending; None without GROUP BY."""

    pane: Pane
    ids: NDArray[np.int64] | None
    late: int


class Standing:
    """The panes of one standing query, and the counts of what went where.

    Used by one thread. Ledger, of each synopsis: tuples applied since registration = what it read
    + what was thinned for it + late.

    levels: of each part of the plan; at level j it reads the share 2^-j of the tuples. The rows
    are counted at the smallest of them. thinned: tuples that each part skipped. timely: tuples
    that reached a pane, thinned or not (or failed the WHERE, or are of panes that no answer needs
    once their batch has been read). late: tuples whose pane had been
    closed, or whose event time was too far in the future to be believed. late_beyond: a pane and
    how many were late for it or for panes after it, where they are not told apart. dropped_before:
    panes before it are needed by no window; None: none has been dropped in this process.
    """

    def __init__(self, name: str, query: BoundQuery, plan: Plan, *, part_bytes_max: int) -> None:
        self.name = name
        self.query = query
        self.plan = plan
        self._opened = opened(query, plan)
        self.grid = PaneGrid.of(query.window)
        self.levels = (0,) * len(plan.parts)
        self.thinned = [0] * len(plan.parts)
        self.timely = 0
        self._panes_max = self.grid.panes_max(query.schema.lateness_us)
        self.late = 0
        self.panes: dict[int, Pane] = {}
        self.late_by_pane: dict[int, int] = {}
        self.late_beyond: tuple[int, int] | None = None
        self.dropped_before: int | None = None
        self.keys = (
            GroupKeys(
                query.groups,
                _groups_max(plan, self._panes_max, part_bytes_max),
            )
            if query.groups
            else None
        )
        self._where = with_time_range(query)
        self._part_bytes_max = part_bytes_max
        self._closed = ClosedPanes(plan, grouped=self.keys is not None)
        self._open: set[int] = set()
        self._closed_to: int | None = None
        self._stored: set[int] = set()

    # --- tuples in -----------------------------------------------------------------------------

    def apply(
        self,
        frame: Frame,
        *,
        watermark_us: int | None,
        limit_us: int | None,
        needed_from: int | None = None,
    ) -> None:
        """Read a frame into the panes.

        Args:
          frame: tuples of the query's stream.
          watermark_us: as it was before this frame; tuples of panes before it are late.
          limit_us: event times from here on are not believed; None: all are.
          needed_from: no answer will need a pane before this one; None: all may be needed. A batch
            may span any number of panes, so these are not made.
        """
        frame = frame.in_time_order() if self.grid.slides else frame
        first, last = self._timely(frame, watermark_us, limit_us)
        self.late += len(frame) - (last - first)
        self.timely += last - first
        if last - first < len(frame):
            self._count_late(frame.between(0, first))
            self._count_late(frame.between(last, len(frame)))
        if needed_from is not None and self.grid.width_us is not None:
            needed = int(np.searchsorted(frame.times_us, needed_from * self.grid.width_us))
            first = min(max(first, needed), last)
        view = frame.between(first, last).where(self._where)
        if len(view) and any(self.levels):
            self._read_thinned(view)
        elif len(view):
            self._read(view)

    def _timely(
        self, frame: Frame, watermark_us: int | None, limit_us: int | None
    ) -> tuple[int, int]:
        """The rows, of a frame in time order, whose pane is open and whose time is believed."""
        first_open = self.grid.first_open(watermark_us)
        if not self.grid.slides:
            return 0, len(frame)
        assert self.grid.width_us is not None
        times = frame.times_us
        first = 0
        if first_open is not None:
            first = int(np.searchsorted(times, first_open * self.grid.width_us))
        last = len(times)
        if limit_us is not None:
            last = int(np.searchsorted(times, limit_us, side="right"))
        return first, max(first, last)

    def _count_late(self, frame: Frame) -> None:
        matching = frame.where(self._where)
        panes, counts = np.unique(self.grid.panes_of(matching.times_us), return_counts=True)
        needed = panes >= (panes[:1] if self.dropped_before is None else self.dropped_before)
        for pane, count in zip(panes[needed].tolist(), counts[needed].tolist(), strict=True):
            self.late_by_pane[pane] = self.late_by_pane.get(pane, 0) + count
        if len(self.late_by_pane) > LATE_PANES_MAX:
            self._fold_late_panes()

    def _fold_late_panes(self) -> None:
        """Wrong clocks can name any pane: those farthest ahead share one count from now on."""
        ahead = sorted(self.late_by_pane)[LATE_PANES_MAX // 2 :]
        count = sum(self.late_by_pane.pop(pane) for pane in ahead)
        if self.late_beyond is not None:
            ahead.append(self.late_beyond[0])
            count += self.late_beyond[1]
        self.late_beyond = (min(ahead), count)

    def _read(self, view: Frame) -> None:
        ids = None if self.keys is None else self.keys.assign(view)
        groups = 1 if self.keys is None else self.keys.size
        inputs = [PartInput(part, view, ids) for part in self.plan.parts]
        for pane, first, last in self._slices(view):
            held = self._pane(pane, groups)
            held.grow(groups)
            held.update(inputs, first, last)
        self._hold_to_the_cap()

    def _pane(self, number: int, groups: int) -> Pane:
        """An open pane; a new one, with room for so many groups, when there is none."""
        held = self.panes.get(number)
        if held is None:
            held = self.panes[number] = Pane(self._opened, groups)
            self._open.add(number)
        return held

    def _read_thinned(self, view: Frame) -> None:
        """Each part reads what its level keeps; the basics are taken of everything."""
        # The smallest level comes first, so that the rows that are counted name the first groups.
        kept = {level: self._kept(view.thinned(level)) for level in sorted(set(self.levels))}
        parts = []
        for part, level in zip(self.plan.parts, self.levels, strict=True):
            thinned, ids = kept[level]
            if level and part.kind in BY_HASH and part.argument is not None:
                thinned, ids = self._kept(view.thinned_by(part.argument, level))
            given = PartInput(part, thinned.frame, ids, level=level)
            parts.append((level, thinned, given, part.argument))
        groups = 1 if self.keys is None else self.keys.size
        for pane, first, last in self._slices(view):
            held = self._pane(pane, 0)
            for at, (level, thinned, given, argument) in enumerate(parts):
                rows = thinned.between(first, last)
                read = held.update_at(at, level, given, rows, groups)
                self.thinned[at] += (last - first) - (rows[1] - rows[0])
                if level and argument is None:
                    held.segment(at, level).notice(Known(last - first, None, None), read)
                elif level and argument is not None:
                    held.segment(at, level).notice(view.known(argument, first, last), read)
        self._hold_to_the_cap()

    def _kept(self, thinned: Thinned) -> tuple[Thinned, NDArray[np.int32] | None]:
        return thinned, None if self.keys is None else self.keys.assign(thinned.frame)

    def set_levels(self, levels: Sequence[int]) -> None:
        """From the next frame on, the parts read at these levels; the rows at the smallest."""
        if len(levels) == len(self.levels):  # Else the record is of another query of this name.
            self.levels = (min(levels), *levels[1:])

    def _slices(self, view: Frame) -> Iterable[tuple[int, int, int]]:
        """(pane, first row, last row) for each stretch of rows that fall in one pane."""
        if not self.grid.slides:
            return [(0, 0, len(view))]
        times = view.times_us
        first_pane, last_pane = self.grid.panes_of(times[[0, -1]]).tolist()
        if first_pane == last_pane:  # Nearly every batch of a fast stream.
            return [(first_pane, 0, len(view))]
        panes = self.grid.panes_of(times)
        cuts = np.flatnonzero(np.diff(panes)) + 1
        firsts = np.concatenate([[0], cuts])
        lasts = np.concatenate([cuts, [len(view)]])
        return zip(panes[firsts].tolist(), firsts.tolist(), lasts.tolist(), strict=True)

    def _hold_to_the_cap(self) -> None:
        """No new groups once the panes of any aggregate weigh, or will weigh, more than they may.

        What the panes will weigh: as many as stand at once, each as heavy as the heaviest now.
        Their merges are kept in the room that is left: groups come first, then fast windows.
        """
        if self.keys is None or not self.panes:
            return
        filling = self._open_bytes()
        heaviest = np.maximum(self._closed.heaviest_bytes, filling.max(axis=0, initial=0))
        held = self._closed.pane_bytes + filling.sum(axis=0)
        self._closed.limit_merges(np.maximum(self._part_bytes_max - held, 0))
        foreseen = heaviest.max() * self._panes_max
        if max(held.max(), foreseen) > self._part_bytes_max and not self.keys.frozen:
            self.keys.freeze()

    def _open_bytes(self) -> NDArray[np.int64]:
        """What each part of each open pane holds; shape [panes, parts]."""
        sizes = [self.panes[pane].part_bytes for pane in self._open]
        return np.array(sizes, np.int64).reshape(-1, len(self.plan.parts))

    # --- panes out -----------------------------------------------------------------------------

    def close(self, watermark_us: int | None) -> None:
        """Mark the panes that this watermark has passed; they do not change any more."""
        first_open = self.grid.first_open(watermark_us)
        if first_open is None or first_open == self._closed_to:
            return
        self._closed_to = first_open
        for pane in sorted(p for p in self._open if p < first_open):
            self._open.remove(pane)
            self.panes[pane].settle(self.plan)
            self._closed.add(pane, self.panes[pane])

    def unstored(self) -> list[int]:
        """The closed panes that the pane store does not have yet."""
        return [p for p in self._closed.numbers if p not in self._stored]

    def mark_stored(self, panes: Iterable[int]) -> None:
        """These panes are in the pane store, durably."""
        self._stored.update(panes)

    def open_panes(self) -> list[int]:
        """The panes that are not closed yet."""
        return sorted(self._open)

    def drop_before(self, pane: int) -> None:
        """Forget panes that no window needs any more, and groups that only they had."""
        self.dropped_before = pane
        dead = [*self._closed.drop_before(pane), *(p for p in self._open if p < pane)]
        for old in dead:
            del self.panes[old]
            self._open.discard(old)
            self._stored.discard(old)
        for old in [p for p in self.late_by_pane if p < pane]:
            del self.late_by_pane[old]
        if dead and self.keys is not None:
            self._forget_dead_groups(self.keys)

    def _forget_dead_groups(self, keys: GroupKeys) -> None:
        """Compact the ids when less than half of them are alive."""
        alive = self._alive(keys.size)
        others = bool(alive[OTHERS])
        alive[OTHERS] = False
        kept = np.flatnonzero(alive)
        if 2 * (len(kept) + 1) > keys.size:
            return
        source = np.concatenate([np.zeros(1, np.int64), kept])
        for number, pane in self.panes.items():
            self.panes[number] = pane.select(source)
        closed = ClosedPanes(self.plan, grouped=True)
        for number in self._closed.numbers:
            closed.add(number, self.panes[number])
        self._closed = closed
        partial = keys.partial_from  # Those who might be partial before still might be.
        keys.keep(kept)
        whole = len(kept) if partial is None else int(np.searchsorted(kept, partial))
        keys.partial_from = 1 + whole if others else None

    def _alive(self, groups: int) -> NDArray[np.bool_]:
        """Which groups have tuples in any pane."""
        alive = self._closed.alive(groups)
        for number in self._open:
            present = self.panes[number].present
            alive[: len(present)] |= present
        return alive

    # --- bytes ---------------------------------------------------------------------------------

    def pane_bytes(self, pane: int) -> bytes:
        """A pane with its group keys, readable by itself."""
        return pane_to_bytes(self.panes[pane], self.keys)

    def adopt(self, pane: int, data: bytes, *, closed: bool) -> None:
        """Take a stored pane back."""
        plan = self.plan if closed else self._opened
        held = self.panes[pane] = pane_from_bytes(data, plan, self.keys)
        if closed:
            self._closed.add(pane, held)
            self._stored.add(pane)
        else:
            self._open.add(pane)

    @property
    def size_bytes(self) -> int:
        """What the panes, their merges and the keys hold in memory."""
        closed = self._closed.pane_bytes + self._closed.merge_bytes
        panes = int(closed.sum() + self._open_bytes().sum())
        return panes + (0 if self.keys is None else self.keys.size_bytes)

    @property
    def merge_bytes(self) -> NDArray[np.int64]:
        """What each part holds in the merges that later windows use again; shape [parts]."""
        return self._closed.merge_bytes

    # --- windows -------------------------------------------------------------------------------

    def late_in(self, span: Span) -> int:
        """How many tuples came too late for a window's panes."""
        wanted = self._panes_in(span)
        late = sum(count for pane, count in self.late_by_pane.items() if pane in wanted)
        if self.late_beyond is not None and wanted and wanted[-1] >= self.late_beyond[0]:
            late += self.late_beyond[1]
        return late

    def late_span(self, span: Span) -> tuple[int, int] | None:
        """The event times, half open, that tuples too late for a window's panes lie in."""
        wanted = self._panes_in(span)
        panes = [pane for pane in self.late_by_pane if pane in wanted]
        if self.late_beyond is not None and wanted and wanted[-1] >= self.late_beyond[0]:
            panes += [max(self.late_beyond[0], wanted[0]), wanted[-1]]
        if not panes:
            return None
        assert self.grid.width_us is not None
        return min(panes) * self.grid.width_us, (max(panes) + 1) * self.grid.width_us

    def _panes_in(self, span: Span) -> range:
        """The panes of a window; none before the first window has closed."""
        none_yet = self.grid.slides and span.end_us is None
        return range(0) if none_yet else self.grid.panes_in(span)

    def merged(self, span: Span) -> Merged:
        """The panes of a window of the grid, as one; only the groups that have tuples."""
        wanted, late = self._panes_in(span), self.late_in(span)
        if self.grid.slides:  # A window that has closed is of closed panes, which never change.
            whole = self._closed.merged(wanted)
        else:
            whole = Pane(self.plan, 1 if self.keys is None else self.keys.size)
            if 0 in self.panes:
                whole.merge(self.panes[0])
        if self.keys is None:
            return Merged(whole, None, late)
        ids = np.flatnonzero(whole.present)
        return Merged(whole.select(ids), ids, late)


def _groups_max(plan: Plan, panes: int, part_bytes_max: int) -> int:
    """How many groups can find room at all, when each takes the least in every pane."""
    least = max(GROUP_BYTES_LEAST[part.kind] for part in plan.parts)
    return max(1, min(GROUPS_MAX, part_bytes_max // (least * panes)))
