"""Exact counts of (group, cell) pairs: pages of counters for the bulk, a hash map for the rest."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.histogram.bucket_index import SHIFT_MIN, ZERO, cells_of
from synopses.histogram.dense_range import CELLS_MAX, range_of, tally_range
from synopses.histogram.dense_range import ROWS_MIN as RANGED_MIN
from synopses.histogram.page_kernels import differ
from synopses.histogram.paged_counters import CellPages
from synopses.histogram.sparse_counts import NONE, Entries, together, wider
from synopses.kernels.array_inputs import UNGROUPED, as_input
from synopses.kernels.group_cell_map import SPREAD, CellCounts, Slots
from synopses.kernels.group_ordering import ROWS_MIN, by_group, groups_of
from synopses.model.errors import CannotSubtract

_ENTRIES_MIN = 320  # Up to here the map is smaller than the tables that lead to pages.
_GROUP_MIN = 16  # Entries of a group from which on its pages are about as small.
_SEVERAL = 5  # Different cells of a group that let expect many.
_MANY = 4096  # Values of one group that get pages at once,
_FIRST, _FIRST_DIFFER = 64, 52  # if so many of the first are in cells of their own: of 140 or more.
_WRAP = 1 << 16


@njit(nogil=True, cache=True)
def _add(
    slots: Slots,
    used: int,
    used_max: int,
    ids: NDArray[np.int32],
    values: NDArray[np.float64],
    bits: NDArray[np.int64],
    shift: int,
    counts: NDArray[np.int64],
    extremes: NDArray[np.float64],
) -> tuple[int, int]:
    """Count values in their cells until the map is full; returns (next row, used).

    ids of size 0: all of group 0.
    """
    mask, grouped = np.uint64(len(slots) - 1), ids.size > 0
    for row in range(values.size):
        x = values[row]
        if np.isnan(x):
            continue
        group = np.int64(ids[row]) if grouped else np.int64(0)
        magnitude = bits[row] & np.int64(0x7FFFFFFFFFFFFFFF)
        away = np.int64(0) if magnitude == 0 else (magnitude >> shift) + 1
        cell = ZERO - away if bits[row] < 0 else ZERO + away
        key = np.uint64(((group << 32) | cell) + 1)
        place = ((key * SPREAD) >> np.uint64(32)) & mask
        while slots[place, 0] != key:
            if slots[place, 0] == np.uint64(0):
                if used >= used_max:
                    return row, used
                slots[place, 0] = key
                used += 1
                break
            place = (place + np.uint64(1)) & mask
        slots[place, 1] += np.uint64(1)
        counts[group] += 1
        least, most = extremes[group, 0], extremes[group, 1]
        extremes[group, 0] = x if x < least else least
        extremes[group, 1] = x if x > most else most
    return values.size, used


class BucketCounts:
    """int64 counts of (group, cell) pairs, held where they are cheapest to hold.

    A pair's count is the sum of what pages and map hold; where that is says nothing about the
    answer. 26 to 52 bytes a touched cell in the map, where groups begin; 2 a counter in pages.
    """

    __slots__ = ("map", "pages", "shift")

    def __init__(self, shift: int = SHIFT_MIN) -> None:
        """Make no counts at all."""
        self.map = CellCounts()
        self.pages: CellPages | None = None
        self.shift = shift

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self.map.size_bytes + (0 if self.pages is None else self.pages.size_bytes)

    def update(
        self,
        ids: NDArray[np.int32],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> None:
        """Count values (NaN: absent) in their cells, in `counts` and in `extremes`.

        ids: int32 [n]; size 0: all values are of group 0.
        """
        rows, spans = values.size, None if self.pages is None else self.pages.spans
        if ids.size and self.pages is not None and spans is not None:
            self.pages.grow(counts.size)
            rest, wrapped = self.pages.tally_spans(ids, values, counts)
            if wrapped.size:
                self._carry(ids[wrapped], values[wrapped])
            ids, values = ids[rest], values[rest]
            if not values.size:
                self.pages.note_found(rows)
                return
        self._update(ids, values, counts, extremes)
        if ids.size and self.pages is not None:
            self.pages.grow(counts.size)
            if self.pages.spans is spans:
                self.pages.lay_where_due(rows, ids.size)
            self.pages.fit_spans(ids if self.pages.spans is spans else None, extremes)

    def _update(
        self,
        ids: NDArray[np.int32],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> None:
        """Count values in pages and map."""
        bounds = None
        if ids.size >= ROWS_MIN * counts.size and self._are_many(ids.size, counts.size):
            bounds, values = by_group(ids, values, counts.size)
            if self.pages is None:
                self._expect(bounds, values)
        elif not ids.size and self.pages is None and values.size >= _MANY:
            self._expect_one(values, counts.size)
        while values.size:
            if self.pages is not None:
                self.pages.grow(counts.size)
                if bounds is not None:
                    rest, wrapped = self.pages.tally_runs(bounds, values, counts, extremes)
                    ids = groups_of(bounds) if rest.size or wrapped.size else UNGROUPED
                else:
                    rest, wrapped = self.pages.tally(ids, values, counts, extremes)
                if wrapped.size:
                    self._carry(_only(ids, wrapped), values[wrapped])
                if not rest.size:
                    return
                ids, values, bounds = _only(ids, rest), _only(values, rest), None
            elif bounds is not None:
                ids, bounds = groups_of(bounds), None
            row = self._add_to_map(ids, values, counts, extremes)
            if row == values.size:
                return
            ids, values = ids[row:], values[row:]
            self._make_room(counts.size, ids)

    def _add_to_map(
        self,
        ids: NDArray[np.int32],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> int:
        """Count until the map is full; returns the next row."""
        bits = values.view(np.int64)
        if not ids.size and values.size >= RANGED_MIN:
            first, last = range_of(bits, self.shift)
            if last - first < CELLS_MAX:
                given = values, bits, self.shift, first, last, counts, extremes
                if self.map.take(tally_range(*given)):
                    self._make_room(counts.size)
                return values.size
        slots, used, used_max = self.map.slots, self.map.used, self.map.used_max
        row, used = _add(slots, used, used_max, ids, values, bits, self.shift, counts, extremes)
        self.map.note_used(used)
        return int(row)

    def _are_many(self, rows: int, groups: int) -> bool:
        """Return whether most groups of a batch have pages, or rows enough for pages."""
        if self.pages is None:
            return rows >= 2 * _GROUP_MIN * groups
        return 2 * self.pages.held.size > groups

    def _expect(self, bounds: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Give groups pages at once whose first values differ, before a map grows for them.

        bounds, values: a batch in the order of its groups, of many rows each (group_ordering.py).
        """
        bits = as_input(values, np.float64).view(np.uint64)
        heavy = differ(bounds, bits, self.shift, 2 * _GROUP_MIN, 2 * _SEVERAL, _SEVERAL)
        if np.count_nonzero(heavy) * _SEVERAL >= _ENTRIES_MIN:
            self._hold(self.map.unordered(), heavy.size, heavy)
            assert self.pages is not None
            self.pages.expect(bounds, values)

    def _expect_one(self, values: NDArray[np.float64], groups: int) -> None:
        """Give group 0 all pages that these many values need at once, if the first of them differ.

        Growing a map for them, and then the pages, takes as long as counting 400,000 values.
        """
        bounds, bits = np.array([0, values.size]), values.view(np.uint64)
        if differ(bounds, bits, self.shift, _FIRST, _FIRST, _FIRST_DIFFER)[0]:
            heavy = np.zeros(groups, np.bool_)
            heavy[0] = True
            self._hold(self.map.unordered(), groups, heavy)
            assert self.pages is not None
            self.pages.open(bits)

    def _carry(self, ids: NDArray[np.int32], values: NDArray[np.float64]) -> None:
        """Count 2^16 of each of these values."""
        groups = ids.astype(np.int64) if ids.size else np.zeros(values.size, np.int64)
        counts = np.full(values.size, _WRAP, np.int64)
        self.map.merge(CellCounts.of(groups, cells_of(values, self.shift), counts))

    def _make_room(self, groups: int, coming: NDArray[np.int32] = UNGROUPED) -> None:
        """The map is full: groups that hold much of it get pages, or else it doubles.

        So do groups of which many values are still `coming`, where those that are here have had
        several different ones, or most others have: most of a map that grew for them would be moved
        at once.
        """
        if self.map.used >= _ENTRIES_MIN:
            held = self.map.held_by_group(groups)
            heavy = held >= _GROUP_MIN
            if coming.size and self.map.used >= _SEVERAL * np.count_nonzero(held):
                many = np.bincount(coming, minlength=groups) >= 2 * _GROUP_MIN
                wide = 2 * held >= _SEVERAL
                heavy |= many & (wide | (2 * np.count_nonzero(wide) >= np.count_nonzero(held)))
            if heavy.any():
                self._hold(self.map.unordered(), groups, heavy)
        if self.map.used * 2 > self.map.used_max:
            self.map.widen()

    def _hold(self, entries: Entries, groups: int, heavy: NDArray[np.bool_]) -> None:
        """Hold these entries beside what is in pages; those of heavy groups in pages, too.

        entries: all that the map holds, or all that there are.
        """
        if self.pages is not None:
            self.pages.grow(groups)
            if self.pages.is_too_wide_for(np.flatnonzero(heavy)):
                self._narrow(groups, heavy)
                return
        if self.pages is None and heavy.any():
            self.pages = CellPages(groups, self.shift)
        if self.pages is not None:
            self.pages.ask_again()
            self.pages.admit(np.flatnonzero(heavy))
            entries = self.pages.add(entries)
        self.map = CellCounts.of(*entries)

    def _hold_anew(self, entries: Entries, groups: int) -> None:
        """Hold exactly these entries."""
        self.pages = None
        heavy = np.bincount(entries[0], minlength=groups) >= _GROUP_MIN
        heavy &= entries[0].size >= _ENTRIES_MIN
        self._hold_in_turns(entries, groups, heavy)

    def _narrow(self, groups: int, heavy: NDArray[np.bool_], more: Entries = NONE) -> None:
        """Have pages for these groups, too: but of no more stretches than so many groups may have.

        They were given columns when fewer groups would each have a row of all of them.

        more: entries that come with these groups.
        """
        entries = together(self.entries(), more)
        assert self.pages is not None
        heavy = heavy.copy()
        heavy[self.pages.held] = True
        self.pages = None
        self._hold_in_turns(entries, groups, heavy)

    def _hold_in_turns(self, entries: Entries, groups: int, heavy: NDArray[np.bool_]) -> None:
        """Each time there is room for more of them: a directory is as wide as pages are many."""
        self._hold(entries, groups, heavy)
        left = entries[0].size
        while self.pages is not None and _ENTRIES_MIN <= self.map.used < left:
            left = self.map.used
            self._hold(self.map.unordered(), groups, heavy)

    def merge(self, other: Self, groups: int, sign: int = 1) -> None:
        """Add sign * the other's counts; groups: of both."""
        if sign < 0 and self.pages is not None:
            self.pages.forget_spans()  # They lie between the extremes of what was there.
        if self.shift != other.shift:
            shift = max(self.shift, other.shift)
            self.collapse(shift, groups)
            self._add(wider(other.entries(), other.shift, shift), groups, sign)
            return
        left = None if other.pages is None else self._take_pages(other.pages, groups, sign)
        if other.map.used:  # Before what is left, for the other may be this one.
            self._take_map(other.map, groups, sign)
        if left is not None and left[0].size:
            self.map.merge(CellCounts.of(*left), sign)
        if sign < 0 and self.pages is not None and self.pages.is_mostly_empty:
            self._hold_anew(self.entries(), groups)

    def check_taken(self, other: Self) -> None:
        """Each of the other's values must be in a bucket here.

        Raises:
          CannotSubtract: one is not.
        """
        shift = max(self.shift, other.shift)
        groups, cells, counts = wider(self.entries(), self.shift, shift)
        their_groups, their_cells, taken = wider(other.entries(), other.shift, shift)
        held = np.zeros(taken.size, np.int64)
        if counts.size:
            keys, wanted = (groups << 32) | cells, (their_groups << 32) | their_cells
            at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
            held = np.where(keys[at] == wanted, counts[at], 0)
        short = np.flatnonzero(held < taken)
        if short.size:
            bucket = f"count of bucket {their_cells[short[0]]} of group {their_groups[short[0]]}"
            raise CannotSubtract(bucket, int(held[short[0]] - taken[short[0]]))

    def _take_pages(self, other: CellPages, groups: int, sign: int) -> Entries | None:
        """Add sign * the other's counts; returns what is left for the map."""
        if self.pages is None and sign < 0:
            return other.entries()
        if self.pages is None:
            self.pages = other.regrouped(np.arange(other.rows.size), groups)
            return None
        self.pages.grow(groups)
        if sign > 0 and self.pages.is_too_wide_for(other.held):
            heavy = np.zeros(groups, np.bool_)
            heavy[other.held] = True
            self._narrow(groups, heavy, other.entries())
            return None
        return self.pages.add_pages(other, sign)

    def _take_map(self, other: CellCounts, groups: int, sign: int) -> None:
        if self.pages is not None:
            self._add(other.unordered(), groups, sign)
            return
        slots = len(self.map.slots)
        self.map.merge(other, sign)
        if len(self.map.slots) > slots:
            self._make_room(groups)

    def _add(self, entries: Entries, groups: int, sign: int) -> None:
        if self.pages is not None and entries[0].size:
            self.pages.grow(groups)
            entries = self.pages.add(entries, sign)
        if entries[0].size:
            slots = len(self.map.slots)
            self.map.merge(CellCounts.of(*entries), sign)
            if len(self.map.slots) > slots:
                self._make_room(groups)

    def collapse(self, shift: int, groups: int) -> None:
        """Make all cells 2^(shift - its present) times as wide; counts are as exact as before."""
        if shift > self.shift:
            entries = wider(self.entries(), self.shift, shift)
            self.shift = shift
            self._hold_anew(entries, groups)

    def entries(self) -> Entries:
        """Groups, cells and counts of all non-zero entries, by group, then by cell. Shapes [n]."""
        sparse = self.map.entries()
        if self.pages is None:
            return sparse
        dense = self.pages.entries()
        return together(dense, sparse)

    @classmethod
    def of(cls, entries: Entries, groups: int, shift: int = SHIFT_MIN) -> Self:
        """The counts of these entries; shapes [n], pairs different."""
        made = cls(shift)
        made._hold_anew(entries, groups)
        return made

    def regrouped(self, places: NDArray[np.int64], groups: int) -> Self:
        """New counts in which group g is group places[g] of `groups`; at -1: left out."""
        made = type(self)(self.shift)
        made.map = self.map.regrouped(places)
        if self.pages is not None:
            made.pages = self.pages.regrouped(places, groups)
            if made.pages.is_too_wide:
                made._hold_anew(made.entries(), groups)
        return made


def _only(column: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """These rows of an input; of no ids, no ids."""
    return as_input(column[rows], column.dtype) if column.size else column
