"""Value indexes of a stream's runs: built beside everything else, and never needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import structlog
from numpy.typing import NDArray

from shedder.archive.files.file_system import Files, atomic_write, failure
from shedder.archive.indexes.value_index import Fences, Ranges, Stale, index_name, keys_of, to_parts
from shedder.archive.layouts.file_handle_cache import opened
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.store.open_streams import OpenStreams
from shedder.archive.store.stream_state import StreamState
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import BadSetting, UnknownColumn

FENCES_MAX = 8_192  # Files whose fences are kept in memory, each 12 bytes per 4,096 values.

_log = structlog.get_logger("shedder.archive")


class RunIndexes:
    """Value indexes of runs.

    An index file belongs to one file of a run, whose checksum it names. It is not in the catalog:
    whatever is missing, damaged or of another file is not used, and built again.
    """

    def __init__(
        self, streams: OpenStreams, run_files: RunFiles, files: Files, directory: Path
    ) -> None:
        self._streams, self._catalog, self._run_files = streams, streams.catalog, run_files
        self._files, self._directory = files, directory
        self._fences: dict[Path, tuple[int, Fences]] = {}
        self._built: dict[Path, int] = {}  # Good files, each with the checksum of its run's file.

    @contextmanager
    def making(self, stream: int, column: str) -> Iterator[None]:
        """Allow the block to build files of a column's index that no query uses yet.

        The files are deleted after the block if the column has no index by then (`create`).
        The state is in memory only, so a cancellation never waits for a catalog transaction.

        Raises:
          UnknownStream, UnknownColumn. BadSetting: a column of its type cannot have one.
        """
        with self._streams.reading(stream) as state:
            if self._type_of(state, column) is ColumnType.BOOLEAN:
                raise BadSetting(f"an index on {column!r}, a BOOLEAN, would leave nothing out")
            state.begin_index(column)
        try:
            yield
        finally:
            with self._streams.lock:
                state.end_index(column)
                is_none = column not in (*state.indexes, *state.indexes_to_be)
            if is_none:
                self.sweep(stream)

    def create(self, stream: int, column: str, on_progress: ProgressCallback = no_progress) -> bool:
        """From now on a column has an index; False when it had one.

        on_progress: called now and then while others write the catalog; what it raises ends the
          waiting.

        Raises:
          UnknownStream, UnknownColumn.
        """
        with self._streams.changing(stream, on_progress) as state:
            self._type_of(state, column)
            if column in state.indexes:
                return False
            self._catalog.annotations.add_index(stream, column)
            state.add_index(column)
            return True

    def drop(self, stream: int, column: str) -> bool:
        """A column has no index any more; False when it had none. Its files go."""
        with self._streams.changing(stream) as state:
            if column not in state.indexes:
                return False
            self._catalog.annotations.drop_index(stream, column)
            state.drop_index(column)
        self.sweep(stream)
        return True

    def columns(self, stream: int) -> tuple[str, ...]:
        """The columns that have an index."""
        return self._streams.state(stream).indexes

    def streams(self) -> list[int]:
        """The streams with an index of any column."""
        with self._streams.lock:
            return [it.entry.id for it in self._streams.states() if it.indexes]

    def to_be(self, stream: int) -> tuple[str, ...]:
        """The columns whose index is being made, and is none yet."""
        with self._streams.reading(stream) as state:
            return tuple(name for name in state.indexes_to_be if name not in state.indexes)

    def unindexed(
        self,
        stream: int,
        on_progress: ProgressCallback = no_progress,
        *,
        columns: Sequence[str] | None = None,
    ) -> list[tuple[Run, str]]:
        """What an index lacks: runs that have no good file for a column that should have one.

        on_progress: called after each file; what it raises ends the work.
        columns: which should; those that have an index when None.
        """
        with self._streams.reading(stream) as state:
            runs = [run for run in state.runs if state.readable(run)]
            columns = state.indexes if columns is None else columns
        found = []
        for run in runs:
            for name in columns:
                if not self._is_built(run, name):
                    found.append((run, name))
                on_progress()
        return found

    def build(
        self, run: Run, column: str, on_progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Build the index of one run and column, if it is missing and still wanted.

        Args:
          run: one of `unindexed`; it may have been dropped, or written anew, since.
          column: its column; its index may have been dropped since.
          on_progress: called after some milliseconds of work each, with the rows that were read
            meanwhile; what it raises ends the work.

        Raises:
          CorruptData: the run is damaged. DiskFull, StorageFailed.
        """
        if self._is_built(run, column):  # Another thread built it after it was listed.
            on_progress(run.rows)
            return
        target = self._path(run, column)
        mine = f"index-{threading.get_ident()}-{target.parent.name}-{target.name}"
        temporary = self._directory / "tmp" / mine  # Two may build the same one at once.
        with self._streams.lock:
            if not self._is_wanted(run, column):
                return
            kind = self._type_of(self._streams.state(run.stream_id), column)
            self._run_files.pin([run.file])
        try:
            parts = to_parts(
                self._keys(run, column, kind, on_progress), run.crc, lambda: on_progress(0)
            )
            self._files.make_directory(target.parent)
            with suppress(FileNotFoundError):
                self._files.unlink(temporary)
            atomic_write(self._files, temporary, target, parts, lambda: on_progress(0))
        except BaseException as error:
            with suppress(OSError):
                self._files.unlink(temporary)
            if not isinstance(error, OSError):
                raise
            raise failure(error, f"index {target.name}") from error
        finally:
            self._run_files.unpin([run.file])
        with self._streams.lock:
            if self._is_wanted(run, column):
                self._built[target] = run.crc
            else:  # The index was dropped; its sweep may have run before this file existed.
                with suppress(OSError):
                    self._files.unlink(target)

    def look_up(self, run: Run, column: str, ranges: Ranges) -> NDArray[np.uint16] | None:
        """The row groups of a run that may hold a value; None where its index is of no use.

        Args:
          run: of a snapshot.
          column: that has an index.
          ranges: of keys, see `value_index.keys_of`.
        """
        path = self._path(run, column)
        try:
            file = self._files.open(path)
        except OSError:
            self._built.pop(path, None)
            return None
        try:
            known = self._fences.get(path)
            if known is None or known[0] != run.crc:
                known = (run.crc, Fences.read(file, run.crc))
                if len(self._fences) >= FENCES_MAX:
                    self._fences.clear()
                self._fences[path] = known
            return known[1].groups(file, ranges)
        except (Stale, OSError) as error:
            self._fences.pop(path, None)
            self._built.pop(path, None)
            _log.warning("index_not_used", file=str(path), error=repr(error))
            with suppress(OSError):  # it is built again
                self._files.unlink(path)
            return None
        finally:
            file.close()

    def sweep(self, stream: int, on_progress: ProgressCallback = no_progress) -> None:
        """Remove the files of indexes that are of no run, or of no column, any more.

        on_progress: called after each run; what it raises ends the work.
        """
        folder = self._directory / "indexes" / str(stream)
        try:
            names = self._files.names(folder)
        except OSError:  # It has none; or they are swept the next time.
            return
        # After the names: the run of a file that was made before is here, too.
        with self._streams.lock:
            state = self._streams.find(stream)
            runs, columns = ([], ()) if state is None else (list(state.runs), state.wanted_indexes)
        wanted: set[str] = set()
        for run in runs if names else []:
            wanted.update(index_name(run.file, column) for column in columns)
            on_progress()
        for name in names:
            if name not in wanted and name.endswith(".index"):
                self._fences.pop(folder / name, None)
                self._built.pop(folder / name, None)
                with suppress(OSError):  # Another sweep removed it, or the next one will.
                    self._files.unlink(folder / name)

    def recover(self) -> None:
        """Remove what a crash has left: files of streams, runs or columns that are not there."""
        for folder in self._files.names(self._directory / "indexes"):
            if folder.isdecimal():
                self.sweep(int(folder))

    def _keys(
        self, run: Run, column: str, kind: ColumnType, on_progress: Callable[[int], None]
    ) -> list[NDArray[np.int64]]:
        """The keys of each row group of a run's file."""
        path = self._directory / "runs" / run.file
        if run.footer is None:
            self._run_files.verified((run,), lambda _: on_progress(0))
        found = []
        with opened(self._files, path, run) as (parquet, _):
            for group in range(parquet.num_row_groups):
                values = parquet.read_row_group(group, columns=[column], use_threads=False)[column]
                flat = values.combine_chunks().drop_null()
                if kind is ColumnType.DOUBLE:
                    flat = flat.filter(pc.invert(pc.is_nan(flat)))
                found.append(keys_of(flat, kind))
                on_progress(len(values))
        return found

    def _is_wanted(self, run: Run, column: str) -> bool:
        state = self._streams.find(run.stream_id)
        if state is None or column not in state.wanted_indexes:
            return False
        mine = run.file, run.crc  # A name is reused once no reader has the old file.
        return any((known.file, known.crc) == mine for known in state.runs)

    def _is_built(self, run: Run, column: str) -> bool:
        path = self._path(run, column)
        if self._built.get(path) == run.crc:
            return True
        try:
            file = self._files.open(path)
        except OSError:
            return False
        try:
            Fences.read(file, run.crc)
        except (Stale, OSError):
            return False
        finally:
            file.close()
        self._built[path] = run.crc
        return True

    def _path(self, run: Run, column: str) -> Path:
        return self._directory / "indexes" / str(run.stream_id) / index_name(run.file, column)

    @staticmethod
    def _type_of(state: StreamState, column: str) -> ColumnType:
        types = {c.name: c.type for c in state.entry.schema.columns}
        if column not in types:
            raise UnknownColumn(column, list(types))
        return types[column]
