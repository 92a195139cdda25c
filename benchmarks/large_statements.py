"""Latency of health probes and ingest beside large statements of other clients."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

import shedder
from benchmarks.measure import Report
from benchmarks.workloads.explain import text_of
from benchmarks.workloads.served import server
from benchmarks.workloads.trades import CREATE, batches
from shedder.cql.binding.parse import parse

SECONDS = 12.0
CLIENTS = (0, 1, 20)
PERIOD_S = 0.02  # Of probes, and of batches.
ROWS = 4_096


def run() -> Report:
    """Probe and push on a schedule, beside clients that ask EXPLAIN of 900 nodes."""
    rows = []
    for clients in CLIENTS:
        with server() as running, shedder.connect(running.address, insecure=True) as client:
            client.execute(CREATE)
            client.push("trades", next(batches(ROWS)))
            asking = _start(running.address, clients)
            with ThreadPoolExecutor(2) as pool:
                probes = pool.submit(_periodic, _probe_of(running.address))
                acks = pool.submit(_periodic, _push_of(running.address))
                found = [np.quantile(times.result(), (0.5, 0.99)) * 1e3 for times in (probes, acks)]
            answered = 0 if asking is None else int(asking.communicate()[0])
            cells = [f"{ms:.1f} ms" for times in found for ms in times]
            rows.append([str(clients), f"{answered / SECONDS:.1f}", *cells])
    parsed_ms = 1e3 * min(_seconds(partial(parse, text_of(number))) for number in range(5))
    return Report(
        claim="Large statements take turns and have a share of one core, so that probes and "
        "ingest keep their latency. The rival is the same server without them.",
        columns=[
            "clients that explain",
            "statements/s",
            "health p50",
            "health p99",
            "ack p50",
            "ack p99",
        ],
        rows=rows,
        notes=[
            f"A statement has {len(text_of(0)):,} characters; parsing it takes {parsed_ms:.0f} ms.",
            (
                f"A probe and a batch of {ROWS:,} tuples are sent every "
                f"{1e3 * PERIOD_S:.0f} ms, or when the one before was answered. Server and "
                "clients share two cores."
            ),
        ],
    )


def _start(address: str, clients: int) -> subprocess.Popen[str] | None:
    if not clients:
        return None
    command = [sys.executable, "-m", "benchmarks.workloads.explain"]
    command += [address, str(clients), str(SECONDS + 3.0)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(2.0)  # The client process needs its time to start.
    return process


def _probe_of(address: str) -> Callable[[], object]:
    stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(address))
    return lambda: stub.Check(health_pb2.HealthCheckRequest())


def _push_of(address: str) -> Callable[[], object]:
    client = shedder.connect(address, insecure=True)
    made = batches(ROWS * (int(SECONDS / PERIOD_S) + 1), seed=2)
    whole = [batch.slice(at, ROWS) for batch in made for at in range(0, batch.num_rows, ROWS)]
    return lambda: client.push("trades", whole.pop())


def _periodic(call: Callable[[], object]) -> list[float]:
    times, began = [], time.perf_counter()
    while (now := time.perf_counter()) < began + SECONDS:
        call()
        times.append(time.perf_counter() - now)
        time.sleep(max(0.0, PERIOD_S - times[-1]))
    return times


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
