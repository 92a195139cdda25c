"""Serial executor: one thread that owns live state and runs the work that others post."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import structlog

from shedder.cpu_priority import BULK, give_way
from shedder.errors import Draining, InternalError

Result = TypeVar("Result")

_log = structlog.get_logger("shedder.actor")


class Actor:
    """Runs functions one after the other on its own thread, in the order they were posted.

    If a posted function raises, the state is in doubt and the executor halts: later calls raise
    InternalError. A restart recovers the state from the log.

    Posted work waits until `start`.
    """

    def __init__(self, name: str) -> None:
        self._idle: Callable[[], float | None] | None = None
        self._work: deque[tuple[Callable[[], None], Future[Any] | None]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._halted = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, idle: Callable[[], float | None]) -> None:
        """Begin to work; once.

        Args:
          idle: called on the thread whenever it has caught up, before it sleeps; returns for how
            many seconds it may sleep at most (None: until work comes).
        """
        self._idle = idle
        self._thread.start()

    def post(self, work: Callable[[], None]) -> None:
        """Post work without a result. It must not raise."""
        self._add(work, None)

    def _add(
        self, work: Callable[[], None], future: Future[Any] | None, *, ahead: bool = False
    ) -> None:
        with self._wake:
            if self._halted:
                raise InternalError(self._halted)
            if self._closed:
                raise Draining("the engine is closed")
            (self._work.appendleft if ahead else self._work.append)((work, future))
            self._wake.notify()

    def call(self, work: Callable[[], Result], *, ahead: bool = False) -> Future[Result]:
        """Hand over work; its result or error is the future's.

        ahead: of all that waits.
        """
        future: Future[Result] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._add(run, future, ahead=ahead)
        return future

    def is_alive(self) -> bool:
        """Return whether it takes work."""
        return self._thread.is_alive() and not self._closed

    @property
    def halted(self) -> str:
        """Return why it does nothing any more; empty while it does."""
        return self._halted

    def is_current(self) -> bool:
        """Return whether the caller runs on this actor's thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Finish what was posted, then stop."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive() and not self.is_current():
            self._thread.join()

    def _run(self) -> None:
        give_way(BULK)
        pause: float | None = 0.0
        while True:
            with self._wake:
                if not self._work and not self._closed:
                    self._wake.wait(pause)
                if not self._work and self._closed:
                    return
            pause = self.step()
            if self._halted:
                return

    def step(self) -> float | None:
        """Do the next piece of work, or what there is to do when idle.

        Returns:
          for how many seconds there may be nothing to do (None: until work comes).
        """
        with self._wake:
            work = self._work.popleft()[0] if self._work else None
        try:
            if work is None:
                assert self._idle is not None, "start comes before"
                return self._idle()
            work()
        except Exception as error:
            self._halt(error)
        return 0.0

    def _halt(self, error: Exception) -> None:
        _log.error("engine_halted", exc_info=error)
        with self._wake:
            self._halted = f"the engine halted ({type(error).__name__}); a restart recovers"
            left, self._work = list(self._work), deque()
        for _, future in left:
            if future is not None and future.set_running_or_notify_cancel():  # Some gave up.
                future.set_exception(InternalError(self._halted))
