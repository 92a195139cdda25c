"""Key chains: an index of the rows of a stream by one key, for windows of any length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.dataflow.key_directory import canonical, hash_columns
from shedder.dataflow.stores.chain_kernels import END, HASH, TS, Int32s, Links, link_rows

Keys = tuple[Expression, ...]

_ROWS_MIN = 1024


class KeyChains:
    """Rows by position, in chains by the hash of their key. Rows with NULL in it are in none.

    links, heads: as of `link_rows`. Arrays that grow are replaced; the old ones keep the old rows.
    """

    def __init__(self, keys: Keys) -> None:
        """An empty index. keys: over the columns of the store; (): all rows are in one chain."""
        self._keys = keys
        self.links: Links = np.empty((_ROWS_MIN, 3), np.int64)
        self.heads: Int32s = np.full(_ROWS_MIN, END, np.int32)
        self._usable = np.ones(_ROWS_MIN, np.bool_)

    @property
    def size_bytes(self) -> int:
        """Bytes of the index."""
        return self.links.nbytes + self.heads.nbytes + self._usable.nbytes

    def append(self, first: int, batch: pa.RecordBatch, ts_us: NDArray[np.int64]) -> None:
        """Add rows from a position on."""
        end = first + batch.num_rows
        columns = [canonical(evaluate(key, batch)) for key in self._keys]
        self._reserve(first, end)
        self.links[first:end, HASH] = hashes_of(columns, batch.num_rows)
        self.links[first:end, TS] = ts_us
        usable = self._usable[first:end]
        usable[:] = True
        for column in columns:
            if column.null_count:
                usable &= np.asarray(column.is_valid())
        link_rows(first, end, usable, self.links, self.heads)

    def drop(self, rows: int, size: int) -> None:
        """Forget the oldest rows; the others move to the front. size: of all rows before."""
        kept = slice(rows, size)
        room = max(_ROWS_MIN, 3 * (size - rows) // 2)
        self._link_again(self.links[kept], self._usable[kept], room)

    def _reserve(self, first: int, end: int) -> None:
        if end > len(self.links):
            room = max(end, 2 * len(self.links))
            self._link_again(self.links[:first], self._usable[:first], room)

    def _link_again(self, links: Links, usable: NDArray[np.bool_], room: int) -> None:
        """Put rows into new arrays with room for more."""
        size = len(links)
        wide, all_usable = np.empty((room, 3), np.int64), np.ones(room, np.bool_)
        wide[:size], all_usable[:size] = links, usable
        heads = np.full(1 << (room - 1).bit_length(), END, np.int32)
        link_rows(0, size, all_usable, wide, heads)
        self.links, self._usable, self.heads = wide, all_usable, heads


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
