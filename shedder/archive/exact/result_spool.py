"""Spools of results: batches between the thread that reads a query and the one that takes its rows.

A spool keeps the first bytes in memory and the others in a file without a name, so that a slow
reader holds neither the exact worker nor memory.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pyarrow as pa

from shedder.archive.files.file_system import failure
from shedder.errors import BudgetExceeded, Cancelled, StorageFailed

MEMORY_BYTES_MAX = 8 << 20  # Bytes of batches that one spool keeps in memory.


class SpoolSpace:
    """Bytes of files that all spools of an engine may hold together. Safe from any thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """The bytes that are held now."""
        return self._held

    def take(self, size: int) -> None:
        """Take room for some bytes.

        Raises:
          BudgetExceeded: results that were not taken yet hold the room.
        """
        with self._lock:
            if self._held + size > self._bytes_max:
                raise BudgetExceeded(
                    f"results whose rows were not taken yet hold {self._held:,} bytes of disk, the "
                    f"limit is {self._bytes_max:,}: take their rows, or ask with LIMIT"
                )
            self._held += size

    def give_back(self, size: int) -> None:
        """Give room back."""
        with self._lock:
            self._held -= size


class ResultSpool:
    """Batches of one result, from one writer to one reader.

    The writer calls `begin`, `put` for each batch, and `end`. The reader reads `schema` and
    iterates, waiting for batches, and calls `close` when it wants no more of them.
    """

    def __init__(
        self, directory: Path, space: SpoolSpace, *, memory_bytes_max: int = MEMORY_BYTES_MAX
    ) -> None:
        """Begin a spool without batches.

        directory: of the file.
        space: that the file takes its bytes from.
        """
        self._directory = directory
        self._space = space
        self._memory_bytes_max = memory_bytes_max
        self._entries: deque[pa.RecordBatch | tuple[int, int]] = deque()  # Or offset and size.
        self._memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._file_bytes = 0
        self._schema: pa.Schema | None = None
        self._error: BaseException | None = None
        self._is_ended = False
        self._is_closed = False
        self._changed = threading.Condition()

    # --- of the writer ---

    def begin(self, schema: pa.Schema) -> None:
        """Set the schema of the result."""
        with self._changed:
            self._schema = schema
            self._changed.notify_all()

    def put(self, batch: pa.RecordBatch) -> None:
        """Append a batch.

        Raises:
          Cancelled: the reader wants no more of them.
          BudgetExceeded: results hold the room for them. DiskFull, StorageFailed: the file cannot
            be written.
        """
        with self._changed:
            if self._is_closed:
                raise Cancelled("the reader of the result has gone")
            entry: pa.RecordBatch | tuple[int, int] = batch
            if self._memory_bytes + batch.nbytes > self._memory_bytes_max:
                entry = self._written(batch)
            else:
                self._memory_bytes += batch.nbytes
            self._entries.append(entry)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """End the result; the reader gets the error behind the last batch."""
        with self._changed:
            self._error = error
            self._is_ended = True
            self._changed.notify_all()

    # --- of the reader ---

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result, once it is known.

        Raises:
          what the query raised before its first batch.
        """
        with self._changed:
            while self._schema is None and not self._is_ended:
                self._changed.wait()
            if self._schema is None:
                assert self._error is not None
                raise self._error
            return self._schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._taken()) is not None:
            yield batch

    def close(self) -> None:
        """Drop what was not read; the next `put` ends the query. A second time does nothing."""
        with self._changed:
            self._is_closed = True
            self._entries.clear()
            self._changed.notify_all()
            if self._file is not None:
                self._file.close()
                self._file = None
                self._space.give_back(self._file_bytes)

    def _taken(self) -> pa.RecordBatch | None:
        """The next batch; None: it was the last one."""
        with self._changed:
            while not self._entries and not self._is_ended and not self._is_closed:
                self._changed.wait()
            if not self._entries:
                if self._error is not None:
                    raise self._error
                return None
            entry = self._entries.popleft()
            if isinstance(entry, tuple):
                return self._read(*entry)
            self._memory_bytes -= entry.nbytes
            return entry

    # --- the file ---

    def _written(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Write a batch behind the others; its offset and size."""
        data = batch.serialize()
        self._space.take(data.size)
        with ExitStack() as undo:
            undo.callback(self._space.give_back, data.size)
            try:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115
                self._file.seek(self._file_bytes)
                self._file.write(data)
                self._file.flush()
            except OSError as error:
                raise failure(error, f"a result in {self._directory}", "keep") from error
            undo.pop_all()
        self._file_bytes += data.size
        return self._file_bytes - data.size, data.size

    def _read(self, offset: int, size: int) -> pa.RecordBatch:
        assert self._file is not None
        assert self._schema is not None
        try:
            data = os.pread(self._file.fileno(), size, offset)
        except OSError as error:
            raise StorageFailed(f"cannot read a result in {self._directory}: {error}") from error
        return pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)
