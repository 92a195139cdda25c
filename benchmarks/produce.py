"""A client process: push trades as fast as they are taken; print tuples per second."""

from __future__ import annotations

import sys
import time

import shedder
from benchmarks.trades import batches


def main() -> None:
    """Arguments: address, tuples, seed."""
    address, tuples, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    prepared = list(batches(tuples, seed))
    with shedder.connect(address, insecure=True) as client:
        began = time.perf_counter()
        client.push("trades", prepared)
        applied = client.ledger("trades").applied
        elapsed = time.perf_counter() - began
    assert applied >= tuples, (applied, tuples)
    print(tuples / elapsed)


if __name__ == "__main__":
    main()
