"""Rollups of streams: partial aggregates, written with each run, and of older runs later.

Those of an eager rollup are written on arrival (OSCAR's OnWriteReplicate for windowed aggregates),
those of a lazy one when a question that they would have answered has read a run (OnReadModify),
and dropped again when too many questions read the run past them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from shedder.archive.catalog.run_annotations import Scans
from shedder.archive.metadata.catalog_entries import Rolled, RollupEntry, Run
from shedder.archive.rollups.run_rollup import write_rolled
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.runs.run_format import read_run
from shedder.archive.store.open_streams import OpenStreams
from shedder.archive.store.stream_state import StreamState
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.binding.rollup_definition import Rollup, rollup_of
from shedder.cql.statements.statement import Select
from shedder.errors import ShedderError


class RunRollups:
    """Rollups, and the partial aggregates of runs, which can be made anew from the runs.

    So a kill at any moment leaves each run with them or without them; what is missing is due.
    """

    def __init__(self, streams: OpenStreams, run_files: RunFiles) -> None:
        self._streams, self._catalog, self._run_files = streams, streams.catalog, run_files

    def add(self, stream: int, name: str, select: Select, *, lazy: bool = False) -> RollupEntry:
        """Add a rollup; each run that is written from now on has it. `due` lists other runs.

        lazy: a run gets the rollup only after `want`.

        Raises:
          BadQuery: it cannot be a rollup. RollupExists: there is one of this name.
        """
        state = self._streams.state(stream)
        rollup = rollup_of(select, state.entry.schema)
        with state.cutting, self._streams.change():
            entry = self._catalog.rollups.add(name, stream, select.text, lazy=lazy)
            state.rollups[entry.id] = (entry, rollup)
        return entry

    def drop(self, entry: RollupEntry) -> None:
        """Drop a rollup; its files are deleted when no reader has them open."""
        state = self._streams.state(entry.stream_id)
        with state.cutting, state.rewriting, self._streams.change():
            self._catalog.rollups.drop(entry)
            dropped = state.drop_rollup(entry.id)
            self._run_files.retire([each.file for each in dropped])
        self._run_files.remove_retired()

    def entries(self, stream: int) -> list[tuple[RollupEntry, Rollup]]:
        """The rollups of a stream, the oldest first."""
        with self._streams.reading(stream) as state:
            return list(state.rollups.values())

    def want(self, entry: RollupEntry, runs: Sequence[Run]) -> None:
        """Note that a lazy rollup would have saved reading these runs: it is due.

        A restart forgets it, and the next question notes it again.
        """
        with self._streams.lock:
            state = self._streams.find(entry.stream_id)
            if state is not None and entry.id in state.rollups:
                state.want_rolled(entry.id, runs)

    def note_scans(self, stream: int, scanned: Iterable[tuple[Run, int | None]]) -> bool:
        """Note how runs were scanned that have partial aggregates of lazy rollups.

        A restart forgets it, as it forgets what is wanted.

        Args:
          stream: whose runs.
          scanned: runs, and the rollup that was read of each; None: all of its tuples were.

        Returns:
          whether some are useless now, see `missed`.
        """
        with self._streams.lock:
            state = self._streams.find(stream)
            if state is None:
                return False
            lazy = {entry.id for entry, _ in state.rollups.values() if entry.lazy}
            for run, by in scanned:
                for rolled in run.rolled:
                    if rolled.rollup_id in lazy and by in (None, rolled.rollup_id):
                        noted = state.rolled_scans.setdefault(run.first_position, {})
                        before = noted.get(rolled.rollup_id, Scans())
                        noted[rolled.rollup_id] = before.after(missed=by is None)
            return bool(lazy and self.missed(stream))

    def missed(self, stream: int) -> list[tuple[Run, Rolled]]:
        """Partial aggregates of lazy rollups that too many scans of their run had no use for."""
        with self._streams.reading(stream) as state:
            return [
                (run, rolled)
                for run in state.runs
                if (noted := state.rolled_scans.get(run.first_position)) is not None
                for rolled in run.rolled
                if noted.get(rolled.rollup_id, Scans()).is_useless
            ]

    def due(self, stream: int) -> list[tuple[Run, RollupEntry]]:
        """The runs that lack a rollup and should have it: of a lazy one, those that were read."""
        with self._streams.lock:
            wanted = self._streams.state(stream).unrolled
            return [
                (run, entry)
                for run, entry in self.unrolled(stream)
                if not entry.lazy
                or run.rolled_by(entry.id) is not None
                or (run.first_position, entry.id) in wanted
            ]

    def unrolled(self, stream: int) -> list[tuple[Run, RollupEntry]]:
        """Whole runs that lack a rollup, or had other rows deleted when it was made."""
        with self._streams.reading(stream) as state:
            return [
                (run, entry)
                for entry, _ in state.rollups.values()
                for run in state.runs
                if state.readable(run) and not _is_fresh(state, run, entry)
            ]

    def roll_up(
        self, run: Run, entry: RollupEntry, on_progress: ProgressCallback = no_progress
    ) -> bool:
        """Make a run's partial aggregates; False when there is nothing to do any more.

        It holds the columns of the rollup in memory.

        Args:
          run, entry: one of `due`.
          on_progress: called now and then; what it raises ends the work and leaves all as it was.

        Raises:
          DiskFull, StorageFailed, Cancelled: all is as it was. CorruptData: the run is damaged.
        """
        state = self._streams.find(run.stream_id)
        if state is None:
            return False
        with state.rewriting:
            with self._streams.lock:
                current = _current(state, run)
                known = state.rollups.get(entry.id)
                if current is None or known is None or _is_fresh(state, current, entry):
                    return False
                deleted = state.deleted.get(run.first_position)
                self._run_files.pin([current.file])
            place = self._run_files.place(on_progress)
            try:
                with place.all_or_nothing():
                    live = None if deleted is None else ~deleted.mask(current)
                    rows = self._live_rows(current, known[1], live, on_progress)
                    count = 0 if deleted is None else deleted.rows
                    rolled = write_rolled(place, state.entry, *known, current, rows, count)
                    return self._put_rolled(state, current, rolled, on_progress)
            finally:
                self._run_files.unpin([current.file])

    def drop_rolled(self, run: Run, rolled: Rolled) -> bool:
        """Forget partial aggregates that are damaged, or missed; those of a lazy rollup are due
        again when they are wanted, others at once."""
        state = self._streams.find(run.stream_id)
        if state is None:
            return False
        with self._streams.change():
            current = _current(state, run)
            if current is None or rolled not in current.rolled:
                return False
            self._catalog.rollups.drop_rolled(run, rolled)
            kept = tuple(each for each in current.rolled if each != rolled)
            state.runs[state.runs.index(current)] = replace(current, rolled=kept)
            _forget_scans(state, run, rolled.rollup_id)
            self._run_files.retire([rolled.file])
        self._run_files.remove_retired()
        return True

    def write(self, state: StreamState, run: Run, batches: Sequence[pa.RecordBatch]) -> Run:
        """Write the partial aggregates of a run that was just written; state.cutting is held.

        Raises:
          DiskFull, StorageFailed: nothing is in `runs/`, the run's own file neither.
        """
        place = self._run_files.place()
        table = pa.Table.from_batches(batches)
        try:
            with place.all_or_nothing():
                rolled = tuple(
                    write_rolled(place, state.entry, *known, run, table)
                    for known in state.rollups.values()
                    if not known[0].lazy
                )
        except ShedderError:
            self._run_files.discard(run.files)
            raise
        return replace(run, rolled=rolled)

    def _live_rows(
        self,
        run: Run,
        rollup: Rollup,
        live: np.ndarray[tuple[int], np.dtype[np.bool_]] | None,
        on_progress: ProgressCallback,
    ) -> pa.Table:
        (path,) = self._run_files.verified((run,), lambda _: on_progress())
        batches = []
        for positions, batch in read_run(path, run, rollup.columns, on_progress):
            if live is not None:
                wanted = live[positions - run.first_position]
                batch = batch.filter(pa.array(wanted))  # noqa: PLW2901
            batches.append(batch)
        return pa.Table.from_batches(batches)

    def _put_rolled(
        self, state: StreamState, run: Run, rolled: Rolled, on_progress: ProgressCallback
    ) -> bool:
        """Make a file part of its run in one transaction; an older one of the rollup goes."""
        with self._streams.change(on_progress):
            current = _current(state, run)
            if not self._streams.has(state) or current is None:
                self._run_files.discard([rolled.file])
                return False
            older = current.rolled_by(rolled.rollup_id)
            self._catalog.rollups.add_rolled(run, rolled)
            kept = tuple(each for each in current.rolled if each != older)
            new = replace(current, rolled=tuple(sorted((*kept, rolled), key=_id)))
            state.runs[state.runs.index(current)] = new
            state.unrolled.discard((run.first_position, rolled.rollup_id))
            _forget_scans(state, run, rolled.rollup_id)
            self._run_files.trust_name(rolled.file)
            if older is not None:
                self._run_files.retire([older.file])
        self._run_files.remove_retired()
        return True


def deleted_rows(state: StreamState, run: Run) -> int:
    """Return how many rows of a run are deleted now."""
    deleted = state.deleted.get(run.first_position)
    return 0 if deleted is None else deleted.rows


def _is_fresh(state: StreamState, run: Run, entry: RollupEntry) -> bool:
    rolled = run.rolled_by(entry.id)
    return rolled is not None and rolled.deleted == deleted_rows(state, run)


def _current(state: StreamState, run: Run) -> Run | None:
    """The run at this place as it is now, whatever was made of it; None when it was retired."""
    stretch = (run.first_position, run.end_position)
    for each in state.runs:
        if (each.first_position, each.end_position) == stretch:
            return each
    return None


def _forget_scans(state: StreamState, run: Run, rollup_id: int) -> None:
    """Those of a run before its partial aggregates were made, or dropped."""
    state.rolled_scans.get(run.first_position, {}).pop(rollup_id, None)


def _id(rolled: Rolled) -> int:
    return rolled.rollup_id
