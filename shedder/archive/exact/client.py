"""Exact answers: a DuckDB process of its own, with a memory limit and a deadline."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from shedder.archive.exact.fork_server import KILLED, NOT_STARTED
from shedder.archive.exact.relation import ExactRelation
from shedder.archive.exact.worker import ResultLimits, WorkerLimits
from shedder.archive.exact.worker_pipe import (
    ExactRequest,
    ProcessEnded,
    QueryFailed,
    ResultReader,
    of_the_process,
    send_request,
)
from shedder.archive.exact.worker_process import SHARED_FORK_SERVER, WorkerProcess
from shedder.archive.files.file_system import SHORT_ERRNOS, failure
from shedder.archive.tasks.progress import Progress
from shedder.errors import (
    BudgetExceeded,
    DeadlineExceeded,
    InternalError,
    ResourcesShort,
    ShedderError,
    Unavailable,
)

RELATION = "stream"  # The name of the relation of a query of one stream.

_MI = 1 << 20
_NOTHING: Mapping[str, Sequence[Path]] = MappingProxyType({})
_STEP_S = 0.05  # Seconds between two checks for cancellation of a query that waits for its turn.


class _End:
    """Kills the process of a query that is called off or late, and never that of the next one."""

    def __init__(self, process: WorkerProcess) -> None:
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
    """Answers SQL over streams' runs and tails, one query at a time; safe to share by threads.

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
          result_bytes_max: how large a result without limits may be.
        """
        self._temp_dir = temp_dir
        self._limits = WorkerLimits(
            memory_bytes, threads, str(temp_dir.absolute()), temp_bytes_max, result_bytes_max
        )
        self._timeout_s = timeout_s
        self._process: WorkerProcess | None = None
        self._turn = threading.Lock()
        self._closed = False

    def query(
        self,
        sql: str,
        relations: Sequence[ExactRelation],
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
        beside: Mapping[str, Sequence[Path]] = _NOTHING,
    ) -> pa.Table:
        """Run one SELECT; the result is whole, or an error.

        Args: as `reading`.

        Raises:
          BudgetExceeded: the result has more than result_bytes_max, or as `reading`.
        """
        reading = self.reading(
            sql, relations, None, timeout_s=timeout_s, progress=progress, beside=beside
        )
        with reading as result:
            return pa.Table.from_batches(list(result), result.schema)

    @contextmanager
    def reading(
        self,
        sql: str,
        relations: Sequence[ExactRelation],
        limits: ResultLimits | None,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
        beside: Mapping[str, Sequence[Path]] = _NOTHING,
    ) -> Iterator[ResultReader]:
        """Run one SELECT while the block reads its result; the worker has no other query then.

        Args:
          sql: DuckDB SQL over the relations' names.
          relations: their names are unique and do not begin with two underscores.
          limits: where the result is cut; None: it must fit into result_bytes_max, and comes
            when it is whole.
          timeout_s: from now, the wait for other queries included.
          progress: by which it may be called off.
          beside: further relations by name, of all columns of Parquet files; at least one each.

        Raises:
          Cancelled: it was called off; the process was killed.
          DeadlineExceeded: not done in time; the process was killed.
          BudgetExceeded: more memory, spill space or result bytes were needed than there are.
          CorruptData: a file could not be read.
          DiskFull, StorageFailed: rows could not be spilled.
          ResourcesShort: there are no descriptors, memory or processes for a worker.
          Unavailable: the worker is closed, or cannot be started.
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
            request = ExactRequest(sql, relations, limits, beside)
            with self._sent(request, deadline, allowed_s, progress) as result:
                yield result
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
            SHARED_FORK_SERVER.remove(self)
            shutil.rmtree(self._temp_dir, ignore_errors=True)

    @contextmanager
    def _sent(
        self, request: ExactRequest, deadline: float, allowed_s: float, progress: Progress
    ) -> Iterator[ResultReader]:
        rows = [relation.rows() for relation in request.relations]
        process = self._running()
        late = threading.Event()
        end = _End(process)

        def end_late() -> None:
            late.set()
            end.now()

        left_s = max(0.0, deadline - time.monotonic())
        timer = threading.Timer(min(left_s, threading.TIMEOUT_MAX), end_late)
        timer.daemon = True
        timer.start()
        try:
            with progress.calling(end.now):
                with of_the_process():
                    send_request(process.stdin, request, rows)
                result = ResultReader(process.stdout)
                yield result
                if not result.is_over:  # The rest of it is in the pipe.
                    self._forget()
        except ProcessEnded as broken:
            self._forget()
            if late.is_set():
                raise DeadlineExceeded(f"no exact answer within {allowed_s:g} s") from broken
            raise self._died(process) from broken
        except QueryFailed as failed:
            raise failed.error from None
        except BaseException:  # interrupted half way: what is in the pipes belongs to no one
            self._forget()
            raise
        finally:
            timer.cancel()
            if end.came_before_over():  # Just after the reply: the next query gets another process.
                self._forget()

    def _died(self, process: WorkerProcess) -> ShedderError:
        if self._closed:
            return Unavailable("the exact worker was closed")
        if process.end == KILLED:  # the kernel's way of saying that memory is short
            return BudgetExceeded("the exact worker was killed by the system; memory is short")
        if process.end.startswith(NOT_STARTED):
            return ResourcesShort(
                f"the exact worker was {process.end}; free memory or processes, and ask again"
            )
        return InternalError(f"the exact worker {process.end}")

    def _running(self) -> WorkerProcess:
        if self._closed:
            raise Unavailable("the exact worker is closed")
        process = self._process
        if process is not None and process.is_running:
            return process
        self._forget()
        shutil.rmtree(self._temp_dir, ignore_errors=True)  # what a killed one has spilled
        try:
            self._temp_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"{self._temp_dir}, the directory of spilled rows"
            raise failure(error, what, "make") from error
        SHARED_FORK_SERVER.add(self)
        try:
            self._process = SHARED_FORK_SERVER.start(self._limits)
        except OSError as error:
            raise _not_started(error) from error
        return self._process

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()


def _not_started(error: OSError) -> ShedderError:
    text = f"cannot start the process of exact answers: {error}"
    if error.errno in SHORT_ERRNOS or error.errno == errno.EAGAIN:
        return ResourcesShort(f"{text}; free descriptors, memory or processes, and ask again")
    return Unavailable(text)
