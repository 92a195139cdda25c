"""Runs out of which deleted rows are taken: written anew without them, or dropped when empty."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.layouts.row_source import Rows
from shedder.archive.metadata.catalog_entries import Rolled, Run
from shedder.archive.metadata.deleted_positions import Deleted
from shedder.archive.rewriting.relayout import same_run, whole_run
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.runs.run_format import implementation
from shedder.archive.store.open_streams import OpenStreams
from shedder.archive.store.stream_state import StreamState
from shedder.archive.tasks.progress import ProgressCallback, held, no_progress


class RunPurger:
    """Makes deletions final: it takes deleted rows out of runs.

    Positions stay: a purged run covers the same stretch with fewer rows, and a run without any is
    noted as an emptied stretch. Readers and writers go on; a kill at any moment leaves each run as
    it was, or purged.
    """

    def __init__(self, streams: OpenStreams, run_files: RunFiles) -> None:
        self._streams, self._catalog, self._run_files = streams, streams.catalog, run_files

    def marked(
        self, stream: int, share_min: float = 0.0, before_us: int | None = None
    ) -> list[Run]:
        """The whole runs in which rows are marked as deleted, at least this share of them.

        before_us: those, too, in which the first of them was marked before this instant.
        """
        with self._streams.reading(stream) as state:
            return [
                run
                for run in state.runs
                if state.readable(run)
                and (mark := state.deleted.get(run.first_position)) is not None
                and (
                    mark.rows >= share_min * run.rows
                    or (before_us is not None and state.marked_us[run.first_position] < before_us)
                )
            ]

    def purge(self, run: Run, on_progress: ProgressCallback = no_progress) -> int:
        """Take the deleted rows out of a run and its copies; how many, 0 when there are none.

        It holds the run in memory. Rows that are deleted meanwhile stay marked.

        Args:
          run: one of `marked`.
          on_progress: called now and then; what it raises ends the work and leaves all as it was.

        Raises:
          DiskFull, StorageFailed, Cancelled: all is as it was. CorruptData: the run is damaged.
        """
        state = self._streams.find(run.stream_id)
        if state is None:
            return 0
        with state.rewriting:
            with self._streams.lock:
                mark = state.deleted.get(run.first_position)
                if mark is None or same_run(state, run) is None:
                    return 0
                self._run_files.pin([run.file])
            place = self._run_files.place(on_progress)
            try:
                with place.all_or_nothing():
                    new = (
                        None if mark.rows == run.rows else self._left(place, run, mark, on_progress)
                    )
                    # No DELETE looks for rows: what it finds must be of the runs there are then.
                    with held(state.deleting, on_progress):
                        return (
                            mark.rows if self._put_purged(state, run, new, mark, on_progress) else 0
                        )
            finally:
                self._run_files.unpin([run.file])

    def _left(self, place: RunPlace, run: Run, mark: Deleted, on_progress: ProgressCallback) -> Run:
        """Write the rows that are not deleted, in the run's own layout, its copies too."""
        entry = self._streams.state(run.stream_id).entry
        entry = replace(entry, schema=replace(entry.schema, layout=run.layout))
        rows = whole_run(self._run_files, run, on_progress)
        on_progress()
        numbered = rows.numbered()
        live = ~mark.mask(run)[numbered[-1].to_numpy() - run.first_position]
        kept = Rows(numbered.filter(pa.array(live)), run.first_position, run.end_position)
        return implementation(run.layout).insert(place, entry, kept, previous=run)

    def _put_purged(
        self,
        state: StreamState,
        run: Run,
        new: Run | None,
        purged: Deleted,
        on_progress: ProgressCallback,
    ) -> bool:
        """Put what is left in the place of a run, in one transaction; new: None, nothing is."""
        fresh = [] if new is None else [*new.files]
        with self._streams.change(on_progress):
            current = same_run(state, run)
            if not self._streams.has(state) or current is None:
                self._run_files.discard(fresh)
                return False
            left = state.deleted[run.first_position].without(purged, run)
            if new is not None:
                new = replace(new, rolled=_rolled_without(current.rolled, purged.rows))
            with self._catalog.transaction():
                self._catalog.drop_run(run)
                if new is None:
                    self._catalog.annotations.add_emptied(run)
                else:
                    self._catalog.add_run(new)
                    if left.rows:
                        self._catalog.annotations.put_deleted(new, left)
            at = state.runs.index(current)
            state.runs[at : at + 1] = [] if new is None else [new]
            state.forget(run)
            if new is None:
                state.note_emptied(run.end_position)
            elif left.rows:
                state.deleted[run.first_position] = left
                state.marked_us[run.first_position] = state.deletions[-1].deleted_us
            for name in fresh:
                self._run_files.trust_name(name)
            kept = () if new is None else new.files
            self._run_files.retire(name for name in current.files if name not in kept)
        self._run_files.remove_retired()
        return True


def _rolled_without(rolled: tuple[Rolled, ...], purged: int) -> tuple[Rolled, ...]:
    """Partial aggregates that already lack what was purged, counted from there; others are due."""
    return tuple(
        replace(each, deleted=each.deleted - purged) for each in rolled if each.deleted >= purged
    )
