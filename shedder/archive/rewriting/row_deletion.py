"""Rows that are deleted after they were stored: marked at once, skipped by every reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.metadata.deleted_positions import Deleted, Deletion
from shedder.archive.store.open_streams import OpenStreams
from shedder.archive.store.stream_state import StreamState
from shedder.archive.tasks.progress import ProgressCallback, held, no_progress


class RowDeletions:
    """Deletions of rows that are in runs."""

    def __init__(self, streams: OpenStreams) -> None:
        self._streams, self._catalog = streams, streams.catalog

    def delete(
        self,
        stream: int,
        text: str,
        deleted_us: int,
        find: Callable[[], Sequence[tuple[Run, NDArray[np.bool_]]]],
        on_progress: ProgressCallback = no_progress,
    ) -> int:
        """Mark rows of runs as deleted: all of them, durably, or none.

        Args:
          stream: id of the stream.
          text: text of the statement, for the record.
          deleted_us: present time.
          find: returns, for each run with rows to delete, bool [run.stretch]. No other thread
            deletes from the stream or purges it meanwhile. Runs that retention removes meanwhile
            are left out, and all runs if the stream is dropped.
          on_progress: called repeatedly while this waits for other deletions or for the catalog;
            what it raises ends the waiting.

        Returns:
          number of rows that were not deleted before.
        """
        state = self._streams.state(stream)
        with held(state.deleting, on_progress):
            found = find()
            with self._streams.change(on_progress):
                return self._mark(state, text, deleted_us, found)

    def _mark(
        self,
        state: StreamState,
        text: str,
        deleted_us: int,
        found: Sequence[tuple[Run, NDArray[np.bool_]]],
    ) -> int:
        if not self._streams.has(state):  # Dropped meanwhile, and its marks, too.
            return 0
        kept = {run.first_position for run in state.runs}
        marks, rows = {}, 0
        touched = []
        for run, mask in found:
            before = state.deleted.get(run.first_position)
            mark = Deleted.of(mask if before is None else mask | before.mask(run))
            more = mark.rows - (0 if before is None else before.rows)
            if more and run.first_position in kept:
                marks[run.first_position] = mark
                touched.append(run)
                rows += more
        if not marks:
            return 0
        deletion = Deletion(
            stream_id=state.entry.id,
            text=text,
            rows=rows,
            low_us=min(run.low_us for run in touched),
            high_us=max(run.high_us for run in touched),
            position=state.end_position,
            deleted_us=deleted_us,
        )
        self._catalog.annotations.add_deletion(deletion, marks)
        state.deleted.update(marks)
        for first_position in marks:
            state.marked_us.setdefault(first_position, deleted_us)
        state.deletions.append(deletion)
        return rows

    def entries(self, stream: int) -> list[Deletion]:
        """All that was ever deleted from a stream, in order."""
        with self._streams.reading(stream) as state:
            return list(state.deletions)
