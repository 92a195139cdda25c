"""A target over the archive: as much as it needs, beside DuckDB over all of the same files."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import shedder
from benchmarks.measure import Report
from shedder.engine.engine import Engine
from shedder.queries.answer import Answer

ROWS = int(os.environ.get("BENCH_PROGRESSIVE_ROWS", "20000000"))
RUN_ROWS = 4_000_000
BATCH_ROWS = 500_000
REPEATS = 5
DATA = "Time, 20 symbols, a price, a skewed size, 10 venues; files in the page cache."
RIVAL = (
    "All: bytes of the column chunks that the question needs. DuckDB: 2 threads, exact, over the "
    "same files, fastest of as many."
)
CREATE = (
    "CREATE STREAM trades (ts TIMESTAMP NOT NULL, symbol BIGINT NOT NULL, price DOUBLE NOT NULL, "
    "size DOUBLE NOT NULL, venue BIGINT NOT NULL) TIMESTAMP BY ts ARCHIVE hybrid(blocks=64)"
)
ASKED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "AVG": ("SELECT AVG(price) AS x FROM trades", ("price",)),
    "AVG behind 10 %": (
        "SELECT AVG(price) AS x FROM trades WHERE venue = 3",
        ("price", "venue"),
    ),
    "SUM behind 10 %": (
        "SELECT SUM(size) AS x FROM trades WHERE venue = 3",
        ("size", "venue"),
    ),
    "COUNT behind 10 %": ("SELECT COUNT(*) AS x FROM trades WHERE venue = 3", ("venue",)),
    "AVG by 20 groups": (
        "SELECT symbol, AVG(price) AS x FROM trades GROUP BY symbol",
        ("price", "symbol"),
    ),
}


def run() -> Report:
    """Answers within 1 % at 95 % from a part of the archive, beside exact ones from all of it."""
    folder = Path(tempfile.mkdtemp(prefix="shedder-bench-"))
    try:
        with shedder.open(folder, run_rows=RUN_ROWS, sample_rows=1_000, memory_bytes=4 << 30) as db:
            db.execute(CREATE)
            fill(db, ROWS)
            files = sorted((folder / "runs").rglob("*.parquet"))
            runs = len(files)
            rows = [_measured(db, files, name) for name in ASKED]
    finally:
        shutil.rmtree(folder)
    return Report(
        claim="An answer within 1 % at 95 % reads a few blocks of the archive and no more.",
        columns=("question", "blocks read", "bytes: all / read", "ms", "DuckDB ms", "time ratio"),
        rows=rows,
        notes=(
            f"{ROWS:,} tuples in {runs} runs of 64 blocks. {DATA}",
            f"WITHIN 1 PERCENT, from text to answer, median of {REPEATS}. {RIVAL}",
            "Every answer was checked against DuckDB's: it may miss once in twenty times.",
        ),
    )


def fill(db: Engine, rows: int) -> None:
    """Trades in runs, as many as that."""
    rng = np.random.default_rng(11)
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        symbol = rng.integers(0, 20, count)
        table = pa.table(
            {
                "ts": pa.array(np.arange(first, first + count) * 1_000, pa.timestamp("us")),
                "symbol": symbol,
                "price": 50.0 + 10.0 * symbol + rng.normal(0.0, 20.0, count),
                "size": rng.gamma(2.0, 100.0, count),
                "venue": rng.integers(0, 10, count),
            }
        )
        db.push("trades", table)
        if (first + count) % RUN_ROWS == 0:  # Writing lags behind, and would make longer runs.
            db.seal("trades")
    db.seal("trades")


def _measured(db: Engine, files: list[Path], name: str) -> tuple[str, ...]:
    text, columns = ASKED[name]
    times: list[float] = []
    answer: Answer | None = None
    for _ in range(REPEATS):
        began = time.perf_counter()
        answer = db.execute(f"{text} WITHIN 1 PERCENT")
        times.append(time.perf_counter() - began)
    assert answer is not None
    assert answer.archive is not None, answer.explain()
    duck, missed = _exactly(files, text, answer)
    whole = _column_bytes(files, columns)
    ours = float(np.median(times))
    part = answer.archive
    return (
        f"{name}{'' if not missed else f' ({missed} of its values missed)'}",
        f"{part.blocks_read:,} of {part.blocks:,}, {part.looks} looks",
        f"{whole / part.bytes_read:.1f}",
        f"{1e3 * ours:.1f}",
        f"{1e3 * duck:.1f}",
        f"{duck / ours:.1f}",
    )


def _exactly(files: list[Path], text: str, answer: Answer) -> tuple[float, int]:
    """DuckDB's fastest time for the same question, and how many intervals miss its answer."""
    names = ", ".join(f"'{path}'" for path in files)
    sql = text.replace("FROM trades", f"FROM read_parquet([{names}])")
    best = float("inf")
    with duckdb.connect(config={"threads": 2}) as duck:
        for _ in range(REPEATS):
            began = time.perf_counter()
            rows = duck.sql(sql).fetchall()
            best = min(best, time.perf_counter() - began)
    exact = {row[:-1]: row[-1] for row in rows}
    missed = 0
    for at, row in enumerate(answer.rows()):
        key = (row["symbol"],) if "symbol" in row else ()
        missed += not answer.estimate(at, "x").holds(exact[key])
    return best, missed


def _column_bytes(files: list[Path], columns: tuple[str, ...]) -> int:
    """Bytes of these columns' chunks in all files."""
    total = 0
    for path in files:
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for at in range(metadata.num_columns):
                chunk = row_group.column(at)
                if chunk.path_in_schema in columns:
                    total += chunk.total_compressed_size
    return total
