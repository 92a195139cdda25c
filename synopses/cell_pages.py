"""Counters of (group, cell) pairs in pages of 32 cells: a group has those that it touches.

A touched cell of a well filled page takes little more than 2 bytes, where a hash map takes 26 to
52, and counting is an addition at a place that two look-ups give.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from synopses import page_kernels as kernels
from synopses.bucket_cells import cells_of_keys, farthest, keys_of_cells
from synopses.cell_spans import CellSpans, Misses, laid_out
from synopses.inputs import as_input
from synopses.run_kernels import tally_runs
from synopses.span_kernels import mark, tally_spans
from synopses.window_kernels import tally_one

_KEYS = 1 << 19  # At the finest shift: sign, exponent and 7 bits of mantissa.
_STRETCHES = (_KEYS >> kernels.STRETCH_BITS) + 1
_FEW = 1024  # Values for which no table of whole stretches is made.
_EACH = 8  # Pages that a group is sure to need: it has 16 entries or more to come.
_SOME = 32  # Pages that are made at once, at least.
_NEAR = 64  # Of more stretches than these groups have too few pages side by side.
_SAMPLE = 16  # One value of so many says whether most are zeros, which are counted apart.
_WIDE = 64 * kernels.PER_STRETCH  # A row of the directory may be this wide whatever it leads to.

_NO_ENTRIES = np.zeros(0, np.int64)
Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class CellPages:
    """uint16 counters of (group, cell) pairs, held in pages of 32 neighbouring cells.

    A count is not held here alone: what goes over 2^16 - 1 is given back to whoever counts, and so
    are the pairs that have no counter.

    stretches: int64 [s], which runs of 128 keys have columns, in the order of their coming.
    columns: uint16 [stretches of all keys], where in a row of the directory a stretch begins.
    rows: int32 [groups], where in the directory a group's row begins; 0: it has none.
    directory: int32 [rows * width], the page of each part of a stretch; 0: none yet.
    counters: uint16 [pages * 32].
    spans: of groups whose pages stand side by side.
    """

    __slots__ = (
        "_misses", "_room", "_used", "_whole", "columns", "counters", "directory", "held", "rows",
        "shift", "spans", "stretches", "width",
    )  # fmt: skip

    def __init__(self, groups: int, shift: int) -> None:
        """Make pages for nobody yet, of so many groups."""
        self.shift = shift
        self.stretches = np.zeros(0, np.int64)
        self.held = np.zeros(0, np.int64)
        self.width = kernels.FIRST
        self._whole = True  # A stretch gets all pages at once: so a single group is counted faster.
        self._room = 1  # Rows of the directory.
        self._used = kernels.NONE  # Pages.
        self.columns = np.full(_STRETCHES, kernels.UNKNOWN, np.uint16)
        self.rows = np.zeros(groups, np.int32)
        self.directory = np.zeros(self.width, np.int32)
        self.counters = np.zeros(kernels.NONE * kernels.PAGE, np.uint16)
        self.spans: CellSpans | None = None
        self._misses = Misses()

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        tables = self.columns.nbytes + self.rows.nbytes + self.held.nbytes
        tables += 0 if self.spans is None else self.spans.size_bytes
        return self.counters.nbytes + self.directory.nbytes + tables

    # --- room ---------------------------------------------------------------------------------

    def grow(self, groups: int) -> None:
        """Groups up to this many may come; the new ones have no pages."""
        if groups > self.rows.size:
            more = max(groups, min(2 * self.rows.size, groups + 65_536)) - self.rows.size
            self.rows = np.append(self.rows, np.zeros(more, np.int32))
        if self.spans is not None:
            self.spans.grow(self.rows.size)

    def admit(self, groups: NDArray[np.int64]) -> None:
        """From now on these groups (int64 [m], different) have pages, if they had none."""
        new = groups[self.rows[groups] == 0]
        if not new.size:
            return
        first = self.held.size + 1
        if first + new.size > self._room:
            self._room = first + new.size + self.held.size // 4
            self.directory = np.append(
                self.directory,
                np.zeros(self._room * self.width - self.directory.size, np.int32),
            )
        self.rows[new] = np.arange(first, first + new.size) * self.width
        self.held = np.concatenate((self.held, new))
        self._whole &= self.held.size <= 1

    def open(self, bits: NDArray[np.uint64]) -> None:
        """Give group 0, which is admitted alone, all pages of the stretches of these values.

        And of those beside them: a value that is a little smaller or larger than all is to come.
        """
        touched = self._touched(bits)
        touched[:-1] |= touched[1:]
        touched[1:] |= touched[:-1]
        self._know(np.flatnonzero(touched))
        slots = int(self.rows[0]) + self.columns[self.stretches].astype(np.int64)
        slots = slots[self.directory[slots] == 0]
        more = slots.size * kernels.PER_STRETCH
        self._make_pages(more)
        each = np.arange(kernels.PER_STRETCH)
        self.directory[slots[:, np.newaxis] + each] = np.arange(
            self._used, self._used + more, dtype=np.int32
        ).reshape(-1, kernels.PER_STRETCH)
        self._used += more

    def ask_again(self) -> None:
        """Stretches that found no place may find one: there may be room now."""
        self.columns[self.columns == kernels.NOWHERE] = kernels.UNKNOWN

    def _know(self, stretches: NDArray[np.int64]) -> None:
        """Give these stretches columns, or note that they have no place.

        The directory is to take no more than the pages, else wide values of many groups would cost
        more than in a hash map.
        """
        unknown = self.columns[stretches] == kernels.UNKNOWN
        if not unknown.any():
            return
        asked = np.zeros(_STRETCHES, np.bool_)
        asked[stretches[unknown]] = True
        new = np.flatnonzero(asked)
        self.columns[new] = kernels.NOWHERE
        new = new[_are_plain(new, self.shift)]
        bulk = self.counters.nbytes // (4 * self._room)
        width_max = min(max(_WIDE, bulk), 1 << 15)
        width = kernels.FIRST + self.stretches.size * kernels.PER_STRETCH
        new = new[: max(0, (width_max - width) // kernels.PER_STRETCH)]
        if not new.size:
            return
        self.columns[new] = width + np.arange(new.size) * kernels.PER_STRETCH
        self.stretches = np.concatenate((self.stretches, new))
        self._widen(width + new.size * kernels.PER_STRETCH)

    def _widen(self, width: int) -> None:
        if width <= self.width:
            return
        wider = np.zeros((self._room, width), np.int32)
        wider[:, : self.width] = self.directory.reshape(self._room, self.width)
        self.rows = self.rows // self.width * width
        self.width, self.directory = width, wider.reshape(-1)

    def _make_pages(self, least: int) -> None:
        # Where spans are laid, few are to come.
        more = self._used // (2 if self.spans is None else 8)
        pages = self._used + max(least, more, _SOME)
        counters, held = np.empty(pages * kernels.PAGE, np.uint16), self._used * kernels.PAGE
        counters[:held], counters[held:] = self.counters[:held], 0
        self.counters = counters

    def expect(self, bounds: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Make the pages that these values will need, those of each group side by side.

        Args:
          bounds: int64 [groups + 1]; values: [n], in the order of their groups (by_group.py).
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

    @property
    def is_mostly_empty(self) -> bool:
        """Whether more than half of the pages have nothing but zeros left."""
        unit = kernels.PER_STRETCH if self._whole else 1  # Pages that came together.
        pages = self.counters[: self._used * kernels.PAGE].reshape(-1, unit * kernels.PAGE)
        return 2 * int(np.count_nonzero(pages.any(axis=1))) < len(pages) - kernels.NONE // unit

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
        """Count values that stand in the order of their groups (by_group.py); returns the same."""
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

    def _make_room(self, bits: NDArray[np.uint64]) -> None:
        """What counting stopped for: a column, or else a page."""
        if self.columns[np.flatnonzero(self._touched(bits[:1]))] == kernels.UNKNOWN:
            self._know(np.flatnonzero(self._touched(bits)))
        else:
            self._make_pages(_EACH * self.held.size)

    def _touched(self, bits: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which stretches these values are in; bool [stretches of all keys]."""
        touched = np.zeros(_STRETCHES, np.bool_)
        kernels.touch(bits, self.shift, touched)
        return touched

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
            self._make_pages(min(keys.size - at, _EACH * self.held.size))
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
            return _NO_ENTRIES, _NO_ENTRIES, _NO_ENTRIES
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


def _are_plain(stretches: NDArray[np.int64], shift: int) -> NDArray[np.bool_]:
    """Those without infinity, NaN and -0.0, whose keys say too little about the value."""
    infinite = farthest(shift)
    negative = 1 << (63 - shift)
    last, first_negative = infinite >> kernels.STRETCH_BITS, negative >> kernels.STRETCH_BITS
    last_negative = (negative + infinite) >> kernels.STRETCH_BITS
    return (stretches < last) | ((stretches > first_negative) & (stretches < last_negative))
