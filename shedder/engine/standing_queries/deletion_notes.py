"""What standing queries say of rows that were deleted after they had read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shedder.archive.metadata.deleted_positions import Deletion
from shedder.cql.text.durations import timestamp_text
from shedder.queries.evidence.evidence import Evidence

NOTED_MAX: Final = 20  # Each by itself, the newest; of older ones one note tells.
_COUNTED: Final = "after they had come; those of them that are in this window are still counted"


def noted(evidence: Evidence, deletions: Sequence[Deletion], from_position: int) -> Evidence:
    """The evidence of a standing query with a note of each deletion that it may not know of.

    What a query's synopses have read stays in them: most of them cannot give a value back.

    Args:
      evidence: of a window.
      deletions: of its stream.
      from_position: of the stream, when the query was registered; it never read what was deleted
        before that.
    """
    unknown = [
        deletion
        for deletion in deletions
        if deletion.position >= from_position
        and deletion.overlaps(evidence.start_us, evidence.end_us)
    ]
    older, newest = unknown[:-NOTED_MAX], unknown[-NOTED_MAX:]
    notes = [
        f"{deletion.rows:,} rows were deleted at {timestamp_text(deletion.deleted_us)} {_COUNTED}"
        for deletion in newest
    ]
    if older:
        rows = sum(deletion.rows for deletion in older)
        notes.insert(0, f"{rows:,} rows were deleted before, {len(older):,} times, {_COUNTED}")
    return replace(evidence, notes=(*evidence.notes, *notes)) if notes else evidence
