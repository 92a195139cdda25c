"""Shedder in this process: a stream, a standing query, one-time questions, exact and not.

python -m examples.embedded
"""

from __future__ import annotations

import tempfile

import shedder
from examples.requests import requests

CREATE = """
    CREATE STREAM requests (ts TIMESTAMP NOT NULL, client BIGINT, domain VARCHAR, status BIGINT,
                            bytes BIGINT, latency_ms DOUBLE)
    TIMESTAMP BY ts LATENESS INTERVAL '5' SECOND
"""

BUSY = """
    SELECT domain, COUNT(*) AS hits, COUNT(DISTINCT client) AS clients,
           QUANTILE(latency_ms, 0.99) AS p99
    FROM requests [RANGE INTERVAL '5' MINUTE SLIDE INTERVAL '1' MINUTE]
    GROUP BY domain ORDER BY hits DESC LIMIT 5 WITHIN 2 PERCENT
"""

ERRORS = "SELECT COUNT(*) AS errors, AVG(bytes) AS size FROM requests WHERE status = 500"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, shedder.open(directory) as db:
        db.execute(CREATE)
        busy = db.register("busy", BUSY)
        receipt = db.push("requests", requests(300_000))

        print("The busiest domains of the last five minutes:")
        print(busy.answer(after=receipt))

        print("\nErrors over all time, from a sample if 30 % is good enough:")
        rough = db.execute(ERRORS + " WITHIN 30 PERCENT")
        print(rough)

        print("\nThe same, exactly:")
        exact = db.execute(ERRORS)
        print(exact)

        truth = exact.rows()[0]["errors"]
        assert rough.estimate(0, "errors").holds(truth) or rough.confidence < 1


if __name__ == "__main__":
    main()
