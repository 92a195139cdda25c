"""Positions: the numbers of a batch's rows in their stream, and the keys that they give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.hashing import chosen_keys, position_keys, position_start


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


def sampled(positions: NDArray[np.int64], *, seed: int, share: float) -> NDArray[np.bool_]:
    """Return which tuples SAMPLE keeps, bool [tuples]: those of random keys below share * 2^64.

    Args:
      positions: of the tuples, in any order. seed: of the stream.
      share: in (0, 1].
    """
    least_left_out = int(share * 2**64)
    if least_left_out == 2**64:
        return np.ones(len(positions), np.bool_)
    keys = chosen_keys(position_start(seed, 0), positions)
    kept: NDArray[np.bool_] = keys < np.uint64(least_left_out)
    return kept
