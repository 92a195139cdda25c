"""A scripted run in a process of its own, for fault injection.

python -m tests.engine.scripted DIRECTORY FD: every step that was acknowledged is told through the
socket before the next one begins, so that whoever injects faults knows what must survive. (A
socket, because its system calls are not among those that fail.) Exit codes: 0 done, 3 a clean
error, anything else is neither.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

import shedder
from shedder.errors import ShedderError
from synopses.warm import compile_kernels

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


def play(directory: str, tell: Callable[[str], None]) -> None:
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


def main(directory: str, line: socket.socket) -> int:
    """Rehearse elsewhere, wait for the word, then play."""

    def tell(text: str) -> None:
        line.sendall(text.encode() + b"\n")

    compile_kernels()
    with TemporaryDirectory() as elsewhere:  # What follows opens no files but the database's.
        play(elsewhere, lambda _text: None)
    tell("loaded")
    line.recv(1)
    try:
        play(directory, tell)
    except ShedderError as error:
        tell(f"error {error.reason} {error}")
        return 3
    tell("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
