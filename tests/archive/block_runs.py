"""Runs in blocks, written without a store, from tuples that arrive late."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from shedder.archive.files.file_system import OsFiles
from shedder.archive.metadata.catalog_entries import StreamEntry
from shedder.archive.runs.run_format import write_run
from tests.archive.schemas import ARROW, SCHEMA, batch

FIRST = 50


def stream(layout, seed: int = SCHEMA.seed) -> StreamEntry:
    return StreamEntry(3, dataclasses.replace(SCHEMA, layout=layout, seed=seed))


def shuffled(first: int, rows: int) -> pa.RecordBatch:
    """Late tuples: times are not in order of position, and some are equal."""
    content = batch(first, rows)
    late = np.random.default_rng(first).integers(0, 40, rows) * 1000
    times = np.maximum(np.arange(first, first + rows) * 1000 - late, 0)
    return content.set_column(0, ARROW.field("ts"), pa.array(times, pa.timestamp("us")))


def write(directory, layout, batches):
    (directory / "tmp").mkdir(exist_ok=True)
    run = write_run(OsFiles(), directory, stream(layout), FIRST, batches)
    return directory / "runs" / run.file, run
