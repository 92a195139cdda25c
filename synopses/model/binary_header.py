"""The envelope of every serialised synopsis: what it is, how it was built, that it is whole.

Little-endian: magic `SYNO`, layout of this kind u8, kind u8, parameter length u16, seed u64, body
length u64, parameters, body, and the CRC-32C of all bytes before it as u32. `PARAMETERS` packs the
parameters of each kind. The body is a row of arrays without names; each summary knows their order
and reads them back with `Body`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import google_crc32c
import numpy as np
from numpy.typing import DTypeLike, NDArray

from synopses.model.errors import BadParameter, CorruptSynopsis, OtherLayout

MAGIC = b"SYNO"
_FIXED = struct.Struct("<4sBBHQQ")
_CHECKSUM = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_RESIDUE = 0x48674BC7  # The CRC-32C of any bytes that their own CRC-32C follows.


class Kind(IntEnum):
    """Which summary the bytes hold. Numbers are part of the format: never reused."""

    COUNT = 1
    MOMENTS = 2
    LOG_BUCKETS = 4
    KLL = 5
    FREQUENT = 6
    GROUP_TABLE = 7
    BOTTOM_K = 8
    HASH_SAMPLE = 9
    WEIGHTED_BOTTOM_K = 10
    THETA = 11
    CROSS_MOMENTS = 12
    FIRST_LAST = 13
    COUNT_MIN = 14
    COUNT_SKETCH = 15
    DISTINCT = 16  # 3 was the same without coupons.
    REQ = 17
    STRATIFIED = 18


LAYOUTS: Final[Mapping[Kind, int]] = {
    **dict.fromkeys(Kind, 1),
    Kind.KLL: 2,  # 1 had no values that wait for the sketch, or had them under the same number.
    Kind.REQ: 2,
    Kind.LOG_BUCKETS: 2,  # 1 had 16 bytes a bucket.
}
"""The layout of each kind's parameters and parts. One that changes gets the next number."""

PARAMETERS: Final[Mapping[Kind, struct.Struct]] = {
    Kind.COUNT: struct.Struct("<q"),  # Groups.
    Kind.MOMENTS: struct.Struct("<q??"),  # Groups, whether whole numbers, whether with variance.
    Kind.LOG_BUCKETS: struct.Struct("<qi"),  # Groups, bits that do not choose the cell.
    Kind.KLL: struct.Struct("<qi"),  # Groups, k.
    Kind.FREQUENT: struct.Struct("<qqB"),  # Groups, entries, kind of items.
    Kind.GROUP_TABLE: struct.Struct("<q"),  # The most groups.
    Kind.BOTTOM_K: struct.Struct("<QQ"),  # k, threshold.
    Kind.HASH_SAMPLE: struct.Struct("<QQ"),  # The most rows, threshold.
    Kind.WEIGHTED_BOTTOM_K: struct.Struct("<Qd"),  # k, tau.
    Kind.THETA: struct.Struct("<qi"),  # Groups, lg_k.
    Kind.CROSS_MOMENTS: struct.Struct("<q"),  # Groups.
    Kind.FIRST_LAST: struct.Struct("<q?"),  # Groups, whether whole numbers.
    Kind.COUNT_MIN: struct.Struct("<qB"),  # Groups, lg_width.
    Kind.COUNT_SKETCH: struct.Struct("<qB"),
    Kind.DISTINCT: struct.Struct("<qi"),  # Groups, lg_k.
    Kind.REQ: struct.Struct("<qi?"),  # Groups, k, whether high ranks are the precise ones.
    Kind.STRATIFIED: struct.Struct("<qq"),  # Groups, k.
}
"""How each kind's parameters are packed."""


def seal(
    kind: Kind, parameters: Sequence[float], body: Sequence[NDArray[Any] | bytes], seed: int = 0
) -> bytes:
    """Put parameters and body into the envelope.

    Args:
      kind: which summary this is.
      parameters: how it was built, as PARAMETERS has it.
      body: arrays (written with their length, row-major, little-endian) and byte strings.
      seed: of its hashes; 0 where the summary has none.
    """
    parts = [_sized(part) for part in body]
    length = sum(len(part) for part in parts)
    packed = PARAMETERS[kind].pack(*parameters)
    fixed = _FIXED.pack(MAGIC, LAYOUTS[kind], kind, len(packed), seed, length)
    whole = b"".join((fixed, packed, *parts))
    return whole + _CHECKSUM.pack(google_crc32c.value(whole))


def _sized(part: NDArray[Any] | bytes) -> bytes:
    raw = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
    return _LENGTH.pack(len(raw)) + raw


@contextmanager
def parameters_of_bytes() -> Iterator[None]:
    """Raise an error of the bytes where the block refuses parameters that were read.

    Raises:
      CorruptSynopsis: for a BadParameter.
    """
    try:
        yield
    except BadParameter as error:
        raise CorruptSynopsis(error.parameter, error.value, error.expected) from error


@dataclass(slots=True)
class Body:
    """The parts of an opened envelope, read in the order in which they were written.

    parameters: as PARAMETERS has them. data: the whole envelope. at: where the next part begins.
    stop: where the last one ends.
    """

    parameters: tuple[Any, ...]
    seed: int
    data: bytes
    at: int
    stop: int

    def raw(self) -> bytes:
        """The next part as bytes."""
        length = self._part()
        return self.data[self.at - length : self.at]

    def _part(self) -> int:
        """Step over the next part; returns how long it is."""
        first, left = self.at + _LENGTH.size, self.stop - self.at - _LENGTH.size
        if left < 0:
            raise CorruptSynopsis("body", f"{self.stop - self.at} bytes", "another part")
        length: int
        (length,) = _LENGTH.unpack_from(self.data, self.at)
        if length > left:
            raise CorruptSynopsis("part length", length, f"<= {left}")
        self.at = first + length
        return length

    def array(self, dtype: DTypeLike, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """The next part as a writable array; without a shape, as long as the part.

        Raises:
          CorruptSynopsis: the part has another size.
        """
        length = self._part()
        width = np.dtype(dtype).itemsize
        if shape is None:
            size = length // width
        elif min(shape) < 0:
            raise CorruptSynopsis("array shape", shape, "no negative length")
        else:
            size = math.prod(shape)
        if length != size * width:
            raise CorruptSynopsis("array size", length, size * width)
        flat = np.frombuffer(self.data, dtype, size, self.at - length).copy()
        return flat if shape is None or len(shape) == 1 else flat.reshape(shape)

    def end(self) -> None:
        """Nothing may be left."""
        if self.at != self.stop:
            raise CorruptSynopsis("bytes after the last part", self.stop - self.at, 0)


def unseal(data: bytes, kind: Kind) -> Body:
    """Open an envelope.

    Raises:
      OtherLayout: of another layout.
      CorruptSynopsis: truncated, damaged, or of another kind.
    """
    if len(data) < _FIXED.size + _CHECKSUM.size:
        raise CorruptSynopsis("length", len(data), f">= {_FIXED.size + _CHECKSUM.size}")
    magic, layout, found, parameters, seed, length = _FIXED.unpack_from(data)
    if magic != MAGIC:
        raise CorruptSynopsis("magic", magic, MAGIC)
    whole = _FIXED.size + parameters + length
    if len(data) != whole + _CHECKSUM.size:
        raise CorruptSynopsis("length", len(data), whole + _CHECKSUM.size)
    if google_crc32c.value(data) != _RESIDUE:
        (checksum,) = _CHECKSUM.unpack_from(data, whole)
        actual = google_crc32c.value(data[:whole])
        raise CorruptSynopsis("checksum", f"{actual:#010x}", f"{checksum:#010x}")
    if found == kind and layout != LAYOUTS[kind]:
        raise OtherLayout(f"layout of {kind.name.lower()}", layout, LAYOUTS[kind])
    if found != kind:
        raise CorruptSynopsis("kind", found, f"{int(kind)} ({kind.name.lower()})")
    if parameters != PARAMETERS[kind].size:
        raise CorruptSynopsis("parameter length", parameters, PARAMETERS[kind].size)
    unpacked = PARAMETERS[kind].unpack_from(data, _FIXED.size)
    return Body(unpacked, seed, data, _FIXED.size + parameters, whole)
