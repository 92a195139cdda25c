"""Reorder buffer: tuples of a stream, released in (event time, position) order by the watermark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.batch_rows import concat_rows, take_rows
from shedder.dataflow.changes import ChangeBatch
from shedder.streams.batches import TIME_MIN_US

Held = tuple[pa.RecordBatch, NDArray[np.int64], NDArray[np.int64]]


class ReorderBuffer:
    """Tuples that the watermark has not passed, as sorted batches. schema: of the tuples.

    Batches that wait are merged by powers of two, so they are few, also of small pushes.

    position_name: of a column with the positions of tuples, behind the others when they are
      released; None: there is none.
    """

    def __init__(self, schema: pa.Schema, position_name: str | None = None) -> None:
        self.schema = schema
        self.position_name = position_name
        self._held: list[Held] = []
        self._closed_us: int | None = None  # A tuple before this event time is late.

    @property
    def size_bytes(self) -> int:
        """Bytes of the tuples that wait."""
        return sum(batch.nbytes + ts.nbytes + at.nbytes for batch, ts, at in self._held)

    def positions(self, from_us: int | None = None) -> NDArray[np.int64]:
        """Return positions of the tuples that wait, rising. from_us: least event time."""
        from_us = TIME_MIN_US if from_us is None else from_us
        held = [at[ts >= from_us] for _, ts, at in self._held]
        return np.sort(np.concatenate([np.empty(0, np.int64), *held]))

    def push(
        self, batch: pa.RecordBatch, ts_us: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> int:
        """Hold a batch; return how many tuples were late, which are left out."""
        late = 0
        if self._closed_us is not None:
            kept = ts_us >= self._closed_us
            late = int(len(kept) - np.count_nonzero(kept))
            if late:
                batch, ts_us, positions = _taken((batch, ts_us, positions), np.flatnonzero(kept))
        if len(ts_us):
            self._held.append(_in_order((batch, ts_us, positions)))
            self._merge_waiting()
        return late

    def close(self, watermark_us: int) -> None:
        """Accept no more tuples with event time before the watermark of the stream."""
        self._closed_us = watermark_us

    def add_positions(self, name: str) -> None:
        """Release positions, too, from now on, in a column with this name."""
        self.position_name = name

    @property
    def released_schema(self) -> pa.Schema:
        """Columns of the tuples when they are released."""
        if self.position_name is None:
            return self.schema
        return self.schema.append(pa.field(self.position_name, pa.int64()))

    @property
    def least_position(self) -> int | None:
        """The least position of the tuples that wait; None: there is no tuple."""
        return min((int(at.min()) for _, _, at in self._held), default=None)

    def release(self, as_of_us: int) -> ChangeBatch:
        """The tuples with event time before an instant, in order."""
        ready: list[Held] = []
        waiting: list[Held] = []
        for batch, ts, at in self._held:
            cut = int(np.searchsorted(ts, as_of_us))
            if cut:
                ready.append((batch.slice(0, cut), ts[:cut], at[:cut]))
            if cut < len(ts):
                waiting.append((batch.slice(cut), ts[cut:], at[cut:]))
        self._held = waiting
        if not ready:
            return ChangeBatch.empty(self.released_schema)
        columns, ts, at = ready[0] if len(ready) == 1 else _merged(ready)
        if self.position_name is not None:
            arrays = [*columns.columns, pa.array(at)]
            columns = pa.RecordBatch.from_arrays(arrays, schema=self.released_schema)
        return ChangeBatch.of_tuples(columns, ts)

    def _merge_waiting(self) -> None:
        """Merge batches that have waited; most of the newest one may be released at once."""
        held = self._held
        while len(held) > 2 and 2 * len(held[-2][1]) >= len(held[-3][1]):
            held[-3:-1] = [_merged(held[-3:-1])]


def _merged(parts: list[Held]) -> Held:
    batches, times, places = zip(*parts, strict=True)
    return _in_order((concat_rows(batches), np.concatenate(times), np.concatenate(places)))


def _in_order(held: Held) -> Held:
    _, ts, at = held
    rising = ts[1:] > ts[:-1]
    if bool(rising.all()):
        return held
    same = ts[1:] == ts[:-1]
    if bool((rising | (same & (at[1:] > at[:-1]))).all()):
        return held
    return _taken(held, np.lexsort((at, ts)))


def _taken(held: Held, rows: NDArray[np.intp]) -> Held:
    batch, ts, at = held
    return take_rows(batch, rows), ts[rows], at[rows]
