"""A client process: push trades as fast as they are taken, or at a rate; print tuples per second.

python -m benchmarks.workloads.produce ADDRESS TUPLES SEED [RATE]
"""

from __future__ import annotations

import itertools
import sys
import time

import shedder
from benchmarks.workloads.trades import BATCH_ROWS, batches

PREPARED = 64 * BATCH_ROWS  # Batches are made ahead, so that making them is not measured.


def main() -> None:
    """Push, wait until everything is applied, print the rate."""
    address, tuples, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rate = float(sys.argv[4]) if len(sys.argv) > 4 else None
    pushed = 0
    busy_s = 0.0
    with (
        shedder.connect(address, insecure=True) as client,
        client.producer("trades", f"bench-{seed}") as producer,
    ):
        stream = batches(tuples, seed)
        while pushed < tuples:
            prepared = list(itertools.islice(stream, PREPARED // BATCH_ROWS))
            began = time.perf_counter()
            for batch in prepared:
                producer.push(batch)
                pushed += batch.num_rows
                if rate is not None:
                    wait = pushed / rate - busy_s - (time.perf_counter() - began)
                    time.sleep(max(0.0, wait))
            producer.flush()
            if pushed >= tuples:
                applied = client.ledger("trades").applied
                assert applied >= tuples, (applied, tuples)
            busy_s += time.perf_counter() - began
    print(tuples / busy_s)


if __name__ == "__main__":
    main()
