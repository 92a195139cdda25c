"""Side of an equi-join that is a time window over a stream: its rows are in the stream's store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s
from shedder.dataflow.stores.chain_kernels import (
    BORN,
    EXPIRES,
    GIVEN_TS,
    SINCE,
    WEIGHT,
    probe_window,
)
from shedder.dataflow.stores.chain_walks import WALKS
from shedder.dataflow.stores.stream_rows import StreamRows, WindowReader


class WindowSide:
    """A window of a store, under the names of a join's input.

    It stores nothing: the node below the window adds the rows. So they are there before the join's
    step begins, and `pairs` says which ones are meant.
    """

    def __init__(self, reader: WindowReader, schema: pa.Schema) -> None:
        """schema: of the input, for the columns of the reader."""
        self._reader = reader
        self._schema = schema

    @property
    def rows(self) -> StreamRows:
        """The store."""
        return self._reader.rows

    @property
    def as_of_us(self) -> int | None:
        """Up to which the join has come."""
        return self._reader.as_of_us

    def come_to(self, as_of_us: int) -> None:
        """The step up to an instant has ended."""
        self._reader.come_to(as_of_us)

    def read_from(self, rows: StreamRows) -> None:
        """Read another store of the same stream, which has the same rows, columns and index."""
        before = self._reader
        before.rows.leave(before)
        self._reader = before.of(rows)

    def leave(self) -> None:
        """Need no rows any more."""
        self._reader.rows.leave(self._reader)

    def pairs(
        self, changes: ChangeBatch, hashes: Int64s, as_of_us: int | None, pairs_max: int
    ) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        """Pairs of `changes` with rows of the window before an instant, and the rows' values.

        Equal hashes are pairs. Each item is int64 [6, pairs], as of `probe_window`, and the rows;
        pairs <= pairs_max.
        """
        rows, length, keys = self.rows, self._reader.length, self._reader.keys
        assert keys is not None
        given = np.empty((len(changes), 5), np.int64)
        given[:, BORN], given[:, EXPIRES] = changes.born_us, changes.expires_us
        given[:, GIVEN_TS], given[:, WEIGHT] = changes.ts_us, changes.weight
        given[:, SINCE] = length.since(changes.born_us)
        with rows.lock:  # Rows may be dropped between two calls; these arrays stay as they are.
            chains, held = rows.chains(keys), rows.rows
            stored = chains.heads, chains.links, chains.base
            first = rows.before(int(given[:, SINCE].min(initial=NEVER_US)))
            end = 0 if as_of_us is None else rows.before(as_of_us)
        places = [held.schema.names.index(name) for name in self._reader.columns]
        walks = np.zeros((2, 1 + WALKS), np.int64)
        made = pairs_max
        while made == pairs_max:
            pairs = np.empty((6, pairs_max), np.int64)
            with rows.lock:
                made = probe_window(
                    walks,
                    hashes,
                    given,
                    *stored,
                    first,
                    end,
                    length.range_us,
                    length.slide_us,
                    pairs,
                )
                found = pairs[:, :made]
                arrays = [held.take_column(place, found[1]) for place in places]
            if made:
                yield found, pa.RecordBatch.from_arrays(arrays, schema=self._schema)
