"""Group commit: the disk thread that makes records durable, one fsync for all that waited."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from shedder.archive.files.file_system import Bytes
from shedder.archive.log.log import Log
from shedder.errors import BadSetting, Draining, Overloaded, ShedderError, StorageFailed

BYTES_MAX = 64 << 20


@dataclass(slots=True, eq=False)
class Entry:
    """A record on its way to the log. sequence is -1 until it is durable."""

    kind: int
    parts: Sequence[Bytes]
    token: object
    size_bytes: int
    future: Future[int] = field(default_factory=Future)
    sequence: int = -1


Handler = Callable[[list[Entry]], None]
FailureHandler = Callable[[list[Entry], ShedderError], None]


@dataclass(frozen=True, slots=True)
class _Handlers:
    durable: Handler
    failed: FailureHandler | None


class GroupCommit:
    """Appends in order of submission; while one fsync runs, the next group gathers.

    Records are written from `start` on.
    bytes_max: what may be on its way at once.
    own_thread: there is a disk thread; else the caller gathers groups and commits them.
    """

    def __init__(self, log: Log, *, bytes_max: int = BYTES_MAX, own_thread: bool = True) -> None:
        if bytes_max <= 0:
            raise BadSetting(f"bytes_max is {bytes_max}; it must be positive")
        self._log = log
        self._handlers: _Handlers | None = None
        self._bytes_max = bytes_max
        self._own_thread = own_thread
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._in_flight_bytes = 0
        self._refusing: ShedderError | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self, durable: Handler, failed: FailureHandler | None = None) -> None:
        """Write records from now on; once.

        Args:
          durable: called on the disk thread with each group, in order, once it is on disk, and
            before the futures are resolved; what it takes long for delays the acknowledgement.
          failed: called on the disk thread when writing failed, with every entry that had been
            taken and is not durable, in order, before their futures fail. Until it returns,
            `submit` refuses, so that the owner can go back to the state of the last durable entry.
        """
        assert self._handlers is None, "started twice"
        self._handlers = _Handlers(durable, failed)
        if self._own_thread:
            self._thread = threading.Thread(target=self._run, name="shedder-disk", daemon=True)
            self._thread.start()

    def submit(
        self, kind: int, parts: Sequence[Bytes], token: object = None, *, urgent: bool = False
    ) -> Future[int]:
        """Queue a record; its future gives its sequence when it is durable.

        Args:
          kind: of the record.
          parts: header, then body; must not change until the future is done.
          token: anything; comes back in the entry.
          urgent: small, and of the engine's own: it is taken however much is on its way.

        Raises:
          Overloaded: too many bytes are on their way.
          Draining: closed.
          DiskFull, StorageFailed: the log cannot be written.
        """
        size = sum(memoryview(part).nbytes for part in parts)
        entry = Entry(kind, parts, token, size)
        with self._changed:
            if self._refusing is not None:
                raise type(self._refusing).from_message(str(self._refusing))
            if self._closing:
                raise Draining("the log takes no more records")
            full = self._in_flight_bytes and self._in_flight_bytes + size > self._bytes_max
            if full and not urgent:
                raise Overloaded(
                    f"{self._in_flight_bytes} bytes wait for the disk; {size} more are over the "
                    f"limit of {self._bytes_max}"
                )
            entry.future.set_running_or_notify_cancel()  # what may be in the log is not cancelled
            self._waiting.append(entry)
            self._in_flight_bytes += size
            self._changed.notify_all()
        return entry.future

    def write(
        self, kind: int, parts: Sequence[Bytes], token: object = None, *, urgent: bool = False
    ) -> int:
        """Submit a record, and give its sequence once it is durable.

        Not from the disk thread. Where there is none, all that waits is written here and now.

        Raises:
          as `submit`.
        """
        written = self.submit(kind, parts, token, urgent=urgent)
        if not self._own_thread and (group := self.gather()):
            self.commit(group)
        return written.result()

    @property
    def in_flight_bytes(self) -> int:
        """Of the records that were taken and are not durable yet."""
        return self._in_flight_bytes

    def close(self) -> None:
        """Make durable what waits, hand it on, and stop the thread. The log stays open."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        while group := self.gather():
            self.commit(group)

    def gather(self) -> list[Entry]:
        """Take all that waits for the disk now; nothing when a thread of its own does."""
        with self._changed:
            group = list(self._waiting)
            self._waiting.clear()
            return group

    def _run(self) -> None:
        while group := self._next_group():
            try:
                self.commit(group)
            except Exception as error:  # A bug in a handler: stop, and fail all futures.
                self._stop(group, error)
                raise

    def _next_group(self) -> list[Entry]:
        """All that waits; empty when closed and drained."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            return self.gather()

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
            entry.sequence = sequence
        if done:
            assert self._handlers is not None, "start comes before"
            self._handlers.durable(done)
            self._release(done)
            for entry in done:
                entry.future.set_result(entry.sequence)
        if failure is not None:
            self._fail(group[len(done) :], failure)

    def _fail(self, rest: list[Entry], failure: ShedderError) -> None:
        """Fail what was not written and all that waits behind it, so that there is no hole."""
        with self._changed:
            self._refusing = failure
            rest = rest + list(self._waiting)
            self._waiting.clear()
        if self._handlers is not None and self._handlers.failed is not None:
            self._handlers.failed(rest, failure)
        self._release(rest)
        with self._changed:
            self._refusing = None  # the log itself refuses if it cannot go on
        for entry in rest:
            entry.future.set_exception(failure)

    def _stop(self, group: list[Entry], error: Exception) -> None:
        with self._changed:
            self._refusing = StorageFailed(f"the disk thread has stopped: {error!r}")
            waiting = [entry for entry in group if not entry.future.done()] + list(self._waiting)
            self._waiting.clear()
        for entry in waiting:
            entry.future.set_exception(error)

    def _release(self, entries: list[Entry]) -> None:
        with self._changed:
            self._in_flight_bytes -= sum(entry.size_bytes for entry in entries)
