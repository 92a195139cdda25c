"""Group commit: the disk thread that makes records durable, one fsync for all that waited."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shedder.archive.log.log import Log
from shedder.archive.log.log_queue import Entry, LogQueue
from shedder.errors import ShedderError, StorageFailed

Handler = Callable[[list[Entry]], None]
FailureHandler = Callable[[list[Entry], ShedderError], None]


class GroupCommit:
    """Appends in order of submission; while one fsync runs, the next group gathers.

    Records are written from `start` on.
    """

    def __init__(
        self,
        queue: LogQueue,
        log: Log,
        durable: Handler,
        failed: FailureHandler | None = None,
        *,
        own_thread: bool = True,
    ) -> None:
        """Commit the records of a queue.

        Args:
          queue: records in order of submission.
          log: where they are written.
          durable: called on the disk thread with each group, in order, once it is on disk, and
            before the futures are resolved; what it takes long for delays the acknowledgement.
          failed: called on the disk thread when writing failed, with every entry that had been
            taken and is not durable, in order, before their futures fail. Until it returns,
            `submit` refuses, so that the owner can go back to the state of the last durable entry.
          own_thread: there is a disk thread; else the caller gathers groups and commits them.
        """
        self._queue = queue
        self._log = log
        self._durable = durable
        self._failed = failed
        self._own_thread = own_thread
        self._thread = threading.Thread(target=self._run, name="shedder-disk", daemon=True)

    def start(self) -> None:
        """Write records from now on; once."""
        if self._own_thread:
            self._thread.start()

    def close(self) -> None:
        """Make durable what waits, hand it on, and stop the thread. The log stays open."""
        self._queue.close()
        if self._thread.is_alive():
            self._thread.join()
        while group := self.gather():
            self.commit(group)

    def gather(self) -> list[Entry]:
        """Take all that waits for the disk now, for `commit`."""
        return self._queue.gather()

    def _run(self) -> None:
        while group := self._queue.next_group():
            try:
                self.commit(group)
            except Exception as error:  # A bug in a handler: stop, and fail all futures.
                self._stop(group, error)
                raise

    def commit(self, group: list[Entry]) -> None:
        """Write a gathered group, fsync, and resolve the futures of its entries."""
        sequences: list[int] = []
        failure: ShedderError | None = None
        try:
            for entry in group:
                sequences.append(self._log.append(entry.kind, entry.parts))  # noqa: PERF401
        except ShedderError as error:
            failure = error
        try:
            self._log.sync()
        except ShedderError as error:
            failure = error
            sequences = [number for number in sequences if number < self._log.durable_sequence]
        done = group[: len(sequences)]
        for entry, sequence in zip(done, sequences, strict=True):
            entry.note_durable(sequence)
        if done:
            self._durable(done)
            self._queue.release(done)
            for entry in done:
                entry.future.set_result(entry.sequence)
        if failure is not None:
            self._fail(group[len(done) :], failure)

    def _fail(self, rest: list[Entry], failure: ShedderError) -> None:
        """Fail what was not written and all that waits behind it, so that there is no hole."""
        rest = rest + self._queue.refuse(failure)
        if self._failed is not None:
            self._failed(rest, failure)
        self._queue.release(rest)
        self._queue.take_again()
        for entry in rest:
            entry.future.set_exception(failure)

    def _stop(self, group: list[Entry], error: Exception) -> None:
        waiting = self._queue.refuse(StorageFailed(f"the disk thread has stopped: {error!r}"))
        for entry in [entry for entry in group if not entry.future.done()] + waiting:
            entry.future.set_exception(error)
