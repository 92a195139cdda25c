"""Positions: the numbers of a batch's rows in their stream, and the keys that they give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.hashing import position_keys


class Positions:
    """The positions of a batch's rows, and the random keys that the stream's seed gives them."""

    def __init__(self, seed: int, first: int) -> None:
        self.seed = seed
        self.first = first
        self._keys: NDArray[np.uint64] | None = None

    def keys(self, count: int) -> NDArray[np.uint64]:
        """uint64 [count], the keys of the batch's rows; computed once."""
        if self._keys is None:
            self._keys = position_keys(self.seed, self.first, count)
        return self._keys

    def after(self, rows: int) -> Positions:
        """Those of a batch that begins so many rows later."""
        return Positions(self.seed, self.first + rows)
