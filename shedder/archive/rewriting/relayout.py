"""Runs that change after they were written: another layout, copies that are built and purged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import structlog

from shedder.archive.catalog.run_annotations import Scans
from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.layouts.copies import left, write_copy
from shedder.archive.layouts.eager import write_copies
from shedder.archive.layouts.readable_part import ReadablePart
from shedder.archive.layouts.row_source import POSITION_FIELD, Rows
from shedder.archive.metadata.catalog_entries import Copy, Run, StreamEntry
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.runs.run_format import implementation, read_run
from shedder.archive.store.open_streams import OpenStreams
from shedder.archive.store.stream_state import StreamState
from shedder.archive.tasks.interruptible_call import aside
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Eager, Hybrid, Layout, Lazy
from shedder.errors import CorruptData

_log = structlog.get_logger("shedder.archive")


class RunLayouts:
    """Writes runs anew in another layout, and their lazy copies. Readers go on meanwhile.

    Every change is a transaction.

    Files of the old form stay until no snapshot holds them. After a kill at any moment a run is
    wholly as it was or wholly as it will be, and what belongs to neither is an orphan.
    """

    def __init__(self, streams: OpenStreams, run_files: RunFiles) -> None:
        self._streams, self._catalog, self._run_files = streams, streams.catalog, run_files

    # --- another layout ---

    def unlike(self, stream: int) -> list[Run]:
        """The runs whose layout is not the stream's, except for damaged ones, oldest first."""
        with self._streams.reading(stream) as state:
            layout = state.entry.schema.layout
            return [r for r in state.runs if _is_unlike(r, layout) and state.readable(r)]

    def rewrite(self, run: Run, on_progress: ProgressCallback = no_progress) -> bool:
        """Write a run in its stream's present layout; False when there is nothing to do any more.

        It holds the run in memory, which is as large as the tail was that it once was.

        Args:
          run: one of `unlike`.
          on_progress: called now and then; what it raises ends the work and leaves all as it was.

        Raises:
          DiskFull, StorageFailed, Cancelled: all is as it was. CorruptData: the run is damaged.
        """
        state = self._streams.find(run.stream_id)
        if state is None:
            return False
        with state.rewriting:
            with self._streams.lock:
                if same_run(state, run) is None:  # Purged meanwhile: its name may be another's.
                    return False
                entry = state.entry
                self._run_files.pin([run.file])
            place = self._run_files.place(on_progress)
            try:
                with place.all_or_nothing():
                    new = self._relaid(place, entry, run, on_progress)
                    return self._replace(
                        state, run, new, layout=new.layout, on_progress=on_progress
                    )
            finally:
                self._run_files.unpin([run.file])

    def _relaid(
        self, place: RunPlace, entry: StreamEntry, run: Run, on_progress: ProgressCallback
    ) -> Run:
        """Write what a run needs to be in a stream's layout."""
        layout = entry.schema.layout
        if run.is_dealt or isinstance(layout, Hybrid):
            return implementation(layout).insert(
                place, entry, whole_run(self._run_files, run, on_progress)
            )
        reductions = layout.reductions if isinstance(layout, Eager) else ()
        copies: tuple[Copy, ...] = ()
        if reductions:
            rows = whole_run(self._run_files, run, on_progress).numbered()
            stretch = (run.first_position, run.end_position)
            copies = write_copies(place, entry, stretch, rows, reductions)
        return replace(run, layout=layout, copies=copies)

    # --- lazy copies ---

    def note_scans(self, parts: Iterable[tuple[ReadablePart, float]]) -> None:
        """Mark what a query has dropped of runs of lazy layout.

        Args:
          parts: of each run that was scanned, what was read, and the reduction that was wanted.
        """
        with self._streams.change(), self._catalog.transaction():
            noted: dict[int, Scans] = {}
            for part, reduction in parts:
                run = part.run
                state = self._streams.find(run.stream_id)
                if state is None or run not in state.runs or not isinstance(run.layout, Lazy):
                    continue
                before = noted.get(run.first_position) or state.scans.get(run.first_position)
                scans = _noted(before or Scans(), part, reduction)
                self._catalog.annotations.put_scans(run.stream_id, run.first_position, scans)
                noted[run.first_position] = scans
                state.scans[run.first_position] = scans

    def waste(self, stream: int) -> list[Run]:
        """The runs of lazy layout whose copy the vacuum would build, purge or drop."""
        with self._streams.reading(stream) as state:
            return [
                run
                for run in state.runs
                if isinstance(run.layout, Lazy)
                and state.readable(run)
                and _is_due(run, state.scans.get(run.first_position, Scans()))
            ]

    def vacuum(self, run: Run, on_progress: ProgressCallback = no_progress) -> bool:
        """Build a run's copy, or purge it of dead tuples, or drop it; False: nothing was to do.

        Args:
          run: one of `waste`.
          on_progress: called now and then; what it raises ends the work and leaves all as it was.

        Raises:
          DiskFull, StorageFailed, Cancelled: all is as it was. CorruptData: a file is damaged.
        """
        state = self._streams.find(run.stream_id)
        if state is None:
            return False
        with state.rewriting:
            scans = state.scans.get(run.first_position, Scans())
            if run not in state.runs or not _is_due(run, scans):
                return False
            place = self._run_files.place(on_progress)
            self._run_files.pin(run.files)
            try:
                with place.all_or_nothing():
                    copies = (
                        () if scans.is_useless else (self._purged(place, run, scans, on_progress),)
                    )
                    new = replace(run, copies=copies)
                    return self._replace(state, run, new, layout=None, on_progress=on_progress)
            finally:
                self._run_files.unpin(run.files)

    def _purged(
        self, place: RunPlace, run: Run, scans: Scans, on_progress: ProgressCallback
    ) -> Copy:
        """Write a copy without the dead: out of the copy there is, or else of the original."""
        entry = self._streams.state(run.stream_id).entry
        rows = self._of_copy(run, entry, on_progress) if run.copies else None
        if rows is None:
            rows = whole_run(self._run_files, run, on_progress).numbered()
        stretch = (run.first_position, run.end_position)
        kept = aside(lambda: left(rows, entry.schema.seed, scans.dead), on_progress)
        return write_copy(place, entry, stretch, kept, scans.dead)

    def _of_copy(
        self, run: Run, entry: StreamEntry, on_progress: ProgressCallback
    ) -> pa.Table | None:
        """The rows of a run's copy; None: it is damaged, of which the run itself knows nothing."""
        names = (*(column.name for column in entry.schema.columns), POSITION)
        wanted = Wanted(entry.schema.time_column, names)
        try:
            (block,) = self._run_files.read_blocks(
                run.of_copy(run.copies[0]), [0], wanted, on_progress
            )
        except CorruptData as error:
            _log.warning("copy_damaged", run=run.file, error=str(error))
            return None
        return block.table

    def drop_copy(self, run: Run, copy: Copy) -> bool:
        """Forget a copy that is damaged: the run itself is read, or the next finer copy."""
        state = self._streams.find(run.stream_id)
        if state is None:
            return False
        kept = tuple(other for other in run.copies if other != copy)
        with state.rewriting:
            new = replace(run, copies=kept)
            return self._replace(state, run, new, layout=None, on_progress=no_progress)

    # --- inside ---

    def _replace(
        self,
        state: StreamState,
        run: Run,
        new: Run,
        *,
        layout: Layout | None,
        on_progress: ProgressCallback,
    ) -> bool:
        """Put a run in the place of another in one transaction; its old files go when unread.

        layout: the stream's must still be this one; None: it does not matter. False, and the new
        files are gone, when the run or the layout is not what it was.
        """
        fresh = [name for name in new.files if name not in run.files]
        with self._streams.change(on_progress):
            current = same_run(state, run)
            known = self._streams.has(state) and current is not None
            if not known or layout not in (None, state.entry.schema.layout):
                self._run_files.discard(fresh)
                return False
            assert current is not None
            new = replace(new, rolled=current.rolled)  # The same rows, whatever the layout.
            with self._catalog.transaction():
                self._catalog.drop_run(run)
                self._catalog.add_run(new)
                if run.first_position in state.deleted:  # The same positions, whatever the layout.
                    self._catalog.annotations.put_deleted(new, state.deleted[run.first_position])
            state.runs[state.runs.index(current)] = new
            state.forget_file(run)
            for name in fresh:
                self._run_files.trust_name(name)
            self._run_files.retire(name for name in current.files if name not in new.files)
        self._run_files.remove_retired()
        return True


def whole_run(run_files: RunFiles, run: Run, on_progress: ProgressCallback) -> Rows:
    """Read all rows of a run, in order of position."""
    (path,) = run_files.verified((run,), lambda _: on_progress())
    batches, places = [], []
    for positions, batch in read_run(path, run, on_progress=on_progress):
        batches.append(batch)
        places.append(positions)
    table = pa.Table.from_batches(batches)
    if run.purged:
        table = table.append_column(POSITION_FIELD, pa.array(np.concatenate(places)))
    return Rows(table, run.first_position, run.end_position)


def same_run(state: StreamState, run: Run) -> Run | None:
    """The run as it is now: only its partial aggregates may have changed."""
    found = (each for each in state.runs if each.first_position == run.first_position)
    return next((each for each in found if replace(each, rolled=run.rolled) == run), None)


def _is_unlike(run: Run, layout: Layout) -> bool:
    """Return whether a run is laid out in another way, or lacks a copy that was damaged."""
    copies = tuple(copy.reduction for copy in run.copies)
    return run.layout != layout or (isinstance(layout, Eager) and copies != layout.reductions)


def _noted(before: Scans, part: ReadablePart, reduction: float) -> Scans:
    """What is known of a run's scans after one more."""
    missed = part.copy is None and bool(part.run.copies)
    return before.after(missed=missed, dead=0.0 if missed else reduction)


def _is_due(run: Run, scans: Scans) -> bool:
    has = run.copies[-1].reduction if run.copies else 0.0
    return scans.dead > has or (bool(run.copies) and scans.is_useless)
