"""REQ images: whether the library may be given them; it checks little and crashes on damaged ones.

Layout, little-endian (datasketches-cpp 5.2.0, req_sketch_impl.hpp): ints of preamble u8, version
u8, family 17, flags u8, k u16, levels u8, number of raw values u8. Up to four values follow as they
are (and unused bytes after them). Of several levels: n u64, smallest and largest value f32. Then
per level: compactions so far u64, size of a section f32, level u8, sections u8, u16, number of
values u32, these values f32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from datasketches import req_floats_sketch
from numpy.typing import NDArray

from synopses.model.errors import CorruptSynopsis

_HEAD = struct.Struct("<BBBBHBB")
_RANGE = struct.Struct("<Qff")
_LEVEL = struct.Struct("<QfBBHI")
_VERSION, _FAMILY = 1, 17
_EMPTY, _HIGH, _RAW, _SORTED = 4, 8, 16, 32  # Flags.
_RAW_MAX = 4
_K_MIN, K_MAX = 4, 254  # Even; the library keeps k in a byte.
SECTION_MIN = 4
SECTIONS_MIN, _SECTIONS_MAX = 3, 96
_LEVELS_MAX = 60
_COMPACTIONS_MAX = 1 << 31
_VALUE_BYTES = 4


def read_image(image: bytes, *, high: bool) -> Any:
    """The sketch of floats that an image holds. high: its high ranks are the precise ones.

    Raises:
      CorruptSynopsis: it is no image of one, or its parts do not fit together.
    """
    _expect("length", len(image), f">= {_HEAD.size}", when=len(image) >= _HEAD.size)
    _, version, family, flags, k, levels, raw = _HEAD.unpack_from(image)
    _expect("version, family", (version, family), (1, 17), when=(version, family) == (1, 17))
    _expect("k", k, f"even, {_K_MIN} to {K_MAX}", when=_K_MIN <= k <= K_MAX and k % 2 == 0)
    _expect("high ranks", bool(flags & _HIGH), high, when=bool(flags & _HIGH) == high)
    if flags & (_EMPTY | _RAW):
        sketch = req_floats_sketch(k, high)
        values = _raw_values(image, 0 if flags & _EMPTY else raw).tolist()
        for value in (
            reversed(values) if high else values
        ):  # High ranks fill the buffer from its end.
            sketch.update(value)
        return sketch
    _check_levels(image, k, levels, ordered=bool(flags & _SORTED))
    try:
        return req_floats_sketch.deserialize(image)
    except (RuntimeError, ValueError, IndexError, MemoryError) as error:
        raise CorruptSynopsis("REQ image", str(error), "a DataSketches REQ sketch") from error


def unpaired(sketch: Any) -> Any:
    """The sketch, to be merged into another one, which goes on tossing its own coins.

    Per level the library keeps one half of what it compacts by a coin, next time the other half,
    and knows by the lowest bit of the number of compactions which of both is next. A merge puts the
    bits of both numbers together by OR: the bit of a part that ends with the first of two would
    have the merged sketch take turns again without a coin. After many merges ranks were off to one
    side, by 2.6 standard errors after 1,000. So the lowest bits are cleared; the
    others are a merge's, as they count compactions (Cormode et al. 2021, sect. 5).
    """
    if not sketch.is_estimation_mode():
        return sketch  # Nothing was compacted.
    image = bytearray(sketch.serialize())
    for at, _ in _levels(image):
        image[at] &= 0xFE
    return req_floats_sketch.deserialize(bytes(image))


def times_kept(sketch: Any, value: float) -> int:
    """Return how many of the values that a sketch keeps are this one."""
    image = sketch.serialize()
    _, _, _, flags, _, _, raw = _HEAD.unpack_from(image)
    if flags & (_EMPTY | _RAW):
        parts = [_raw_values(image, 0 if flags & _EMPTY else raw)]
    else:
        found = _levels(image)
        parts = [np.frombuffer(image, np.float32, n, at + _LEVEL.size) for at, n in found]
    return sum(int(np.count_nonzero(part == value)) for part in parts)


def _levels(image: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Yield begin and number of values of each level of an image that the library wrote."""
    *_, levels, _ = _HEAD.unpack_from(image)
    at = _HEAD.size + (_RANGE.size if levels > 1 else 0)
    for _ in range(levels):
        *_, count = _LEVEL.unpack_from(image, at)
        yield at, count
        at += _LEVEL.size + _VALUE_BYTES * count


def section(size: float) -> int:
    """Values of a section of this size: the nearest even number, the larger of two."""
    return 2 * math.floor(size / 2 + 0.5)


def _expect(what: str, found: object, expected: object, *, when: bool) -> None:
    if not when:
        raise CorruptSynopsis(f"{what} of a REQ image", found, expected)


def _raw_values(image: bytes, count: int) -> NDArray[np.float32]:
    _expect("raw values", count, f"0 to {_RAW_MAX}", when=count <= _RAW_MAX)
    size = _HEAD.size + _VALUE_BYTES * count
    _expect("length", len(image), f">= {size}", when=len(image) >= size)
    values = np.frombuffer(image, np.float32, count, _HEAD.size)
    _expect("values", values.tolist(), "no NaN", when=not np.isnan(values).any())
    return values


def _check_levels(image: bytes, k: int, levels: int, *, ordered: bool) -> None:
    """Levels must be what compacting leaves, and hold n values in all, by their weights."""
    _expect("levels", levels, f"1 to {_LEVELS_MAX}", when=1 <= levels <= _LEVELS_MAX)
    at, n, low, high = _HEAD.size, None, -np.inf, np.inf
    if levels > 1:
        _expect("length", len(image), "a range", when=len(image) >= at + _RANGE.size)
        n, low, high = _RANGE.unpack_from(image, at)
        at += _RANGE.size
    total, held, room = 0, 0, 0
    for level in range(levels):
        _expect("length", len(image), "another level", when=len(image) >= at + _LEVEL.size)
        *state, found, sections, _, count = _LEVEL.unpack_from(image, at)
        at += _LEVEL.size
        _expect("level", found, level, when=found == level)
        compactions, size = state
        room += _room(k, compactions, size, sections)
        _expect("length", len(image), "its values", when=len(image) >= at + _VALUE_BYTES * count)
        values = np.frombuffer(image, np.float32, count, at)
        inside = bool(((values >= low) & (values <= high)).all())  # NaN is not.
        _expect("values", values.tolist(), f"{low} to {high}", when=inside)
        if level or ordered:
            ascending = bool((values[:-1] <= values[1:]).all())  # Of infinities no differences.
            _expect("values", values.tolist(), "sorted", when=ascending)
        at += _VALUE_BYTES * count
        total, held = total + (count << level), held + count
    _expect("length", len(image), at, when=len(image) == at)
    _expect("values", held, f"1 to {room - 1}", when=0 < held < room)
    _expect("n", n, total, when=n is None or n == total)


def _room(k: int, compactions: int, size: float, sections: int) -> int:
    """Nominal capacity of a level; sections grow in number and shrink as it is compacted."""
    _expect("compactions", compactions, "< 2^31", when=compactions < _COMPACTIONS_MAX)
    whole = SECTIONS_MIN <= sections <= _SECTIONS_MAX and sections % SECTIONS_MIN == 0
    halvings = (sections // SECTIONS_MIN).bit_length() - 1
    whole = whole and sections == SECTIONS_MIN << halvings
    _expect("sections", sections, "3, 6, 12 ... 96", when=whole)
    right = k / 2 ** (halvings / 2)
    _expect(
        "section", size, right, when=abs(size - right) < 1e-4 * right and size > SECTION_MIN - 1
    )
    return 2 * sections * section(size)
