"""Smallest and largest text per group; speaks the words of the grouped synopses."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.streams.cut_texts import (
    CUT_SHARE,
    cut_to,
    exact_unless_cut,
    held_bytes,
    is_cut,
    pick,
)
from shedder.streams.ipc import table_bytes
from shedder.streams.text_memory import TextsBound, TextSizes
from synopses.model.estimate import Estimates

_SOURCE: Final = "extremes"
_FIELDS: list[tuple[str, pa.DataType]] = [("low", pa.string()), ("high", pa.string())]
IMAGE: Final = pa.schema(_FIELDS)
"""The columns of `to_bytes`."""


class GroupedTextExtremes:
    """MIN and MAX of VARCHAR, exact while texts fit; text compares by its UTF-8 bytes.

    low, high: object [groups], str, or None where the group has no value. Where both are equal they
    are one object: of groups with one row each, that is half the texts.
    _has_cut: texts may be cut (`hold_texts`). _bound: of the bytes of texts.
    """

    def __init__(self, groups: int) -> None:
        self._low: NDArray[np.object_] = np.full(groups, None, object)
        self._high: NDArray[np.object_] = np.full(groups, None, object)
        self._kept = 0  # Texts that are objects of their own.
        self._sizes = TextSizes()
        self._has_cut = False
        self._bound = TextsBound()

    @property
    def groups(self) -> int:
        """Return how many groups there is room for."""
        return len(self._low)

    @property
    def size_bytes(self) -> int:
        """Pointers, and texts at the mean size of those that were folded in."""
        return 16 * self.groups + self.text_bytes

    @property
    def text_bytes(self) -> int:
        """Bytes of the texts. A merge refers to the same texts, and copies none."""
        return self._sizes.of_so_many(self._kept)

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
        by_group = table.group_by("group", use_threads=False)  # Other threads keep pools of it.
        found = by_group.aggregate([("value", "min"), ("value", "max")])
        least, greatest = found["value_min"], found["value_max"]
        self._sizes = self._sizes.and_more(TextSizes.of(least))
        self._bound = self._bound.and_more(TextsBound.of(least, greatest))
        low = least.to_numpy(zero_copy_only=False).copy()
        high, several = low.copy(), pc.not_equal(least, greatest)
        high[several.to_numpy()] = greatest.filter(several).to_numpy(zero_copy_only=False)
        self._fold(found["group"].to_numpy(), low, high)

    def merge(self, other: Self) -> Self:
        """Fold in another summary over the same group ids."""
        self.grow(other.groups)
        seen = np.flatnonzero(other._low != None)  # noqa: E711 - elementwise
        self._sizes = self._sizes.and_more(other._sizes)
        self._bound = self._bound.and_more(other._bound)
        self._has_cut |= other._has_cut
        self._fold(seen, other._low[seen], other._high[seen])
        return self

    def select(self, ids: NDArray[np.int64]) -> Self:
        """The groups at these ids, in this order."""
        chosen = type(self)(0)
        chosen._low, chosen._high = self._low[ids], self._high[ids]
        return chosen._counted(self._sizes, self._bound, has_cut=self._has_cut)

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """The inverse of select: group i goes to ids[i]."""
        spread = type(self)(groups)
        spread._low[ids], spread._high[ids] = self._low, self._high
        return spread._counted(self._sizes, self._bound, has_cut=self._has_cut)

    def hold_texts(self, size_bytes: int) -> None:
        """Cut the longest texts if all texts take more than this many bytes.

        A cut text is answered as its beginning, without a bound.
        """
        if self._bound.most(self._kept) <= size_bytes:
            return
        columns = (self._low, self._high)
        held = held_bytes(columns)
        if held <= size_bytes:
            self._bound = TextsBound(held, self._bound.widest)
            return
        cut_to(columns, CUT_SHARE * size_bytes)
        held = held_bytes(columns)
        bound = TextsBound(held, self._bound.widest)
        self._counted(TextSizes(self._kept, held), bound, has_cut=True)

    def minimum(self) -> Estimates:
        """The smallest text of each group; null where there is none."""
        return self._answer(self._low)

    def maximum(self) -> Estimates:
        """The largest text of each group; null where there is none."""
        return self._answer(self._high)

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
        _share(read._low, read._high)
        has_cut = bool(is_cut(read._low).any() or is_cut(read._high).any())
        columns = table["low"], table["high"]
        return read._counted(TextSizes.of(*columns), TextsBound.of(*columns), has_cut=has_cut)

    def _counted(self, sizes: TextSizes, bound: TextsBound, *, has_cut: bool) -> Self:
        """What is kept is counted anew; sizes: of such texts. bound: of the kept ones."""
        self._kept = _kept(self._low, self._high)
        self._sizes, self._bound, self._has_cut = sizes, bound, has_cut
        return self

    def _answer(self, texts: NDArray[np.object_]) -> Estimates:
        null = np.array([text is None for text in texts], np.bool_)
        if self._has_cut:
            return exact_unless_cut(texts, _SOURCE, null)
        return Estimates.exact(texts, _SOURCE, null)

    def _fold(
        self, ids: NDArray[np.integer], low: NDArray[np.object_], high: NDArray[np.object_]
    ) -> None:
        """Ids are distinct."""
        low_before, high_before = self._low[ids], self._high[ids]
        met = low_before != None  # noqa: E711 - elementwise
        if self._has_cut:
            low[met] = pick(low_before[met], low[met], least=True)
            high[met] = pick(high_before[met], high[met], least=False)
        else:
            low[met] = np.minimum(low_before[met], low[met])
            high[met] = np.maximum(high_before[met], high[met])
        _share(low, high)
        self._low[ids], self._high[ids] = low, high
        self._kept += _kept(low, high) - _kept(low_before, high_before)


def _share(low: NDArray[np.object_], high: NDArray[np.object_]) -> None:
    """Let equal ones be one object."""
    equal = low == high
    high[equal] = low[equal]


def _kept(low: NDArray[np.object_], high: NDArray[np.object_]) -> int:
    """Return how many objects these texts are, where equal ones are shared."""
    there = low != None  # noqa: E711 - elementwise
    return int(np.count_nonzero(there) + np.count_nonzero(low != high))
