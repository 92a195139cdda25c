"""Queues of row queries under a burst, by policy of operator scheduling"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import Report
from shedder.archive.log.records import Batch
from shedder.dataflow.scheduling.operator_scheduler import SchedulingPolicy
from shedder.engine.dataflow.row_queries import StandingRowQueries
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment

BATCH_ROWS = 2_048
BATCHES = 100  # In a burst, of two streams in turn.
KEYS = 1 << 20
OVERLOAD = 3  # Batches come so many times as fast as FIFO takes them.
RUNS = 5
WINDOW = "[RANGE INTERVAL '0.008' SECOND]"
JOIN = f"SELECT a.k, b.v FROM s {WINDOW} a JOIN t {WINDOW} b ON a.k = b.k"
QUERIES = {
    "join behind filters that keep a tenth": f"{JOIN} WHERE a.v < 100 AND b.v < 100",
    "join behind filters that keep nine tenths": f"{JOIN} WHERE a.v < 900 AND b.v < 900",
    "join without a filter": JOIN,
    "filter alone": "SELECT k, v FROM s WHERE v < 100",
}

NOTES = (
    f"A burst is {BATCHES} batches of {BATCH_ROWS:,} rows for two streams in turn.",
    f"Time is the CPU time of row queries. Batches come {OVERLOAD} times as fast as by FIFO.",
    "Bytes are those of batches that wait to be read, and of tuples that wait for operators.",
    "The mean is over the time that FIFO takes.",
    f"Medians of {RUNS} bursts, behind one that measures costs. There is no latency bound.",
    "A step that waits takes more tuples at once, so each costs less.",
    "Without a filter, a policy changes the size of steps alone.",
)


def batch(first: int) -> pa.RecordBatch:
    """Tuples with uniform keys and values, one a microsecond."""
    random = np.random.default_rng(first)
    ts = pa.array(np.arange(first, first + BATCH_ROWS), pa.timestamp("us"))
    keys, values = (pa.array(random.integers(0, end, BATCH_ROWS)) for end in (KEYS, 1_000))
    return pa.RecordBatch.from_arrays([ts, keys, values], names=["ts", "k", "v"])


@dataclass(frozen=True, slots=True)
class BurstCosts:
    """A burst. took_s: CPU seconds. peak, integral: of bytes in queues, the latter times s."""

    took_s: float
    peak: float
    integral: float


class SameThread(Executor):
    """Runs work at once, so that its CPU time counts on the thread that submits it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the work; return a future that is done."""
        done = Future[Any]()
        done.set_result(fn(*args, **kwargs))
        return done


class OneThread(Environment):
    """This machine; long steps are made on the apply thread."""

    def pool(self, name: str) -> Executor:
        """As `Environment.pool`."""
        return SameThread() if name == "shedder-steps" else super().pool(name)


class Burst:
    """Row queries of an engine, which get batches in the CPU time that they take."""

    def __init__(self, rows: StandingRowQueries, stream_ids: tuple[int, ...]) -> None:
        self._rows = rows
        self._stream_ids = stream_ids
        self._next = 0  # Position of each stream.

    def measured(self, policy: SchedulingPolicy, gap_s: float) -> BurstCosts:
        """Push a burst on the thread that calls. gap_s: between two batches."""
        schedule = self._rows.schedule
        self._rows.set_policy(policy)
        schedule.set_latency(float("inf"))
        batches = [batch(self._next + at // 2 * BATCH_ROWS) for at in range(BATCHES)]
        size_bytes = batches[0].nbytes
        began_ns, seen = time.thread_time_ns(), []
        for at, rows in enumerate(batches):
            came = self._came(began_ns, gap_s, at + 1)
            header = Batch(
                self._stream_ids[at % 2],
                "",
                0,
                at,
                self._next + at // 2 * BATCH_ROWS,
                BATCH_ROWS,
                0,
            )
            more = {self._stream_ids[of % 2] for of in range(at + 1, came)}
            self._rows.read(header, rows, "ts", None, more=more)
            for query in self._rows.queries.values():
                if query.has_long_step:
                    query.finish_step()
            waiting = size_bytes * (self._came(began_ns, gap_s, at + 1) - at - 1)
            seen.append(((time.thread_time_ns() - began_ns) / 1e9, waiting + schedule.queue_bytes))
        self._next += BATCHES // 2 * BATCH_ROWS
        times, sizes = np.array(seen).T
        return BurstCosts(times[-1], sizes.max(), float(np.sum(np.diff(times, prepend=0) * sizes)))

    def _came(self, began_ns: int, gap_s: float, least: int) -> int:
        """Return how many batches have come; the next one is at hand when others are applied."""
        now_s = (time.thread_time_ns() - began_ns) / 1e9
        return BATCHES if gap_s == 0 else max(least, min(BATCHES, 1 + int(now_s / gap_s)))


def medians(text: str) -> dict[SchedulingPolicy, tuple[float, float, float]]:
    """Return peak bytes, mean bytes and CPU seconds of bursts, by policy."""
    with tempfile.TemporaryDirectory() as path, Engine.open(path, machine=OneThread()) as db:
        for name in ("s", "t"):
            db.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts")
        db.register("q", text)
        burst = Burst(db.core.rows, (db.core.streams["s"].id, db.core.streams["t"].id))
        return db.core.executor.call(lambda: _medians(burst)).result()


def _medians(burst: Burst) -> dict[SchedulingPolicy, tuple[float, float, float]]:
    burst.measured(SchedulingPolicy.FIFO, 0.0)  # Kernels are compiled.
    gap_s = burst.measured(SchedulingPolicy.FIFO, 0.0).took_s / BATCHES / OVERLOAD
    found: dict[SchedulingPolicy, list[BurstCosts]] = {each: [] for each in SchedulingPolicy}
    for _ in range(1 + RUNS):
        for policy, measured in found.items():
            measured.append(burst.measured(policy, gap_s))
    taken = {policy: measured[1:] for policy, measured in found.items()}
    fifo_s = float(np.median([each.took_s for each in taken[SchedulingPolicy.FIFO]]))
    return {
        policy: (
            float(np.median([each.peak for each in measured])),
            float(np.median([each.integral for each in measured])) / fifo_s,
            float(np.median([each.took_s for each in measured])),
        )
        for policy, measured in taken.items()
    }


def run() -> Report:
    """Measure bursts for each query by each policy, in one process."""
    rows = []
    for name, text in QUERIES.items():
        for policy, (peak, mean, took_s) in medians(text).items():
            sizes = [f"{each / (1 << 10):,.0f} KiB" for each in (peak, mean)]
            rows.append([name, policy.value, *sizes, f"{1e3 * took_s:,.0f} ms"])
    claim = "Bytes in queues under a burst, by policy. FIFO is the default."
    return Report(claim, ("query", "policy", "peak", "mean", "CPU time"), rows, NOTES)
