"""Upper bounds of the memory of Python strings."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

ASCII_BYTES: Final = 49  # Of a Python string of ASCII, beside one byte for each character.
OTHER_BYTES: Final = 76  # Of any other string,
CHARACTER_BYTES: Final = 8  # ... beside four bytes a character, and its UTF-8, which is cached.


def string_bytes(text: str | None) -> int:
    """Return the most bytes that a string takes in memory, whether its UTF-8 is cached or not."""
    if text is None:
        return 0
    if text.isascii():
        return ASCII_BYTES + len(text)
    return OTHER_BYTES + CHARACTER_BYTES * len(text)


def strings_bytes(texts: NDArray[Any]) -> NDArray[np.int64]:
    """Return `string_bytes` of each of the texts: int64 [texts]."""
    return np.fromiter(map(string_bytes, texts.tolist()), np.int64, len(texts))
