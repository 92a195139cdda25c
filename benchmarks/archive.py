"""The archive: appending to the log, and writing runs."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Report
from shedder.archive.encoding.parquet_encoding import ROW_GROUP_ROWS_MAX, open_writer
from shedder.archive.files.file_system import OsFiles
from shedder.archive.log.group_commit import GroupCommit
from shedder.archive.log.log import Log
from shedder.archive.log.log_queue import Entry, LogQueue
from shedder.archive.log.records import Batch, RecordType
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.runs.run_format import write_run
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Hybrid, Plain, layout_text
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition

BODY_BYTES = 1 << 20
BODIES = 128
ROWS = 1 << 20
MEBI = 1 << 20
STREAM = StreamEntry(
    1,
    StreamSchema(
        name="bench",
        columns=(
            ColumnDefinition("ts", ColumnType.TIMESTAMP, False),
            ColumnDefinition("key", ColumnType.BIGINT, True),
            ColumnDefinition("price", ColumnType.DOUBLE, True),
            ColumnDefinition("value", ColumnType.DOUBLE, True),
            ColumnDefinition("site", ColumnType.VARCHAR, True),
        ),
        time_column="ts",
        lateness_us=0,
        retain_us=None,
        layout=Plain(),
        seed=1,
    ),
)
LAYOUTS_NOTE = (
    "Layouts: the same columns and __position, 4 x 1,048,576 rows; deal, sort, encode, checksums, "
    "basics, fsync, beside pyarrow writing one plain file. Fastest of 8, in turns. The aim is "
    "1.5 x. Both encode in one thread; of a run, columns are dealt by two, and bytes are summed up "
    "and written by another. On one core: all threads of the process are bound to it, so that both "
    "have the same."
)
LOG_NOTE = (
    f"Log: {BODIES} bodies of 1 MiB into new files, fsync after every 8, or as the group commit "
    "finds them (4 threads, each waits for its acknowledgement). Fastest of 5, in turns."
)
RUNS_NOTE = (
    "Runs: 1,048,576 rows of a time, a skewed key, a price in cents, a measurement and a text out "
    "of 1,000; one thread; raw is the size in Arrow. Fastest of 5, in turns."
)


def run() -> Report:
    """Measure the log beside plain writes, and runs beside Parquet's defaults."""
    folder = Path(tempfile.mkdtemp(prefix="shedder-bench-"))
    try:
        rows = [*_log(folder), *_runs(folder), *_layouts(folder)]
    finally:
        shutil.rmtree(folder)
    return Report(
        claim="The log costs what the disk costs; runs are smaller than with Parquet's defaults, "
        "and written about as fast, checksums, basics and fsync included.",
        columns=("what", "MiB/s", "size / raw"),
        rows=rows,
        notes=(LOG_NOTE, RUNS_NOTE, LAYOUTS_NOTE),
    )


def _fastest(works: Sequence[Callable[[], object]], rounds: int = 5) -> list[float]:
    """Seconds of each work's fastest run; in turns, so that a busy machine is busy for all."""
    took = [math.inf] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            began = time.perf_counter()
            work()
            took[number] = min(took[number], time.perf_counter() - began)
    return took


def _log(folder: Path) -> list[tuple[str, str, str]]:
    body = pa.py_buffer(np.random.default_rng(0).bytes(BODY_BYTES))
    header = Batch(1, "bench", 0, 0, 0, 10_000, 0).to_bytes()

    def plain() -> None:
        descriptor = os.open(folder / "plain", os.O_CREAT | os.O_WRONLY)
        for number in range(BODIES):
            os.pwrite(descriptor, body, number * BODY_BYTES)
            if number % 8 == 7:
                os.fdatasync(descriptor)
        os.close(descriptor)
        (folder / "plain").unlink()

    def alone() -> None:
        log = Log.open(folder / "log")
        for number in range(BODIES):
            log.append(RecordType.BATCH, [header, body])
            if number % 8 == 7:
                log.sync()
        log.close()
        shutil.rmtree(folder / "log")

    def grouped() -> None:
        log = Log.open(folder / "log")
        queue = LogQueue()
        commit = GroupCommit(queue, log, _nothing)
        commit.start()

        def send() -> None:
            for _ in range(BODIES // 4):
                future: Future[int] = queue.submit(RecordType.BATCH, [header, body])
                future.result()

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        commit.close()
        log.close()
        shutil.rmtree(folder / "log")

    works = {
        "plain pwrite and fdatasync": plain,
        "log: append and sync": alone,
        "log: group commit, 4 producers": grouped,
    }
    size = BODIES * BODY_BYTES / MEBI
    took = _fastest(list(works.values()))
    return [(name, f"{size / t:,.0f}", "") for name, t in zip(works, took, strict=True)]


def _runs(folder: Path) -> list[tuple[str, str, str]]:
    batch = _batch()
    table = pa.Table.from_batches([batch])
    (folder / "tmp").mkdir()
    snappy, zstd = folder / "snappy.parquet", folder / "zstd.parquet"
    runs: list[Run] = []
    works: dict[str, Callable[[], object]] = {
        "Parquet: defaults, snappy": partial(pq.write_table, table, snappy, compression="snappy"),
        "Parquet: defaults, zstd": partial(pq.write_table, table, zstd, compression="zstd"),
        "run: encodings chosen, basics, checksums, fsync": lambda: runs.append(
            write_run(OsFiles(), folder, STREAM, 0, [batch])
        ),
    }
    took = _fastest(list(works.values()))
    written = folder / "runs" / runs[-1].file
    sizes = [file.stat().st_size for file in (snappy, zstd, written)]
    return [
        (name, f"{table.nbytes / MEBI / t:,.0f}", f"{size / table.nbytes:.2f}")
        for name, t, size in zip(works, took, sizes, strict=True)
    ]


def _layouts(folder: Path) -> list[tuple[str, str, str]]:
    """A run of 4 Mi tuples in each layout, beside pyarrow with the same encodings and positions."""
    rows = 4 * ROWS
    whole = _batch(rows)
    batches = [whole.slice(first, 1 << 16) for first in range(0, rows, 1 << 16)]
    position = pa.field(POSITION, pa.int64(), nullable=False)
    table = pa.Table.from_batches(batches).append_column(position, pa.array(np.arange(rows)))
    path = folder / "alone.parquet"

    def alone() -> None:
        path.unlink(missing_ok=True)  # Each writes where another file of its own just went.
        with open_writer(str(path), table, {}) as writer:
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS_MAX)
        with path.open("rb+") as file:
            os.fdatasync(file.fileno())

    works: dict[str, Callable[[], object]] = {"Parquet: the encodings of a run, fsync": alone}
    for layout in (Plain(), Hybrid(64)):
        stream = StreamEntry(2 + isinstance(layout, Hybrid), replace(STREAM.schema, layout=layout))
        write = partial(_again, folder, stream, batches)
        works[f"run of 4 Mi tuples: {layout_text(layout)}"] = write
    found = []
    for cores in (os.sched_getaffinity(0), {min(os.sched_getaffinity(0))}):
        with _bound_to(cores):
            took = _fastest(list(works.values()), rounds=8)
        where = ", on one core" if len(cores) == 1 else ""
        found += [
            (f"{name}{where}: {t / took[0]:.2f} x", f"{table.nbytes / MEBI / t:,.0f}", "")
            for name, t in zip(works, took, strict=True)
        ]
    return found


@contextmanager
def _bound_to(cores: set[int]) -> Iterator[None]:
    """All threads of the process run on these cores, and those that begin meanwhile."""
    before = os.sched_getaffinity(0)
    _bind(cores)
    try:
        yield
    finally:
        _bind(before)


def _bind(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # It has ended meanwhile.
            os.sched_setaffinity(int(thread), cores)


def _again(folder: Path, stream: StreamEntry, batches: list[pa.RecordBatch]) -> None:
    for path in (folder / "runs" / str(stream.id)).glob("*.parquet"):
        path.unlink()
    write_run(OsFiles(), folder, stream, 0, batches)


def _batch(rows: int = ROWS) -> pa.RecordBatch:
    random = np.random.default_rng(1)
    sites = np.array([f"site-{number}/path" for number in range(1000)], object)
    return pa.record_batch(
        {
            "ts": pa.array(np.cumsum(random.integers(0, 1000, rows)), pa.timestamp("us")),
            "key": pa.array(random.zipf(1.3, rows) % 1_000_000),
            "price": pa.array(np.round(random.lognormal(size=rows) * 100) / 100),
            "value": pa.array(random.lognormal(size=rows)),
            "site": pa.array(sites[random.integers(0, 1000, rows)]),
        }
    )


def _nothing(entries: list[Entry]) -> None:
    """The engine's place."""
