"""Evidence of standing queries that may still count deleted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shedder.archive.metadata.deleted_positions import Deletion
from shedder.cql.text.durations import timestamp_text
from shedder.queries.evidence.deleted_tuple_bounds import widen_deleted
from shedder.queries.evidence.evidence import Evidence

NOTED_MAX: Final = 20  # The newest DELETEs have a note each; older ones share one.
_COUNTED: Final = "after they had come; those of them that are in this window are still counted"


def allow_for_deleted(evidence: Evidence, pending: Sequence[Deletion]) -> Evidence:
    """Widen intervals by the rows that were deleted, and note each DELETE.

    Args:
      evidence: of a window.
      pending: the DELETEs whose rows the window's synopses may still count.
    """
    if not pending:
        return evidence
    older, newest = pending[:-NOTED_MAX], pending[-NOTED_MAX:]
    notes = [
        f"{deletion.rows:,} rows were deleted at {timestamp_text(deletion.deleted_us)} {_COUNTED}"
        for deletion in newest
    ]
    if older:
        rows = sum(deletion.rows for deletion in older)
        notes.insert(0, f"{rows:,} rows were deleted before, {len(older):,} times, {_COUNTED}")
    wide = widen_deleted(evidence, sum(deletion.rows for deletion in pending))
    return replace(wide, notes=(*evidence.notes, *notes))
