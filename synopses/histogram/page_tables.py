"""Pages of 32 counters each, and where the page of a group and a cell is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synopses.histogram import page_kernels as kernels
from synopses.histogram.bucket_index import farthest

_KEYS = 1 << 19  # At the finest shift: sign, exponent and 7 bits of mantissa.
_STRETCHES = (_KEYS >> kernels.STRETCH_BITS) + 1
EACH = 8
"""Pages that a group is sure to need: it has 16 entries or more to come."""
_SOME = 32  # Pages that are made at once, at least.
_SLOTS_MAX = (1 << 31) - 1  # Of a directory: rows say in 32 bits where they begin.
_WIDE = 64 * kernels.PER_STRETCH  # A row of the directory may be this wide whatever it leads to.


class PageTables:
    """Counters in pages of neighbouring cells, which groups have where they need them.

    stretches: int64 [s], which runs of 128 keys have columns, in the order of their coming.
    columns: uint16 [stretches of all keys], where in a row of the directory a stretch begins.
    rows: int32 [groups], where in the directory a group's row begins; 0: it has none.
    directory: int32 [rows * width], the page of each part of a stretch; 0: none yet.
    counters: uint16 [pages * 32].
    """

    __slots__ = (
        "_room", "_used", "_whole", "columns", "counters", "directory", "held", "rows", "shift",
        "stretches", "width",
    )  # fmt: skip

    def __init__(self, groups: int, shift: int) -> None:
        """Create tables of so many groups, without any page."""
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

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        tables = self.columns.nbytes + self.rows.nbytes + self.held.nbytes + self.stretches.nbytes
        return self.counters.nbytes + self.directory.nbytes + tables

    def grow(self, groups: int) -> None:
        """Groups up to this many may come; the new ones have no pages."""
        if groups > self.rows.size:
            more = max(groups, min(2 * self.rows.size, groups + 65_536)) - self.rows.size
            self.rows = np.append(self.rows, np.zeros(more, np.int32))

    def _width_max(self, room: int) -> int:
        """Return how wide so many rows of the directory may be."""
        bulk = self.counters.nbytes // (4 * room)
        return min(max(_WIDE, bulk), 1 << 15, _SLOTS_MAX // room)

    def is_too_wide_for(self, groups: NDArray[np.int64]) -> bool:
        """Return whether rows for these groups would make the directory far larger than the pages.

        Twice as wide as stretches are given columns is: else it would soon be so again.
        """
        if self.width <= 2 * _WIDE and self._room_with(groups.size) * self.width <= _SLOTS_MAX:
            return False  # As nearly always: at once, for merges ask it.
        new = int(np.count_nonzero(self.rows[groups] == 0))
        if not new:
            return False
        room = self._room_with(new)
        return self.width > 2 * self._width_max(room) or room * self.width > _SLOTS_MAX

    @property
    def is_too_wide(self) -> bool:
        """Return whether the directory is far larger than the pages are."""
        return self.width > 2 * self._width_max(self._room)

    def _room_with(self, new: int) -> int:
        """Return how many rows the directory has when so many groups have come."""
        rows = 1 + self.held.size + new
        return self._room if rows <= self._room else rows + self.held.size // 4

    def admit(self, groups: NDArray[np.int64]) -> None:
        """From now on these groups (int64 [m], different) have pages, if they had none."""
        new = groups[self.rows[groups] == 0]
        if not new.size:
            return
        first, room = self.held.size + 1, self._room_with(new.size)
        assert room * self.width <= _SLOTS_MAX, "see is_too_wide_for"
        if room > self._room:
            self._room = room
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
        """Give these stretches (with repetitions) columns, or note that they have no place.

        The directory is to take no more than the pages, else wide values of many groups would cost
        more than in a hash map.
        """
        unknown = self.columns[stretches] == kernels.UNKNOWN
        if not unknown.any():
            return
        counts = np.bincount(stretches[unknown], minlength=_STRETCHES)
        new = np.flatnonzero(counts)
        self.columns[new] = kernels.NOWHERE
        new = new[_are_plain(new, self.shift)]
        width = kernels.FIRST + self.stretches.size * kernels.PER_STRETCH
        most = max(0, (self._width_max(self._room) - width) // kernels.PER_STRETCH)
        if new.size > most:  # Those that most of the counts are in.
            new = np.sort(new[np.argsort(-counts[new], kind="stable")[:most]])
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

    @property
    def _spare(self) -> int:
        """Return how many pages are made for what comes later."""
        return self._used // 2

    def _make_pages(self, least: int) -> None:
        pages = self._used + max(least, self._spare, _SOME)
        counters, held = np.empty(pages * kernels.PAGE, np.uint16), self._used * kernels.PAGE
        counters[:held], counters[held:] = self.counters[:held], 0
        self.counters = counters

    def _make_room(self, bits: NDArray[np.uint64]) -> None:
        """What counting stopped for: a column, or else a page."""
        if self.columns[np.flatnonzero(self._touched(bits[:1]))] == kernels.UNKNOWN:
            self._know(np.flatnonzero(self._touched(bits)))
        else:
            self._make_pages(EACH * self.held.size)

    def _touched(self, bits: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which stretches these values are in; bool [stretches of all keys]."""
        touched = np.zeros(_STRETCHES, np.bool_)
        kernels.touch(bits, self.shift, touched)
        return touched

    @property
    def is_mostly_empty(self) -> bool:
        """Return whether more than half of the pages have nothing but zeros left."""
        unit = kernels.PER_STRETCH if self._whole else 1  # Pages that came together.
        pages = self.counters[: self._used * kernels.PAGE].reshape(-1, unit * kernels.PAGE)
        return 2 * int(np.count_nonzero(pages.any(axis=1))) < len(pages) - kernels.NONE // unit


def _are_plain(stretches: NDArray[np.int64], shift: int) -> NDArray[np.bool_]:
    """Those without infinity, NaN and -0.0, whose keys say too little about the value."""
    infinite = farthest(shift)
    negative = 1 << (63 - shift)
    last, first_negative = infinite >> kernels.STRETCH_BITS, negative >> kernels.STRETCH_BITS
    last_negative = (negative + infinite) >> kernels.STRETCH_BITS
    return (stretches < last) | ((stretches > first_negative) & (stretches < last_negative))
