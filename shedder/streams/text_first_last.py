"""First and last text per group; speaks the words of the grouped synopses."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.streams.cut_texts import CUT_SHARE, cut_to, exact_unless_cut, held_bytes
from shedder.streams.ipc import table_bytes
from shedder.streams.text_memory import TextsBound, TextSizes
from synopses.model.errors import CorruptSynopsis
from synopses.model.estimate import Estimates
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.first_last_kernels import (
    CELLS,
    FIRST,
    FIRST_POSITION,
    FIRST_TIME,
    LAST,
    LAST_POSITION,
    LAST_TIME,
)

_SOURCE = "first and last"

CELL: Final = pa.binary(8 * CELLS)
"""Of a group, as docs/synopsis_format.md has them for kind 13; values are 0."""

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("first", pa.string()),
    ("last", pa.string()),
    ("ends", CELL),
]
IMAGE: Final = pa.schema(_FIELDS)
"""The columns of `to_bytes`."""


class GroupedTextFirstLast:
    """FIRST and LAST of VARCHAR, exact while texts fit (`hold_texts`).

    _bound: of the bytes of texts.
    _ends: the times and positions; its values are 0, or for a moment 1 + the row of a batch.
    _first, _last: object [groups], str, or None where the group has no value.
    """

    def __init__(self, groups: int) -> None:
        self._ends = GroupedFirstLast(groups, integer=True)
        self._first: NDArray[np.object_] = np.full(groups, None, object)
        self._last: NDArray[np.object_] = np.full(groups, None, object)
        self._sizes = TextSizes()
        self._bound = TextsBound()

    @property
    def groups(self) -> int:
        """Return how many groups there is room for."""
        return self._ends.groups

    @property
    def size_bytes(self) -> int:
        """Pointers, and texts at the mean size of those that were taken in."""
        return self._ends.size_bytes + 16 * self.groups + self.text_bytes

    @property
    def text_bytes(self) -> int:
        """Bytes of the texts; first and last text of a group count once if they are the same.

        A merge refers to the same texts, and copies none.
        """
        cells = self._ends.cells[: self.groups]
        there = cells[:, LAST_POSITION] >= 0
        others = there & (cells[:, FIRST_POSITION] != cells[:, LAST_POSITION])
        texts = np.count_nonzero(there) + np.count_nonzero(others)
        return self._sizes.of_so_many(int(texts))

    def grow(self, groups: int) -> None:
        """Make room for more groups."""
        if groups > self.groups:
            more = np.full(groups - len(self._first), None, object)
            self._first = np.concatenate([self._first, more])
            self._last = np.concatenate([self._last, more])
            self._ends.grow(groups)

    def update(
        self,
        ids: NDArray[np.int32] | None,
        times: NDArray[Any],
        positions: NDArray[Any],
        values: pa.Array[Any],
    ) -> None:
        """Take in text without nulls; ids are the groups of the values (None: all group 0)."""
        self.grow(1 if ids is None else 0)
        self._ends.update(ids, times, positions, np.arange(1, len(values) + 1))
        self._sizes = self._sizes.and_more(TextSizes.of(values))
        for column, texts in ((FIRST, self._first), (LAST, self._last)):
            rows = self._ends.cells[:, column]
            changed = np.flatnonzero(rows)
            if len(changed):
                picked: pa.Int64Array = pa.array(rows[changed] - 1, pa.int64())
                taken = values.take(picked)
                self._bound = self._bound.and_more(TextsBound.of(taken))
                texts[changed] = taken.to_numpy(zero_copy_only=False)
                rows[changed] = 0
                self._hold_once(changed)

    def _hold_once(self, groups: NDArray[np.int64]) -> None:
        """Let go of the last text of those of these groups whose first one it is, too."""
        cells = self._ends.cells[groups]
        same = groups[cells[:, FIRST_POSITION] == cells[:, LAST_POSITION]]
        self._last[same] = self._first[same]

    def merge(self, other: Self) -> Self:
        """Fold in another summary over the same group ids."""
        self.grow(other.groups)
        ours, theirs = self._ends.cells[: other.groups], other._ends.cells
        time, position = ours[:, FIRST_TIME], ours[:, FIRST_POSITION]
        before = (theirs[:, FIRST_TIME] < time) | (
            (theirs[:, FIRST_TIME] == time) & (theirs[:, FIRST_POSITION] < position)
        )
        time, position = ours[:, LAST_TIME], ours[:, LAST_POSITION]
        behind = (theirs[:, LAST_TIME] > time) | (
            (theirs[:, LAST_TIME] == time) & (theirs[:, LAST_POSITION] > position)
        )
        first, last = np.flatnonzero(before), np.flatnonzero(behind)
        self._first[first], self._last[last] = other._first[first], other._last[last]
        self._ends.merge(other._ends)
        self._sizes = self._sizes.and_more(other._sizes)
        self._bound = self._bound.and_more(other._bound)
        return self

    def select(self, ids: NDArray[np.int64]) -> Self:
        """The groups at these ids, in this order."""
        ends = self._ends.select(ids)
        texts = self._first[ids], self._last[ids]
        return self._with(ends, *texts, self._sizes, self._bound)

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """The inverse of select: group i goes to ids[i]."""
        spread = type(self)(groups)
        spread._ends = self._ends.scatter(ids, groups)
        spread._first[ids], spread._last[ids] = self._first, self._last
        spread._sizes, spread._bound = self._sizes, self._bound
        return spread

    def hold_texts(self, size_bytes: int) -> None:
        """Cut the longest texts if all texts take more than this many bytes.

        A cut text is answered as its beginning, without a bound.
        """
        if self._bound.most(2 * self.groups) <= size_bytes:
            return
        columns = (self._first, self._last)
        if held_bytes(columns) > size_bytes:
            cut_to(columns, CUT_SHARE * size_bytes)
            texts = np.count_nonzero(self._first != None) + np.count_nonzero(self._last != None)  # noqa: E711 - elementwise
            self._sizes = TextSizes(int(texts), held_bytes(columns))
        self._bound = TextsBound(held_bytes(columns), self._bound.widest)

    @classmethod
    def _with(
        cls,
        ends: GroupedFirstLast,
        first: NDArray[np.object_],
        last: NDArray[np.object_],
        sizes: TextSizes,
        bound: TextsBound,
    ) -> Self:
        made = cls(0)
        made._ends, made._first, made._last = ends, first, last
        made._sizes, made._bound = sizes, bound
        return made

    def first(self) -> Estimates:
        """The first text of each group; null where there is none."""
        return exact_unless_cut(self._first, _SOURCE, self._ends.empty())

    def last(self) -> Estimates:
        """The last text of each group; null where there is none."""
        return exact_unless_cut(self._last, _SOURCE, self._ends.empty())

    def first_times(self) -> NDArray[np.int64]:
        """Return event times of the groups' first texts; the largest int64 where there is none."""
        return self._ends.first_times()

    def last_times(self) -> NDArray[np.int64]:
        """Return event times of the groups' last texts; the smallest int64 where there is none."""
        return self._ends.last_times()

    def to_bytes(self) -> bytes:
        """Arrow IPC: both columns of text, and the times and positions of each group (CELL)."""
        cells = np.ascontiguousarray(self._ends.cells[: self.groups])
        arrays: list[pa.Array[Any]] = [
            pa.array(self._first, pa.string()),
            pa.array(self._last, pa.string()),
            pa.Array.from_buffers(CELL, self.groups, [None, pa.py_buffer(cells.tobytes())]),
        ]
        return table_bytes(pa.Table.from_arrays(arrays, schema=IMAGE))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what to_bytes wrote, now or when times and positions were metadata.

        Raises:
          CorruptSynopsis: times and texts do not fit.
        """
        table = pa.ipc.open_stream(data).read_all()
        if "ends" in table.column_names:
            if table["ends"].null_count:
                raise CorruptSynopsis("groups without times", table["ends"].null_count, 0)
            held = b"".join(cell.as_buffer() for cell in table["ends"])
            cells = np.frombuffer(held, np.int64).reshape(-1, CELLS).copy()
            ends = GroupedFirstLast.of_cells(cells, integer=True)
        else:
            ends = GroupedFirstLast.from_bytes((table.schema.metadata or {}).get(b"ends", b""))
        first, last = (
            np.array(table[name].to_pylist(), object).reshape(-1) for name in ("first", "last")
        )
        if len(first) != ends.groups:
            raise CorruptSynopsis("groups", len(first), ends.groups)
        columns = table["first"], table["last"]
        sizes, bound = TextSizes.of(*columns), TextsBound.of(*columns)
        made = cls._with(ends, first, last, sizes, bound)
        made._hold_once(np.arange(ends.groups))
        return made
