"""Compartments of a stream's past: runs short enough in event time to be dropped whole in time.

A run goes when its newest tuple is too old. One that spans a long time keeps its oldest tuples for
all of it, so the runs of streams with RETAIN end at a sixteenth of the period that is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.archive.store.tail import Piece

COMPARTMENTS = 16
ROWS_MIN = 16_384
"""A run has at least so many rows where there are any: disorder must not make it a run a row."""


def compartment_us(retain_us: int | None) -> int | None:
    """Return how long a run of a stream may span, in event time; None: as long as it likes."""
    return None if retain_us is None else max(1, retain_us // COMPARTMENTS)


def rows_within(
    times_us: Iterable[NDArray[np.int64]], width_us: int, rows_min: int = ROWS_MIN
) -> int:
    """Return how many of the first rows a run takes.

    Args:
      times_us: event times of rows in order of position, in pieces.
      width_us: what the run may span.
      rows_min: what it takes whatever it spans, if there are so many.

    Returns:
      The number of the first row at or after rows_min with which it would span more; or all.
    """
    low, high, rows = np.iinfo(np.int64).max, np.iinfo(np.int64).min, 0
    for times in times_us:
        if not times.size:
            continue
        lows = np.minimum(np.minimum.accumulate(times), low)
        highs = np.maximum(np.maximum.accumulate(times), high)
        skipped = max(0, rows_min - rows)
        with np.errstate(over="ignore"):  # As unsigned numbers differences fit.
            spans = highs.view(np.uint64) - lows.view(np.uint64)
        wide = spans[skipped:] > np.uint64(width_us)
        if wide.any():
            return rows + skipped + int(np.argmax(wide))
        low, high, rows = lows[-1], highs[-1], rows + times.size
    return rows


def end_of_run(
    pieces: Sequence[Piece], time_column: str, retain_us: int | None, rows_min: int = ROWS_MIN
) -> int:
    """The position before which the next run of a tail ends.

    Args:
      pieces: contiguous, at least one.
      time_column, retain_us: of the stream.
      rows_min: as in `rows_within`.
    """
    width_us = compartment_us(retain_us)
    if width_us is None:
        return pieces[-1].end_position
    times = (_times(piece, time_column) for piece in pieces)
    return pieces[0].first_position + rows_within(times, width_us, rows_min)


def _times(piece: Piece, time_column: str) -> NDArray[np.int64]:
    column = piece.batch.column(time_column)
    times: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).view(np.int64)
    return times
