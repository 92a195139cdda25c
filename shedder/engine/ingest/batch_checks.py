"""Checks of a pushed batch against what its producer says of it."""

from __future__ import annotations

from shedder.errors import BadBatch
from shedder.streams.dropped_counts import Dropped
from shedder.streams.push_parts import Part


def check_batch(
    found: int, *, rows: int | None, summarised: bool, left_out: Dropped | None, part: Part
) -> None:
    """Check the rows of a batch.

    Args:
      found: rows that it has. rows: that it declares; None: it does not say.
      summarised, left_out, part: as of `Intake.append`.

    Raises:
      BadBatch.
    """
    if rows is not None and found != rows:
        raise BadBatch(f"the batch declares {rows:,} rows and has {found:,}")
    if summarised and left_out is not None:
        raise BadBatch("rows that follow their summaries are all there: none is left out")
    if part.skipped and found:
        raise BadBatch(f"a batch of {found:,} rows skips {part.skipped:,}; it can have none")
