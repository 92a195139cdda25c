"""Background writer: writes, checksums and syncs one file's bytes in a thread of its own."""

from __future__ import annotations

import threading
from queue import Queue
from typing import Final

from shedder.archive.files.checksum import checksum
from shedder.archive.files.file_system import Bytes, WriteFile
from shedder.archive.tasks.progress import SYNC_BYTES

_WAITING_MAX: Final = 16  # Pieces that are on their way; Arrow's pages are of 1 MiB at most.


class WriteBehind:
    """Writes pieces in their order, checksums them and syncs now and then, in its own thread.

    An error there is raised by the next call.

    pieces: size and CRC-32C of each piece, once `settle` has returned.
    crc: CRC-32C of all pieces.
    crc_of_last: CRC-32C of the pieces since `begin_last`; 0 before.
    """

    def __init__(self, file: WriteFile) -> None:
        """Nothing is written yet. The file is the caller's to close, after `close`."""
        self.pieces: list[tuple[int, int]] = []
        self.crc = 0
        self.crc_of_last = 0
        self._is_last = False
        self._file = file
        self._failed: BaseException | None = None
        self._closed = False
        self._queue: Queue[Bytes | None] = Queue(_WAITING_MAX)
        self._thread = threading.Thread(target=self._work, name="shedder-write", daemon=True)
        self._thread.start()

    def write(self, data: Bytes) -> None:
        """Queue a piece; the caller must not change it any more.

        Raises:
          OSError: an earlier one could not be written.
        """
        self._check()
        self._queue.put(data)

    def begin_last(self) -> None:
        """Begin the last part, which gets a checksum of its own; call `settle` before."""
        self._is_last = True

    def settle(self) -> None:
        """Return when all that was taken is written, though not durable.

        Raises:
          OSError: it could not be.
        """
        self._queue.join()
        self._check()

    def close(self) -> None:
        """End the thread; what still waits is not written."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _work(self) -> None:
        unsynced = 0
        while (data := self._queue.get()) is not None:
            try:
                if self._failed is None and not self._closed:
                    unsynced += self._put(data)
                    if unsynced > SYNC_BYTES:
                        self._file.sync()
                        unsynced = 0
            except BaseException as error:
                self._failed = error
            finally:
                self._queue.task_done()

    def _put(self, data: Bytes) -> int:
        self._file.write([data])
        self.crc = checksum(data, self.crc)
        if self._is_last:
            self.crc_of_last = checksum(data, self.crc_of_last)
        size = memoryview(data).nbytes
        self.pieces.append((size, checksum(data)))
        return size
