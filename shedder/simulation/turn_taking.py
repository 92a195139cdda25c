"""Worker that takes turns with the world: only one of the two ever runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shedder.simulation.disk import Died


class Worker:
    """Does a piece of work that takes virtual time, on a stack of its own.

    In the middle of it `sleep` gives the turn back to the world, which goes on with it when the
    time has come. asleep_ns: for how long it sleeps now; None when nothing is being done.
    """

    def __init__(self) -> None:
        self.asleep_ns: int | None = None
        self._work: Callable[[], object] | None = None
        self._error: BaseException | None = None
        self._mine = threading.Semaphore(0)
        self._worlds = threading.Semaphore(0)
        self._dead = False
        self._thread = threading.Thread(target=self._run, name="shedder-turns", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Return whether the caller is the work."""
        return threading.current_thread() is self._thread

    def do(self, work: Callable[[], object]) -> None:
        """Begin; returns when it sleeps or is done, and raises what it raises."""
        self._work = work
        self.go_on()

    def go_on(self) -> None:
        """Wake it; returns when it sleeps again or is done."""
        self.asleep_ns = None
        self._mine.release()
        self._worlds.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def sleep(self, ns: int) -> None:
        """Called by the work: let so much time pass.

        Raises:
          Died: the process has died meanwhile.
        """
        self.asleep_ns = ns
        self._worlds.release()
        self._mine.acquire()
        if self._dead:
            raise Died

    def end(self) -> None:
        """Nothing more will be done; what sleeps dies where it is."""
        if not self._dead:
            self._dead = True
            self._work = None
            self._mine.release()
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._mine.acquire()
            work, self._work = self._work, None
            if work is None or self._dead:
                return
            try:
                work()
            except BaseException as error:
                self._error = error
            if self._dead:
                return
            self.asleep_ns = None
            self._worlds.release()
