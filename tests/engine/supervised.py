"""A machine and files with which a test holds the engine's background work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shedder.archive.files.file_system import Files, OsFiles, WriteFile
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from shedder.engine.runtime.serial_executor import SerialExecutor

REWRITES, INDEXES = "shedder-relayout", "shedder-indexes"  # Names of two of an engine's pools.


def settle(engine: Engine, pool: str) -> None:
    """Wait until a pool of the engine has done all its work; the machine is `Supervised`."""
    machine = engine.core.machine
    assert isinstance(machine, Supervised)
    machine.settle(pool)


class Supervised(Environment):
    """This machine; the test can wait for its background pools, hold them, and stop its tickers."""

    def __init__(
        self,
        clock_us: Callable[[], int] | None = None,
        files: Files | None = None,
        *,
        ticks: bool = True,
    ) -> None:
        """clock_us, files: as of any machine. ticks: False disables all tickers."""
        super().__init__(clock_us, files)
        self._ticks = ticks
        self._pools: dict[str, _Counted] = {}

    def pool(self, name: str) -> Executor:
        self._pools[name] = _Counted(self.new_pool(name))
        return self._pools[name]

    def new_pool(self, name: str) -> Executor:
        """Return the pool that does the work of a name."""
        return super().pool(name)

    def ticker(
        self, name: str, period_s: float, tick: Callable[[], None], *, niceness: int = 0
    ) -> Callable[[], None]:
        if self._ticks:
            return super().ticker(name, period_s, tick, niceness=niceness)
        return lambda: None

    def settle(self, pool: str) -> None:
        """Wait until the pool has done all its work, with the work that it was given meanwhile."""
        self._pools[pool].settle()

    @contextmanager
    def held(self, pool: str) -> Iterator[None]:
        """Keep the pool's worker busy until the block ends."""
        entered, go = threading.Event(), threading.Event()
        self._pools[pool].submit(lambda: (entered.set(), go.wait()))
        entered.wait()
        try:
            yield
        finally:
            go.set()

    def called_off(self, pool: str) -> threading.Event:
        """Return an event that is set when the work queued in a held pool is done or cancelled."""
        event = threading.Event()
        self._pools[pool].submit(int).add_done_callback(lambda _: event.set())
        return event


class _Counted(Executor):
    """A pool that knows its unfinished work."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._left: set[Future[Any]] = set()

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        future = self._pool.submit(work, *args, **more)
        self._left.add(future)
        future.add_done_callback(self._left.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def settle(self) -> None:
        """Wait until no work is left."""
        while left := self._left.copy():
            futures.wait(left)


class GatedFiles(OsFiles):
    """Real files; while the gate is shut, threads of one pool stop where they create a file."""

    def __init__(self, *args: Path, pool: str = "shedder-relayout") -> None:
        super().__init__(*args)
        self._pool = pool
        self._open = threading.Event()
        self._open.set()
        self._reached = threading.Event()

    @contextmanager
    def shut(self) -> Iterator[threading.Event]:
        """Shut the gate until the block ends; the event is set when a thread stops at the gate."""
        self._reached.clear()
        self._open.clear()
        try:
            yield self._reached
        finally:
            self._open.set()

    def create(self, path: Path) -> WriteFile:
        if threading.current_thread().name.startswith(self._pool) and not self._open.is_set():
            self._reached.set()
            self._open.wait()
        return super().create(path)


class Recording(Environment):
    """This machine; the test sees the work that is posted to the apply thread.

    calls: futures of the work that the main thread posted, in order.
    urgent: set when work is put at the head of the queue.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Future[Any]] = []
        self.urgent = threading.Event()

    def executor(self) -> SerialExecutor:
        return _RecordingExecutor(self)


class _RecordingExecutor(SerialExecutor):
    def __init__(self, machine: Recording) -> None:
        super().__init__()
        self.machine = machine

    def call(self, work: Callable[[], Any], *, urgent: bool = False) -> Future[Any]:
        future = super().call(work, urgent=urgent)
        if threading.current_thread() is threading.main_thread():
            self.machine.calls.append(future)
        if urgent:
            self.machine.urgent.set()
        return future
