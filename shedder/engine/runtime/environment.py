"""Environment of an engine: the machine's clocks, randomness, files and threads.

Everything else that the engine does follows from its inputs, so another machine, whose clock is
virtual and whose threads are turns, replays a world from a seed (shedder.simulation).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from shedder.archive.files.file_system import Files, OsFiles
from shedder.archive.log.group_commit import FailureHandler, GroupCommit, Handler
from shedder.archive.log.log import Log
from shedder.archive.log.log_queue import LogQueue
from shedder.cpu_priority import LATE, give_way
from shedder.engine.runtime.cpu_timer import CpuTimer
from shedder.engine.runtime.serial_executor import ExecutorThread, SerialExecutor
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan
from shedder.overload.load_meter import Meter
from shedder.overload.process_usage import MachineReader


class Environment:
    """This machine: the system's clocks and files, and threads of this process.

    files: the file system below the data directory.
    """

    def __init__(
        self, clock_us: Callable[[], int] | None = None, files: Files | None = None
    ) -> None:
        """Take the system's, where nothing else is given.

        Args:
          clock_us: the time of day, microseconds UTC.
          files: the file system.
        """
        self.files = OsFiles() if files is None else files
        self._clock_us = clock_us or _now_us

    def now_us(self) -> int:
        """The time of day, microseconds UTC; it may jump."""
        return self._clock_us()

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    def monotonic_ns(self) -> int:
        """The same clock, for what is measured by it."""
        return time.monotonic_ns()

    def cpu_ns(self) -> int:
        """CPU time of the thread that calls: what it waits for others is not in it."""
        return time.thread_time_ns()

    def rest(self, seconds: float) -> None:
        """Let so much time pass, on the thread that calls."""
        if seconds > 0:
            time.sleep(seconds)

    def meter(self) -> Meter:
        """Return a meter of arrivals, queue and costs of applying."""
        return Meter(self.monotonic_ns, self.cpu_ns)

    def reader(self) -> MachineReader:
        """Return a reader of this process's CPU and memory."""
        return MachineReader()

    def cpu_timer(self, query: str, plan: SynopsisPlan, *, grouped: bool) -> CpuTimer:
        """Return a CPU timer that measures each synopsis of a standing query's plan."""
        del query, grouped
        return CpuTimer(len(plan.parts), self.monotonic_ns, self.cpu_ns)

    def ticker(
        self, name: str, period_s: float, tick: Callable[[], None], *, niceness: int = 0
    ) -> Callable[[], None]:
        """Have something done again and again, by a thread of its own; returns how to stop that."""
        stopping = threading.Event()

        def run() -> None:
            give_way(niceness)
            while not stopping.wait(period_s):
                tick()

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()

        def stop() -> None:
            stopping.set()
            thread.join()

        return stop

    def random_bits(self, bits: int) -> int:
        """Return an unpredictable number."""
        return secrets.randbits(bits)

    def executor(self) -> SerialExecutor:
        """Return the executor of the apply thread."""
        return SerialExecutor()

    def apply_thread(
        self, executor: SerialExecutor, idle: Callable[[], float | None]
    ) -> ExecutorThread:
        """Return the thread that runs the executor's work, not started yet."""
        return ExecutorThread(executor, "shedder-apply", idle)

    def log_queue(self, bytes_max: int) -> LogQueue:
        """Return the queue of records that wait for the log."""
        return LogQueue(bytes_max)

    def group_commit(
        self, queue: LogQueue, log: Log, durable: Handler, failed: FailureHandler
    ) -> GroupCommit:
        """Return the group commit of a queue, not started yet."""
        return GroupCommit(queue, log, durable, failed)

    def pool(self, name: str) -> Executor:
        """Return a pool with one thread of low priority for background work."""
        return ThreadPoolExecutor(1, thread_name_prefix=name, initializer=partial(give_way, LATE))


def _now_us() -> int:
    return time.time_ns() // 1000
