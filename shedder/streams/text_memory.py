"""How many bytes the texts of a summary hold: as many as there are, at the mean of those it met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

_EMPTY_BYTES: Final = 49  # An empty str of CPython,
_STEP_BYTES: Final = 16  # and what its allocator rounds up to.
MEMORY_MAX: Final = 8  # Times the bytes of UTF-8 that a string takes, as `string_bytes` counts.


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
