"""Resident memory over an hour of steady load, while queries come and go.

`python -m benchmarks.studies.soak 300` soaks for five minutes. The exit status is 1 if the resident
size grew in the second half, or if fewer rows were taken than the rate asks for.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import shedder
from benchmarks.workloads.served import ServedProcess, server
from shedder.client.client import Client

SECONDS = 3_600.0
SECONDS_MIN = 40.0  # Each eighth of the time then has five measurements.
SECONDS_MAX = 604_800.0  # A week.
ROWS_PER_S = 15_000
BUDGET_BYTES = 1 << 30
RATE_SHARE_MIN = 0.99  # Of the rows that the rate asks for.
ALLOWED_GROWTH = 0.02  # Of the resident size, in the second half of the time.
REPORTS = 60  # Lines of progress in a run.
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

    resident_bytes: of the server and its workers; once a second. rows: taken by the server.
    seconds: until the last row was taken.
    """

    resident_bytes: Sequence[int]
    rows: int
    seconds: float

    def eighth(self, number: int) -> float:
        """Return the median resident size in an eighth of the time; number: 0 to 7."""
        size, count = len(self.resident_bytes), number + 1
        return statistics.median(self.resident_bytes[number * size // 8 : count * size // 8])

    @property
    def growth(self) -> float:
        """Return the growth in the second half, as a share of the size at its begin.

        The medians of the fifth and the last eighth are three quarters of a half apart. So their
        difference counts 4/3 times: a steady growth is shown whole, and one step is shown larger.
        """
        return (self.eighth(7) / self.eighth(4) - 1.0) * 4.0 / 3.0

    @property
    def rate_share(self) -> float:
        """Return the rows as a share of those that the rate asks for."""
        return self.rows / (ROWS_PER_S * self.seconds)

    @property
    def is_good(self) -> bool:
        """Return whether the resident size stayed and the rate was kept."""
        return self.growth < ALLOWED_GROWTH and self.rate_share >= RATE_SHARE_MIN


def soaked(running: ServedProcess, seconds: float) -> Soaked:
    """Push at a steady rate, and register and drop a query every five seconds."""
    rng = np.random.default_rng(1)
    seen: list[int] = []
    rows = ROWS_PER_S // BATCHES_PER_S
    report_every = max(1, round(seconds / REPORTS))
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
                    if len(seen) % report_every == 0:
                        _report(time.monotonic() - began_s, seconds, number * rows, seen[-1])
                if number % (5 * BATCHES_PER_S) == 0:
                    _come_and_go(client, number // (5 * BATCHES_PER_S))
            producer.flush()
            took_s = time.monotonic() - began_s
        [counted] = client.execute("SELECT COUNT(*) AS n FROM s").rows()
    return Soaked(seen, counted["n"], took_s)


def _report(at_s: float, seconds: float, rows: int, resident_bytes: int) -> None:
    print(
        f"{at_s:,.0f} of {seconds:,.0f} s: {rows:,} rows pushed, "
        f"{resident_bytes / 1e6:,.0f} MB resident",
        flush=True,
    )


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
        client.execute(f"DROP QUERY IF EXISTS q{number - STANDING_MAX}")


def duration_s(text: str) -> float:
    """Read the seconds of a soak; what would show no growth, or never end, is refused."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} seconds; a soak takes from {SECONDS_MIN:,.0f} to {SECONDS_MAX:,.0f} seconds"
        )
    return seconds


def main() -> int:
    """Soak a server.

    Returns:
      the exit status: 1 if the resident size grew, or fewer rows were taken than the rate asks for.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.soak", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=duration_s, default=SECONDS, help="an hour")
    seconds = parser.parse_args().seconds
    with server(memory_bytes=BUDGET_BYTES, exact_memory_bytes=256 << 20) as running:
        found = soaked(running, seconds)
    eighths = ", ".join(f"{found.eighth(each) / 1e6:,.0f}" for each in range(8))
    print(f"median resident MB by eighth of the time: {eighths}")
    print(f"growth in the second half: {found.growth:.1%}; allowed: below {ALLOWED_GROWTH:.0%}")
    print(
        f"{found.rows:,} rows in {found.seconds:,.0f} s, {found.rate_share:.1%} of the rate; "
        f"required: {RATE_SHARE_MIN:.0%}"
    )
    return int(not found.is_good)


if __name__ == "__main__":
    sys.exit(main())
