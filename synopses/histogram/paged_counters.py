"""Counters of (group, cell) pairs in pages of 32 cells: a group has those that it touches.

A touched cell of a well filled page takes little more than 2 bytes, where a hash map takes 26 to
52, and counting is an addition at a place that two look-ups give.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from synopses.histogram import page_kernels as kernels
from synopses.histogram.bucket_index import cells_of_keys, keys_of_cells
from synopses.histogram.contiguous_spans import CellSpans, Misses, laid_out
from synopses.histogram.dense_window_kernels import tally_one
from synopses.histogram.page_tables import EACH, PageTables
from synopses.histogram.sorted_kernels import tally_runs
from synopses.histogram.span_kernels import mark, tally_spans
from synopses.histogram.sparse_counts import NONE, Entries
from synopses.kernels.array_inputs import as_input

_FEW = 1024  # Values for which no table of whole stretches is made.
_NEAR = 64  # Of more stretches than these groups have too few pages side by side.
_SAMPLE = 16  # One value of so many says whether most are zeros, which are counted apart.


class CellPages(PageTables):
    """uint16 counters of (group, cell) pairs, held in pages of 32 neighbouring cells.

    A counter holds less than 2^16. What exceeds it is returned to the caller, and so are the pairs
    without a counter.

    spans: groups whose pages stand side by side.
    """

    __slots__ = ("_misses", "spans")

    def __init__(self, groups: int, shift: int) -> None:
        """Create counters of so many groups, without any page."""
        super().__init__(groups, shift)
        self.spans: CellSpans | None = None
        self._misses = Misses()

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return super().size_bytes + (0 if self.spans is None else self.spans.size_bytes)

    @property
    def _spare(self) -> int:
        return self._used // (2 if self.spans is None else 8)  # Where spans are laid, few come.

    def grow(self, groups: int) -> None:
        """Groups up to this many may come; the new ones have no pages."""
        super().grow(groups)
        if self.spans is not None:
            self.spans.grow(self.rows.size)

    # --- spans --------------------------------------------------------------------------------

    def expect(self, bounds: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Make the pages that these values will need, those of each group side by side.

        Args:
          bounds: int64 [groups + 1]; values: [n], in the order of their groups (group_ordering.py).
        """
        bits = as_input(values, np.float64).view(np.uint64)
        self._know(np.flatnonzero(self._touched(bits)))
        zeros = np.count_nonzero(values[::_SAMPLE] == 0.0)
        if 2 * _SAMPLE * zeros > values.size or not self._are_near:
            return
        directory = self.directory.copy()
        mark(bounds, bits, self.columns, self.rows, directory, self.shift)
        self._lay(directory)

    def note_found(self, rows: int) -> None:
        """So many values came, and all found spans."""
        self._misses.note(rows, 0)

    def lay_where_due(self, rows: int, missed: int) -> None:
        """Bring the pages of each group side by side if many of the values did not find them so.

        rows, missed: how many values came, and how many of them found no span.
        """
        self._misses.note(rows, missed)
        if self.spans is not None and self._misses.are_most():
            self._misses.begin_again(8)
            self.spans = None
        elif self._are_near and self._misses.are_many(self._used):
            self._misses.begin_again()
            self._lay(self.directory.copy())

    def fit_spans(self, ids: NDArray[np.int32] | None, extremes: NDArray[np.float64]) -> None:
        """The extremes (float64 [groups, 2]) of these groups may have changed; None: of all."""
        if self.spans is not None:
            self.spans.fit(ids, extremes, self.shift)

    def forget_spans(self) -> None:
        """Count without spans from now on."""
        self.spans = None

    @property
    def _are_near(self) -> bool:
        return self.stretches.size <= _NEAR and not self._whole

    def _lay(self, directory: NDArray[np.int32]) -> None:
        """Lay spans, and give pages to what is marked, in a directory that becomes this one's."""
        tables = self.columns, self.rows, directory
        self.spans, self.counters, self._used = laid_out(
            self.held, np.sort(self.stretches), tables, self.width, self.counters, self.shift
        )
        self.directory = directory

    # --- counting -----------------------------------------------------------------------------

    def tally(
        self,
        ids: NDArray[np.int32],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count values, in counts and extremes too.

        Args:
          ids: int32 [n]; size 0: all values are of group 0.

        Returns:
          The rows that have no counter here and were not counted; those whose counter went round,
          once for 2^16.
        """
        if ids.size:
            given = as_input(values, np.float64)
            return self._tally(kernels.tally_many, ids, given, counts, extremes)
        if values.size < _FEW or not self.rows[0]:
            return self._tally_one(values, counts, extremes)
        rest, wrapped = tally_one(
            values, values.view(np.uint64), self.stretches, self.columns, int(self.rows[0]),
            self.directory, self.counters, self.shift, extremes[0],
        )  # fmt: skip
        counts[0] += values.size - rest.size
        if not rest.size:
            return rest, wrapped
        late, more = self._tally_one(as_input(values[rest], np.float64), counts, extremes)
        return rest[late], np.concatenate((wrapped, rest[more]))

    def _tally_one(
        self,
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self._tally(tally_runs, np.array([0, values.size]), values, counts, extremes)

    def _tally(
        self,
        kernel: Any,
        groups: NDArray[Any],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        bits = values.view(np.uint64)
        rest, wrapped = np.empty(values.size, np.int64), np.empty(values.size, np.int64)
        found, at = np.zeros(2, np.int64), 0
        while True:
            at, self._used = kernel(
                at, groups, values, bits, self.columns, self.rows, self.directory, self.counters,
                self._used, self._whole, self.shift, counts, extremes, rest, wrapped, found,
            )  # fmt: skip
            if at == values.size:
                rests, wraps = found.tolist()
                return rest[:rests], wrapped[:wraps]
            self._make_room(bits[at:])

    def tally_runs(
        self,
        bounds: NDArray[np.int64],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count values in the order of their groups (group_ordering.py); returns the same."""
        values = as_input(values, np.float64)
        return self._tally(tally_runs, bounds, values, counts, extremes)

    def tally_spans(
        self, ids: NDArray[np.int32], values: NDArray[np.float64], counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count values that fall into their groups' spans; returns the same.

        Extremes need not be asked: such values do not change them.
        """
        assert self.spans is not None
        rest, wrapped = np.empty(values.size, np.int64), np.empty(values.size, np.int64)
        bits = as_input(values, np.float64).view(np.uint64)
        rests, wraps = tally_spans(
            ids, bits, self.spans.inner, self.counters, self.shift, counts, rest, wrapped
        )
        return rest[:rests], wrapped[:wraps]

    def add(self, entries: Entries, sign: int = 1) -> Entries:
        """Add sign * counts of (group, cell) pairs; returns what is left, with what is too much.

        entries: int64 [n] each; groups below the size of `rows`, pairs different.
        """
        groups, cells, amounts = entries
        keys = keys_of_cells(cells, self.shift)
        if sign > 0:
            self._know(keys >> kernels.STRETCH_BITS)
        left, at = amounts.copy(), 0
        while True:
            at, self._used = kernels.add_entries(
                at, groups, keys, left, self.columns, self.rows, self.directory, self.counters,
                self._used, self._whole, sign,
            )  # fmt: skip
            if at == keys.size:
                break
            self._make_pages(min(keys.size - at, EACH * self.held.size))
        kept = left != 0
        return groups[kept], cells[kept], left[kept]

    def add_pages(self, other: Self, sign: int) -> Entries:
        """Add sign * the other's counts, its shift being the same; returns what is left of them."""
        if sign > 0:
            if not kernels.are_known(other.held, other.stretches, self.rows, self.columns):
                self.admit(other.held)
                self._know(other.stretches)
            self._whole &= other._whole
        left = np.empty(other.directory.size, np.int32)
        room, at, found = other.stretches.size * kernels.PER_STRETCH, 0, 0
        while True:
            at, self._used, more = kernels.add_pages(
                at, other.held, other.stretches, self.columns, self.rows, self.directory,
                self.counters, self._used, other.columns, other.rows, other.directory,
                other.counters, sign, left[found:],
            )  # fmt: skip
            found += more
            if at == other.held.size:
                break
            self._make_pages(room)
        if not found:
            return NONE
        return self._add_slots(other, left[:found].astype(np.int64), sign)

    def _add_slots(self, other: Self, slots: NDArray[np.int64], sign: int) -> Entries:
        """Add the pages at these slots of the other's directory cell by cell."""
        rows, columns = np.divmod(slots, other.width)
        columns -= kernels.FIRST
        first = other.stretches[columns // kernels.PER_STRETCH] << kernels.STRETCH_BITS
        first += columns % kernels.PER_STRETCH << kernels.PAGE_BITS
        keys = (first[:, None] + np.arange(kernels.PAGE)).ravel()
        counts = other.counters.reshape(-1, kernels.PAGE)[other.directory[slots]].ravel()
        some = np.flatnonzero(counts)
        groups = np.repeat(other.held[rows - 1], kernels.PAGE)[some]
        entries = groups, cells_of_keys(keys[some], self.shift), counts[some].astype(np.int64)
        return self.add(entries, sign)

    # --- reading ------------------------------------------------------------------------------

    def entries(self) -> Entries:
        """Groups, cells and counts of all counters that are not 0, by group, then by cell."""
        size = int(np.count_nonzero(self.counters))
        groups, cells, counts = (np.empty(size + 1, np.int64) for _ in range(3))
        order = np.argsort(cells_of_keys(self.stretches << kernels.STRETCH_BITS, self.shift))
        kernels.gather(
            np.sort(self.held), self.stretches[order], self.columns, self.rows, self.directory,
            self.counters, 1 << (63 - self.shift), groups, cells, counts,
        )  # fmt: skip
        return groups[:size], cells[:size], counts[:size]

    def regrouped(self, places: NDArray[np.int64], groups: int) -> Self:
        """The pages of `groups` groups in which group g is group places[g]; at -1: left out."""
        made = type(self)(groups, self.shift)
        moved = places[self.held]
        kept = np.flatnonzero(moved >= 0)
        made.stretches, made.columns = self.stretches, self.columns.copy()
        made.width, made._whole = self.width, self._whole
        made.directory = np.zeros(made.width, np.int32)
        made.admit(moved[kept])
        held = self.directory.reshape(-1, self.width)[kept + 1].ravel()
        taken = np.flatnonzero(held)
        made._used = kernels.NONE + taken.size
        made.directory[self.width + taken] = np.arange(kernels.NONE, made._used)
        chosen = np.concatenate((np.zeros(kernels.NONE, np.int64), held[taken]))
        made.counters = self.counters.reshape(-1, kernels.PAGE)[chosen].reshape(-1)
        return made
