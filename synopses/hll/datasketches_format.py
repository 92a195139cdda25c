"""HLL registers as Apache DataSketches writes them, which Spark and Druid read, too.

Layout, little-endian: ints of preamble u8, version 1, family 7, lg_k u8, lg of the coupon array u8,
flags u8, coupons in a list (or the least register) u8, mode and target u8. Few values are a list or
a set of coupons, u32 each: slot in the low 26 bits, register above. More are registers behind ten
ints of preamble (HIP accumulator, two sums of 2^-register, registers at the least, exceptions):
a byte each (HLL_8), packed 6 bits (HLL_6), or 4 bits above the least one, 15 for an exception that
follows as a coupon (HLL_4). Read here and not by the library, which damaged images crash.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from synopses.hll.sparse_coupons import held_max
from synopses.model.errors import BadParameter, CorruptSynopsis

_IMAGE = struct.Struct("<BBBBBBBBdddii")
_HEAD = struct.Struct("<BBBBBBBB")
_UPDATABLE_HLL_8 = 0x0A  # Mode HLL, target HLL_8.
_EMPTY, _COMPACT, _OUT_OF_ORDER = (
    4,
    8,
    16,
)  # Flags. Out of order: no HIP estimate, bounds are those of unions.
_LIST, _SET, _HLL = 0, 1, 2
_COUPONS_AT = {_LIST: 8, _SET: 12}
_LONGEST = 21  # lg_k, as in DataSketches.
_SLOT_BITS = 26
_EXCEPTION = 15
_REGISTER_MAX = 63

_HLL_8 = 2 << 2  # The target, beside a mode.
LIST_MAX = 7  # The eighth coupon makes a set of a list.
_SETS_FROM = 8  # Smaller sketches of the library turn from lists to registers.

Slots = tuple[NDArray[np.int64], NDArray[np.uint8]]


def write_image(registers: NDArray[np.uint8], lg_k: int) -> bytes:
    """The image of uint8 [2^lg_k] registers, as HLL_8."""
    held = np.bincount(registers, minlength=64)
    weights = held * 2.0 ** -np.arange(64)
    preamble = _IMAGE.pack(
        10, 1, 7, lg_k, 0, _OUT_OF_ORDER, 0, _UPDATABLE_HLL_8,
        0.0, weights[:32].sum(), weights[32:].sum(), held[0], 0,
    )  # fmt: skip
    return preamble + registers.tobytes()


def write_coupons(slots: NDArray[np.int64], registers: NDArray[np.uint8], lg_k: int) -> bytes:
    """The image of few values: a list, or a set, of coupons; compact, target HLL_8.

    Args:
      slots: int64 [n], of 26 bits, different. registers: uint8 [n].
      lg_k: n is at most what a sketch of 2^lg_k registers holds as coupons: 7, and from lg_k 8 on
        three quarters of 2^(lg_k - 3).
    """
    coupons = np.sort(slots | registers.astype(np.int64) << _SLOT_BITS).astype(np.uint32)
    size = coupons.size
    if size <= LIST_MAX:
        flags = _COMPACT | (0 if size else _EMPTY)
        return _HEAD.pack(2, 1, 7, lg_k, 3, flags, size, _LIST | _HLL_8) + coupons.tobytes()
    room = max(5, math.ceil(math.log2(size / 0.75)))
    head = _HEAD.pack(3, 1, 7, lg_k, room, _COMPACT, 0, _SET | _HLL_8)
    return head + struct.pack("<I", size) + coupons.tobytes()


def coupons_max(lg_k: int) -> int:
    """Return how many coupons an image can have, of those that a group holds."""
    return LIST_MAX if lg_k < _SETS_FROM else held_max(lg_k)


def folded(registers: NDArray[np.uint8], lg_k: int) -> NDArray[np.uint8]:
    """Rows of 2^lg_k registers that say what these longer rows said of the same values."""
    times = registers.shape[1] >> lg_k
    rows: NDArray[np.uint8] = registers.reshape(len(registers), times, 1 << lg_k).max(axis=1)
    return rows


def read_image(image: bytes, lg_k: int) -> tuple[NDArray[np.int64], NDArray[np.uint8], bool]:
    """Slots and registers of an image of any mode and target, and whether they are coupons.

    Coupons have slots of 26 bits, registers are folded to 2^lg_k. A slot may come more than once:
    the largest register counts.

    Raises:
      CorruptSynopsis: it is no image of an HLL sketch.
      BadParameter: it has fewer registers than 2^lg_k.
    """
    if len(image) < _HEAD.size:
        raise CorruptSynopsis("HLL image", f"{len(image)} bytes", f">= {_HEAD.size}")
    _, version, family, held, _, flags, least, form = _HEAD.unpack_from(image)
    if (version, family) != (1, 7) or not 4 <= held <= _LONGEST:
        raise CorruptSynopsis("HLL image", (version, family, held), "version 1, family 7, lg_k")
    mode, target = form & 3, form >> 2 & 3
    if mode > _HLL or target > 2:
        raise CorruptSynopsis("mode of an HLL image", form, "a list, a set or registers")
    if flags & _EMPTY:
        return np.zeros(0, np.int64), np.zeros(0, np.uint8), True
    if held < lg_k:
        raise BadParameter("lg_k", lg_k, f"<= {held}, that of the image")
    if mode == _HLL:
        slots, registers = _unpacked(image, 1 << held, target, least)
        slots &= (1 << lg_k) - 1
    else:
        slots, registers = _coupons(image, _COUPONS_AT[mode])
    if registers.size and registers.max() > _REGISTER_MAX:
        raise CorruptSynopsis("register", int(registers.max()), f"<= {_REGISTER_MAX}")
    return slots, registers, mode != _HLL


def _coupons(image: bytes, start: int) -> Slots:
    """Coupons to the end of the image; 0 is a free place."""
    whole = max(0, len(image) - start) // 4
    coupons = np.frombuffer(image, np.uint32, whole, min(start, len(image)))
    coupons = coupons[coupons != 0].astype(np.int64)
    return coupons & ((1 << _SLOT_BITS) - 1), (coupons >> _SLOT_BITS).astype(np.uint8)


def _unpacked(image: bytes, slots: int, target: int, least: int) -> Slots:
    """Registers that are set; target: 0 HLL_4, 1 HLL_6, 2 HLL_8."""
    size = (slots // 2, slots * 3 // 4 + 1, slots)[target]
    if len(image) < _IMAGE.size + size:
        raise CorruptSynopsis("HLL image", f"{len(image)} bytes", f">= {_IMAGE.size + size}")
    packed = np.frombuffer(image, np.uint8, size, _IMAGE.size)
    if target == 0:
        nibbles = np.stack((packed & 15, packed >> 4), axis=1).ravel()
        where, above = _coupons(image, _IMAGE.size + size)
        if where.size and where.max() >= slots:
            raise CorruptSynopsis("slot", int(where.max()), f"< {slots}")
        registers = np.where(nibbles == _EXCEPTION, 0, nibbles + np.uint8(least)).astype(np.uint8)
        registers[where] = above
    elif target == 1:
        bits = 6 * np.arange(slots)
        pairs = packed[bits >> 3].astype(np.int64) | packed[(bits >> 3) + 1].astype(np.int64) << 8
        registers = (pairs >> (bits & 7) & 63).astype(np.uint8)
    else:
        registers = packed
    where = np.flatnonzero(registers)
    return where, registers[where]
