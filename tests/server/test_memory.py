"""The resident size of a server stays within what `memory_bytes` says, and the server drains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.scale import scaled
from tests.server_process import ServerProcess

MEMORY_MIB = scaled(256, 1_024)
PUSHED_MIB = scaled(160, 4_000)
ROOM_MIB = 256  # Beside the budget: copies in encoders, answers and gRPC, and free heap.
BATCH_ROWS = 1_024
MIB = 1 << 20
CREATE = "CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT, v DOUBLE, t VARCHAR) TIMESTAMP BY ts"
QUERIES = {
    "texts": "SELECT MIN(t) AS a, MAX(t) AS b, COUNT(DISTINCT t) AS d, TOP(t, 5) AS f FROM s",
    "groups": "SELECT t, COUNT(*) AS n FROM s GROUP BY t",
    "sums": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM s GROUP BY k",
}


def status_bytes(server: ServerProcess, field: str) -> int:
    """Return a field of a process's status, such as VmRSS or VmHWM, in bytes."""
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) << 10


def wide_rows(number: int) -> pa.Table:
    """Return a batch of 8 KiB texts, no two of which are equal."""
    rng = np.random.default_rng(number)
    values = rng.lognormal(1.0, 1.0, BATCH_ROWS)
    times = np.full(BATCH_ROWS, 1_700_000_000_000_000 + 100_000 * number)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": rng.integers(0, 50, BATCH_ROWS),
            "v": values,
            "t": [f"{value:020.15f}".ljust(8 << 10, "x") for value in values.tolist()],
        }
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_wide_texts_at_full_speed_stay_within_the_budget_and_the_server_drains(tmp_path):
    """Samples once held all texts that had come, and checkpoints wrote them every ten seconds."""
    server = ServerProcess(
        tmp_path / "data",
        memory_bytes=f"{MEMORY_MIB}MiB",
        exact_memory_bytes="64MiB",
        audit_memory_bytes="64MiB",
        group_bytes_max="8MiB",
    )
    with server.connect() as client:
        client.execute(CREATE)
        for name, text in QUERIES.items():
            client.register(name, text)
        before = status_bytes(server, "VmRSS")
        with client.producer("s", "p") as producer:
            for number in range(PUSHED_MIB // 8):
                producer.push(wide_rows(number))
        largest = status_bytes(server, "VmHWM")
        assert server.stop() == 0
    assert largest - before < (MEMORY_MIB + ROOM_MIB) * MIB
    server.start_again()
    with server.connect() as client:
        assert client.ledger("s").applied == PUSHED_MIB // 8 * BATCH_ROWS
    assert server.stop() == 0
