"""Frequent items taken out of their tables: as columns, as bytes, as a DataSketches image."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from synopses.errors import CorruptSynopsis
from synopses.header import Body

# Preamble longs, serial version, family, lg of the largest and present table, flags, unused;
# then entries, unused, total weight, offset.
_IMAGE = struct.Struct("<BBBBBBHIIqq")
_IMAGE_EMPTY = struct.Struct("<BBBBBBH")
_FAMILY = 10
_FLAG_EMPTY = 5  # DataSketches sets both of its bits for emptiness.


class ItemKind(IntEnum):
    """What the counted values are. Numbers are part of the format."""

    INTEGER = 0
    DOUBLE = 1
    TEXT = 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """How an array holds them."""
        return np.dtype((np.int64, np.float64, object)[self])


class Values(Protocol):
    """What update() fetches values from: an array, or anything that takes rows like one."""

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        """The values of these rows."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Counters taken out of their tables; all shapes [n]."""

    groups: NDArray[np.int64]
    keys: NDArray[np.uint64]
    counts: NDArray[np.int64]
    lates: NDArray[np.int64]
    values: NDArray[Any]

    def moved(self, places: NDArray[np.int64]) -> Entries:
        """Group g becomes group places[g]; those placed at -1 are left out."""
        groups = places[self.groups]
        kept = groups >= 0
        return Entries(
            groups[kept], self.keys[kept], self.counts[kept], self.lates[kept], self.values[kept]
        )

    def parts(self, items: ItemKind) -> list[NDArray[Any] | bytes]:
        """The columns as the body of an envelope."""
        columns: list[NDArray[Any] | bytes] = [self.groups.astype(np.int32), self.keys]
        columns += [self.counts, self.lates]
        if items is not ItemKind.TEXT:
            return [*columns, self.values]
        texts = [text.encode() for text in self.values.tolist()]
        return [*columns, np.array([len(text) for text in texts], np.int64), b"".join(texts)]


def read_entries(body: Body, items: ItemKind, groups: int) -> Entries:
    """The columns that `Entries.parts` wrote.

    Raises:
      CorruptSynopsis: they do not fit together.
    """
    where = body.array(np.int32, (-1,)).astype(np.int64)
    if where.size and not (where.min() >= 0 and where.max() < groups):
        raise CorruptSynopsis("group", int(where.max()), f"0 to {groups - 1}")
    keys = body.array(np.uint64, where.shape)
    counts, lates = body.array(np.int64, where.shape), body.array(np.int64, where.shape)
    return Entries(where, keys, counts, lates, _read_values(body, items, where.size))


def _read_values(body: Body, items: ItemKind, size: int) -> NDArray[Any]:
    if items is not ItemKind.TEXT:
        return body.array(items.dtype, (size,))
    lengths = body.array(np.int64, (size,))
    ends = np.cumsum(lengths).tolist()
    text = body.raw()
    if size and (lengths.min() < 0 or ends[-1] != len(text)):
        raise CorruptSynopsis("text length", len(text), ends[-1])
    values = np.empty(size, object)
    try:
        texts = [text[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
    except UnicodeDecodeError as error:
        raise CorruptSynopsis("text", error.object[error.start : error.end], "UTF-8") from error
    values[:] = texts
    return values


def first_of_each(
    k: int,
    groups: NDArray[np.int64],
    low: NDArray[np.int64],
    values: NDArray[Any],
    group_count: int,
) -> NDArray[np.int64]:
    """Rows of the k largest `low` of each group, by group, then falling, equal ones by value.

    Values are compared only where the k-th place is tied or taken: texts compare slowly.
    """
    starts = np.concatenate(([0], np.cumsum(np.bincount(groups, minlength=group_count))))
    order = np.lexsort((-low, groups))
    last = np.minimum(starts[:-1] + k, starts[1:]) - 1
    least = low[order][last] if order.size else low
    near = np.flatnonzero(low >= least[groups])
    near = near[np.argsort(values[near], kind="stable")]
    near = near[np.lexsort((-low[near], groups[near]))]
    starts = np.concatenate(([0], np.cumsum(np.bincount(groups[near], minlength=group_count))))
    return near[np.arange(near.size) - starts[groups[near]] < k]


def image_of(
    entries: Entries, items: ItemKind, *, room: int, room_max: int, total: int, error: int
) -> bytes:
    """One group's entries as DataSketches writes a frequent-items sketch."""
    lg_max, lg_now = room_max.bit_length() - 1, room.bit_length() - 1
    if not entries.counts.size:
        return _IMAGE_EMPTY.pack(1, 1, _FAMILY, lg_max, lg_now, _FLAG_EMPTY, 0)
    size = entries.counts.size
    head = _IMAGE.pack(4, 1, _FAMILY, lg_max, lg_now, 0, 0, size, 0, total, error)
    return b"".join((head, entries.counts.tobytes(), _image_values(entries.values, items)))


def _image_values(values: NDArray[Any], items: ItemKind) -> bytes:
    if items is not ItemKind.TEXT:
        return bytes(values.tobytes())
    texts = [text.encode() for text in values.tolist()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
