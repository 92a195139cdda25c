"""Counts of (group, cell) pairs as columns: made coarser, added up, put together."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.histogram.bucket_index import coarser

Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Groups, cells and counts; shapes [n]."""

NONE: Final[Entries] = (np.zeros(0, np.int64),) * 3
"""No entries."""


def wider(entries: Entries, shift: int, wanted: int) -> Entries:
    """Entries at a coarser shift; those that fall together are added."""
    groups, cells, counts = entries
    wide = coarser(cells, shift, wanted)
    # Coarser cells stay in order, so what falls together stands together.
    return (groups, wide, counts) if wanted == shift else _summed(groups, wide, counts)


def together(some: Entries, others: Entries) -> Entries:
    """Both as one, by group and then by cell, as each is."""
    if not others[0].size:
        return some
    groups, cells, counts = (np.concatenate(pair) for pair in zip(some, others, strict=True))
    order = np.argsort((groups << 32) | cells, kind="stable")
    return _summed(groups[order], cells[order], counts[order])


def _summed(
    groups: NDArray[np.int64], cells: NDArray[np.int64], counts: NDArray[np.int64]
) -> Entries:
    """Entries in order, of which equal ones are added, and those are left out that give nothing."""
    if not groups.size:
        return groups, cells, counts
    first = np.append(True, (np.diff(groups) != 0) | (np.diff(cells) != 0))
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(counts, starts)
    kept = starts[sums != 0]
    return groups[kept], cells[kept], sums[sums != 0]
