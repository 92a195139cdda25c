"""Two tenants of one server: what one at ten times its quota does to the other.

TENANTS_SECONDS (30): of each load. As a client process:
python -m benchmarks.tenants ADDRESS CA TENANT TUPLES_PER_S SECONDS, the token in TENANT_TOKEN.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shedder
from benchmarks.measure import Report
from benchmarks.overload import on_core
from benchmarks.workloads.flood import Templates, flood
from benchmarks.workloads.served import Identities, ServedProcess, server
from shedder.client.target import ServerTarget

SECONDS = float(os.environ.get("TENANTS_SECONDS", "30"))
QUOTA = 100_000  # Tuples/s of the greedy one,
OTHER = 50_000  # ... and of the other one, which has no quota.
TIMES = (0, 1, 10)
ROWS = 2_048
PAUSE_S = 0.01
TENANTS = ("greedy", "modest")
GIVES_WAY = (
    10  # Niceness of the greedy one's client, so that it disturbs the server, and nothing else.
)
CREATE = (
    "CREATE STREAM of_{} (ts TIMESTAMP, key BIGINT, value DOUBLE) TIMESTAMP BY ts "
    "LATENESS INTERVAL '100' MILLISECOND"
)
QUERY = (
    "SELECT COUNT(*) AS n, SUM(value) AS total, COUNT(DISTINCT key) AS keys, "
    "QUANTILE(value, 0.99) AS p99, TOP(key, 20) AS busiest "
    "FROM of_{} [RANGE INTERVAL '10' SECOND SLIDE INTERVAL '1' SECOND]"
)

COMMAND = (sys.executable, "-m", "benchmarks.tenants")
Measurement = dict[str, Any]


def run() -> Report:
    """The same load of one tenant, three times, beside none, one and ten quotas of the other."""
    with tempfile.TemporaryDirectory() as folder:
        quotas = f"[tenant.greedy]\nrows_per_s = {QUOTA}\n"
        identities = Identities.of(Path(folder), TENANTS, quotas)
        with on_core(0):
            serving = server(identities=identities)
            running = serving.__enter__()
        try:
            prepare(running, identities)
            found = [(times, *measured(running, identities, times)) for times in TIMES]
        finally:
            serving.__exit__(None, None, None)
    return report(found)


def prepare(running: ServedProcess, identities: Identities) -> None:
    """A stream and a standing query for each tenant."""
    for tenant, token in identities.tokens.items():
        with shedder.connect(running.address, token=token, ca=identities.ca) as client:
            client.execute(CREATE.format(tenant))
            client.register(f"asked_{tenant}", QUERY.format(tenant))


def measured(
    running: ServedProcess, identities: Identities, times: float
) -> tuple[Measurement, Measurement]:
    """What the modest tenant and the greedy one saw."""
    rates = {"modest": OTHER, "greedy": times * QUOTA}
    with on_core(1):
        clients = {
            tenant: subprocess.Popen(
                [*COMMAND, running.address, identities.ca, tenant, str(rate), str(SECONDS)],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"TENANT_TOKEN": identities.tokens[tenant]},
            )
            for tenant, rate in rates.items()
            if rate
        }
    results = {tenant: json.loads(each.communicate()[0]) for tenant, each in clients.items()}
    return results["modest"], results.get("greedy", {})


def report(found: Sequence[tuple[float, Measurement, Measurement]]) -> Report:
    """The table, and what was wanted."""
    _, (_, quota, _), (_, ten, _) = found
    ratios = {key: ten[key] / quota[key] for key in ("p99_ms", "invoke_p99_ms")}
    rows = [
        [
            f"{times:g} quotas",
            _thousands(greedy.get("offered_per_s", 0)),
            _thousands(greedy.get("acknowledged_per_s", 0)),
            f"{greedy.get('RESOURCE_EXHAUSTED', 0):,.0f}",
            _thousands(modest["acknowledged_per_s"]),
            f"{modest.get('RESOURCE_EXHAUSTED', 0):,.0f}",
            f"{modest['p50_ms']:.1f}",
            f"{modest['p99_ms']:.1f}",
            f"{modest['invoke_p99_ms']:.1f}",
        ]
        for times, modest, greedy in found
    ]
    return Report(
        claim="Wanted: a tenant that sends ten times its quota does not move another one's p99 by "
        f"more than 2 times what it is at the quota. Found: appends {ratios['p99_ms']:.2f} times, "
        f"`Invoke` {ratios['invoke_p99_ms']:.2f} times.",
        columns=[
            "the greedy one sends",
            "offered/s",
            "acknowledged/s",
            "refused",
            "the other: acknowledged/s",
            "refused",
            "append p50, ms",
            "append p99, ms",
            "Invoke p99, ms",
        ],
        rows=rows,
        notes=[
            (
                f"Open loop, {SECONDS:g} s each, over TLS with tokens, batches of {ROWS:,} tuples: "
                f"the other sends {OTHER:,} tuples/s without a quota; the quota, `rows_per_s`, is "
                f"{QUOTA:,}. A refused batch is not sent again."
            ),
            (
                f"The data are in {tempfile.gettempdir()}: in /dev/shm, no stall of a disk hides "
                "what tenants do to each other."
            ),
            (
                "The server has one core, the clients have the other, where the one that measures "
                "goes first: on machines of their own they would not be in each other's way."
            ),
        ],
    )


def _thousands(rate: float) -> str:
    return f"{rate / 1e3:,.0f} k"


def main() -> None:
    """One tenant: send at a rate, ask all the time, print what that took."""
    address, ca, tenant = sys.argv[1:4]
    rate, seconds = float(sys.argv[4]), float(sys.argv[5])
    token = os.environ["TENANT_TOKEN"]
    if tenant == "greedy":
        os.nice(GIVES_WAY)
    target = ServerTarget.of(address, token=token, ca=ca, cert=None, key=None, insecure=False)
    invoke_ms: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        with shedder.connect(address, token=token, ca=ca) as client:
            query = client.query(f"asked_{tenant}")
            while not ended.wait(PAUSE_S):
                began = time.perf_counter()
                query.answer()
                invoke_ms.append(1e3 * (time.perf_counter() - began))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        results = asyncio.run(flood(target, rate, seconds, Templates(f"of_{tenant}", ROWS)))
    finally:
        ended.set()
        asking.join()
    results["invoke_p99_ms"] = float(np.percentile(invoke_ms or [float("nan")], 99))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
