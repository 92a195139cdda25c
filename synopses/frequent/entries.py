"""Frequent items taken out of their tables: as columns, as bytes, as a DataSketches image."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.hashing import murmur_float64, murmur_int64, murmur_utf8
from synopses.kernels.string_sizes import strings_bytes
from synopses.model.binary_header import Body
from synopses.model.errors import CorruptSynopsis
from synopses.model.stored_counts import check_counts

# Preamble longs, serial version, family, lg of the largest and present table, flags, unused;
# then entries, unused, total weight, offset.
_IMAGE = struct.Struct("<BBBBBBHIIqq")
_IMAGE_EMPTY = struct.Struct("<BBBBBBH")
_FAMILY = 10
_FLAG_EMPTY = 5  # DataSketches sets both of its bits for emptiness.
_TEXT_BYTES = 49  # Of a Python string beside its characters.
_SAMPLED_TEXTS = 64
_TOTAL_MAX = 1 << 62  # Two of them have room in an int64.
_ROUNDED = 1 + 1e-9  # More than doubles lose in adding up the counters of the largest table.
_NO_LONGS: NDArray[np.int64] = np.zeros(0, np.int64)


class ItemKind(IntEnum):
    """What the counted values are. Numbers are part of the format."""

    INTEGER = 0
    DOUBLE = 1
    TEXT = 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return how an array holds them."""
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

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Entries:
        """These rows, in this order."""
        return Entries(
            self.groups[rows], self.keys[rows], self.counts[rows], self.lates[rows],
            self.values[rows],
        )  # fmt: skip

    def moved(self, places: NDArray[np.int64]) -> Entries:
        """Group g becomes group places[g]; those placed at -1 are left out."""
        groups = places[self.groups]
        return replace(self, groups=groups).take(groups >= 0)

    def parts(self, items: ItemKind) -> list[NDArray[Any] | bytes]:
        """The columns as the body of an envelope."""
        columns: list[NDArray[Any] | bytes] = [self.groups.astype(np.int32), self.keys]
        columns += [self.counts, self.lates]
        if items is not ItemKind.TEXT:
            return [*columns, self.values]
        texts = [text.encode() for text in self.values.tolist()]
        return [*columns, np.array([len(text) for text in texts], np.int64), b"".join(texts)]


def most_frequent(
    entries: Entries, offsets: NDArray[np.int64], room: int
) -> tuple[Entries, NDArray[np.int64]]:
    """The entries of each group that a smaller table holds, and the offsets that they then have.

    One purge: the largest count that finds no room is taken off all of its group, as if it had
    been the median.

    Args:
      entries: by group. offsets: int64 [groups], what purges took so far.
      room: how many entries of a group may stay.
    """
    order, place = _by_count(entries)
    first_out = order[place == room]
    purged = np.zeros(offsets.size, np.int64)
    purged[entries.groups[first_out]] = entries.counts[first_out]
    left = entries.counts - purged[entries.groups]
    return replace(entries, counts=left).take(left > 0), offsets + purged


def most_frequent_within(
    entries: Entries, offsets: NDArray[np.int64], size_bytes: float
) -> tuple[Entries, NDArray[np.int64]]:
    """The entries of each group whose texts take at most this many bytes, as `most_frequent`.

    Each group keeps up to the same number of entries, its most frequent ones.
    """
    order, place = _by_count(entries)
    by_place = np.bincount(place, strings_bytes(entries.values[order]))
    room = int(np.searchsorted(np.cumsum(by_place), size_bytes, side="right"))
    return most_frequent(entries, offsets, room)


def _by_count(entries: Entries) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order by group and falling count, and the place of each in its group."""
    order = np.lexsort((-entries.counts, entries.groups))
    sorted_groups = entries.groups[order]
    return order, np.arange(order.size) - np.searchsorted(sorted_groups, sorted_groups)


def text_bytes(texts: NDArray[Any]) -> int:
    """What texts take, by the mean length of up to 64 of them; None is in places that are free."""
    sample = texts[:: max(1, texts.size // _SAMPLED_TEXTS)].tolist()
    lengths = [len(text) for text in sample if text is not None]
    return texts.size * _TEXT_BYTES + texts.size * sum(lengths) // max(len(lengths), 1)


def read_entries(body: Body, items: ItemKind, groups: int) -> Entries:
    """The columns that `Entries.parts` wrote.

    Raises:
      CorruptSynopsis: they do not fit together.
    """
    where = body.array(np.int32).astype(np.int64)
    if where.size and not (where.min() >= 0 and where.max() < groups):
        raise CorruptSynopsis("group", int(where.max()), f"0 to {groups - 1}")
    keys = body.array(np.uint64, where.shape)
    counts, lates = body.array(np.int64, where.shape), body.array(np.int64, where.shape)
    return Entries(where, keys, counts, lates, _read_values(body, items, where.size))


def check_entries(entries: Entries, offsets: NDArray[np.int64], totals: NDArray[np.int64]) -> None:
    """Entries read from bytes: what was purged and what is left are part of what was counted.

    Each purge takes its amount from one counter at least. Doubles will do: rounding is allowed for.

    Raises:
      CorruptSynopsis: they are not so, or an entry came later than all purges.
    """
    counts, lates = entries.counts, entries.lates
    if counts.size and counts.min() < 1:
        raise CorruptSynopsis("count", int(counts.min()), ">= 1")
    if not ((lates >= 0) & (lates <= offsets[entries.groups])).all():
        raise CorruptSynopsis("late", int(lates.min()), "0 to what purges took")
    held = np.bincount(entries.groups, weights=counts, minlength=offsets.size)
    if not ((offsets >= 0) & (held + offsets <= totals * _ROUNDED)).all():
        raise CorruptSynopsis("total", int(totals.min()), ">= counts and purges together")
    check_counts("total", totals)


def _read_values(body: Body, items: ItemKind, size: int) -> NDArray[Any]:
    if items is not ItemKind.TEXT:
        return body.array(items.dtype, (size,))
    lengths = body.array(np.int64, (size,))
    ends = np.cumsum(lengths).tolist()
    text = body.raw()
    inside = not size or 0 <= int(lengths.min()) <= int(lengths.max()) <= len(text)
    if not inside or (ends or [0])[-1] != len(text):
        raise CorruptSynopsis("text length", len(text), (ends or [0])[-1])
    values = np.empty(size, object)
    try:
        texts = [text[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
    except UnicodeDecodeError as error:
        raise CorruptSynopsis("text", error.object[error.start : error.end], "UTF-8") from error
    values[:] = texts
    return values


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


def read_image(image: bytes, items: ItemKind) -> tuple[Entries, int, int]:
    """The entries of a frequent-items sketch as one group, its total and its error.

    Raises:
      CorruptSynopsis: it is no image of such a sketch, or not of these items.
    """
    if len(image) < _IMAGE_EMPTY.size:
        raise CorruptSynopsis("frequent-items image", f"{len(image)} bytes", ">= 8")
    longs, version, family, _, _, flags, _ = _IMAGE_EMPTY.unpack_from(image)
    if (version, family) != (1, _FAMILY) or (longs == 1) != bool(flags & _FLAG_EMPTY):
        raise CorruptSynopsis("frequent-items image", (version, family), (1, _FAMILY))
    if longs == 1:
        return _one_group(_NO_LONGS, 0, np.zeros(0, items.dtype), items), 0, 0
    if len(image) < _IMAGE.size:
        raise CorruptSynopsis("frequent-items image", f"{len(image)} bytes", f">= {_IMAGE.size}")
    size, _, total, error = _IMAGE.unpack_from(image)[-4:]
    values_at = _IMAGE.size + 8 * size
    if len(image) < values_at or not 0 <= total < _TOTAL_MAX or error < 0:
        raise CorruptSynopsis("entries of an image", size, "as many as it holds")
    counts = np.frombuffer(image, np.int64, size, _IMAGE.size).copy()
    if size and not 0 < int(counts.min()) <= int(counts.max()) <= total:
        raise CorruptSynopsis("count", int(counts.max()), f"1 to {total}")
    values = _values_of(image[values_at:], size, items)
    entries = _one_group(counts, error, values, items)
    check_entries(entries, np.array([error]), np.array([total]))
    return entries, total, error


def _values_of(data: bytes, size: int, items: ItemKind) -> NDArray[Any]:
    """Values as their serialisers write them: 8 bytes each, or a length and UTF-8."""
    if items is not ItemKind.TEXT:
        if len(data) != 8 * size:
            raise CorruptSynopsis("items of an image", f"{len(data)} bytes", f"{8 * size}")
        return np.frombuffer(data, items.dtype, size).copy()
    values, at = np.zeros(size, object), 0
    for place in range(size):
        length = int.from_bytes(data[at : at + 4], "little")
        text, at = data[at + 4 : at + 4 + length], at + 4 + length
        if at > len(data):
            raise CorruptSynopsis("text length", length, "inside the image")
        try:
            values[place] = text.decode()
        except UnicodeDecodeError as error:
            raise CorruptSynopsis("text", text[:20], "UTF-8") from error
    if at != len(data):
        raise CorruptSynopsis("bytes after the last item", len(data) - at, 0)
    return values


def _one_group(
    counts: NDArray[np.int64], error: int, values: NDArray[Any], items: ItemKind
) -> Entries:
    """Entries of group 0 that may all have come as late as `error` allows."""
    groups, lates = np.zeros(counts.size, np.int64), np.full(counts.size, error, np.int64)
    return Entries(groups, _keys_of(values, items), counts, lates, values)


def _keys_of(values: NDArray[Any], items: ItemKind) -> NDArray[np.uint64]:
    match items:
        case ItemKind.INTEGER:
            return murmur_int64(values)[0]
        case ItemKind.DOUBLE:
            return murmur_float64(values)[0]
        case ItemKind.TEXT:
            texts = [text.encode() for text in values.tolist()]
            offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
            return murmur_utf8(offsets, np.frombuffer(b"".join(texts), np.uint8))[0]
