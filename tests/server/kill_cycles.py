"""kill -9 again and again under load: acknowledged ⊆ recovered ⊆ sent, nothing twice, no holes.

`python -m tests.server.kill_cycles 50` runs fifty cycles and prints what it saw. The oracle is
this process: it knows which rows it has sent and for which it has receipts. The server is killed
when a random number of batches is on its way, with several of them unacknowledged.
"""

import random
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import shedder
from shedder.streams.batches import arrow_schema
from tests.server.conftest import CREATE_TRADES
from tests.server.processes import ServerProcess
from tests.streams.streams import TRADES

EXACT = "SELECT COUNT(*) AS n, MIN(key) AS low, MAX(key) AS high, SUM(key) AS total FROM trades"
GROUPS = (
    "SELECT COUNT(*) AS n, SUM(key) AS total, COUNT(DISTINCT key) AS keys, MAX(value) AS top "
    "FROM trades"
)


def batch(first: int, rows: int) -> pa.RecordBatch:
    """Rows whose key is their number: first, first + 1, ..."""
    keys = np.arange(first, first + rows)
    columns = [pa.array(keys * 1000).cast(pa.timestamp("us")), pa.array(keys), pa.array(keys / 2)]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(TRADES))


def check(client, acknowledged: int, sent: int) -> int:
    """The rows that were recovered are a prefix of those sent, and hold all acknowledged ones."""
    row = client.execute(EXACT).rows()[0]
    recovered = row["n"]
    assert acknowledged <= recovered <= sent, (acknowledged, recovered, sent)
    if recovered:
        assert (row["low"], row["high"]) == (0, recovered - 1), row
        assert row["total"] == recovered * (recovered - 1) // 2, row
    return recovered


def run(directory: Path, cycles: int, seed: int) -> dict[str, int]:
    """Kill a server `cycles` times while rows are pushed into it; returns what happened."""
    draw = random.Random(seed)
    server = ServerProcess(directory)
    with shedder.connect(server.address, patience_s=60) as client:
        client.execute(CREATE_TRADES)
        client.register("groups", GROUPS)
        producer = client.producer("trades", "oracle")
        sent = unacknowledged = 0
        for _ in range(cycles):
            for _ in range(draw.randrange(1, 60)):
                rows = draw.choice((1, 100, 5_000))
                producer.push(batch(sent, rows))
                sent += rows
            acknowledged = producer._outbox.receipt.position
            server.stop(signal.SIGKILL)
            server = ServerProcess(directory, server.address)
            recovered = check(client, acknowledged, sent)
            unacknowledged += recovered - acknowledged
        producer.close()
        assert check(client, sent, sent) == sent
        answer = client.query("groups").answer(after=producer._outbox.receipt)
        standing = answer.rows()[0]
        assert (standing["n"], standing["total"]) == (sent, sent * (sent - 1) // 2)
        assert standing["top"] == (sent - 1) / 2
        assert client.last_sequence("trades", "oracle") == (0, producer.next_sequence - 1)
    assert server.stop() == 0
    return {"cycles": cycles, "rows": sent, "recovered_without_receipt": unacknowledged}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(run(Path(scratch) / "data", int(sys.argv[1]), seed=int([*sys.argv, "1"][2])))
