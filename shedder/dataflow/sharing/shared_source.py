"""Sources of dataflows: streams in FROM, and tuples that wait for several dataflows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.graph import NodeWork
from shedder.dataflow.reorder_buffer import ReorderBuffer


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A stream in FROM.

    relation: name of the stream. columns: those that are read, by the stream's own names.
    time_column: of the event time, by the stream's own name.
    """

    relation: str
    columns: tuple[str, ...]
    time_column: str


class SharedSource:
    """Tuples of a stream that wait for the watermark, for all graphs that read the stream.

    of: the stream, with the columns that the buffer has. work: of the source.
    as_of_us: instant up to which tuples were released.
    """

    def __init__(
        self, buffer: ReorderBuffer, of: StreamSource, work: NodeWork, as_of_us: int | None
    ) -> None:
        """as_of_us: up to which tuples were released before; None: none were."""
        self.as_of_us = as_of_us
        self.buffer = buffer
        self.of = of
        self.work = work
        self._next_position: int | None = None

    def push(
        self, batch: pa.RecordBatch, positions: NDArray[np.int64], clock_ns: Callable[[], int]
    ) -> int:
        """Take a batch if no graph has brought it before; return how many tuples were late."""
        if not len(positions):
            return 0
        if self._next_position is not None and positions[0] < self._next_position:
            return 0
        self._next_position = int(positions[-1]) + 1
        began_ns = clock_ns()
        ts_us = batch.column(self.of.time_column).view(pa.int64()).to_numpy()
        rows = pa.RecordBatch.from_arrays(
            [batch.column(name) for name in self.of.columns], schema=self.buffer.schema
        )
        late = self.buffer.push(rows, ts_us, positions)
        self.work.add(batch.num_rows - late, 0, clock_ns() - began_ns)
        return late

    def release(self, as_of_us: int) -> ChangeBatch:
        """Give the tuples with event time before an instant, in order."""
        self.as_of_us = as_of_us
        return self.buffer.release(as_of_us)

    def copied(self) -> SharedSource:
        """Return a source with the same waiting tuples, which go on apart."""
        return copy.deepcopy(self)
