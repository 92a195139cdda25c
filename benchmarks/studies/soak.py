"""Resident memory over an hour of steady load, while queries come and go.

`python -m benchmarks.studies.soak 300` soaks for five minutes.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import shedder
from benchmarks.workloads.served import Server, server
from shedder.client.client import Client

SECONDS = 3_600.0
ROWS_PER_S = 15_000
BUDGET_BYTES = 1 << 30
ALLOWED_GROWTH = 0.02  # Of the median of the third quarter, in the last one.
STANDING_MAX = 10
BATCHES_PER_S = 10
CREATE = "CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT, v DOUBLE, t VARCHAR) TIMESTAMP BY ts"
TEXTS = (
    "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM s [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY k",
    "SELECT COUNT(DISTINCT t) AS d, TOP(t, 5) AS f FROM s [RANGE 10 SECONDS SLIDE 1 SECOND]",
    "SELECT MIN(t) AS a, QUANTILE(v, 0.9) AS q FROM s [RANGE 10 SECONDS SLIDE 1 SECOND]",
)


@dataclass(frozen=True, slots=True)
class Soaked:
    """Measurements of a soak.

    resident_bytes: of the server and its workers, once a second. rows: pushed.
    """

    resident_bytes: list[int]
    rows: int

    def quarter(self, number: int) -> float:
        """The median resident size in a quarter of the time; 0 to 3."""
        size = len(self.resident_bytes) // 4
        return statistics.median(self.resident_bytes[number * size : (number + 1) * size])

    @property
    def growth(self) -> float:
        """Return the growth from the third to the last quarter, as a share."""
        return self.quarter(3) / self.quarter(2) - 1.0


def soaked(running: Server, seconds: float) -> Soaked:
    """Push at a steady rate, and register and drop a query every five seconds."""
    rng = np.random.default_rng(1)
    seen: list[int] = []
    rows = ROWS_PER_S // BATCHES_PER_S
    with shedder.connect(running.address, insecure=True, timeout_s=60.0) as client:
        client.execute(CREATE)
        began_s, number = time.monotonic(), 0
        with client.producer("s", "soak") as producer:
            while (at_s := time.monotonic() - began_s) < seconds:
                if at_s < number / BATCHES_PER_S:
                    time.sleep(number / BATCHES_PER_S - at_s)
                producer.push(_batch(rng, rows))
                number += 1
                if number % BATCHES_PER_S == 0:
                    seen.append(running.resident_bytes)
                if number % (5 * BATCHES_PER_S) == 0:
                    _come_and_go(client, number // (5 * BATCHES_PER_S))
    return Soaked(seen, number * rows)


def _batch(rng: np.random.Generator, rows: int) -> pa.Table:
    values = rng.lognormal(1.0, 1.0, rows)
    now_us = time.time_ns() // 1_000
    return pa.table(
        {
            "ts": pa.array(np.full(rows, now_us), pa.timestamp("us")),
            "k": pa.array(rng.zipf(1.3, rows) % 1_000),
            "v": pa.array(values),
            "t": [f"{value:.15f}" for value in values.tolist()],
        }
    )


def _come_and_go(client: Client, number: int) -> None:
    with suppress(shedder.errors.BudgetExceeded):
        client.register(f"q{number}", TEXTS[number % len(TEXTS)])
    if number > STANDING_MAX:
        client.execute(f"DROP QUERY q{number - STANDING_MAX}")


def main() -> int:
    """Soak a server for the seconds of the first argument, an hour without one.

    Returns:
      the exit status: 1 if the resident size grew.
    """
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with server(memory_bytes=BUDGET_BYTES, exact_memory_bytes=256 << 20) as running:
        found = soaked(running, seconds)
    quarters = ", ".join(f"{found.quarter(each) / 1e6:,.0f}" for each in range(4))
    print(f"{found.rows:,} rows in {seconds:,.0f} s; median resident MB by quarter: {quarters}")
    print(f"growth in the last quarter: {found.growth:.1%}; allowed: below {ALLOWED_GROWTH:.0%}")
    return int(found.growth >= ALLOWED_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
