"""How long Invoke takes while the server ingests at half its maximum."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

import shedder
from benchmarks.measure import Report
from benchmarks.served import server
from benchmarks.trades import BATCH_ROWS, CREATE, QUERIES
from shedder.queries.database import StandingQuery

PROBE = 30_000_000 // BATCH_ROWS * BATCH_ROWS
SECONDS = 12.0
CALLS_PER_S = 200


def run() -> Report:
    """Idle, half rate and full rate; p50 and p99 of calls that are due on a schedule."""
    rows = []
    with server() as running, shedder.connect(running.address, insecure=True) as client:
        client.execute(CREATE)
        for name, text in QUERIES.items():
            client.register(name, text)
        maximum = _produce(running.address, PROBE, 1, None)
        query = client.query("totals")
        for share in (0.0, 0.5, 1.0):
            producer = None
            if share:
                rate = None if share == 1.0 else share * maximum
                tuples = int((rate or maximum) * SECONDS)
                producer = _start(running.address, tuples, int(share * 100) + 2, rate)
                time.sleep(3.0)  # The client process needs its time to start.
            times = _open_loop(query, SECONDS / 2)
            if producer is not None:
                producer.communicate()
            p50, p99 = np.quantile(times, (0.5, 0.99)) * 1e3
            load = f"{share:.0%} of {maximum / 1e6:.1f} M tuples/s" if share else "none"
            aim = "" if share != 0.5 else ("met" if p50 < 2 and p99 < 10 else "missed")
            rows.append([load, f"{len(times):,}", f"{p50:.2f} ms", f"{p99:.2f} ms", aim])
    return Report(
        claim="Aim: p50 under 2 ms and p99 under 10 ms while ingest runs at half its maximum "
        "(server, producer and caller share two cores). The rival is the same server without load.",
        columns=["ingest", "calls", "p50", "p99", "aim"],
        rows=rows,
        notes=[
            (
                f"Open loop: {CALLS_PER_S} calls a second are due on a schedule, and a call's time "
                "counts from when it was due, so a slow call is charged for those it delays."
            )
        ],
    )


def _open_loop(query: StandingQuery, seconds: float) -> list[float]:
    """Seconds from when each call was due to its answer."""
    times = []
    began = time.perf_counter()
    for number in range(int(seconds * CALLS_PER_S)):
        due = began + number / CALLS_PER_S
        time.sleep(max(0.0, due - time.perf_counter()))
        query.answer()
        times.append(time.perf_counter() - due)
    return times


def _start(address: str, tuples: int, seed: int, rate: float | None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.produce", address, str(tuples), str(seed)]
    command += [] if rate is None else [str(rate)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _produce(address: str, tuples: int, seed: int, rate: float | None) -> float:
    output, _ = _start(address, tuples, seed, rate).communicate()
    return float(output)
