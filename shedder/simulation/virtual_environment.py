"""A machine in virtual time: nothing on it happens until the world says so, in one thread."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from shedder.archive.files.file_system import Bytes, Files
from shedder.archive.log.group_commit import FailureHandler, GroupCommit, Handler
from shedder.archive.log.log import Log
from shedder.archive.log.log_queue import LogQueue
from shedder.engine.runtime.cpu_timer import CpuTimer
from shedder.engine.runtime.environment import Environment
from shedder.engine.runtime.serial_executor import ExecutorThread, SerialExecutor
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan
from shedder.overload.load import MachineReading as Reading
from shedder.overload.load_meter import Meter
from shedder.overload.process_usage import MachineReader
from shedder.simulation.costs import CostModel, VirtualCpuTimer, VirtualMeter
from shedder.simulation.turn_taking import Worker

Result = TypeVar("Result")

_LITTLE_NS = 1_000_000


class VirtualEnvironment(Environment):
    """Clocks that stand until they are set, seeded randomness, and queues of work.

    time_us: time of day; the world moves it.
    applier, log: apply thread and group commit of the engine that was opened on this machine.
    later: background work, in the order of submission.
    ticks: periodic work, and its period in seconds.
    costs: cost of applying. Without `costs`, or outside a worker, applying takes no time.
    applying, beside: workers that run the applier and the background work.
    pending_ns: time that was spent and is still to pass.
    done: work on the present batch that is shared by all queries and was done.
    """

    applier: SteppedThread
    log: GroupCommit

    def __init__(
        self, seed: int, time_us: int, files: Files | None = None, costs: CostModel | None = None
    ) -> None:
        """A machine of which one engine is opened at a time."""
        super().__init__(lambda: self.time_us, files)
        self.time_us = time_us
        self.costs = costs
        self.applying: Worker | None = None
        self.beside: Worker | None = None
        self.pending_ns = 0.0
        self.done: set[Hashable] = set()
        self.later = Later()
        self.ticks: list[tuple[float, Callable[[], None]]] = []
        self._random = random.Random(seed)  # noqa: S311 (replayed, not secret)

    def set_time(self, time_us: int) -> None:
        """Set the time of day."""
        self.time_us = time_us

    def use_workers(self, applying: Worker, beside: Worker) -> None:
        """Run the applier and the background work in these workers; no time is pending any more."""
        self.applying, self.beside = applying, beside
        self.pending_ns = 0.0

    def forget_workers(self) -> None:
        """Run all work in the calling thread again."""
        self.applying = self.beside = None

    def monotonic_s(self) -> float:
        """Virtual seconds."""
        return self.time_us / 1e6

    def monotonic_ns(self) -> int:
        """The same."""
        return self.time_us * 1_000

    def cpu_ns(self) -> int:
        """Return virtual time plus the pending time: no other process uses the core."""
        return self.monotonic_ns() + round(self.pending_ns)

    def rest(self, seconds: float) -> None:
        """Return at once: background work takes no time here."""
        del seconds

    def meter(self) -> Meter:
        """Return a meter that lets the time of applying pass."""
        if self.costs is None:
            return super().meter()
        base_ns = self.costs.base_ns
        return VirtualMeter(self.monotonic_ns, base_ns, self.spend, self.wait, self.done)

    def cpu_timer(self, query: str, plan: SynopsisPlan, *, grouped: bool) -> CpuTimer:
        """Return a CPU timer that reports the times of the cost model."""
        if self.costs is None:
            return super().cpu_timer(query, plan, grouped=grouped)
        parts_ns = self.costs.parts_ns(query, plan, grouped=grouped)
        return VirtualCpuTimer(parts_ns, self.costs.shared_ns(query, plan), self.spend, self.done)

    def reader(self) -> MachineReader:
        """Return a reader that reports nothing: the simulating process is no part of the world."""
        return _NoReader()

    def spend(self, ns: float) -> None:
        """So much more time is to be waited for."""
        self.pending_ns += ns

    def wait(self) -> None:
        """Let the pending time pass, if the applying worker calls."""
        if self.applying is not None and self.applying.is_current:
            ns, self.pending_ns = round(self.pending_ns), 0.0
            self.applying.sleep(ns)

    def give_way(self) -> None:
        """Let the applier handle its queue; the background worker sleeps a little meanwhile."""
        if self.beside is not None and self.beside.is_current:
            self.beside.sleep(_LITTLE_NS)
        else:
            self.applier.step()

    def ticker(
        self, name: str, period_s: float, tick: Callable[[], None], *, niceness: int = 0
    ) -> Callable[[], None]:
        """Register a tick, which the world calls."""
        del name, niceness
        entry = (period_s, tick)
        self.ticks.append(entry)
        return partial(self.ticks.remove, entry)

    def random_bits(self, bits: int) -> int:
        """The next number of the seed's."""
        return self._random.getrandbits(bits)

    def executor(self) -> SerialExecutor:
        """Return an executor whose callers take part in the steps."""
        return SteppedExecutor(self.give_way)

    def apply_thread(
        self, executor: SerialExecutor, idle: Callable[[], float | None]
    ) -> ExecutorThread:
        """Return what runs the executor's work, step by step."""
        self.applier = SteppedThread(executor, idle)
        return self.applier

    def log_queue(self, bytes_max: int) -> LogQueue:
        """Return a queue whose writers commit what waits."""
        return SteppedLogQueue(bytes_max, self.write_log)

    def group_commit(
        self, queue: LogQueue, log: Log, durable: Handler, failed: FailureHandler
    ) -> GroupCommit:
        """Return what makes records durable, group by group."""
        self.log = GroupCommit(queue, log, durable, failed, own_thread=False)
        return self.log

    def write_log(self) -> bool:
        """Make durable what waits for the log; False: nothing waits."""
        group = self.log.gather()
        if group:
            self.log.commit(group)
        return bool(group)

    def pool(self, name: str) -> Executor:
        """Return a pool; all pools share the queue `later`."""
        del name
        return self.later.pool()

    def settle(self) -> None:
        """Do all that waits, as a machine does that is left alone: write, apply, and the rest."""
        while True:
            if self.write_log():
                continue
            if self.applier.waiting is not None:
                self.applier.step()
            elif not self.later.step():
                return


class _NoReader(MachineReader):
    def __init__(self) -> None:
        """Look at nothing."""

    def read(self, at_s: float) -> Reading:
        del at_s
        return Reading()


class SteppedLogQueue(LogQueue):
    """Log queue without a disk thread: a writer commits all that waits.

    write_log: makes durable what waits.
    """

    def __init__(self, bytes_max: int, write_log: Callable[[], object]) -> None:
        super().__init__(bytes_max)
        self._write_log = write_log

    def write(
        self, kind: int, parts: Sequence[Bytes], token: object = None, *, urgent: bool = False
    ) -> int:
        """Submit a record, write all that waits, and return the record's sequence."""
        written = self.submit(kind, parts, token, urgent=urgent)
        self._write_log()
        return written.result()


class SteppedExecutor(SerialExecutor):
    """Executor without a thread: its callers wait in steps.

    wait: called until what was asked for is done; it steps, or lets others do so.
    """

    def __init__(self, wait: Callable[[], object]) -> None:
        super().__init__()
        self._wait = wait

    def call(self, work: Callable[[], Result], *, urgent: bool = False) -> Future[Result]:
        """Run all that was posted before, and then this call, until it is done."""
        future = super().call(work, urgent=urgent)
        while not future.done():
            self._wait()
        return future


class SteppedThread(ExecutorThread):
    """Runs the executor's work when it is told to, on the thread that tells it."""

    def __init__(self, executor: SerialExecutor, idle: Callable[[], float | None]) -> None:
        super().__init__(executor, "", idle)
        self._executor = executor

    @property
    def waiting(self) -> Callable[[], None] | None:
        """What the next step will do; None: what there is to do when idle."""
        return self._executor.next

    @property
    def halted(self) -> str:
        """Return why there are no more steps; empty while there are."""
        return self._executor.halted

    def start(self) -> None:
        """From now on there may be steps."""
        self._executor.begin()

    def close(self) -> None:
        """Finish what was posted."""
        self._executor.close()
        while self.waiting is not None:
            self.step()


class Later:
    """Work of several pools, done in the order of submission."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def pool(self) -> Executor:
        """A new pool, whose work is put in the queue."""
        return _Pool(self)

    def add(self, future: Future[Any], work: Callable[[], Any]) -> None:
        """Put one piece at the end."""
        self._jobs.append((future, work))

    def clear(self) -> None:
        """Drop all jobs: no process is left to run them."""
        self._jobs.clear()

    def step(self) -> bool:
        """Do the next piece; False: there is none."""
        if not self._jobs:
            return False
        future, work = self._jobs.popleft()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
        return True


class _Pool(Executor):
    def __init__(self, later: Later) -> None:
        self._later = later
        self._mine: list[_Job] = []
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a piece of work."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        job = _Job(self._later)
        self._mine = [*(old for old in self._mine if not old.done()), job]
        self._later.add(job, partial(fn, *args, **kwargs))
        return job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish what was submitted, or call it off."""
        self._closed = True
        for job in self._mine:
            if cancel_futures:
                job.cancel()
            elif wait:
                job.wait()


class _Job(Future[Any]):
    """Future whose waiter runs the queued jobs until this one is done."""

    def __init__(self, later: Later) -> None:
        super().__init__()
        self._later = later

    def wait(self) -> None:
        """Return when the job is done or no jobs are queued; earlier jobs run first."""
        while not self.done() and self._later.step():
            pass

    def result(self, timeout: float | None = None) -> Any:
        """Of the work, which is done first."""
        self.wait()
        return super().result(timeout)
