"""Memory of a summary's texts, estimated from their number and the mean size seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from synopses.kernels.string_sizes import ASCII_BYTES, CHARACTER_BYTES, OTHER_BYTES

_EMPTY_BYTES: Final = 49  # An empty str of CPython,
_STEP_BYTES: Final = 16  # and what its allocator rounds up to.


@dataclass(frozen=True, slots=True)
class TextSizes:
    """Of texts that became Python strings: how many, and their bytes together."""

    texts: int = 0
    size_bytes: int = 0

    @classmethod
    def of(cls, *columns: Any) -> TextSizes:
        """Of these arrays of text, chunked or not; nulls are none."""
        lengths = [pc.binary_length(column).drop_null().to_numpy() for column in columns]
        each = _EMPTY_BYTES + np.concatenate(lengths).astype(np.int64)
        held = -(-each // _STEP_BYTES) * _STEP_BYTES
        return cls(len(held), int(held.sum()))

    def and_more(self, other: TextSizes) -> TextSizes:
        """Of both."""
        return TextSizes(self.texts + other.texts, self.size_bytes + other.size_bytes)

    def of_so_many(self, texts: int) -> int:
        """What this many of them hold."""
        return texts * self.size_bytes // self.texts if self.texts else 0


@dataclass(frozen=True, slots=True)
class TextsBound:
    """Upper bound of the bytes of the texts that a summary holds, as `string_bytes` counts them.

    total: bytes of the texts that were counted last, and of all that were taken in since.
    widest: bytes of the widest text.
    """

    total: int = 0
    widest: int = 0

    @classmethod
    def of(cls, *columns: Any) -> TextsBound:
        """Of these arrays of text, chunked or not; nulls are none."""
        total = widest = 0
        for column in columns:
            lengths = pc.binary_length(column).drop_null().to_numpy().astype(np.int64)
            if pc.all(pc.string_is_ascii(column), min_count=0).as_py():
                sizes = ASCII_BYTES + lengths
            else:  # No text has more characters than bytes of UTF-8.
                sizes = OTHER_BYTES + CHARACTER_BYTES * lengths
            total += int(sizes.sum())
            widest = max(widest, int(sizes.max(initial=0)))
        return cls(total, widest)

    def and_more(self, other: TextsBound) -> TextsBound:
        """Of both."""
        return TextsBound(self.total + other.total, max(self.widest, other.widest))

    def most(self, texts: int) -> int:
        """Return the most bytes that this many of the texts hold."""
        return min(self.total, texts * self.widest)
