"""A value index of one column of one run: which row groups hold which values.

Sorted pairs of a key and a row group, in blocks with checksums of their own, so that a lookup reads
the fences and a block or two. The format is docs/archive_format.md; files can be made again from
the run at any time, so one that is damaged is as good as none.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.files.file_system import ReadFile
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.expressions.column_types import ColumnType
from synopses.kernels.hashing import murmur_utf8
from synopses.kernels.radix_sort import distinct_pairs

BLOCK_PAIRS = 4_096
Ranges = Sequence[tuple[int, int]]
"""Stretches of keys, both ends inside."""

_MAGIC = b"SHEDIDX1"
_HEAD = struct.Struct("<8sIIQII")  # magic, crc of the run, blocks, pairs, crc of fences, zero
_CRC = struct.Struct("<I")
PAIR = np.dtype([("key", "<i8"), ("group", "<u2")])
_FENCE = np.dtype([("first", "<i8"), ("crc", "<u4")])
_SHARE_MAX = 0.5  # A lookup that touches more of the blocks than this reads better everything.


class Stale(Exception):
    """The file is damaged, or of another run: it has to be built again."""


def index_name(run_file: str, column: str) -> str:
    """The name of the file that indexes a column of a run, whose file is `<stream>/<name>`."""
    named = hashlib.blake2b(column.encode(), digest_size=8).hexdigest()
    return f"{run_file.rpartition('/')[2]}.{named}.index"


def keys_of(values: pa.Array[Any], kind: ColumnType) -> NDArray[np.int64]:
    """The keys of values that are not null: in the order of the values, or hashes of text.

    Args:
      values: of the column's Arrow type, without nulls and NaN.
      kind: the column's type; any but BOOLEAN.

    Returns:
      int64 [values]; equal values have equal keys.
    """
    match kind:
        case ColumnType.VARCHAR:
            return _text_keys(values)
        case ColumnType.DOUBLE:
            bits = (values.to_numpy(zero_copy_only=False) + 0.0).view(np.int64)  # -0.0 is 0.0
            return np.where(bits >= 0, bits, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF))
        case ColumnType.DATE:
            return values.cast(pa.int32()).to_numpy().astype(np.int64)
        case _:
            return values.cast(pa.int64()).to_numpy()


def _text_keys(values: pa.Array[Any]) -> NDArray[np.int64]:
    if not len(values):
        return np.empty(0, np.int64)
    _, offsets, data = values.buffers()
    assert offsets is not None
    ends = np.frombuffer(memoryview(offsets), np.int32)
    ends = ends[values.offset : values.offset + len(values) + 1]
    text = np.empty(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)
    return murmur_utf8(ends, text)[0].view(np.int64)


def to_parts(
    groups: Sequence[NDArray[np.int64]], run_crc: int, on_progress: ProgressCallback = no_progress
) -> list[bytes]:
    """The index of a run, in pieces that follow each other.

    Args:
      groups: the keys of each row group, in the order of the file.
      run_crc: the checksum of the run's file.
      on_progress: called after some milliseconds of work each; what it raises ends it.
    """
    keys = np.concatenate([np.empty(0, np.int64), *groups])
    numbers = np.arange(len(groups), dtype=np.uint16)
    keys, of = distinct_pairs(keys, numbers.repeat([group.size for group in groups]), on_progress)
    blocks = []
    for start in range(0, keys.size, BLOCK_PAIRS):
        some = slice(start, start + BLOCK_PAIRS)
        pairs = np.empty(keys[some].size, PAIR)
        pairs["key"], pairs["group"] = keys[some], of[some]
        blocks.append(pairs.tobytes())
        on_progress()
    fences = np.empty(len(blocks), _FENCE)
    fences["first"] = keys[::BLOCK_PAIRS]
    fences["crc"] = [google_crc32c.value(block) for block in blocks]
    fence_bytes = fences.tobytes()
    head = _HEAD.pack(_MAGIC, run_crc, len(blocks), keys.size, google_crc32c.value(fence_bytes), 0)
    return [head, _CRC.pack(google_crc32c.value(head)), fence_bytes, *blocks]


@dataclass(frozen=True, slots=True, eq=False)
class Fences:
    """What is kept in memory of an index: where each block begins, and its checksum."""

    pairs: int
    fences: NDArray[np.void]

    @classmethod
    def read(cls, file: ReadFile, run_crc: int) -> Fences:
        """From the beginning of a file.

        Raises:
          Stale: it is not the index of this run. OSError.
        """
        head = file.read(0, _HEAD.size + _CRC.size)
        if len(head) < _HEAD.size + _CRC.size or _CRC.unpack(head[_HEAD.size :])[0] != (
            google_crc32c.value(head[: _HEAD.size])
        ):
            raise Stale
        magic, crc, blocks, pairs, fence_crc, _ = _HEAD.unpack(head[: _HEAD.size])
        if magic != _MAGIC or crc != run_crc:
            raise Stale
        data = file.read(len(head), blocks * _FENCE.itemsize)
        if google_crc32c.value(data) != fence_crc:
            raise Stale
        return cls(pairs, np.frombuffer(data, _FENCE))

    def groups(self, file: ReadFile, ranges: Ranges) -> NDArray[np.uint16] | None:
        """The row groups that hold a key in one of some stretches, in order.

        Returns:
          None when so much of the index would have to be read that it is of no use: a stretch
          with all keys of a block has thousands, which are in most row groups.

        Raises:
          Stale: a block is damaged. OSError.
        """
        wanted = self._blocks(ranges)
        if any(self._has_all_of_a_block(low, high) for low, high in ranges):
            return None
        if wanted.size > max(2.0, _SHARE_MAX * self.fences.size):
            return None
        found = [np.empty(0, np.uint16)]
        for block in wanted:
            pairs = self._block(file, int(block))
            for low, high in ranges:
                begin = np.searchsorted(pairs["key"], low, "left")
                end = np.searchsorted(pairs["key"], high, "right")
                found.append(pairs["group"][begin:end])
        return np.unique(np.concatenate(found))

    def _blocks(self, ranges: Ranges) -> NDArray[np.int64]:
        """Those that may hold a key of the stretches; a key may begin in the block before."""
        firsts = self.fences["first"]
        found = [np.empty(0, np.int64)]
        for low, high in ranges:
            begin = max(0, int(np.searchsorted(firsts, low, "left")) - 1)
            end = int(np.searchsorted(firsts, high, "right"))
            found.append(np.arange(begin, end))
        return np.unique(np.concatenate(found))

    def _has_all_of_a_block(self, low: int, high: int) -> bool:
        """Return whether a stretch begins before a block whose successor begins within it."""
        firsts = self.fences["first"]
        begin = int(np.searchsorted(firsts, low, "left"))
        return int(np.searchsorted(firsts, high, "right")) - begin > 1

    def _block(self, file: ReadFile, number: int) -> NDArray[np.void]:
        size = min(BLOCK_PAIRS, self.pairs - number * BLOCK_PAIRS) * PAIR.itemsize
        begin = _HEAD.size + _CRC.size + self.fences.nbytes
        data = file.read(begin + number * BLOCK_PAIRS * PAIR.itemsize, size)
        if google_crc32c.value(data) != self.fences["crc"][number]:
            raise Stale
        return np.frombuffer(data, PAIR)
