"""Load meter: measures arrivals, queue and costs, and makes a Load of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from shedder.overload.load import NS, Load, MachineReading

ALPHA = 0.5  # What the newest tick counts in a rate,
ALPHA_COST = 0.3  # ... and in a cost,
ALPHA_OVERHEAD = 0.1  # ... and in what a tuple takes beside its synopses, and slides' answers do.
ROWS_MAX = 524_288  # Tuples that are read as one.
RUN_MS = 100.0  # Of CPU that is read as one, and up to twice that: others wait meanwhile.
TICK_S = 0.1
FREE_LEAST = 0.05  # The apply thread is never believed to get less of its time than this.


@dataclass(slots=True)
class _Waiting:
    """Batches that became durable together."""

    since_ns: int
    tuples: int
    size_bytes: int


class Meter:
    """Measures arrivals, queue and costs. Safe from any thread.

    Each method takes well under a microsecond of arithmetic.

    clock_ns: clock that never goes back; ns.
    cpu_ns: CPU time of the calling thread; ns. None: the thread has a core of its own, so
      `clock_ns` is its CPU time.

    The cost of applying is CPU time, which other users of the core do not change. The share of the
    core that they leave is `free_share`. So costs measured at the beginning of a flood, when all
    threads compete for the core, stay right after it.
    """

    def __init__(
        self, clock_ns: Callable[[], int], cpu_ns: Callable[[], int] | None = None
    ) -> None:
        self.clock_ns = clock_ns
        self._cpu_ns = clock_ns if cpu_ns is None else cpu_ns
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._queue_tuples = 0
        self._queue_bytes = 0
        self._held_bytes = 0
        self._drained = True  # The queue was empty at some time of this tick.
        self._came = self._came_bytes = self._refused_bytes = self._dropped = 0
        self._working_since: int | None = None
        self._reading = 0
        self._cpu_since = 0
        self._worked_ns = 0
        self._done_tuples = 0
        self._done_ns = 0
        self._done_wall_ns = 0
        self._left = 1.0  # Of its time, what questions and checkpoints leave;
        self._got = 1.0  # Of the time in which it works, what the thread has a core for.
        self._synopses_ns = 0
        self._answers_ns = 0
        self._answers_ever_ns = self._answers_before_ns = 0
        self._beside_ns = self._beside_tuples = 0.0  # Means of ticks in which tuples were applied.
        self._applying_ns = 0.0  # Of a tuple, all that applying it takes; 0: none was applied yet.
        self._at_once = 0.0
        self._taken_ns = clock_ns()
        self._last = Load(at_s=self._taken_ns / NS)

    @property
    def queue_bytes(self) -> int:
        """Durable and not applied yet, or read and in the queues of operators."""
        return self._queue_bytes + self._held_bytes

    @property
    def age_ms(self) -> float:
        """Since the oldest batch that waits was made durable; 0: nothing waits."""
        with self._lock:
            return (self.clock_ns() - self._queue[0].since_ns) / 1e6 if self._queue else 0.0

    def drain_ms(self, more_bytes: int, *, one_run: float = 0.0) -> float:
        """Predict the time to apply the queue at the present rate.

        The age says only how long the oldest batches have waited so far. A caller that lets batches
        in until the age rises has let in too many long before.

        Args:
          more_bytes: bytes on their way to the disk.
          one_run: tuples that make a run cheap to read. While no more tuples wait behind the run
            that is being read, the prediction is 0. Smaller runs cost more per tuple, and limiting
            admission for their sake would make them smaller still.

        Returns:
          ms; inf if batches are queued and the cost of a tuple is not known yet.
        """
        with self._lock:
            last, tuples = self._last, float(self._queue_tuples)
            if more_bytes:
                tuples += more_bytes / last.bytes_per_tuple if last.bytes_per_tuple else inf
            if tuples <= 0:
                return 0.0
            if self._applying_ns <= 0:
                return inf
            if tuples - self._reading <= one_run:
                return 0.0
            return tuples * self._applying_ns / last.free_share / 1e6

    def apply_s(self, size_bytes: float) -> float:
        """Predict the time to apply bytes, in s; a tick while the cost of a tuple is unknown."""
        with self._lock:
            last = self._last
            if not last.bytes_per_tuple or self._applying_ns <= 0:
                return TICK_S
            return size_bytes / last.bytes_per_tuple * self._applying_ns / last.free_share / NS

    def store_s(self, size_bytes: float) -> float:
        """Predict the time until bytes are durable, in s; a tick while the rate is unknown."""
        with self._lock:
            rate = self._last.bytes_per_s
            return size_bytes / rate if rate else TICK_S

    @property
    def tuples_at_once(self) -> float:
        """Return how many tuples may be read as one, in RUN_MS of CPU, or twice that at most.

        The number follows from the last runs, step by step: a run of twice the tuples takes less
        than twice the time, by an unknown factor. The mean cost of a tuple does not give the
        number. If most of the time is spent in calls, small runs are dear, and reading fewer tuples
        would make them dearer still. The same holds if tuples are dear, if other threads use the
        core, or if windows were answered after the runs. 0 until the first batch is applied.
        """
        return self._at_once

    def came(self, tuples: int, size_bytes: int, dropped: int = 0) -> None:
        """Batches have become durable together, and wait to be applied.

        dropped: what else they had, before the door.
        """
        with self._lock:
            self._queue.append(_Waiting(self.clock_ns(), tuples, size_bytes))
            self._queue_tuples += tuples
            self._queue_bytes += size_bytes
            self._came += tuples
            self._came_bytes += size_bytes
            self._dropped += dropped

    def refused(self, size_bytes: int) -> None:
        """A batch was refused at the door for want of room."""
        with self._lock:
            self._refused_bytes += size_bytes

    def begin(self, tuples: int) -> None:
        """So many are being applied from now on."""
        with self._lock:
            self._reading = tuples
            self._answers_before_ns = self._answers_ever_ns
            self._working_since = self.clock_ns()
            self._cpu_since = self._cpu_ns()

    def applied(self, tuples: int, synopses_ns: int) -> None:
        """It has been; of the time since `begin`, its synopses took so much."""
        with self._lock:
            assert self._working_since is not None
            now = self.clock_ns()
            self._worked_ns += now - max(self._working_since, self._taken_ns)
            took_ns = self._cpu_ns() - self._cpu_since
            self._done_ns += took_ns
            self._done_wall_ns += now - self._working_since
            reading_ns = took_ns - (self._answers_ever_ns - self._answers_before_ns)
            self._at_once = _at_once(self._at_once, tuples, reading_ns / 1e6)
            self._working_since = None
            self._reading = 0
            self._synopses_ns += synopses_ns
            self._done_tuples += tuples
            self._queue_tuples -= tuples
            if self._queue:
                self._queue[0].tuples -= tuples

    def answered(self, cpu_ns: int) -> None:
        """Answers of standing queries have taken so much CPU, after a batch or between batches."""
        with self._lock:
            self._answers_ns += cpu_ns
            self._answers_ever_ns += cpu_ns

    def hold(self, size_bytes: int) -> None:
        """So many bytes of what was read wait in the queues of operators now."""
        with self._lock:
            self._held_bytes = size_bytes

    def done(self) -> None:
        """What became durable together has all been applied."""
        with self._lock:
            group = self._queue.popleft()
            self._queue_tuples -= group.tuples  # Of streams that were dropped meanwhile.
            self._queue_bytes -= group.size_bytes
            self._drained |= not self._queue

    def take(self, machine: MachineReading = MachineReading()) -> Load:  # noqa: B008  # frozen
        """The load since the last time this was asked; one caller."""
        with self._lock:
            now = self.clock_ns()
            elapsed_s = max((now - self._taken_ns) / NS, 1e-9)
            if self._working_since is not None:
                self._worked_ns += now - max(self._working_since, self._taken_ns)
            last = self._last
            if self._done_tuples:
                seen = self._done_ns / self._done_tuples
                first = self._applying_ns == 0
                self._applying_ns = seen if first else _mean(self._applying_ns, seen, ALPHA_COST)
            self._last = Load(
                at_s=now / NS,
                tuples_per_s=_mean(last.tuples_per_s, self._came / elapsed_s),
                bytes_per_s=_mean(last.bytes_per_s, self._came_bytes / elapsed_s),
                refused_bytes_per_s=_mean(
                    last.refused_bytes_per_s, self._refused_bytes / elapsed_s
                ),
                dropped_per_s=_mean(last.dropped_per_s, self._dropped / elapsed_s),
                queue_tuples=self._queue_tuples,
                queue_bytes=self._queue_bytes + self._held_bytes,
                age_ms=(now - self._queue[0].since_ns) / 1e6 if self._queue else 0.0,
                overhead_ns_per_tuple=self._overhead(),
                answers_share=_mean(
                    last.answers_share, self._answers_ns / NS / elapsed_s, ALPHA_OVERHEAD
                ),
                free_share=self._free(elapsed_s),
                usual_bytes_per_tuple=last.bytes_per_tuple,
                has_applied=self._beside_tuples > 0,
                machine=machine,
            )
            self._taken_ns = now
            self._drained = not self._queue
            self._came = self._came_bytes = self._refused_bytes = self._dropped = 0
            self._worked_ns = self._done_tuples = self._synopses_ns = self._answers_ns = 0
            self._done_ns = self._done_wall_ns = 0
            return self._last

    def _overhead(self) -> float:
        """What tuples have taken beside their synopses, by their number.

        The answers of a slide are made after one batch, and are all tuples': a mean of each tick's
        cost per tuple would take them for that batch's, and shed for a moment what need not be.
        """
        if self._done_tuples:
            seen_ns = max(self._done_ns - self._synopses_ns, 0)
            alpha = ALPHA_OVERHEAD if self._beside_tuples else 1.0
            self._beside_ns += alpha * (seen_ns - self._beside_ns)
            self._beside_tuples += alpha * (self._done_tuples - self._beside_tuples)
        return self._beside_ns / self._beside_tuples if self._beside_tuples else 0.0

    def _free(self, elapsed_s: float) -> float:
        """Of a core, what applying could have.

        While work waits without a break, what is not spent on it is spent on something else; and of
        what is spent, the part in which the thread has no core.
        """
        if self._drained:
            self._left = _mean(self._left, 1.0, ALPHA_COST / 2)
        else:
            self._left = _mean(self._left, min(self._worked_ns / NS / elapsed_s, 1.0), ALPHA_COST)
        if self._done_wall_ns:
            got = min(self._done_ns / self._done_wall_ns, 1.0)
            self._got = max(_mean(self._got, got, ALPHA_COST), FREE_LEAST)
        return max(self._left * self._got, FREE_LEAST)


def _at_once(before: float, tuples: int, took_ms: float) -> float:
    """Return how many tuples may be read as one, after so many have taken so long."""
    if tuples and took_ms > 2 * RUN_MS:
        return tuples * RUN_MS / took_ms
    return max(before, 2.0 * tuples) if took_ms <= RUN_MS else before


def _mean(before: float, seen: float, alpha: float = ALPHA) -> float:
    mean = before + alpha * (seen - before)
    return mean if mean > 1e-3 else 0.0  # A rate that has ended, ends.
