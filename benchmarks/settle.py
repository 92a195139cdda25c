"""Ten clients at full speed: what they get together, how steadily, and how evenly.

SETTLE_SECONDS (30): of each turn of one or ten clients; its second half is measured.
As a client process: python -m benchmarks.settle ADDRESS CLIENTS SECONDS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa

import shedder
from benchmarks.measure import Report
from benchmarks.overload import on_core
from benchmarks.workloads.mixed import AGGREGATES, CREATE, queries
from benchmarks.workloads.served import server
from benchmarks.workloads.trades import batches

SECONDS = float(os.environ.get("SETTLE_SECONDS", "30"))
CLIENTS = 10
TURNS = 4  # Of each: rates of half seconds spread by a third, so one turn of each tells little.
ROWS = 16_384
TEMPLATES = 4
LOOK_S = 0.5

Measurement = dict[str, Any]


def run() -> Report:
    """One client and ten in turns, each as fast as it is let."""
    with on_core(0):
        serving = server()
        running = serving.__enter__()
    try:
        with shedder.connect(running.address, insecure=True) as client:
            client.execute(CREATE)
            for name, text in queries():
                client.register(name, text)
            turns = [
                {clients: measured(running.address, clients) for clients in (1, CLIENTS)}
                for _ in range(TURNS)
            ]
            ledger = client.ledger("trades")
    finally:
        serving.__exit__(None, None, None)
    assert ledger.accepted == ledger.applied + ledger.duplicate, ledger
    found = {clients: _over([turn[clients] for turn in turns]) for clients in (1, CLIENTS)}
    capacity = found[1]["per_s"]
    if not capacity:
        raise RuntimeError(f"nothing was taken in the second half of {SECONDS:g} s; give it longer")
    ratio = found[CLIENTS]["per_s"] / capacity
    ratios = sorted(turn[CLIENTS]["per_s"] / max(turn[1]["per_s"], 1.0) for turn in turns)
    rows = [
        [
            f"{clients}",
            f"{measurement['per_s'] / 1e3:,.0f} k",
            f"{measurement['per_s'] / capacity:.2f}",
            f"{measurement['deviation']:.0%}",
            f"{measurement['least'] * clients:.2f}",
            f"{measurement['most'] * clients:.2f}",
            f"{measurement['refused']}",
        ]
        for clients, measurement in found.items()
    ]
    return Report(
        claim="Wanted: ten clients that each push as fast as they are let settle, together, within "
        f"10 % of what one alone gets. Found: {ratio:.2f} times.",
        columns=[
            "clients",
            "taken/s",
            "of one's",
            "deviation of half seconds",
            "least client's share, of an equal one",
            "most",
            "clients that gave up",
        ],
        rows=rows,
        notes=[
            (
                f"{AGGREGATES} standing aggregates, so that more comes than the server can read in "
                f"full; {TURNS} turns of {SECONDS:g} s each, one client and then ten, of which the "
                f"second half counts; batches of {ROWS:,}."
            ),
            f"Ten clients over one, by turn: {', '.join(f'{each:.2f}' for each in ratios)}.",
            "The server has one core, for all that it does; the clients, one process, the other.",
        ],
    )


def _over(turns: list[Measurement]) -> Measurement:
    """Sum up turns: means of rates and deviations, extremes of shares, all that gave up."""
    return {
        "per_s": float(np.mean([turn["per_s"] for turn in turns])),
        "deviation": float(np.mean([turn["deviation"] for turn in turns])),
        "least": min(turn["least"] for turn in turns),
        "most": max(turn["most"] for turn in turns),
        "refused": sum(turn["refused"] for turn in turns),
    }


def measured(address: str, clients: int) -> Measurement:
    """So many clients, on the other core."""
    command = [sys.executable, "-m", "benchmarks.settle", address, str(clients), str(SECONDS)]
    with on_core(1):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measurement: Measurement = json.loads(done.stdout)
    return measurement


class Pushing(threading.Thread):
    """One client. taken: rows that the server has let in, but for those in flight."""

    def __init__(self, address: str, number: int, ends: float) -> None:
        super().__init__()
        self._address, self._number, self._ends = address, number, ends
        self.taken = 0
        self.gave_up = False

    def run(self) -> None:
        """Push until the time is over."""
        made = list(batches(TEMPLATES * ROWS, self._number))
        table = pa.Table.from_batches(made).combine_chunks()
        templates = [table.slice(at * ROWS, ROWS).to_batches()[0] for at in range(TEMPLATES)]
        try:
            with (
                shedder.connect(self._address, insecure=True) as client,
                client.producer("trades", f"settle-{self._number}-{self._ends:.0f}") as producer,
            ):
                turn = 0
                while time.perf_counter() < self._ends:
                    turn += 1
                    producer.push(_now(templates[turn % TEMPLATES]))
                    self.taken += ROWS
        except shedder.errors.ShedderError:
            self.gave_up = True


def _now(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same tuples, of this moment."""
    times = time.time_ns() // 1_000 + np.arange(batch.num_rows)
    return batch.set_column(0, batch.schema.field(0), pa.array(times).cast(pa.timestamp("us")))


def main() -> None:
    """Push by so many clients, and print what each was let."""
    address, clients, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    began = time.perf_counter()
    pushing = [Pushing(address, number, began + seconds) for number in range(clients)]
    for each in pushing:
        each.start()
    seen = []
    while (now := time.perf_counter()) < began + seconds:
        if now >= began + seconds / 2:
            seen.append((now, [each.taken for each in pushing]))
        time.sleep(LOOK_S)
    for each in pushing:
        each.join()
    times = np.array([at for at, _ in seen])
    taken = np.array([rows for _, rows in seen], np.float64)
    rates = np.diff(taken.sum(1)) / np.diff(times)
    shares = (taken[-1] - taken[0]) / max((taken[-1] - taken[0]).sum(), 1.0)
    measurement = {
        "per_s": float((taken[-1] - taken[0]).sum() / (times[-1] - times[0])),
        "deviation": float(rates.std() / max(rates.mean(), 1.0)),
        "least": float(shares.min()),
        "most": float(shares.max()),
        "refused": sum(each.gave_up for each in pushing),
    }
    print(json.dumps(measurement))


if __name__ == "__main__":
    main()
