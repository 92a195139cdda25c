"""A scripted run in a process of its own, for fault injection.

Every acknowledged step is printed before the next one begins, so that the process that injects
faults knows what must survive. Exit codes: 0 done, 3 a clean error, anything else is neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import shedder
from shedder.errors import ShedderError

ROWS = 700
BATCHES = 12
SETTINGS = {
    "run_rows": 2_000,
    "sample_rows": 64,
    "log_segment_bytes": 65_536,
    "checkpoint_seconds": 0.01,
}
CREATE = "CREATE STREAM events (ts TIMESTAMP, id BIGINT) TIMESTAMP BY ts"
QUERY = "SELECT COUNT(*) AS n, SUM(id) AS s FROM events"


def batch(sequence: int) -> pa.Table:
    """Rows with ids from sequence * ROWS on."""
    ids = np.arange(sequence * ROWS, (sequence + 1) * ROWS, dtype=np.int64)
    return pa.table({"ts": pa.array(ids * 1000, pa.timestamp("us")), "id": ids})


def play(directory: Path, tell: Callable[[str], None]) -> None:
    """Create, push, seal, close."""
    with shedder.open(directory, **SETTINGS) as db:
        db.execute(CREATE)
        db.register("whole", QUERY)
        tell("ready")
        for sequence in range(BATCHES):
            db.push("events", batch(sequence), producer="p", sequence=sequence)
            tell(f"acknowledged {sequence}")
        db.seal("events")
        tell("sealed")


def run_script(directory: Path) -> None:
    """Play, and print what is done."""
    tell = partial(print, flush=True)
    try:
        play(directory, tell)
    except ShedderError as error:
        tell(f"error {error.reason} {error}")
        sys.exit(3)
    tell("closed")
