"""Counts of tuples that are stored nowhere: dropped on admission, or left out by their producer.

The counts come with the tuples' event times and the range of their values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.streams.basics import ColumnBasics

BUCKET_US = 1_000_000
"""What was dropped is counted by event time in buckets of so many microseconds."""

_KEY = b"shedder.dropped"


@dataclass(frozen=True, slots=True)
class Dropped:
    """What was dropped of one batch. It travels with the batch that is left, in one log record.

    A producer that thins at the source says the same of what it has left out.

    rows: tuples. times: (bucket of event time, tuples), ascending. basics: of every column.
    """

    rows: int
    times: tuple[tuple[int, int], ...]
    basics: Mapping[str, ColumnBasics]

    @classmethod
    def of(cls, batch: pa.RecordBatch, time_column: str) -> Self:
        """What there is to know of these tuples, of which there is at least one."""
        times_us = batch.column(time_column).view(pa.int64()).to_numpy()
        basics = {name: ColumnBasics.of(batch.column(name)) for name in batch.schema.names}
        return cls(batch.num_rows, counted(times_us), basics)

    def and_more(self, other: Self | None) -> Self:
        """What was dropped of both."""
        if other is None:
            return self
        times = Counter(dict(self.times))
        times.update(dict(other.times))
        names = dict.fromkeys([*self.basics, *other.basics])
        none = ColumnBasics()
        basics = {
            name: self.basics.get(name, none).merged(other.basics.get(name, none)) for name in names
        }
        return type(self)(self.rows + other.rows, tuple(sorted(times.items())), basics)

    def attached(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch that is left, with this in the metadata of its schema."""
        text = json.dumps(
            {
                "rows": self.rows,
                "times": self.times,
                "basics": basics_to_lists(self.basics),
            }
        )
        return batch.replace_schema_metadata({_KEY: text.encode()})

    @classmethod
    def read(cls, body: bytes) -> Self:
        """What `attached` has put into an encoded batch, of the log."""
        metadata = pa.ipc.read_schema(pa.py_buffer(body)).metadata
        state = json.loads(metadata[_KEY])
        times = tuple((bucket, count) for bucket, count in state["times"])
        return cls(state["rows"], times, basics_from_lists(state["basics"]))


def counted(times_us: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Return how many event times are in each bucket, ascending."""
    buckets, counts = np.unique(times_us // BUCKET_US, return_counts=True)
    return tuple(zip(buckets.tolist(), counts.tolist(), strict=True))


def basics_to_lists(basics: Mapping[str, ColumnBasics]) -> dict[str, list[Any]]:
    """Basics for JSON."""
    return {name: [b.rows, b.nulls, b.low, b.high] for name, b in basics.items()}


def basics_from_lists(state: Mapping[str, list[Any]]) -> dict[str, ColumnBasics]:
    """The inverse of basics_to_lists."""
    return {name: ColumnBasics(*values) for name, values in state.items()}
