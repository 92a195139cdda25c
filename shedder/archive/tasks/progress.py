"""Progress of a long piece of work, and its cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shedder.errors import Cancelled

LOOK_S = 0.05
"""Seconds between two checks of `cancelled` while a thread waits for another one."""

STEP_BYTES = 4 << 20
"""What is read or written between two looks at `cancelled`: some milliseconds of any disk."""

SYNC_BYTES = 16 << 20
"""Bytes that are written between two syncs of a file: no check runs during a sync."""


ProgressCallback = Callable[[], None]
"""Is called now and then by long work; what it raises ends the work and leaves all as it was."""


def no_progress() -> None:
    """Ignore progress: no caller can cancel the work."""


@contextmanager
def held(lock: threading.Lock | threading.RLock, on_progress: ProgressCallback) -> Iterator[None]:
    """Hold the lock for the block.

    on_progress: called repeatedly while this waits; what it raises ends the wait.
    """
    while not lock.acquire(timeout=LOOK_S):
        on_progress()
    try:
        yield
    finally:
        lock.release()


@dataclass(slots=True, eq=False)
class Progress:
    """One piece of work, told of by the thread that does it and read by any other.

    what: for people, `backup to nightly`. unit: of total and done, `bytes` or `rows`. total: 0
    while it is not known yet.
    """

    what: str
    unit: str
    total: int = 0
    done: int = 0
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _callbacks: list[Callable[[], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def rename(self, what: str) -> None:
        """Name the step that begins."""
        self.what = what

    def expect(self, total: int) -> None:
        """Set how much work there is."""
        self.total = total

    def reach(self, done: int) -> None:
        """Set how much is done."""
        self.done = done

    def cancel(self) -> None:
        """Let the work end at its next step, leaving nothing behind. From any thread."""
        with self._lock:
            self._cancelled.set()
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call back if the work is cancelled while the block waits for another thread or process.

        Raises:
          Cancelled: it was called off, before the block or in it, whatever that raised then.
        """
        with self._lock:
            self._callbacks.append(callback)
        try:
            self.advance()
            yield
        except Exception:
            self.advance()
            raise
        finally:
            with self._lock:
                self._callbacks.remove(callback)

    def advance(self, amount: int = 0) -> None:
        """Count what was done, and go on unless it was called off.

        Raises:
          Cancelled: it was.
        """
        self.done += amount
        if self._cancelled.is_set():
            raise Cancelled(f"{self.what} was cancelled at {self.done:,} of {self.total:,}")

    def wait(self, seconds: float) -> None:
        """Do nothing for a while; a cancel ends it at once."""
        self._cancelled.wait(max(0.0, seconds))

    @property
    def share(self) -> float:
        """Done of total, in [0, 1]."""
        return min(1.0, self.done / self.total) if self.total else 0.0
