"""Background tasks: long work with a number, progress and cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shedder.archive.tasks.progress import Progress
from shedder.errors import BadSetting, Cancelled, DeadlineExceeded, Draining

Watch = Callable[[Progress], None]
"""Is told of each long piece of work when it begins; it may keep the progress and cancel it."""


class Tasks:
    """The long pieces of work of one engine, by number. Safe from any thread."""

    def __init__(self) -> None:
        self._running: dict[int, Progress] = {}
        self._began = 0
        self._closed = False
        self._changed = threading.Condition()

    @contextmanager
    def running(
        self, progress: Progress, *, timeout_s: float | None = None, watch: Watch | None = None
    ) -> Iterator[Progress]:
        """List a piece of work while the block does it.

        Raises:
          DeadlineExceeded: it was not done in time. Cancelled: it was called off. Draining.
        """
        with self._changed:
            if self._closed:
                raise Draining("the database is closed")
            self._began += 1
            number = self._began
            self._running[number] = progress
        late = threading.Event()

        def end() -> None:
            late.set()
            progress.cancel()

        timer = None if timeout_s is None else threading.Timer(timeout_s, end)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            if watch is not None:
                watch(progress)
            yield progress
        except Cancelled as error:
            if late.is_set():
                raise DeadlineExceeded(f"not done within {timeout_s} s: {error}") from error
            raise
        finally:
            if timer is not None:
                timer.cancel()
            with self._changed:
                del self._running[number]
                self._changed.notify_all()

    def facts(self) -> list[tuple[str, dict[str, object]]]:
        """Each piece of work, for the control table."""
        with self._changed:
            running = list(self._running.items())
        return [
            (
                str(number),
                {
                    "what": progress.what,
                    "unit": progress.unit,
                    "done": progress.done,
                    "total": progress.total,
                    "share": f"{progress.share:.4f}",
                },
            )
            for number, progress in running
        ]

    def cancel(self, name: str) -> None:
        """Call one off; returns at once, it ends within some milliseconds.

        Raises:
          BadSetting: there is none of this number (any more).
        """
        with self._changed:
            running = {str(number): progress for number, progress in self._running.items()}
        if name not in running:
            known = ", ".join(running) or "none"
            raise BadSetting(f"no task {name!r} is running; there are: {known}")
        running[name].cancel()

    def close(self) -> None:
        """Call all off, and return when they have ended."""
        with self._changed:
            self._closed = True
            for progress in self._running.values():
                progress.cancel()
            while self._running:
                self._changed.wait()
