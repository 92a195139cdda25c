"""A standing query at work: frames in, panes kept, evidence for a window out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.query import BoundQuery
from shedder.engine.pane import Pane, PartInput
from shedder.engine.plan import BY_HASH, Kind, Plan
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
_SEGMENTS = b"segments"  # Metadata of a stored pane: part, level and basics of t0, t1, ...
GROUPS_MAX = 1 << 20  # Ids are int32, and an answer of a million rows is no answer.


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A window's panes as one. ids: its groups, ascending; None without GROUP BY."""

    pane: Pane
    ids: NDArray[np.int64] | None
    late: int


class Standing:
    """The panes of one standing query, and the counts of what went where.

    Used by one thread. Ledger, of each synopsis: tuples applied since registration = what it read
    + what was thinned for it + late.

    levels: of each part of the plan; at level j it reads the share 2^-j of the tuples. The rows
    are counted at the smallest of them. thinned: tuples that each part skipped. timely: tuples
    that reached a pane, thinned or not (or failed the WHERE). late: tuples whose pane had been
    closed, or whose event time was too far in the future to be believed. late_beyond: a pane and
    how many were late for it or for panes after it, where they are not told apart. dropped_before:
    panes before it are needed by no window; None: none has been dropped in this process.
    """

    def __init__(self, name: str, query: BoundQuery, plan: Plan, *, part_bytes_max: int) -> None:
        self.name = name
        self.query = query
        self.plan = plan
        self.grid = PaneGrid.of(query.window)
        self.levels = (0,) * len(plan.parts)
        self.thinned = [0] * len(plan.parts)
        self.timely = 0
        self.late = 0
        self.panes: dict[int, Pane] = {}
        self.late_by_pane: dict[int, int] = {}
        self.late_beyond: tuple[int, int] | None = None
        self.dropped_before: int | None = None
        self.keys = (
            GroupKeys(query.groups, _groups_max(plan, self.grid, part_bytes_max))
            if query.groups
            else None
        )
        self._where = with_time_range(query)
        self._part_bytes_max = part_bytes_max
        self._closed_bytes: dict[int, list[int]] = {}
        self._closed_to: int | None = None
        self._stored: set[int] = set()

    # --- tuples in -----------------------------------------------------------------------------

    def apply(self, frame: Frame, *, watermark_us: int | None, limit_us: int | None) -> None:
        """Read a frame into the panes.

        Args:
          frame: tuples of the query's stream.
          watermark_us: as it was before this frame; tuples of panes before it are late.
          limit_us: event times from here on are not believed; None: all are.
        """
        frame = frame.in_time_order() if self.grid.slides else frame
        first, last = self._timely(frame, watermark_us, limit_us)
        self.late += len(frame) - (last - first)
        self.timely += last - first
        if last - first < len(frame):
            self._count_late(frame.between(0, first))
            self._count_late(frame.between(last, len(frame)))
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
            if pane not in self.panes:
                self.panes[pane] = Pane(self.plan, groups)
            self.panes[pane].grow(groups)
            self.panes[pane].update(inputs, first, last)
        self._hold_to_the_cap()

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
            if pane not in self.panes:
                self.panes[pane] = Pane(self.plan, 0)
            held = self.panes[pane]
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
        """
        if self.keys is None or not self.panes or self.keys.frozen:
            return
        held = np.array([self._pane_bytes(pane) for pane in self.panes])
        foreseen = held.max(axis=0) * self.grid.panes_live
        if max(held.sum(axis=0).max(), foreseen.max()) > self._part_bytes_max:
            self.keys.freeze()

    def _pane_bytes(self, pane: int) -> list[int]:
        return self._closed_bytes.get(pane) or self.panes[pane].part_bytes

    # --- panes out -----------------------------------------------------------------------------

    def close(self, watermark_us: int | None) -> None:
        """Mark the panes that this watermark has passed; they do not change any more."""
        first_open = self.grid.first_open(watermark_us)
        if first_open is None or first_open == self._closed_to:
            return
        self._closed_to = first_open
        for pane in [p for p in self.panes if p < first_open and p not in self._closed_bytes]:
            self._closed_bytes[pane] = self.panes[pane].part_bytes

    def unstored(self) -> list[int]:
        """The closed panes that the pane store does not have yet."""
        return sorted(p for p in self._closed_bytes if p not in self._stored)

    def mark_stored(self, panes: Iterable[int]) -> None:
        """These panes are in the pane store, durably."""
        self._stored.update(panes)

    def open_panes(self) -> list[int]:
        """The panes that are not closed yet."""
        return sorted(p for p in self.panes if p not in self._closed_bytes)

    def drop_before(self, pane: int) -> None:
        """Forget panes that no window needs any more, and groups that only they had."""
        self.dropped_before = pane
        dead = [p for p in self.panes if p < pane]
        for old in dead:
            del self.panes[old]
            self._closed_bytes.pop(old, None)
            self._stored.discard(old)
        for old in [p for p in self.late_by_pane if p < pane]:
            del self.late_by_pane[old]
        if dead and self.keys is not None:
            self._forget_dead_groups(self.keys)

    def _forget_dead_groups(self, keys: GroupKeys) -> None:
        """Compact the ids when less than half of them are alive."""
        alive = self._alive(keys.size)
        alive[OTHERS] = False
        kept = np.flatnonzero(alive)
        if 2 * (len(kept) + 1) > keys.size:
            return
        others = any(len(p.counts) and p.counts[OTHERS] for p in self.panes.values())
        source = np.concatenate([np.zeros(1, np.int64), kept])
        for number, pane in self.panes.items():
            self.panes[number] = pane.select(source)
        partial = keys.partial_from  # Those who might be partial before still might be.
        keys.keep(kept)
        whole = len(kept) if partial is None else int(np.searchsorted(kept, partial))
        keys.partial_from = 1 + whole if others else None

    def _alive(self, groups: int) -> NDArray[np.bool_]:
        alive = np.zeros(groups, np.bool_)
        for pane in self.panes.values():
            present = pane.present
            alive[: len(present)] |= present
        return alive

    # --- bytes ---------------------------------------------------------------------------------

    def pane_bytes(self, pane: int) -> bytes:
        """A pane with its group keys, readable by itself: Arrow IPC of one row."""
        held = self.panes[pane]
        columns: dict[str, pa.Array[Any]] = {}
        if self.keys is not None:
            ids = np.flatnonzero(held.present)
            columns["hashes"] = pa.array([self.keys.hashes(ids).tobytes()], pa.binary())
            names = [f"k{i}" for i in range(len(self.query.groups))]
            keys = pa.table(list(self.keys.keys(ids)), names=names)
            columns["keys"] = pa.array([_ipc(keys)], pa.binary())
            held = held.select(ids)
        for index, data in enumerate(held.to_bytes()):
            columns[f"s{index}"] = pa.array([data], pa.binary())
        segments = []
        for index, ((part, level), segment) in enumerate(sorted(held.segments.items())):
            columns[f"t{index}"] = pa.array([segment.synopsis.to_bytes()], pa.binary())
            segments.append([part, level, *segment.basics])
        if not segments:
            return _ipc(pa.table(columns))
        return _ipc(pa.table(columns, metadata={_SEGMENTS: json.dumps(segments)}))

    def adopt(self, pane: int, data: bytes, *, closed: bool) -> None:
        """Take a stored pane back."""
        row = pa.ipc.open_stream(data).read_all()
        parts = [row[f"s{i}"][0].as_py() for i in range(len(self.plan.parts))]
        held = Pane.from_bytes(self.plan, parts)
        stored = (row.schema.metadata or {}).get(_SEGMENTS)
        for index, (part, level, *basics) in enumerate(
            [] if stored is None else json.loads(stored)
        ):
            held.adopt_segment(part, level, row[f"t{index}"][0].as_py(), basics)
        if self.keys is not None:
            hashes = np.frombuffer(row["hashes"][0].as_py(), np.uint64)
            keys = pa.ipc.open_stream(row["keys"][0].as_py()).read_all()
            held = self._adopt_groups(self.keys, held, hashes, keys)
        self.panes[pane] = held
        if closed:
            self._closed_bytes[pane] = held.part_bytes
            self._stored.add(pane)

    def _adopt_groups(
        self, keys: GroupKeys, held: Pane, hashes: NDArray[np.uint64], values: pa.Table
    ) -> Pane:
        ids = np.zeros(len(hashes), np.int64)
        real = np.flatnonzero(hashes != 0)  # The others row has hash 0 and keeps id 0.
        if len(real):
            columns = [c.combine_chunks().take(real) for c in values.columns]
            ids[real] = keys.adopt(hashes[real], columns)
        return held.scatter(ids, keys.size)

    @property
    def size_bytes(self) -> int:
        """What the panes and keys hold in memory."""
        panes = sum(sum(self._pane_bytes(pane)) for pane in self.panes)
        return panes + (0 if self.keys is None else self.keys.size_bytes)

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
        whole = Pane(self.plan, 1 if self.keys is None else self.keys.size)
        for number in sorted(self.panes):
            if number in wanted:
                whole.merge(self.panes[number])
        if self.keys is None:
            return Merged(whole, None, late)
        ids = np.flatnonzero(whole.present)
        return Merged(whole.select(ids), ids, late)


def _groups_max(plan: Plan, grid: PaneGrid, part_bytes_max: int) -> int:
    """How many groups can find room at all, when each takes the least in every pane."""
    least = max(GROUP_BYTES_LEAST[part.kind] for part in plan.parts)
    return max(1, min(GROUPS_MAX, part_bytes_max // (least * grid.panes_live)))


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
