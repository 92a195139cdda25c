"""Counts of cells outside a histogram, so that tests see where the counts are held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from synopses.histogram.bucket_index import SHIFT_MIN
from synopses.histogram.grouped_counts import BucketCounts
from synopses.kernels.array_inputs import UNGROUPED, as_input

Batch = tuple[NDArray[np.int32] | None, NDArray[np.float64]]


def counted_in_cells(groups: int, batches: Iterable[Batch], shift: int = SHIFT_MIN) -> BucketCounts:
    """Return the counts that `GroupedLogBuckets(groups)` holds after these updates.

    batches: the arguments of `update`. shift: 52 minus the mantissa's bits.
    """
    cells = BucketCounts(shift)
    counts, extremes = np.zeros(groups, np.int64), np.tile([np.inf, -np.inf], (groups, 1))
    for ids, values in batches:
        of = UNGROUPED if ids is None else as_input(ids, np.int32)
        cells.update(of, as_input(values, np.float64), counts, extremes)
    return cells


def cut(ids: NDArray[np.int32], values: NDArray[np.float64], rows: int) -> Iterator[Batch]:
    """Yield batches of `rows` rows."""
    for first in range(0, values.size, rows):
        yield ids[first : first + rows], values[first : first + rows]


def has_spans(cells: BucketCounts) -> bool:
    """Return whether any group has contiguous counters."""
    pages = cells.pages
    return pages is not None and pages.spans is not None and bool(pages.spans.inner.any())
