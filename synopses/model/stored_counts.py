"""Check of counts that are read from bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synopses.model.errors import CorruptSynopsis
from synopses.model.parameters import COUNTED_MAX


def check_counts(name: str, counts: NDArray[np.int64]) -> None:
    """Check that counts are 0 or more, and that two of them add up without a wrap.

    Args:
      name: of what is counted. counts: int64, any shape.

    Raises:
      CorruptSynopsis: a count is negative, or 2^62 or more.
    """
    wrong = (counts < 0) | (counts >= COUNTED_MAX)
    if wrong.any():
        raise CorruptSynopsis(name, int(counts[wrong][0]), "0 or more and below 2^62")
