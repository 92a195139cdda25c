"""Streams of one layout on disk: filling them, scanning them at a reduction, and both at once."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from shedder.archive.archive_store import Store
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.layouts.readable_part import ReadablePart, part_of
from shedder.archive.operations.backup import backup
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import Layout
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition

RUN_ROWS = 2_097_152
"""64 blocks of 32,768 tuples, the smallest that a hybrid run has unless it is told otherwise."""

BATCH_ROWS = 262_144
STREAM = 1
COLUMNS = ("ts", "key", "value")
WANTED = Wanted("ts", COLUMNS)


@dataclass(frozen=True, slots=True)
class Scanned:
    """One question, COUNT(*) and SUM(value), to a whole stream.

    count, total: estimates of all tuples. bytes_read: asked of files. disk_bytes: that the system
    read from the disk for it, read-ahead included, if no other process read meanwhile.
    """

    seconds: float
    count: float
    total: float
    bytes_read: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class Crowd:
    """An insertion beside questions: its seconds, and how many were answered meanwhile.

    Questions that were under way at the end count by the share of the tuples that they had seen.
    """

    seconds: float
    questions: float

    @property
    def per_1000_s(self) -> float:
        """Questions answered in 1,000 seconds."""
        return 1000.0 * self.questions / self.seconds


def tuples(rows: int) -> list[pa.RecordBatch]:
    """Tuples in memory: a rising time, a key of a million, a measurement."""
    return [_batch(first, min(BATCH_ROWS, rows - first)) for first in range(0, rows, BATCH_ROWS)]


def _batch(first: int, rows: int) -> pa.RecordBatch:
    random = np.random.default_rng([17, first])
    times = 1_000 * first + np.cumsum(random.integers(0, 2_000, rows))
    columns: dict[str, Any] = {
        "ts": pa.array(times, pa.timestamp("us")),
        "key": pa.array(random.integers(0, 1_000_000, rows)),
        "value": pa.array(random.lognormal(size=rows)),
    }
    return pa.record_batch(columns)


def path_of(folder: Path, name: str) -> Path:
    """Where the archive of a layout lies."""
    return folder / name.replace(", ", "-").replace(" ", "-").replace("%", "percent")


class Archive:
    """A data directory with one stream of a layout, without the log in front of it."""

    def __init__(self, directory: Path, layout: Layout | None = None) -> None:
        """Make it anew with a layout; with none, open what is there."""
        self.directory = directory
        self.store = Store.open(directory)
        if layout is not None:
            self.store.create_stream(_schema(layout))

    def close(self) -> None:
        """Close it; its files stay."""
        self.store.close()

    def copy(self, directory: Path) -> Archive:
        """The same in files of its own, opened."""
        backup(self.store, directory, link=False)
        return Archive(directory)

    # --- writing ---

    def insert(self, batches: Sequence[pa.RecordBatch]) -> float:
        """Seconds to write tuples as durable runs of RUN_ROWS."""
        began = time.perf_counter()
        position = self.store.end_position(STREAM)
        for batch in batches:
            self.store.add(STREAM, position, batch, sequence=0)
            position += batch.num_rows
            if self.store.tail_rows(STREAM) >= RUN_ROWS:
                self.store.cut(STREAM)
        self.store.cut(STREAM)
        return time.perf_counter() - began

    @property
    def size_bytes(self) -> int:
        """Of all files of runs."""
        return sum(path.stat().st_size for path in self._paths())

    def vacuum(self) -> float:
        """Seconds until no run has tuples to purge."""
        began = time.perf_counter()
        for run in self.store.layouts.waste(STREAM):
            self.store.layouts.vacuum(run)
        return time.perf_counter() - began

    def give_copy(self, batches: Sequence[pa.RecordBatch], reduction: float) -> None:
        """Make a new lazy stream write a copy with each run: insert a run, scan it, vacuum."""
        self.insert(batches[: RUN_ROWS // BATCH_ROWS])
        self.scan(reduction)
        self.vacuum()

    def drop_copies(self) -> None:
        """Be as before the first scan."""
        for run in self.store.runs(STREAM):
            for copy in run.copies:
                self.store.layouts.drop_copy(run, copy)

    # --- reading ---

    def scan(self, reduction: float, stop: threading.Event | None = None) -> Scanned:
        """Read all columns of as many tuples as a reduction wants, with a cold page cache.

        The layout gives the next finer part; the reader drops the rest. What a lazy stream
        is to forget is marked. It ends early when an event is set; the count says how far it came.
        """
        self.forget()
        disk = psutil.Process().io_counters()
        began = time.perf_counter()
        random = np.random.default_rng()
        count, total, size = 0.0, 0.0, 0
        done: list[tuple[ReadablePart, float]] = []
        with self.store.snapshot(STREAM) as snapshot:
            for run in snapshot.runs:
                if stop is not None and stop.is_set():
                    break
                part = part_of(run, reduction)
                kept = (1.0 - reduction) / (1.0 - part.reduction)
                for block in snapshot.files.read_blocks(part.source, part.blocks, WANTED):
                    values = block.table["value"].to_numpy()
                    if kept < 1.0:
                        values = values[random.random(values.size) < kept]
                    total += float(values.sum())
                    size += block.bytes_read
                    is_late = stop is not None and stop.is_set()
                    count += values.size / 2 if is_late else values.size
                    if is_late:  # It lay across the end: half of it before, on average.
                        break
                done.append((part, reduction))
            self.store.layouts.note_scans(done)
        seconds = time.perf_counter() - began
        read = psutil.Process().io_counters().read_bytes - disk.read_bytes
        return Scanned(seconds, count / (1 - reduction), total / (1 - reduction), size, read)

    def forget(self) -> None:
        """Drop the pages of the stream's files from the system's cache."""
        for path in self._paths():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def _paths(self) -> Iterator[Path]:
        return (self.directory / "runs").rglob("*.parquet")


@contextmanager
def copies(archive: Archive, folder: Path, count: int) -> Iterator[list[Archive]]:
    """An archive and others like it, each with files, and so with cached pages, of its own."""
    others = [archive.copy(folder / f"copy-{number}") for number in range(1, count)]
    try:
        yield [archive, *others]
    finally:
        for other in others:
            other.close()
            shutil.rmtree(other.directory)


def crowd(
    into: Archive, batches: Sequence[pa.RecordBatch], sources: Sequence[Archive], reduction: float
) -> Crowd:
    """Insert tuples while each of some other archives answers one question after the other."""
    stop = threading.Event()
    rows = sum(run.rows for archive in sources[:1] for run in archive.store.runs(STREAM))

    def ask(archive: Archive) -> float:
        answered = 0.0
        while not stop.is_set():
            answered += min(1.0, archive.scan(reduction, stop).count / rows)
        return answered

    with ThreadPoolExecutor(max(1, len(sources))) as pool:
        asking: list[Future[float]] = [pool.submit(partial(ask, archive)) for archive in sources]
        try:
            seconds = into.insert(batches)
        finally:
            stop.set()
        return Crowd(seconds, sum(future.result() for future in asking))


def _schema(layout: Layout) -> StreamSchema:
    return StreamSchema(
        name="bench",
        columns=(
            ColumnDefinition("ts", ColumnType.TIMESTAMP, False),
            ColumnDefinition("key", ColumnType.BIGINT, False),
            ColumnDefinition("value", ColumnType.DOUBLE, False),
        ),
        time_column="ts",
        lateness_us=0,
        retain_us=None,
        layout=layout,
        seed=1,
    )
