"""Shedder over the wire: a producer whose retries store nothing twice, and a subscriber.

shedder serve --data ./data --insecure &
python -m examples.over_grpc localhost:7077
"""

from __future__ import annotations

import sys
import threading

import shedder
from examples.embedded import CREATE
from examples.requests import requests

PER_MINUTE = """
    SELECT status, COUNT(*) AS hits, MAX(latency_ms) AS slowest
    FROM requests [RANGE INTERVAL '1' MINUTE SLIDE INTERVAL '1' MINUTE]
    GROUP BY status ORDER BY hits DESC
"""


def produce(address: str) -> None:
    """Push an hour of requests in batches; the same producer and sequence never store twice."""
    table = requests(200_000)
    with shedder.connect(address) as db:
        for sequence, batch in enumerate(table.to_batches(max_chunksize=20_000)):
            receipt = db.push("requests", batch, producer="example", sequence=sequence)
            if receipt.duplicate:
                print(f"batch {sequence} was there already", file=sys.stderr)


def main(address: str) -> None:
    with shedder.connect(address) as db:
        db.execute(CREATE.replace("CREATE STREAM", "CREATE STREAM IF NOT EXISTS"))
        query = db.register("per_minute", PER_MINUTE)
        answers = query.subscribe()
        producer = threading.Thread(target=produce, args=(address,))
        producer.start()
        for answer in answers:
            start, _ = answer.window
            print(
                f"minute from {start:%H:%M}"
                + (f", {answer.missed} missed" if answer.missed else "")
            )
            print(answer)
            if start is not None and start.minute >= 55:
                break
        producer.join()


if __name__ == "__main__":
    main(sys.argv[1])
