"""Selected rows of a batch, and the contents of their columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.streams.basics import ColumnBasics
from shedder.streams.column_bits import (
    Words,
    are_doubles,
    ascend,
    double_ends_of,
    ends_of,
    words_of,
)
from shedder.streams.positions import Positions


class BatchRows:
    """Rows of one batch: a column is gathered at its first use, and inspected once.

    Used by one thread.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        time_column: str,
        rows: NDArray[np.int64] | None = None,
        positions: Positions | None = None,
    ) -> None:
        """Rows of a batch.

        Args:
          batch: as conformed to the stream's schema. time_column: of it.
          rows: the rows of the batch, in order; None: all.
          positions: of the batch; None: it has none, and will not be thinned.
        """
        self.batch = batch
        self._time_column = time_column
        self._rows = rows
        self._positions = positions
        self._columns: dict[str, pa.Array[Any]] = {}
        self._basics: dict[str, ColumnBasics] = {}
        self._times: NDArray[np.int64] | None = None
        self._in_order: bool | None = None  # Not known yet.
        self._words: dict[str, Words | None] = {}
        self._all_words: list[Words] | None = None  # Not asked for yet, or some column has none.
        self._size = batch.num_rows if rows is None else len(rows)

    def __len__(self) -> int:
        return self._size

    @property
    def times_us(self) -> NDArray[np.int64]:
        """Event times, int64 microseconds [rows]."""
        if self._times is None:
            words = self._words_of(self._time_column)
            assert words is not None, "every tuple has an event time"
            self._times = words
        return self._times

    @property
    def words(self) -> list[Words] | None:
        """The bits of every column, int64 [rows] each; None where words_of has none of one."""
        if self._all_words is None:
            names = self.batch.schema.names
            found = [words for words in map(self._words_of, names) if words is not None]
            self._all_words = found if len(found) == len(names) else None
        return self._all_words

    def _words_of(self, column: str) -> Words | None:
        if column not in self._words:
            self._words[column] = words_of(self._column(column))
        return self._words[column]

    def doubles(self, column: str) -> NDArray[np.float64]:
        """A numeric column as DOUBLEs, the nearest where it is not; NULL is NaN."""
        values, words = self._column(column), self._words_of(column)
        if words is not None and are_doubles(values):
            return words.view(np.float64)
        if not pa.types.is_float64(values.type):
            values = pc.cast(values, pa.float64(), safe=False)
        doubles: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
        return doubles

    @property
    def positions(self) -> NDArray[np.int64]:
        """Each row's position in the stream, int64 [rows]; in the batch where that has none."""
        first = 0 if self._positions is None else self._positions.first
        return first + (np.arange(self.batch.num_rows) if self._rows is None else self._rows)

    @property
    def batch_positions(self) -> range:
        """The positions of the batch that these rows are of."""
        first = 0 if self._positions is None else self._positions.first
        return range(first, first + self.batch.num_rows)

    @property
    def first_position(self) -> int | None:
        """The position of the first row, where those of all rows follow each other; else None."""
        if self._rows is not None or self._positions is None:
            return None
        return self._positions.first

    def sample_keys(self, seed: int, first: int) -> NDArray[np.uint64]:
        """The random keys of a whole batch that begins at a position: those it is thinned by."""
        mine = self._positions
        if mine is None or (mine.seed, mine.first) != (seed, first):
            mine = Positions(seed, first)
        return mine.keys(self.batch.num_rows)

    def basics(self, column: str) -> ColumnBasics:
        """Counts and range of a column's values in these rows."""
        if column not in self._basics:
            self._basics[column] = self._find_basics(column)
        return self._basics[column]

    def _find_basics(self, column: str) -> ColumnBasics:
        values, words = self._column(column), self._words_of(column)
        if words is None or not words.size:
            return ColumnBasics.of(values)
        if are_doubles(values):
            ends = double_ends_of(words)
            if ends is not None:
                return ColumnBasics(words.size, 0, *ends)
            return ColumnBasics.of_doubles(words.view(np.float64))
        if column == self._time_column and self.is_in_time_order:
            return ColumnBasics(words.size, 0, words.item(0), words.item(-1))
        return ColumnBasics(words.size, 0, *ends_of(words))

    @property
    def time_ends_us(self) -> tuple[int, int]:
        """The first and the last event time of at least one row."""
        basics = self.basics(self._time_column)
        assert isinstance(basics.low, int)
        assert isinstance(basics.high, int)
        return basics.low, basics.high

    @property
    def is_in_time_order(self) -> bool:
        """Return whether the rows are by event time."""
        if self._in_order is None:
            self._in_order = ascend(self.times_us)
        return self._in_order

    def _column(self, name: str) -> pa.Array[Any]:
        if name not in self._columns:
            column = self.batch.column(name)
            self._columns[name] = column if self._rows is None else column.take(self._rows)
        return self._columns[name]
