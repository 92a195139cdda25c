"""Two threads, each with a summary of its own: how much more they do than one.

`python -m benchmarks threads` prints the table. Wall times need a machine on which nothing else
runs: the last note says how much others took meanwhile. How long the threads waited for a lock is
told on a busy one, too: Linux counts, for each thread, its time on a core and its time in the queue
for one; the rest it waited for something else, of which there is only the other thread here.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import Report
from benchmarks.workloads.bare_loops import floors
from benchmarks.workloads.summaries import ROWS, SummaryCase, cases, columns
from shedder.wire.malloc_tuning import keep_big_blocks
from synopses.precompile import compile_kernels

BATCH = 65_536
RUNS = 15
LEAST_SECONDS = 0.05  # Of a run; what is faster is fed several times.


@dataclass(frozen=True, slots=True)
class ThreadRun:
    """Some threads that began together: seconds until the last was done, share that they waited."""

    wall: float
    waited: float


def together(case: SummaryCase, threads: int, rounds: int) -> ThreadRun:
    """Feed so many summaries in each thread, one after the other; all threads at once."""
    summaries = [[case.make() for _ in range(rounds)] for _ in range(threads)]
    ready = threading.Barrier(threads)
    begun, ended, present, awake = [], [], [], []

    def work(mine: list[Any]) -> None:
        ready.wait()
        began, before = time.perf_counter(), _awake_seconds()
        for summary in mine:
            for first in range(0, ROWS, BATCH):
                case.feed(summary, slice(first, first + BATCH))
        awake.append(_awake_seconds() - before)
        end = time.perf_counter()
        begun.append(began)
        ended.append(end)
        present.append(end - began)

    workers = [threading.Thread(target=work, args=(mine,)) for mine in summaries]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return ThreadRun(max(ended) - min(begun), max(0.0, 1.0 - sum(awake) / sum(present)))


def _awake_seconds() -> float:
    """This thread's time on a core and in the queue for one."""
    queued = int(Path("/proc/thread-self/schedstat").read_text().split()[1])  # In ns.
    return time.thread_time() + queued * 1e-9


def busy_seconds() -> float:
    """CPU seconds that all processes of this machine have taken since it started."""
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))


def run() -> Report:
    """Every kernel of the page about updating, and the bare loops beside them."""
    compile_kernels()
    keep_big_blocks()
    began, busy, own = time.perf_counter(), busy_seconds(), time.process_time()
    rows = _rows(_cases())
    wall = time.perf_counter() - began
    others = (busy_seconds() - busy - (time.process_time() - own)) / wall
    return Report(
        claim="Aim: two threads do at least 1.8 times the work of one, for kernels hold no lock.",
        columns=("update", "one thread", "two threads", "work", "waited", "work but for others"),
        rows=rows,
        notes=(
            (
                f"{ROWS:,} rows a thread in batches of {BATCH:,}, each into a summary of its own, "
                f"from empty; wall time, the best of {RUNS} rounds through all cases. Work: twice "
                "the time of one thread over that of two."
            ),
            (
                "Waited: the share of their time that the two threads waited for each other, the "
                "median of the runs; half where one always does. Work but for others: what that "
                "leaves of twice the work, were nothing else running."
            ),
            (
                "Bare loops share nothing and allocate nothing: what they reach is what this "
                "machine's two cores can do together."
            ),
            "The C heap keeps what is freed, as the server sets it up.",
            _idle(others),
        ),
    )


def _cases() -> list[SummaryCase]:
    nothing = "", 1.0
    names = ("hll", "texts", "theta", "items", "cells", "kll", "req", "sums", "counts", "ids")
    given = columns()
    bare = [floor.case for floor in floors(given)]
    return [*bare, *cases(given, dict.fromkeys((*names, "numpy"), nothing))]


def _rows(cases: list[SummaryCase]) -> list[tuple[str, ...]]:
    """Rounds through all cases, so that another load for a while hits no case in all runs."""
    rounds = [
        max(1, int(LEAST_SECONDS / min(together(case, 1, 1).wall for _ in range(3))))
        for case in cases
    ]
    ones: list[list[ThreadRun]] = [[] for _ in cases]
    twos: list[list[ThreadRun]] = [[] for _ in cases]
    for _ in range(RUNS):
        for number, case in enumerate(cases):
            ones[number].append(together(case, 1, rounds[number]))
            twos[number].append(together(case, 2, rounds[number]))
    return [_row(*of) for of in zip(cases, rounds, ones, twos, strict=True)]


def _row(
    case: SummaryCase, rounds: int, ones: list[ThreadRun], twos: list[ThreadRun]
) -> tuple[str, ...]:
    one, two = (min(run.wall for run in runs) for runs in (ones, twos))
    waited = statistics.median(run.waited for run in twos)
    return (
        case.name,
        f"{one / rounds * 1e3:,.1f} ms",
        f"{two / rounds * 1e3:,.1f} ms",
        f"{2 * one / two:.2f}×",
        f"{waited:.0%}",
        f"{2 * (1 - waited):.2f}×",
    )


def _idle(others: float) -> str:
    said = f"Meanwhile other processes took {others:.2f} of a core"
    return f"{said}." if others < 0.1 else f"{said}: run it again when they do not."


if __name__ == "__main__":
    print(run().markdown())
