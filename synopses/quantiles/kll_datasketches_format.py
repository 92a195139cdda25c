"""KLL images from elsewhere: whether the library may be given them, which damaged ones crash.

Layout, little-endian (datasketches-cpp 5.2.0, kll_sketch.hpp): ints of preamble u8, version u8,
family 15, flags u8, k u16, m u8, u8; an empty sketch ends here, one of a single value has it next;
else n u64, smallest k u16, levels u8, u8, where each level starts u32 (what is free comes first),
smallest and largest value, the values from the lowest level up.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from datasketches import kll_doubles_sketch

from synopses.model.errors import CorruptSynopsis

_HEAD = struct.Struct("<BBBBHBB")
_REST = struct.Struct("<QHBB")
_SHORT, _FULL, _FAMILY = 2, 5, 15
_EMPTY, _SINGLE = 1, 4  # Flags.
CAPACITY_MIN = 8  # Of a level; m in the image.
_K_MAX, _LEVELS_MAX = 65_535, 60
_VALUE_BYTES = 8


def read_image(image: bytes) -> Any:
    """The sketch of doubles that an image holds.

    Raises:
      CorruptSynopsis: it is no image of one, or its parts do not fit together.
    """
    _check(image)
    try:
        return kll_doubles_sketch.deserialize(image)
    except (RuntimeError, ValueError, IndexError, MemoryError) as error:
        raise CorruptSynopsis("KLL image", str(error), "a DataSketches KLL sketch") from error


def smallest_k(image: bytes) -> int:
    """The k that a sketch errs by: the smallest of all that compacted what was merged into it.

    image: one that `read_image` takes.
    """
    ints, _, _, _, k, _, _ = _HEAD.unpack_from(image)
    if ints == _FULL:
        _, k, _, _ = _REST.unpack_from(image, _HEAD.size)
    return int(k)


def capacity(k: int, levels: int) -> int:
    """Room of a sketch with so many levels: from the top each has 2/3 of the one above."""
    depths = range(levels)
    return sum(max(CAPACITY_MIN, ((2 * k << depth) // 3**depth + 1) >> 1) for depth in depths)


def _expect(what: str, found: object, expected: object, *, when: bool) -> None:
    if not when:
        raise CorruptSynopsis(f"{what} of a KLL image", found, expected)


def _check(image: bytes) -> None:
    _expect("length", len(image), f">= {_HEAD.size}", when=len(image) >= _HEAD.size)
    ints, version, family, flags, k, m, _ = _HEAD.unpack_from(image)
    _expect("family", family, _FAMILY, when=family == _FAMILY)
    _expect("k", k, f"{CAPACITY_MIN} to {_K_MAX}", when=k >= CAPACITY_MIN)
    _expect("m", m, CAPACITY_MIN, when=m == CAPACITY_MIN)
    if flags & _EMPTY:
        _expect("form", (ints, version), (_SHORT, 1), when=(ints, version) == (_SHORT, 1))
    elif flags & _SINGLE:
        _expect("form", (ints, version), (_SHORT, 2), when=(ints, version) == (_SHORT, 2))
        size = _HEAD.size + _VALUE_BYTES
        _expect("length", len(image), size, when=len(image) == size)
    else:
        _expect("form", (ints, version), (_FULL, 1), when=(ints, version) == (_FULL, 1))
        _check_levels(image, k)


def _check_levels(image: bytes, k: int) -> None:
    """Levels must fit into the image and hold n values in all, by their weights."""
    starts_at = _HEAD.size + _REST.size
    _expect("length", len(image), f">= {starts_at}", when=len(image) >= starts_at)
    n, k_min, levels, _ = _REST.unpack_from(image, _HEAD.size)
    _expect("smallest k", k_min, f"{CAPACITY_MIN} to {k}", when=CAPACITY_MIN <= k_min <= k)
    _expect("levels", levels, f"1 to {_LEVELS_MAX}", when=1 <= levels <= _LEVELS_MAX)
    values_at = starts_at + 4 * levels
    _expect("length", len(image), f">= {values_at}", when=len(image) >= values_at)
    starts = np.frombuffer(image, np.uint32, levels, starts_at).astype(np.int64)
    held = np.diff(starts, append=capacity(k, levels))
    _expect("levels", starts.tolist(), "ascending", when=bool((held >= 0).all()))
    size = values_at + _VALUE_BYTES * (2 + int(held.sum()))
    _expect("length", len(image), size, when=len(image) == size)
    total = sum(count << level for level, count in enumerate(held.tolist()))
    _expect("n", n, total, when=0 < n == total)
