"""Smallest and largest text per group; speaks the words of the grouped synopses."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.streams.ipc import table_bytes
from synopses.estimate import Estimates

_STRING_BYTES = 49  # An empty str of CPython.

_FIELDS: list[tuple[str, pa.DataType]] = [("low", pa.string()), ("high", pa.string())]
IMAGE: Final = pa.schema(_FIELDS)
"""The columns of `to_bytes`."""


class GroupedTextExtremes:
    """MIN and MAX of VARCHAR, exact; text compares by its UTF-8 bytes.

    low, high: object [groups], str, or None where the group has no value.
    """

    def __init__(self, groups: int) -> None:
        self._low: NDArray[np.object_] = np.full(groups, None, object)
        self._high: NDArray[np.object_] = np.full(groups, None, object)
        self._there = 0  # Groups that have a value.
        self._texts = 0
        self._text_bytes = 0

    @property
    def groups(self) -> int:
        """How many groups there is room for."""
        return len(self._low)

    @property
    def size_bytes(self) -> int:
        """Pointers, and texts at the mean size of those that were folded in."""
        return 16 * self.groups + self.text_bytes

    @property
    def text_bytes(self) -> int:
        """Of the texts; who merges this one has the same texts, not others."""
        mean = self._text_bytes / self._texts if self._texts else 0.0
        return int(2 * self._there * (_STRING_BYTES + mean))

    def grow(self, groups: int) -> None:
        """Make room for more groups."""
        if groups > self.groups:
            more = np.full(groups - self.groups, None, object)
            self._low = np.concatenate([self._low, more])
            self._high = np.concatenate([self._high, more])

    def update(self, ids: NDArray[np.int32] | None, values: pa.Array[Any]) -> None:
        """Take in text without nulls; ids are the groups of the values (None: all group 0)."""
        groups = np.zeros(len(values), np.int32) if ids is None else ids
        table = pa.table({"group": pa.array(groups), "value": values})
        found = table.group_by("group").aggregate([("value", "min"), ("value", "max")])
        self._texts += found.num_rows
        self._text_bytes += found.nbytes // 2
        touched = found["group"].to_numpy()
        self._fold(
            touched,
            found["value_min"].to_numpy(zero_copy_only=False),
            found["value_max"].to_numpy(zero_copy_only=False),
        )

    def merge(self, other: Self) -> Self:
        """Fold in another summary over the same group ids."""
        self.grow(other.groups)
        seen = np.flatnonzero(other._low != None)  # noqa: E711 - elementwise
        self._texts += other._texts
        self._text_bytes += other._text_bytes
        self._fold(seen, other._low[seen], other._high[seen])
        return self

    def select(self, ids: NDArray[np.int64]) -> Self:
        """The groups at these ids, in this order."""
        chosen = type(self)(0)
        chosen._low, chosen._high = self._low[ids], self._high[ids]
        return chosen._counted(self._texts, self._text_bytes)

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """The inverse of select: group i goes to ids[i]."""
        spread = type(self)(groups)
        spread._low[ids], spread._high[ids] = self._low, self._high
        return spread._counted(self._texts, self._text_bytes)

    def minimum(self) -> Estimates:
        """The smallest text of each group; null where there is none."""
        return _exact(self._low)

    def maximum(self) -> Estimates:
        """The largest text of each group; null where there is none."""
        return _exact(self._high)

    def to_bytes(self) -> bytes:
        """Arrow IPC of both columns."""
        arrays = [pa.array(self._low, pa.string()), pa.array(self._high, pa.string())]
        return table_bytes(pa.Table.from_arrays(arrays, schema=IMAGE))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what to_bytes wrote."""
        table = pa.ipc.open_stream(data).read_all()
        read = cls(0)
        read._low = np.array(table["low"].to_pylist(), object)
        read._high = np.array(table["high"].to_pylist(), object)
        return read._counted(2 * (table.num_rows - table["low"].null_count), table.nbytes)

    def _counted(self, texts: int, text_bytes: int) -> Self:
        """Who has a value is counted anew. texts, text_bytes: what their mean size is of."""
        self._there = int(np.count_nonzero(self._low != None))  # noqa: E711 - elementwise
        self._texts, self._text_bytes = texts, text_bytes
        return self

    def _fold(
        self, ids: NDArray[np.integer], low: NDArray[np.object_], high: NDArray[np.object_]
    ) -> None:
        empty = self._low[ids] == None  # noqa: E711 - elementwise
        fresh, met = ids[empty], ids[~empty]
        self._there += len(fresh)
        self._low[fresh], self._high[fresh] = low[empty], high[empty]
        self._low[met] = np.minimum(self._low[met], low[~empty])
        self._high[met] = np.maximum(self._high[met], high[~empty])


def _exact(texts: NDArray[np.object_]) -> Estimates:
    return Estimates.exact(texts, "extremes", np.array([t is None for t in texts], np.bool_))
