"""Theta sketches as Apache DataSketches writes them: compact images, which Spark and Druid read.

Layout, little-endian: longs of preamble u8, version 3, family 3 (compact), u16, flags u8, hash of
the seed u16; with two longs or more the number of hashes u32 and a pad u32; with three theta as
u64; then the hashes, u64 each, ascending. One long is an empty sketch or one of a single hash.
"""

from __future__ import annotations

import struct

import datasketches
import numpy as np
from numpy.typing import NDArray

from synopses.errors import CorruptSynopsis

THRESHOLD_MAX = 2**63 - 1  # Hashes have 63 bits; this one says that nothing was put out.
_PREAMBLE = struct.Struct("<BBBHBH")
_COUNT = struct.Struct("<II")
_THRESHOLD = struct.Struct("<Q")
_SEED_HASH = 0x93CC  # The low 16 bits of the hash of DataSketches' default seed.
_EMPTY, _ORDERED = 0x1E, 0x1A  # Read-only, compact and ordered; and empty.


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
    """Hashes and threshold of an image, by the library: of any version that it knows.

    Raises:
      CorruptSynopsis: it is no image of a compact theta sketch, or not with this seed.
    """
    try:
        sketch = datasketches.compact_theta_sketch.deserialize(image)
    except (ValueError, RuntimeError, IndexError, MemoryError) as error:
        raise CorruptSynopsis("theta image", str(error), "a compact theta sketch") from None
    hashes, threshold = np.array(list(sketch), np.uint64), int(sketch.theta64)
    if not 0 < threshold <= THRESHOLD_MAX:
        raise CorruptSynopsis("threshold", threshold, f"1 to {THRESHOLD_MAX}")
    if hashes.size and not 0 < int(hashes.min()) <= int(hashes.max()) < threshold:
        raise CorruptSynopsis("largest hash", int(hashes.max()), f"< {threshold}")
    return hashes, threshold
