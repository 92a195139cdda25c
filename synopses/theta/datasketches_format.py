"""Theta sketches as Apache DataSketches writes them: compact images, which Spark and Druid read.

Layout, little-endian: longs of preamble u8, version 3, family 3 (compact), u16, flags u8, hash of
the seed u16; with two longs or more the number of hashes u32 and a pad u32; with three theta as
u64; then the hashes, u64 each, ascending. One long is an empty sketch or one of a single hash.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from synopses.model.errors import CorruptSynopsis

THRESHOLD_MAX = 2**63 - 1  # Hashes have 63 bits; this one says that nothing was put out.
_SHARE_MAX = 1.0 - 2.0**-53  # Of those that are not all: rounded, theta might be 1.
_PREAMBLE = struct.Struct("<BBBHBH")
_COUNT = struct.Struct("<II")
_THRESHOLD = struct.Struct("<Q")
_SEED_HASH = 0x93CC  # The low 16 bits of the hash of DataSketches' default seed.
_EMPTY, _ORDERED = 0x1E, 0x1A  # Read-only, compact and ordered; and empty.
_IS_EMPTY = 0x04
_HASHES_MAX = 1 << 26  # Of DataSketches' largest sketch.
_UNPACKED_MAX = 1 << 16  # Hashes unpacked at once; a multiple of 8, so that parts are whole bytes.


def shares_of(thresholds: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Theta: the probability with which a value is held; 1.0 only where nothing was put out."""
    part = np.minimum(thresholds / 2.0**63, _SHARE_MAX)
    return np.where(thresholds == THRESHOLD_MAX, 1.0, part)


def write_image(hashes: NDArray[np.uint64], threshold: int) -> bytes:
    """The image of a sketch; hashes ascending, each below the threshold.

    A sketch below theta 1 that holds nothing is not an empty one: it may have been thinned.
    """
    if not hashes.size and threshold == THRESHOLD_MAX:
        return _PREAMBLE.pack(1, 3, 3, 0, _EMPTY, _SEED_HASH)
    longs = 3 if threshold < THRESHOLD_MAX else min(hashes.size, 2)
    preamble = _PREAMBLE.pack(longs, 3, 3, 0, _ORDERED, _SEED_HASH)
    preamble += _COUNT.pack(hashes.size, 0) if longs > 1 else b""
    preamble += _THRESHOLD.pack(threshold) if longs > 2 else b""
    return preamble + hashes.tobytes()


def read_image(image: bytes) -> tuple[NDArray[np.uint64], int]:
    """Hashes, ascending, and threshold of an image of version 3 or 4 (Spark's: compressed).

    Read here and not by the library, which reads past the end of damaged ones.

    Raises:
      CorruptSynopsis: it is no such image of a compact theta sketch, or not with this seed.
    """
    if len(image) < _PREAMBLE.size:
        raise CorruptSynopsis("bytes of a theta image", len(image), f">= {_PREAMBLE.size}")
    _, version, family, _, flags, seed = _PREAMBLE.unpack_from(image)
    if version not in (3, 4) or family != 3:
        raise CorruptSynopsis("(version, family)", (version, family), "(3, 3) or (4, 3)")
    if flags & _IS_EMPTY:
        return np.zeros(0, np.uint64), THRESHOLD_MAX
    if seed != _SEED_HASH:
        raise CorruptSynopsis("hash of the seed", hex(seed), hex(_SEED_HASH))
    hashes, threshold = (_read_plain if version == 3 else _read_compressed)(image)
    if not 0 < threshold <= THRESHOLD_MAX:
        raise CorruptSynopsis("threshold", threshold, f"1 to {THRESHOLD_MAX}")
    if hashes.size and not 0 < int(hashes[0]) <= int(hashes.max()) < threshold:
        raise CorruptSynopsis("largest hash", int(hashes.max()), f"< {threshold}")
    if np.any(hashes[1:] <= hashes[:-1]):
        raise CorruptSynopsis("hashes", "one of them twice", "all different")
    return hashes, threshold


def _read_plain(image: bytes) -> tuple[NDArray[np.uint64], int]:
    """Version 3: each hash in 8 bytes, in any order."""
    longs = image[0]
    if not 1 <= longs <= 3 or len(image) < 8 * longs:
        raise CorruptSynopsis("longs of preamble", longs, f"1 to {min(3, len(image) // 8)}")
    count = _COUNT.unpack_from(image, 8)[0] if longs > 1 else 1
    threshold = _THRESHOLD.unpack_from(image, 16)[0] if longs > 2 else THRESHOLD_MAX
    if len(image) != 8 * (longs + count):
        raise CorruptSynopsis("bytes of a theta image", len(image), 8 * (longs + count))
    return np.sort(np.frombuffer(image, "<u8", offset=8 * longs)).astype(np.uint64), int(threshold)


def _read_compressed(image: bytes) -> tuple[NDArray[np.uint64], int]:
    """Version 4: bytes 3 and 4 say how many bits a step between hashes has, and how many bytes
    their number; one long of preamble, two with theta; then the number and the steps, packed."""
    longs, bits, count_bytes = image[0], image[3], image[4]
    start = 8 * longs + count_bytes
    if longs not in (1, 2) or not 1 <= bits <= 63 or count_bytes > 4 or len(image) < start:
        raise CorruptSynopsis("preamble", image[:8].hex(), "one of a compressed theta sketch")
    threshold = _THRESHOLD.unpack_from(image, 8)[0] if longs > 1 else THRESHOLD_MAX
    count = int.from_bytes(image[8 * longs : start], "little")
    size = start + (count * bits + 7) // 8
    if len(image) != size:
        raise CorruptSynopsis("bytes of a theta image", len(image), size)
    if count > _HASHES_MAX:
        raise CorruptSynopsis("hashes", count, f"<= {_HASHES_MAX}, the largest sketch's")
    steps = np.empty(count, np.uint64)
    packed = np.frombuffer(image, np.uint8, offset=start)
    for first in range(0, count, _UNPACKED_MAX):  # Unpacked, a hash takes 64 bytes.
        part = steps[first : first + _UNPACKED_MAX]
        words = np.zeros((len(part), 64), np.uint8)
        octets = packed[first * bits // 8 :]
        words[:, 64 - bits :] = np.unpackbits(octets, count=len(part) * bits).reshape(-1, bits)
        part[:] = np.packbits(words, axis=1).view(">u8").ravel()
    return np.cumsum(steps, dtype=np.uint64), int(threshold)  # What wraps round is not ascending.
