"""CPU and time of one-time queries over a stream's runs, beside DuckDB over the same files.

CPU is that of all processes, so that the exact worker's is in it. Figures of one run:
`.venv/bin/python -m benchmarks.studies.archive_reads [tuples]`. To compare commits, run the file
with the PYTHONPATH of each in turns.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import psutil

import shedder
from benchmarks.workloads.trades import BATCH_ROWS, CREATE, batches

TUPLES = 8_000_000
REPEATED = 40
SEALED_ROWS = 16_000_000  # Before the log holds more than it may.
QUERIES = {
    "COUNT and AVG, EXACT": (
        "SELECT COUNT(*) AS n, AVG(value) AS v FROM trades EXACT",
        "SELECT count(*), favg(value) FROM {}",
    ),
    "COUNT and AVG, WITHIN 0.3 PERCENT": (
        "SELECT COUNT(*) AS n, AVG(value) AS v FROM trades WITHIN 0.3 PERCENT",
        "SELECT count(*), favg(value) FROM {}",
    ),
    "SUM of a rare key, WITHIN 5 PERCENT": (
        "SELECT SUM(value) AS v FROM trades WHERE key = 900 WITHIN 5 PERCENT",
        "SELECT fsum(value) FROM {} WHERE key = 900",
    ),
    "AVG of 10 groups, WITHIN 1 PERCENT": (
        "SELECT key % 10 AS g, AVG(value) AS v FROM trades GROUP BY key % 10 WITHIN 1 PERCENT",
        "SELECT key % 10 AS g, favg(value) FROM {} GROUP BY g",
    ),
    "rows, LIMIT 20": ("SELECT * FROM trades LIMIT 20", "SELECT * FROM {} LIMIT 20"),
}


def cpu_seconds() -> float:
    """CPU time of this process and of its children that run."""
    children = (child.cpu_times() for child in psutil.Process().children(recursive=True))
    return time.process_time() + sum(each.user + each.system for each in children)


def costs(work: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of one of many calls in their mean, and the median of their times."""
    for _ in range(2):
        work()
    took, before = [], cpu_seconds()
    for _ in range(REPEATED):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return (cpu_seconds() - before) / REPEATED, statistics.median(took)


def fetched(rival: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[object, ...]]:
    """Rows of a statement that DuckDB answers."""
    return rival.execute(sql).fetchall()


def main(tuples: int) -> None:
    """Print CPU and time of each query, and those of DuckDB's."""
    with (
        tempfile.TemporaryDirectory(prefix="shedder-bench-") as folder,
        shedder.open(folder, overload="off", audit="off") as db,
    ):
        db.execute(CREATE)
        for number, batch in enumerate(batches(tuples), 1):
            db.push("trades", batch)
            if number * BATCH_ROWS % SEALED_ROWS < BATCH_ROWS:
                db.seal("trades")
        db.seal("trades")
        files = sorted(str(path) for path in Path(folder).glob("runs/*/*.parquet"))
        print(f"{tuples:,} tuples in {len(files)} runs; CPU and time of Shedder, of DuckDB")
        rival = duckdb.connect(config={"threads": 2})
        for name, (cql, sql) in QUERIES.items():
            statement = sql.format(f"read_parquet({files})")
            ours = costs(partial(db.execute, cql))
            theirs = costs(partial(fetched, rival, statement))
            shown = "  ".join(f"{1e3 * each:8.1f} ms" for each in (*ours, *theirs))
            print(f"{name:36} {shown}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TUPLES)
