"""Key chains: an index of the rows of a stream by one key, for windows of any length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.dataflow.fixed_column import room_for
from shedder.dataflow.key_directory import canonical, hash_columns
from shedder.dataflow.stores.chain_kernels import (
    LINK_COLUMNS,
    Int32s,
    Links,
    link_rows,
    move_rows,
)
from shedder.dataflow.stores.chain_walks import END
from synopses.kernels.cache_lines import aligned_table

Keys = tuple[Expression, ...]

NUMBER_MAX = (1 << 31) - 1  # Of a row; heads have 32 bits.
_ROWS_MIN = 1024


class KeyChains:
    """Rows by position, in chains by the hash of their key. Rows with NULL in it are in none.

    links, heads, base: as of `link_rows`. A row takes the place of one that was dropped. Where
    rows need other arrays, all are replaced, and the old ones keep the old rows.
    """

    def __init__(self, keys: Keys) -> None:
        """An empty index. keys: over the columns of the store; (): all rows are in one chain."""
        self._keys = keys
        self.base = 0
        self.links, self.heads = _empty_index(_ROWS_MIN)

    @property
    def size_bytes(self) -> int:
        """Bytes of the index."""
        return self.links.nbytes + self.heads.nbytes

    def append(self, first: int, batch: pa.RecordBatch, ts_us: NDArray[np.int64]) -> None:
        """Add rows from a position on."""
        end = first + batch.num_rows
        columns = [canonical(evaluate(key, batch)) for key in self._keys]
        if end > len(self.links):
            self._move(first, max(end, 3 * len(self.links) // 2))
        elif self.base + end > NUMBER_MAX:
            self._move(first, len(self.links))
        usable = np.ones(batch.num_rows, np.bool_)
        for column in columns:
            if column.null_count:
                usable &= np.asarray(column.is_valid())
        hashes = hashes_of(columns, batch.num_rows)
        link_rows(self.base + first, hashes, ts_us, usable, self.links, self.heads)

    def drop(self, rows: int, size: int) -> None:
        """Forget the oldest rows. size: of all rows before.

        The chains stay as they are: a walk ends at the number of a row that was dropped.
        """
        self.base += rows
        if len(self.links) > 2 * room_for(size - rows):
            self._move(size - rows, room_for(size - rows))

    def _move(self, size: int, room: int) -> None:
        """Put the rows into new arrays; their numbers begin with 0."""
        links, heads = _empty_index(room)
        move_rows(self.base, size, self.links, links, heads)
        self.links, self.heads, self.base = links, heads, 0


def _empty_index(room: int) -> tuple[Links, Int32s]:
    """Links for so many rows, and at least half as many heads: half of the rows have left."""
    heads = np.full(1 << (room.bit_length() - 1), END, np.int32)
    return aligned_table(room, LINK_COLUMNS), heads


def hashes_of(columns: Sequence[pa.Array[Any]], rows: int) -> NDArray[np.int64]:
    """Return the hash of each key, as int64. columns: of the keys, canonical."""
    if not columns:
        return np.zeros(rows, np.int64)
    return hash_columns(columns).view(np.int64)


def is_exact(keys: Keys) -> bool:
    """Return whether keys with equal hashes are equal: those of one column of fixed width."""
    return not keys or (
        len(keys) == 1 and keys[0].type is not None and not pa.types.is_string(keys[0].type.arrow)
    )
