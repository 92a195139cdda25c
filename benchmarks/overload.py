"""Overload: 200 standing aggregates, at 1 to 10 times what the server can read in full.

OVERLOAD_SECONDS (60): of each load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import shedder
from benchmarks.measure import Report
from benchmarks.workloads.mixed import AGGREGATES, CREATE, queries
from benchmarks.workloads.served import ServedProcess, server
from shedder.client.client import Client

SECONDS = float(os.environ.get("OVERLOAD_SECONDS", "60"))
TIMES = (1, 2, 5, 10)
MEMORY_BYTES = 2 << 30
CALM_S = 30.0
FLOOD_PER_S = 50e6  # More than can be sent: what is taken then is the capacity.


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one load came to. flood, probe: what the clients say.

    applied_per_s: from the first batch until all that was taken is applied.
    """

    times: float
    applied_per_s: float
    resident_bytes: int
    flood: dict[str, Any]
    probe: dict[str, Any]


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Processes that are started inside run on one core; what waits for them on the others."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[core % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def run() -> Report:
    """Capacity in full, then each load, on one server on one core; the clients on the other."""
    with on_core(0):
        serving = server(memory_bytes=MEMORY_BYTES, overload="off")
        running = serving.__enter__()
    try:
        with shedder.connect(running.address, insecure=True) as client:
            client.execute(CREATE)
            for name, text in queries():
                client.register(name, text)
            capacity = measured(running, client, 0.0, FLOOD_PER_S, SECONDS / 4).applied_per_s
            client.set_control("overload", "", "mode", "on")
            loads = []
            for times in TIMES:
                calm(client)
                loads.append(measured(running, client, times, times * capacity, SECONDS))
            calm(client)
            ledger = client.ledger("trades")
    finally:
        serving.__exit__(None, None, None)
    assert ledger.accepted == ledger.applied + ledger.duplicate, ledger
    return report(capacity, loads)


def measured(
    running: ServedProcess, client: Client, times: float, rate: float, seconds: float
) -> LoadResult:
    """One load, by clients on the other core."""
    before = client.ledger("trades").applied
    resident = 0
    seen = [(time.time(), before)]
    with on_core(1):
        clients = [
            _started("benchmarks.workloads.flood", running.address, rate, seconds),
            _started("benchmarks.workloads.probe", running.address, seconds),
        ]
    while any(process.poll() is None for process in clients):
        resident = max(resident, running.process.memory_info().rss)
        if not running.process.is_running():
            raise RuntimeError("the server has ended")
        applied = client.ledger("trades").applied  # Of all that was durable when it was asked.
        seen.append((time.time(), applied))
        time.sleep(0.2)
    flood, probe = (json.loads(process.communicate()[0]) for process in clients)
    applied = client.ledger("trades").applied
    ended_at_s = next((at_s for at_s, count in seen if count == applied), time.time())
    busy_s = max(ended_at_s - flood["began_at_s"], seconds)
    return LoadResult(times, (applied - before) / busy_s, resident, flood, probe)


def _started(module: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def facts(client: Client) -> dict[str, str]:
    """What the overload controller says."""
    rows = client.control().to_pylist()
    return {row["key"]: row["value"] for row in rows if row["entity"] == "overload"}


def calm(client: Client) -> None:
    """Return when nothing is shed any more, or after a while."""
    ends = time.perf_counter() + CALM_S
    while time.perf_counter() < ends and facts(client)["overloaded"] == "1":
        time.sleep(0.2)


def report(capacity: float, loads: list[LoadResult]) -> Report:
    """The table, and what was wanted."""
    first = loads[0]
    rows = [
        [
            f"{load.times:g}×",
            _thousands(load.flood["offered_per_s"]),
            _thousands(load.flood["acknowledged_per_s"]),
            f"{load.flood['acknowledged_per_s'] / capacity:.2f}",
            f"{load.applied_per_s / first.applied_per_s:.2f}",
            f"{load.flood['p99_ms']:.0f}",
            f"{load.probe['invoke_p99_ms']:.0f}",
            f"{load.probe['health_p99_ms']:.0f}",
            f"{load.resident_bytes / (1 << 20):,.0f}",
            f"1/{round(1 / load.probe['thinning'])}",
            f"{sum(load.flood.get(name, 0) for name in ('RESOURCE_EXHAUSTED', 'not sent')):,.0f}",
        ]
        for load in loads
    ]
    return Report(
        claim=f"With {AGGREGATES} standing aggregates, a server on one core reads "
        f"{_thousands(capacity)} tuples/s in full. Above that it reads less of each, and refuses "
        "what even so is too much. Wanted: at 10× it acknowledges at least 0.9 of that, applies "
        "no less than at 1×, and answers: appends within 250 ms, `Invoke` 500 ms, health 50 ms "
        "(p99 each).",
        columns=[
            "load",
            "offered/s",
            "acknowledged/s",
            "of capacity",
            "applied, of 1×",
            "ack p99, ms",
            "Invoke p99, ms",
            "health p99, ms",
            "resident, MiB",
            "least share read",
            "refused or not sent",
        ],
        rows=rows,
        notes=[
            (
                f"Open loop, {SECONDS:g} s each, batches of 16,384 tuples of 24 bytes; a refused "
                "batch is not sent again. Each call declares its batch, so that what is refused is "
                "not received. Capacity: what is applied when nothing is shed and more is sent "
                "than is taken."
            ),
            (
                "The server has one core, for gRPC, checks, log, runs and synopses together; "
                "the clients and their measurements have the other."
            ),
            f"The limit of memory is {MEMORY_BYTES >> 20:,} MiB, the exact worker's 512 included.",
        ],
    )


def _thousands(rate: float) -> str:
    return f"{rate / 1e3:,.0f} k"
