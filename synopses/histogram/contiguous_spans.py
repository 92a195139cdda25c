"""Contiguous spans: groups whose counters lie side by side in cell order (span_kernels.py)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.histogram import span_kernels as kernels
from synopses.histogram.page_kernels import PAGE, PAGE_BITS

_EACH: Final = 4  # Values that find no span for each page that laying spans would move.
_SPARE: Final = 16  # One page of so many is left for those that come alone.
_AT_LEAST: Final = 4096  # Values that say whether spans are of use.


class Misses:
    """When laying spans is due: it takes as long as finding counters without, for some values.

    Due when so many have missed; the next time, when twice as many have.
    """

    __slots__ = ("_due", "_missed", "_seen")

    def __init__(self) -> None:
        """Nothing has been counted."""
        self._seen = self._missed = self._due = 0

    def note(self, rows: int, missed: int) -> None:
        """So many values came, of which so many found no span."""
        self._seen += rows
        self._missed += missed

    def are_most(self) -> bool:
        """Return whether most values missed the spans that there are."""
        return self._seen >= _AT_LEAST and 2 * self._missed > self._seen

    def are_many(self, pages: int) -> bool:
        """Return whether as many missed as it takes to lay spans of so many pages."""
        return self._missed >= max(self._due, _EACH * pages)

    def begin_again(self, times: int = 2) -> None:
        """Spans were laid, or dropped; they are due when so many times as many have missed."""
        self._due = times * max(self._missed, self._due)
        self._seen = self._missed = 0


class CellSpans:
    """Of each group and sign the keys whose counters stand side by side.

    laid: uint64 [2 * groups], where they are. inner: those among them that are certainly between
    the group's extremes.
    """

    __slots__ = ("inner", "laid")

    def __init__(self, groups: int) -> None:
        """Make no spans of so many groups."""
        self.laid = np.zeros(2 * groups, np.uint64)
        self.inner = np.zeros(2 * groups, np.uint64)

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self.laid.nbytes + self.inner.nbytes

    def grow(self, groups: int) -> None:
        """Groups up to this many may come; the new ones have no spans."""
        more = 2 * groups - self.laid.size
        if more > 0:
            none = np.zeros(more, np.uint64)
            self.laid, self.inner = np.append(self.laid, none), np.append(self.inner, none)

    def fit(self, ids: NDArray[np.int32] | None, extremes: NDArray[np.float64], shift: int) -> None:
        """The extremes of these groups, or of all, may have changed; float64 [groups, 2].

        ids: int32 [n], in any order, also more than once.
        """
        if ids is None or ids.size > len(extremes):
            ids = np.arange(len(extremes), dtype=np.int32)
        kernels.fit(ids, self.laid, extremes, shift, self.inner)


def laid_out(
    held: NDArray[np.int64],
    stretches: NDArray[np.int64],
    tables: tuple[NDArray[np.uint16], NDArray[np.int32], NDArray[np.int32]],
    width: int,
    counters: NDArray[np.uint16],
    shift: int,
) -> tuple[CellSpans, NDArray[np.uint16], int]:
    """Copy the pages of these groups so that those of each stand side by side.

    Args:
      held: int64 [m], the groups with pages. stretches: in rising order.
      tables: columns, rows and directory (paged_counters.py), the last of which is changed.
      width: of a row of the directory.
      counters: are left as they are.

    Returns:
      The spans, which are to be fitted; the counters anew, with room for some more pages; how many
      pages they hold.
    """
    firsts, sizes = np.empty((2, held.size, 2), np.int64)
    pages = kernels.longest(held, stretches, *tables, 1 << (63 - shift), firsts, sizes)
    assert pages < 1 << (32 - PAGE_BITS)  # A span has 32 bits for its first counter.
    into = np.zeros((pages + max(pages // _SPARE, PAGE)) * PAGE, np.uint16)
    spans = CellSpans(tables[1].size)
    used = kernels.lay(held, *tables, width, counters, firsts, sizes, into, spans.laid)
    return spans, into, used
