"""Exact answers: a DuckDB process of its own, with a memory limit and a deadline."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.exact import worker as exact_worker
from shedder.archive.exact.worker import LENGTH, WorkerLimits
from shedder.archive.tasks.progress import Progress
from shedder.cql.sql.exact_query import POSITION
from shedder.errors import (
    BudgetExceeded,
    CorruptData,
    DeadlineExceeded,
    InternalError,
    ShedderError,
    Unavailable,
)

RELATION = "stream"  # what the SQL of `ExactWorker.query` reads from

_MI = 1 << 20
_NOTHING: Mapping[str, Sequence[Path]] = MappingProxyType({})
_STEP_S = 0.05  # Seconds between two checks for cancellation of a query that waits for its turn.
_ERRORS: dict[str, type[ShedderError]] = {
    "budget": BudgetExceeded,
    "files": CorruptData,
    "bug": InternalError,
}


@dataclass(frozen=True, slots=True, eq=False)
class Without:
    """Rows that are in files and deleted: the files, and the rows' positions, int64."""

    files: Sequence[Path]
    positions: NDArray[np.int64]


class _End:
    """Kills the process of a query that is called off or late, and never that of the next one."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._lock = threading.Lock()
        self._over = False
        self._came = False

    def now(self) -> None:
        """The query is called off, or late. From any thread."""
        with self._lock:
            if not self._over:
                self._came = True
                self._process.kill()

    def came_before_over(self) -> bool:
        """The query is over; whether its process was killed before."""
        with self._lock:
            self._over = True
            return self._came


class ExactWorker:
    """Answers SQL over a stream's runs and tail, one query at a time; safe to share by threads.

    The process is started on first use, kept, killed at a query's deadline and started again when
    it is next needed. It can read the files of the query at hand and nothing else.
    """

    def __init__(
        self,
        temp_dir: Path,
        *,
        memory_bytes: int = 512 * _MI,
        threads: int = 2,
        timeout_s: float = 30.0,
        temp_bytes_max: int = 4096 * _MI,
        result_bytes_max: int = 64 * _MI,
    ) -> None:
        """Set the limits; nothing is started yet.

        Args:
          temp_dir: where DuckDB may spill; emptied here, so it must be the worker's own.
          memory_bytes: DuckDB's memory limit.
          threads: DuckDB's threads.
          timeout_s: the deadline of queries that bring none.
          temp_bytes_max: how much may be spilled.
          result_bytes_max: how large a result may be.
        """
        self._temp_dir = temp_dir
        self._limits = WorkerLimits(
            memory_bytes, threads, str(temp_dir.absolute()), temp_bytes_max, result_bytes_max
        )
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        """Start the process now, so that the first query does not wait for it."""
        with self._turn:
            self._running()

    def query(
        self,
        sql: str,
        files: Sequence[Path],
        tail: Sequence[pa.RecordBatch],
        schema: pa.Schema,
        timeout_s: float | None = None,
        tail_positions: Sequence[int] | None = None,
        dealt_files: Sequence[Path] = (),
        without: Without | None = None,
        progress: Progress | None = None,
        more: Sequence[pa.RecordBatch] = (),
        beside: Mapping[str, Sequence[Path]] = _NOTHING,
    ) -> pa.Table:
        """Run one SELECT over the relation `stream`.

        Args:
          sql: DuckDB SQL, as `cql.render.exact_sql` makes it.
          files: Parquet files with at least the columns of `schema`, in order of position.
          tail: record batches of `schema`, the rows that are in no file yet.
          schema: the stream's columns.
          timeout_s: from now, the wait for other queries included.
          tail_positions: of the first row of each batch of the tail; if given, the relation has
            the column POSITION, too, and each file's name begins with its first row's position.
          dealt_files: further files, which have POSITION as a column, rows in any order.
          more: further rows, of the schema; if tail_positions is given, with POSITION.
          without: rows of some of the files that are not part of the relation.
          progress: by which it may be called off.

          beside: further relations by name, of all columns of Parquet files; at least one each.

        Raises:
          Cancelled: it was called off; the process was killed.
          DeadlineExceeded: not done in time; the process was killed.
          BudgetExceeded: more memory, spill space or result bytes were needed than there are.
          CorruptData: a file could not be read.
          Unavailable: the worker is closed.
        """
        allowed_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + allowed_s
        progress = Progress("an exact answer", "tuples") if progress is None else progress
        while not self._turn.acquire(timeout=_STEP_S):
            progress.advance()
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(
                    f"no exact answer within {allowed_s:g} s: others were before it"
                )
        try:
            position = None
            if tail_positions is not None:
                position, tail = POSITION, _numbered(tail, tail_positions)
            tail = [*tail, *more]
            paths = (files, dealt_files)
            rest = (without, progress, beside)
            return self._ask(sql, paths, tail, schema, deadline, allowed_s, position, *rest)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Kill the process; a query that it works on fails."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._turn:
            self._forget()
            shutil.rmtree(self._temp_dir, ignore_errors=True)

    def _ask(
        self,
        sql: str,
        files: tuple[Sequence[Path], Sequence[Path]],
        tail: Sequence[pa.RecordBatch],
        schema: pa.Schema,
        deadline: float,
        allowed_s: float,
        position: str | None,
        without: Without | None,
        progress: Progress,
        beside: Mapping[str, Sequence[Path]],
    ) -> pa.Table:
        process = self._running()
        late = threading.Event()
        end = _End(process)

        def end_late() -> None:
            late.set()
            end.now()

        timer = threading.Timer(max(0.0, deadline - time.monotonic()), end_late)
        timer.daemon = True
        timer.start()
        header = {
            "sql": sql,
            "files": [str(path.absolute()) for path in files[0]],
            "dealt": [str(path.absolute()) for path in files[1]],
            "columns": schema.names,
            "position": position,
            "beside": {
                name: [str(path.absolute()) for path in paths] for name, paths in beside.items()
            },
            "marked": [str(path.absolute()) for path in without.files] if without else [],
        }
        if position is not None:
            schema = schema.append(pa.field(position, pa.int64()))
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with progress.calling(end.now):
                _send(process.stdin, header, tail, schema, without)
                error, table = _receive(process.stdout)
        except (OSError, EOFError, pa.ArrowException) as broken:
            self._forget()
            if late.is_set():
                raise DeadlineExceeded(f"no exact answer within {allowed_s:g} s") from broken
            raise self._died(process) from broken
        except BaseException:  # interrupted half way: what is in the pipes belongs to no one
            self._forget()
            raise
        finally:
            timer.cancel()
            if end.came_before_over():  # Just after the reply: the next query gets another process.
                self._forget()
        if error is not None:
            raise error
        assert table is not None
        return table

    def _died(self, process: subprocess.Popen[bytes]) -> ShedderError:
        if self._closed:
            return Unavailable("the exact worker was closed")
        code = process.returncode
        if code == -9:  # the kernel's way of saying that memory is short
            return BudgetExceeded("the exact worker was killed by the system; memory is short")
        return InternalError(f"the exact worker ended with status {code}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise Unavailable("the exact worker is closed")
        process = self._process
        if process is not None and process.poll() is None:
            return process
        self._forget()
        shutil.rmtree(self._temp_dir, ignore_errors=True)  # what a killed one has spilled
        script = str(exact_worker.__file__)
        self._process = subprocess.Popen(  # noqa: S603  (our own script)
            [sys.executable, "-P", script, json.dumps(asdict(self._limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent, which then closes the pipe
        )
        return self._process

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _send(
    out: Any,
    header: dict[str, Any],
    tail: Sequence[pa.RecordBatch],
    schema: pa.Schema,
    without: Without | None,
) -> None:
    text = json.dumps(header).encode()
    out.write(LENGTH.pack(len(text)) + text)
    with pa.ipc.new_stream(out, schema) as writer:
        for batch in tail:
            writer.write_batch(batch)
    if without is not None and without.files:
        deleted = pa.record_batch([pa.array(without.positions)], [POSITION])
        with pa.ipc.new_stream(out, deleted.schema) as writer:
            writer.write_batch(deleted)
    out.flush()


def _receive(source: Any) -> tuple[ShedderError | None, pa.Table | None]:
    (size,) = LENGTH.unpack(_exactly(source, LENGTH.size))
    header = json.loads(_exactly(source, size))
    if header["error"] is not None:
        return _ERRORS[header["error"]](header["message"].splitlines()[0]), None
    with pa.ipc.open_stream(source) as reader:
        return None, reader.read_all()


def _numbered(batches: Sequence[pa.RecordBatch], positions: Sequence[int]) -> list[pa.RecordBatch]:
    """The batches with the position of each row."""
    return [
        batch.append_column(POSITION, pa.array(np.arange(first, first + batch.num_rows)))
        for first, batch in zip(positions, batches, strict=True)
    ]


def _exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError("the exact worker is gone")
    return data
