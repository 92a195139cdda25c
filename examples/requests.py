"""Made-up web requests as CSV: `python examples/requests.py 200000 > requests.csv`.

An hour of events in time order; sizes with a heavy tail, a few busy domains and many quiet ones.
The same rows every time.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv


def requests(rows: int, seed: int = 7, start: str = "2026-01-05T10:00:00") -> pa.Table:
    """Columns ts, client, domain, status, bytes, latency_ms; the hour begins at `start`, UTC."""
    random = np.random.default_rng(seed)
    offsets = np.sort(random.uniform(0, 3_600e6, rows)).astype("timedelta64[us]")
    domains = np.array([f"site{number:02}.example" for number in range(40)])
    return pa.table(
        {
            "ts": np.datetime64(start, "us") + offsets,
            "client": random.zipf(1.3, rows) % 50_000,
            "domain": domains[np.minimum(random.geometric(0.15, rows) - 1, 39)],
            "status": random.choice([200, 304, 404, 500], rows, p=[0.9, 0.06, 0.03, 0.01]),
            "bytes": random.lognormal(8, 1.5, rows).astype(np.int64),
            "latency_ms": np.round(random.exponential(40, rows), 1),
        }
    )


if __name__ == "__main__":
    pa_csv.write_csv(requests(int(sys.argv[1])), sys.stdout.buffer)
