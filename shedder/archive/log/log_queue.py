"""Log queue: records that wait for the disk, in order of submission."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from shedder.archive.files.file_system import Bytes
from shedder.errors import BadSetting, Draining, Overloaded, ShedderError

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

    def note_durable(self, sequence: int) -> None:
        """Note the number of the record in the log."""
        self.sequence = sequence


class LogQueue:
    """Takes records from any thread; the group commit gathers them.

    bytes_max: of records that are on their way at once; bytes.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        if bytes_max <= 0:
            raise BadSetting(f"bytes_max is {bytes_max}; it must be positive")
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._in_flight_bytes = 0
        self._refusing: ShedderError | None = None
        self._closing = False

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
        """Submit a record, and return its sequence once it is durable. Not from the disk thread.

        Raises:
          as `submit`.
        """
        return self.submit(kind, parts, token, urgent=urgent).result()

    @property
    def in_flight_bytes(self) -> int:
        """Of the records that were taken and are not durable yet."""
        return self._in_flight_bytes

    def close(self) -> None:
        """Take no more records."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    # --- for the group commit ------------------------------------------------------------------

    def gather(self) -> list[Entry]:
        """Take all that waits for the disk now."""
        with self._changed:
            group = list(self._waiting)
            self._waiting.clear()
            return group

    def next_group(self) -> list[Entry]:
        """Wait for records, and take all of them; empty when closed and drained."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            return self.gather()

    def refuse(self, failure: ShedderError) -> list[Entry]:
        """Refuse records from now on, and take all that waits."""
        with self._changed:
            self._refusing = failure
            return self.gather()

    def take_again(self) -> None:
        """Take records again; the log itself refuses if it cannot go on."""
        with self._changed:
            self._refusing = None

    def release(self, entries: Sequence[Entry]) -> None:
        """Note that entries are not on their way any more."""
        with self._changed:
            self._in_flight_bytes -= sum(entry.size_bytes for entry in entries)
