"""Tails: the few values of a batch that lie far out, and are read in full when others are skipped.

A sum of heavy-tailed values is uncertain by its largest ones. Read in full, they add no error, and
what is left to be sampled is narrow (the outlier index of Chaudhuri, Das, Datar, Motwani and
Narasayya, ICDE 2001). Which rows these are follows from the values of the batch alone, and not from
the random keys by which others are kept, so that of the others a simple random sample is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    from shedder.cql.expression import Column
    from shedder.streams.frame import Thinned

FAR_SHARE = 1 / 64  # Of a batch's values, about.
FAR_NS = 2.0  # Per tuple and column, in batches of 16,384, once for all who read it.
FAR_LEVEL_MAX = (
    6  # At higher levels fewer others are read than that: all must cost next to nothing.
)
ROWS_MIN = 256  # Of fewer, looking takes longer than reading.
_LOOKED = 512  # Values that say where far out begins.
_WORTH = 0.25  # Of the squares of distances from the middle, less in the tail is not worth it.
_INT64_END = 1 << 63


@dataclass(frozen=True, slots=True)
class Middle:
    """Where the values lie that are not far out: low <= value <= high, in the values' own type."""

    low: int | float
    high: int | float


@dataclass(slots=True)
class Tails:
    """What has been found out about the tails of a frame's columns (far_rows.py).

    far: by column, its middle and the rows beyond; None: there are none worth it. near: by column
    and level, the rows that are kept of the others.
    """

    far: dict[Column, tuple[Middle, Thinned] | None] = field(default_factory=dict)
    near: dict[tuple[Column, int], Thinned] = field(default_factory=dict)


def middle_of(values: NDArray[Any]) -> Middle | None:
    """The range beyond which about FAR_SHARE of a batch's values lie; None: no use in one.

    Args:
      values: int64 or float64 [values], not NaN.
    """
    if len(values) < ROWS_MIN:
        return None
    looked = values[:: len(values) // _LOOKED or 1].astype(np.float64)
    half = len(looked) // 2
    looked.partition(half)  # np.median takes three times as long.
    center = float(looked[half])
    far = np.abs(looked - center)
    first = len(far) - max(round(FAR_SHARE * len(far)), 1)
    far.partition(first)
    cut = float(far[first])
    if not (isfinite(cut) and isfinite(far[first:].max())):
        return None
    squares = far * far
    if not squares[first:].sum() > _WORTH * squares.sum():
        return None
    low, high = center - cut, center + cut
    if values.dtype == np.float64:
        return Middle(low, high)
    return Middle(max(ceil(low), -_INT64_END), min(floor(high), _INT64_END - 1))


@njit(nogil=True, cache=True)
def outside(values: NDArray[Any], low: Any, high: Any) -> NDArray[np.int64]:
    """Indices of the values below low or above high."""
    found = np.empty(values.size, np.int64)
    size = 0
    for row in range(values.size):
        found[size] = row
        size += int(values[row] < low or values[row] > high)
    return found[:size].copy()


def compile_tails() -> None:
    """Before the first tuple, not on it."""
    outside(np.zeros(1), 0.0, 1.0)
    outside(np.zeros(1, np.int64), 0, 1)
