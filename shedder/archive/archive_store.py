"""The store of a data directory: log, catalog, runs, and the tail of every stream.

It is what survives. The engine appends to the log, adds what it has applied to the tail, and asks
for cuts, snapshots and scans; everything here may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.backfill.staged_runs import POSITION_MIN, BackfilledRuns
from shedder.archive.files.data_directory import (
    DirectoryLock,
    format_of,
    raise_format,
    refuse_strangers,
)
from shedder.archive.files.file_system import Files, OsFiles, failure
from shedder.archive.files.repair_record import RecordedRepair, read_repairs
from shedder.archive.indexes.index_maintenance import RunIndexes
from shedder.archive.log.log import SEGMENT_BYTES
from shedder.archive.log.segment_recovery import LogRecovery
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.metadata.position_gaps import PositionRange, holes
from shedder.archive.recovery.opening import DirectoryParts, open_parts
from shedder.archive.recovery.orphans import KnownFiles, clear_orphans
from shedder.archive.rewriting.purge import RunPurger
from shedder.archive.rewriting.quarantine import RunQuarantine
from shedder.archive.rewriting.relayout import RunLayouts
from shedder.archive.rewriting.retention import Retention
from shedder.archive.rewriting.row_deletion import RowDeletions
from shedder.archive.rollups.rollup_maintenance import RunRollups
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.runs.run_format import write_run
from shedder.archive.store.open_streams import OpenStreams
from shedder.archive.store.retention_partitions import end_of_run
from shedder.archive.store.scan import scan_snapshot, stretches
from shedder.archive.store.snapshot import Snapshot
from shedder.archive.store.tail import Piece
from shedder.archive.tables.table_images import TableImages
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.statements.archive_layout import Layout
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.overload_policy import OnOverload
from shedder.errors import DiskFull


@dataclass(frozen=True, slots=True)
class StoreRecovery:
    """What opening a directory found.

    orphans: run files that no catalog row named, removed. missing: runs whose file is gone or has
    the wrong size; asking for them raises CorruptData. unknown: where files are now whose origin
    is not known. repairs: what repairs of the catalog could not rebuild, newest first.
    """

    log: LogRecovery
    orphans: tuple[str, ...]
    missing: tuple[Run, ...]
    unknown: tuple[Path, ...] = ()
    repairs: tuple[RecordedRepair, ...] = ()


class Store:
    """An open data directory. Make it with `Store.open`.

    quarantine: damaged runs.
    deletions: rows that were deleted after they were stored.
    purger: takes deleted rows out of runs.
    layouts: runs that are not in their stream's layout, and lazy copies.
    retention: removal of old runs.
    rollups: rollups and their partial aggregates.
    indexes: value indexes.
    backfills: runs that were written elsewhere.
    tables: image files of tables.
    """

    def __init__(
        self,
        directory: Path,
        files: Files,
        lock: DirectoryLock,
        parts: DirectoryParts,
        *,
        verify_runs: bool,
    ) -> None:
        self.directory = directory
        self.files = files
        self.log = parts.log
        self.catalog = parts.catalog
        self._parts = parts
        self._directory_lock = lock
        run_files = RunFiles(files, directory, verify=verify_runs, marks=parts.marks)
        streams = OpenStreams(parts.catalog)
        self._run_files, self._streams = run_files, streams
        self.quarantine = RunQuarantine(streams, run_files)
        self.deletions = RowDeletions(streams)
        self.purger = RunPurger(streams, run_files)
        self.layouts = RunLayouts(streams, run_files)
        self.retention = Retention(streams, run_files)
        self.rollups = RunRollups(streams, run_files)
        self.indexes = RunIndexes(streams, run_files, files, directory)
        self.backfills = BackfilledRuns(streams, run_files, files, directory)
        self.tables = TableImages(files, directory, parts.marks)
        self.recovery = self._recover()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        files: Files | None = None,
        log_segment_bytes: int = SEGMENT_BYTES,
        verify_runs: bool = True,
    ) -> Self:
        """Open or create a data directory, and recover it from whatever happened to it.

        The log is verified, but its records are not applied: read all of them, and `add` their
        batches, before the first checkpoint (`log_start` counts the tail, which is empty before).

        Args:
          directory: made when missing.
          files: the file system; the real one when None.
          log_segment_bytes: size of the log's segments.
          verify_runs: compare each run's checksum before its first use in this process.

        Raises:
          DirectoryLocked: another process serves it.
          NewerFormat: a newer version wrote it.
          CorruptData: the catalog or FORMAT is damaged or missing, or older than it has been.
          BadSetting: it holds something else.
          StorageFailed, DiskFull: it cannot be read or written.
        """
        files = OsFiles() if files is None else files
        try:
            files.make_directory(directory)
            if format_of(directory) is None:  # or refused, before anything is touched
                refuse_strangers(files, directory)
            with ExitStack() as undo:
                lock = DirectoryLock.take(directory)
                undo.callback(lock.release)
                parts = open_parts(files, directory, undo, log_segment_bytes)
                store = cls(directory, files, lock, parts, verify_runs=verify_runs)
                undo.pop_all()
                return store
        except OSError as error:
            raise failure(error, str(directory), "open") from error

    def close(self) -> None:
        """Close log and catalog and release the directory. The tail is in the log."""
        try:
            self._run_files.close()
            self._parts.close()
        finally:
            self._directory_lock.release()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """No file of runs or tables and no segment of the log is deleted meanwhile."""
        with self.log.kept(), self._run_files.kept(), self.tables.kept():
            yield

    def allow(self, version: int) -> None:
        """From now on versions of Shedder that know no format `version` refuse the directory.

        Raises:
          DiskFull, StorageFailed: the format could not be raised.
        """
        with self._streams.lock:
            raise_format(self.files, self.directory, version)
            self._parts.marks.note_format(version)

    # --- streams ---

    def create_stream(self, schema: StreamSchema) -> StreamEntry:
        """Give a stream its id and its place.

        Raises:
          StreamExists: there is one of this name.
        """
        return self._streams.add(schema)

    def drop_stream(self, stream: int) -> None:
        """Forget a stream, its tail and its runs; files that are being read go later.

        Raises:
          UnknownStream: there is no such stream (any more).
          StorageFailed, DiskFull: the stream is as it was. CommitUnknown: too, until a restart,
            which may find it dropped unless another commit succeeds before.
        """
        with self._streams.change():
            state = self._streams.drop(stream)
            self._run_files.retire(name for run in state.runs for name in run.files)
        self._run_files.remove_retired()
        self.backfills.sweep(stream)
        self.indexes.sweep(stream)

    def set_layout(self, stream: int, layout: Layout) -> None:
        """Lay out new runs in this way from now on; `layouts.unlike` lists older runs.

        Raises:
          UnknownStream.
        """
        self._streams.change_schema(stream, lambda schema: replace(schema, layout=layout))

    def set_on_overload(self, stream: int, on_overload: OnOverload) -> None:
        """Note what becomes of the stream when it comes too fast.

        Raises:
          UnknownStream.
        """
        self._streams.change_schema(stream, lambda schema: replace(schema, on_overload=on_overload))

    def streams(self) -> list[StreamEntry]:
        """All streams, by id."""
        with self._streams.lock:
            return [state.entry for state in self._streams.states()]

    def runs(self, stream: int) -> list[Run]:
        """The runs of a stream, in order of position."""
        with self._streams.reading(stream) as state:
            return list(state.runs)

    def runs_bytes(self, stream: int) -> int:
        """What the runs of a stream take on disk, as of a moment ago: it waits for no lock.

        Each batch of a tenant with a quota of archive bytes asks, on the event loop.
        """
        return sum(run.size_bytes for run in list(self._streams.state(stream).runs))

    def end_position(self, stream: int) -> int:
        """The position that the stream's next tuple gets."""
        with self._streams.reading(stream) as state:
            return state.end_position

    # --- tail and runs ---

    def add(
        self, stream: int, first_position: int, batch: pa.RecordBatch, *, sequence: int
    ) -> None:
        """Put a durable batch into the tail; rows that a run covers already are left out.

        Args:
          stream: the stream's id.
          first_position: of the first row; at or after all that was added before.
          batch: of the stream's columns.
          sequence: of the record in the log that holds it.

        Raises:
          UnknownStream: there is no such stream (any more).
        """
        with self._streams.lock:  # `reading` takes a microsecond more, for every batch.
            state = self._streams.state(stream)
            covered = state.covered - first_position
            if covered > 0:
                batch, first_position = batch.slice(covered), first_position + covered
            if batch.num_rows:
                state.tail.add(Piece(first_position, batch, sequence))

    def tail_rows(self, stream: int) -> int:
        """Rows in no run yet, as of a moment ago: it waits for no lock."""
        return self._streams.state(stream).tail.rows

    def tail_bytes(self, stream: int | None = None) -> int:
        """Bytes that the tail of a stream, or of all, holds in memory, as of a moment ago.

        It waits for no lock: every batch that arrives asks, on the event loop.
        """
        states = self._streams.states() if stream is None else [self._streams.state(stream)]
        return sum(state.tail.size_bytes for state in states)

    def cut(self, stream: int, *, size_bytes_max: int | None = None) -> Run | None:
        """Write the tail, or a part of that size, as a run; `add` and `snapshot` go on meanwhile.

        Where damage has torn a hole into the positions, the run ends before the hole; where it
        would span more than a compartment of what is retained, there: call again until None comes
        back to write all.

        Raises:
          DiskFull, StorageFailed: the tail is as it was.
        """
        state = self._streams.state(stream)
        with state.cutting:
            with self._streams.lock:
                pieces = state.tail.stretch(size_bytes_max)
                if not pieces:
                    return None
                state.tail.freeze(pieces[-1].end_position)
            schema = state.entry.schema
            end = end_of_run(pieces, schema.time_column, schema.retain_us)
            with self._streams.lock:
                pieces = state.tail.split(end)
                state.tail.freeze(end)
            batches = [piece.batch for piece in pieces]
            run = write_run(
                self.files,
                self.directory,
                state.entry,
                pieces[0].first_position,
                batches,
                state.runs[-1] if state.runs else None,
            )
            if state.rollups:
                run = self.rollups.write(state, run, batches)
            with self._streams.change():
                if not self._streams.has(state):  # dropped meanwhile
                    self._run_files.discard(run.files)
                    return None
                try:
                    self.catalog.add_run(run)
                except DiskFull:
                    self._run_files.discard(run.files)  # an orphan would keep the disk full
                    raise
                self._run_files.trust(run)
                state.runs.append(run)
                state.tail.drop(len(pieces))
            return run

    def is_wide(self, stream: int) -> bool:
        """Return whether the tail spans more event time than one run may."""
        with self._streams.reading(stream) as state:
            pieces = state.tail.stretch()
        if not pieces:
            return False
        schema = state.entry.schema
        end = end_of_run(pieces, schema.time_column, schema.retain_us)
        return end < pieces[-1].end_position

    def snapshot(
        self, stream: int, start_us: int | None = None, end_us: int | None = None
    ) -> Snapshot:
        """The stream as it is now.

        Args:
          stream: its id.
          start_us: runs with no event time at or after it are left out.
          end_us: runs with no event time before it are left out.

        Raises:
          UnknownStream: there is no such stream.
        """
        with self._streams.reading(stream) as state:
            pieces = tuple(state.tail.pieces)
            wanted = [run for run in state.runs if run.overlaps(start_us, end_us)]
            return Snapshot(
                runs=tuple(run for run in wanted if state.readable(run)),
                missing=tuple(run for run in wanted if not state.readable(run)),
                deleted={
                    run.first_position: state.deleted[run.first_position]
                    for run in wanted
                    if run.first_position in state.deleted
                },
                tail=tuple(piece.batch for piece in pieces),
                tail_positions=tuple(piece.first_position for piece in pieces),
                end_position=state.end_position,
                files=self._run_files,
                holes=self.holes(stream),
            )

    def facts(self) -> dict[str, int]:
        """Return the store's rows of the control table.

        log_bytes: of all segments. files_in_use: files of runs that are read or rewritten; a file
        that was replaced stays until that work ends.
        """
        files = self._run_files.pinned
        return {"log_bytes": self.log.size_bytes, "files_in_use": len(files)}

    def holes(self, stream: int) -> tuple[PositionRange, ...]:
        """Positions that were lost with damaged bytes of the log, and are to be answered for."""
        with self._streams.reading(stream) as state:
            return tuple(it for it in state.holes if it[1] > state.entry.retained_position)

    def lost(self, stream: int) -> int:
        """Return how many tuples damaged bytes of the log took."""
        return sum(end - first for first, end in self.holes(stream))

    def find_holes(self, stream: int, end_position: int) -> tuple[PositionRange, ...]:
        """Find the positions that were lost, once the log's batches are added.

        end_position: everything before it has been in the log.
        """
        with self._streams.reading(stream) as state:
            held = [(run.first_position, run.end_position) for run in state.runs]
            held += [(it.first_position, it.end_position) for it in state.tail.pieces]
            held += [
                (first, end)
                for of, first, end in self.catalog.annotations.emptied()
                if of == stream
            ]
            removed = state.entry.retained_position
            state.note_holes(holes(held, removed=removed, end=end_position))
            return state.holes

    def scan(
        self,
        stream: int,
        start_us: int | None = None,
        end_us: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        from_position: int = POSITION_MIN,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The stream's tuples in order of position, as of the first `next`: runs, then tail.

        Runs wholly outside of [start_us, end_us) are left out; rows outside of it may come along.
        Tuples before from_position are left out, and so are deleted ones: the batches end there.

        Yields:
          the position of the first row, and at most 65,536 rows.

        Raises:
          CorruptData: a file is damaged, or a run that is wanted is in quarantine.
        """
        for first, batch, live in self.scan_live(
            stream, start_us, end_us, columns, from_position=from_position
        ):
            if live is None:
                yield first, batch
            else:
                for begin, end in stretches(live):
                    yield first + begin, batch.slice(begin, end - begin)

    def scan_live(
        self,
        stream: int,
        start_us: int | None = None,
        end_us: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        from_position: int = POSITION_MIN,
        on_progress: ProgressCallback = no_progress,
    ) -> Iterator[tuple[int, pa.RecordBatch, NDArray[np.bool_] | None]]:
        """As `scan`, in batches that deletions do not cut up.

        Yields:
          the position of the first row; rows, deleted ones among them; which of them are not
          deleted, bool [rows], or None: all.

        Raises:
          CorruptData: a file is damaged, or a run that is wanted is in quarantine.
        """
        with self.snapshot(stream, start_us, end_us) as snapshot:
            yield from scan_snapshot(snapshot, columns, from_position, on_progress)

    # --- checkpoint and log ---

    def log_start(self) -> int:
        """The first sequence that recovery needs: of the checkpoint, or of the oldest tail row.

        Right once the log has been replayed into the tail.
        """
        with self._streams.lock:
            oldest = [
                state.tail.pieces[0].sequence
                for state in self._streams.states()
                if state.tail.pieces
            ]
        return min([self.catalog.checkpoint_sequence(), *oldest])

    def trim_log(self) -> int:
        """Delete segments before `log_start()`; returns the bytes that were freed."""
        return self.log.drop_before(self.log_start())

    # --- inside ---

    def _recover(self) -> StoreRecovery:
        """Clear files that the catalog does not name, empty tmp/, and note what is missing."""
        runs = [run for state in self._streams.states() for run in state.runs]
        unnamed, missing = self._run_files.recover(runs)
        proven = self._parts.proven
        reached = {state.entry.id: state.covered for state in self._streams.states()}
        known = KnownFiles(proven, self.catalog.last_stream_id(), reached)
        orphans, unknown = clear_orphans(self.files, self.directory, unnamed, known, self.log)
        for name in self.files.names(self.directory / "tmp"):
            with suppress(IsADirectoryError):
                self.files.unlink(self.directory / "tmp" / name)
        unknown += self.backfills.recover(proven=proven)
        self.indexes.recover()
        tables = self.catalog.tables
        removed, strange = self.tables.recover(
            tables.entries(), last_table=tables.last_id(), proven=proven
        )
        orphans, unknown = (*orphans, *removed), [*unknown, *strange]
        self._parts.marks.accept()
        missing = tuple(run for run in missing if self._streams.state(run.stream_id).readable(run))
        repairs = read_repairs(self.directory)
        return StoreRecovery(self.log.recovery, orphans, missing, tuple(unknown), repairs)
