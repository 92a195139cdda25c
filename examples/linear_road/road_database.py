"""Databases of a run, and stretches of its traffic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import shedder
from examples.linear_road.traffic import SECOND_US, START_US, Minute
from shedder.engine.engine import Engine

MEMORY_BYTES = 16 << 30  # A limit; all row queries may hold an eighth of it.
QUERY_BYTES = 1 << 30  # Five minutes of reports, or a day of tolls.
OUTPUT_BYTES = 64 << 20  # The notices of a minute.


def opened(directory: Path, roads: int) -> Engine:
    """Open a database that has room for a number of expressways."""
    return shedder.open(
        directory,
        memory_bytes=roads * MEMORY_BYTES,
        row_query_bytes_max=roads * QUERY_BYTES,
        row_output_bytes_max=roads * OUTPUT_BYTES,
    )


def instant(second: int) -> int:
    """Return the beginning of a second of event time, in microseconds."""
    return START_US + second * SECOND_US


def second_of(minute: Minute, second: int) -> Minute:
    """Return the part of a minute that is in a second."""

    def part(table: pa.Table) -> pa.Table:
        times = table["ts"].cast(pa.int64()).to_numpy()
        first, end = np.searchsorted(times, [instant(second), instant(second + 1)])
        return table.slice(int(first), int(end - first))

    return Minute(part(minute.posreports), part(minute.balances), part(minute.expenditures))


def expressways_text(roads: int) -> str:
    """Return the number of expressways as text."""
    return "1 expressway" if roads == 1 else f"{roads} expressways"
