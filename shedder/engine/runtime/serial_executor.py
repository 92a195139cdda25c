"""Serial executor: work posted by any thread runs on one thread, which owns live state."""

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

_log = structlog.get_logger("shedder.executor")


class SerialExecutor:
    """Functions that run one after the other, in the order in which they were posted.

    If a posted function raises, the state is in doubt and the executor halts: later calls raise
    InternalError. A restart recovers the state from the log.

    Posted work waits until an `ExecutorThread` starts.
    """

    def __init__(self) -> None:
        self._work: deque[tuple[Callable[[], None], Future[Any] | None]] = deque()
        self._wake = threading.Condition()
        self._begun = False
        self._closed = False
        self._halted = ""

    def post(self, work: Callable[[], None]) -> None:
        """Post work without a result. It must not raise."""
        self._add(work, None)

    def _add(
        self, work: Callable[[], None], future: Future[Any] | None, *, urgent: bool = False
    ) -> None:
        with self._wake:
            if self._halted:
                raise InternalError(self._halted)
            if self._closed:
                raise Draining("the engine is closed")
            (self._work.appendleft if urgent else self._work.append)((work, future))
            self._wake.notify()

    def call(self, work: Callable[[], Result], *, urgent: bool = False) -> Future[Result]:
        """Hand over work; its result or error is the future's.

        urgent: of all that waits.
        """
        future: Future[Result] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._add(run, future, urgent=urgent)
        return future

    def is_alive(self) -> bool:
        """Return whether a thread runs the work that is posted."""
        return self._begun and not self._closed and not self._halted

    @property
    def halted(self) -> str:
        """Return why it does nothing any more; empty while it does."""
        return self._halted

    # --- for the thread ------------------------------------------------------------------------

    def begin(self) -> None:
        """Note that a thread runs the work from now on."""
        self._begun = True

    def close(self) -> None:
        """Take no more work."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def wait(self, pause_s: float | None) -> bool:
        """Wait for work, at most for pause_s (None: until work comes); False: halted, or closed."""
        with self._wake:
            if not self._work and not self._closed:
                self._wake.wait(pause_s)
            return not self._halted and (bool(self._work) or not self._closed)

    @property
    def next(self) -> Callable[[], None] | None:
        """The oldest work; None: nothing waits."""
        return self._work[0][0] if self._work else None

    def take(self) -> Callable[[], None] | None:
        """Take the oldest work; None: nothing waits."""
        with self._wake:
            return self._work.popleft()[0] if self._work else None

    def halt(self, error: Exception) -> None:
        """Fail the calls that wait and all later ones: the state is in doubt."""
        _log.error("engine_halted", exc_info=error)
        with self._wake:
            self._halted = f"the engine halted ({type(error).__name__}); a restart recovers"
            left, self._work = list(self._work), deque()
        for _, future in left:
            if future is not None and future.set_running_or_notify_cancel():  # Some gave up.
                future.set_exception(InternalError(self._halted))


class ExecutorThread:
    """The thread that runs the work of an executor.

    idle: called on the thread whenever nothing waits, before it sleeps. It returns for how many
      seconds the thread may sleep at most (None: until work comes).
    """

    def __init__(
        self, executor: SerialExecutor, name: str, idle: Callable[[], float | None]
    ) -> None:
        self._executor = executor
        self._idle = idle
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to work; once."""
        self._executor.begin()
        self._thread.start()

    def close(self) -> None:
        """Finish what was posted, then stop."""
        self._executor.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        give_way(BULK)
        pause_s: float | None = 0.0
        while self._executor.wait(pause_s):
            pause_s = self.step()

    def step(self) -> float | None:
        """Do the next piece of work, or what there is to do when idle.

        Returns:
          for how many seconds there may be nothing to do (None: until work comes).
        """
        work = self._executor.take()
        try:
            if work is None:
                return self._idle()
            work()
        except Exception as error:
            self._executor.halt(error)
        return 0.0
