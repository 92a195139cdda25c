"""How long Invoke takes while the server ingests at half its maximum."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np

import shedder
from benchmarks.measure import Report
from benchmarks.workloads.served import server
from benchmarks.workloads.trades import BATCH_ROWS, CREATE, QUERIES

PROBE = 120_000_000 // BATCH_ROWS * BATCH_ROWS  # Long enough that the writing of runs keeps up.
SECONDS = 12.0
AIM = 5e6  # Tuples a second.
CALLERS = 4
CALLS_PER_S = 50  # Of each caller.


def run() -> Report:
    """p50 and p99 of calls that are due on a schedule, under four loads."""
    rows = []
    with server() as running, shedder.connect(running.address, insecure=True) as client:
        client.execute(CREATE)
        for name, text in QUERIES.items():
            client.register(name, text)
        maximum = _produce(running.address, PROBE, 1, None)
        client.seal("trades")  # Until the runs of that are written, nothing else is measured.
        loads: list[tuple[str, float, float | None]] = [
            ("none", 0.0, None),
            ("half of the 5 M tuples/s that ingest aims at", AIM / 2, AIM / 2),
            (
                f"half of the {maximum / 1e6:.1f} M tuples/s that it sustains",
                maximum / 2,
                maximum / 2,
            ),
            ("all that it takes", maximum, None),
        ]
        for seed, (load, expected, rate) in enumerate(loads, start=2):
            producer = None
            if expected:
                producer = _start(running.address, int(expected * SECONDS), seed, rate)
                time.sleep(3.0)  # The client process needs its time to start.
            times = _open_loop(running.address, SECONDS / 2)
            if producer is not None:
                producer.communicate()
            p50, p99 = np.quantile(times, (0.5, 0.99)) * 1e3
            aim = "" if rate is None else ("met" if p50 < 2 and p99 < 10 else "missed")
            rows.append([load, f"{len(times):,}", f"{p50:.2f} ms", f"{p99:.2f} ms", aim])
    return Report(
        claim="Aim: p50 under 2 ms and p99 under 10 ms while ingest runs at half its maximum "
        "(server, producer and callers share two cores). The rival is the same server without "
        "load.",
        columns=["ingest", "calls", "p50", "p99", "aim"],
        rows=rows,
        notes=[
            (
                f"Open loop: {CALLERS} callers have {CALLS_PER_S} calls a second each, due on a "
                "schedule; a call's time counts from when it was due, so a slow call is charged "
                "for those it delays."
            ),
            (
                f"The maximum is that of {PROBE:,} tuples in a row: the first 30 million go "
                "faster, because the writing of their runs is still to come."
            ),
        ],
    )


def _open_loop(address: str, seconds: float) -> list[float]:
    """Seconds from when each call was due to its answer, of several callers."""
    ready = Barrier(CALLERS)
    with ThreadPoolExecutor(CALLERS) as pool:
        callers = [
            pool.submit(_call_on_schedule, address, ready, number / CALLERS, seconds)
            for number in range(CALLERS)
        ]
        return [time_s for caller in callers for time_s in caller.result()]


def _call_on_schedule(address: str, ready: Barrier, phase: float, seconds: float) -> list[float]:
    times = []
    with shedder.connect(address, insecure=True) as client:
        query = client.query("totals")
        query.answer()
        ready.wait()  # Connecting is not what is measured.
        began = time.perf_counter() + phase / CALLS_PER_S
        for number in range(int(seconds * CALLS_PER_S)):
            due = began + number / CALLS_PER_S
            time.sleep(max(0.0, due - time.perf_counter()))
            query.answer()
            times.append(time.perf_counter() - due)
    return times


def _start(address: str, tuples: int, seed: int, rate: float | None) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.workloads.produce",
        address,
        str(tuples),
        str(seed),
    ]
    command += [] if rate is None else [str(rate)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _produce(address: str, tuples: int, seed: int, rate: float | None) -> float:
    output, _ = _start(address, tuples, seed, rate).communicate()
    return float(output)
