"""Content fingerprint: a 64-bit hash of rows in order, the same however the rows are batched."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: the increment of SplitMix64.
_NULL: Final = np.uint64(0xD1B54A32D192ED03)  # Stands for NULL; a BIGINT may collide with it.
_INDEX_PLACE: Final = 1 << 20  # The multiplier of row numbers; no stream has as many columns.


def fingerprint(batch: pa.RecordBatch, first_row: int = 0) -> int:
    """Hash rows that begin at row first_row of their push.

    Each row gives a multilinear hash of its values and its number, mixed by the finalizer of
    SplitMix64 (Steele, Lea & Flood 2014, OOPSLA, fig. 16). The sum over rows is the fingerprint.
    So the fingerprint of a push is the sum of those of its parts, modulo 2^64 (`joined`).
    It detects accidental differences; it is no cryptographic hash.
    """
    rows = batch.num_rows
    mixed = np.arange(first_row, first_row + rows, dtype=np.uint64)
    mixed *= np.uint64(_multiplier(_INDEX_PLACE))
    for place, column in enumerate(batch.columns):
        mixed += _words(column) * np.uint64(_multiplier(place))
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return int(mixed.sum(dtype=np.uint64))


def joined(first: int | None, second: int | None) -> int | None:
    """The fingerprint of two parts together; None: that of a part is not known."""
    return None if first is None or second is None else (first + second) & _MASK


def _words(column: pa.Array[Any]) -> NDArray[np.uint64]:
    """Return 64 bits for each value, uint64 [rows]; equal values have equal bits."""
    kind = column.type
    if kind == pa.string():
        from shedder.streams.value_hashes import hash_values  # Numba: clients need no texts hashed.

        words, _ = hash_values(column.fill_null("") if column.null_count else column)
    elif kind == pa.bool_():
        words = column.fill_null(False).cast(pa.int64()).to_numpy().view(np.uint64)
    else:
        width = pa.int64() if kind.bit_width == 64 else pa.int32()
        whole = column.view(width).cast(pa.int64())
        words = whole.fill_null(0).to_numpy().view(np.uint64)
    if not column.null_count:
        return words
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, words)


@lru_cache(maxsize=1024)
def _multiplier(place: int) -> int:
    """An odd multiplier for each column: SplitMix64 of its place."""
    mixed = (place + 1) * _GOLDEN & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return (mixed ^ mixed >> 31) | 1
