"""Window whose rows an operator reads from the store of a stream, when they enter and leave."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.dataflow.changes import NEVER_US, ChangeBatch
from shedder.dataflow.stores.stream_rows import StreamRows, WindowReader


class StoredWindow:
    """Changes of a window, for an operator that then need not hold the rows that will leave.

    A row has weight 1 when it enters, and -1 when it leaves.
    """

    def __init__(self, reader: WindowReader, schema: pa.Schema) -> None:
        """schema: of the changes, for the columns of the reader."""
        self._reader = reader
        self._schema = schema

    @property
    def rows(self) -> StreamRows:
        """The store."""
        return self._reader.rows

    def read_from(self, rows: StreamRows) -> None:
        """Read another store of the same stream, which has the same rows and columns."""
        before = self._reader
        before.rows.leave(before)
        self._reader = before.of(rows)

    def leave(self) -> None:
        """Need no rows any more."""
        self._reader.rows.leave(self._reader)

    def apply(self, as_of_us: int) -> ChangeBatch:
        """Return the changes up to an instant: of each instant, rows that leave come first."""
        length, before_us = self._reader.length, self._reader.as_of_us
        slide_us, rows = length.slide_us, self.rows
        with rows.lock:
            since_us = None if before_us is None else before_us // slide_us * slide_us
            until_us = as_of_us // slide_us * slide_us
            entering = rows.between(since_us, until_us)
            leaving = entering[:0]
            if length.range_us:
                since_us = None if since_us is None else since_us - length.range_us
                leaving = rows.between(since_us, until_us - length.range_us)
            places = np.concatenate([leaving, entering])
            ts_us = rows.ts_us[places]
            names = rows.rows.schema.names
            columns = [
                rows.rows.take_column(names.index(name), places) for name in self._reader.columns
            ]
        self._reader.come_to(as_of_us)
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        born_us, expires_us = length.lifetimes(ts_us)
        is_leaving = np.arange(len(places)) < len(leaving)
        return ChangeBatch(
            batch,
            ts_us,
            np.where(is_leaving, expires_us + 1, born_us),
            np.full(len(places), NEVER_US),
            np.where(is_leaving, -1, 1),
        ).where(born_us <= expires_us)
