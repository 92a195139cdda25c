"""Cells of a log-bucket histogram: the top bits of a double, numbered in the order of the values.

The sign, the exponent and the first bits of the mantissa choose the cell, so that finding it costs
a shift. 7 bits of mantissa make cells 2^-7 of their lower end wide; each bit less doubles the
width, which is how a histogram collapses (UDDSketch: Epicoco et al. 2020, IEEE Access 8). Zero and
the infinities have cells of their own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MANTISSA_BITS = 7
SHIFT_MIN = 52 - MANTISSA_BITS  # The bits of a double that do not choose its cell.
SHIFT_MAX = 52  # One cell per power of two; coarser ones would mix infinity with numbers.
ZERO = 1 << (11 + MANTISSA_BITS)  # The cell of 0.0 and -0.0, at every shift.
_INFINITE_BITS = 0x7FF << 52


def farthest(shift: int) -> int:
    """Return how many cells the infinities are away from zero."""
    return (_INFINITE_BITS >> shift) + 1


def cells_of(values: NDArray[np.float64], shift: int = SHIFT_MIN) -> NDArray[np.int64]:
    """The cell of each value (no NaN); in the same order as the values. Shape [n]."""
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    magnitude = bits & 0x7FFFFFFFFFFFFFFF
    away = np.where(magnitude == 0, 0, (magnitude >> shift) + 1)
    return np.where(bits < 0, ZERO - away, ZERO + away)


def cell_ends(
    cells: NDArray[np.int64], shift: int = SHIFT_MIN
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The smallest and the largest double of each cell; shapes [n]."""
    away = np.abs(cells - ZERO)
    near = np.maximum(away - 1, 0) << shift
    far = np.where(near == _INFINITE_BITS, near, near + (1 << shift) - 1)
    small, large = near.view(np.float64), far.view(np.float64)
    small = np.where(near == 0, 5e-324, small)  # Zero itself has its own cell.
    low = np.where(cells < ZERO, -large, np.where(cells == ZERO, 0.0, small))
    high = np.where(cells < ZERO, -small, np.where(cells == ZERO, 0.0, large))
    return low, high


def coarser(cells: NDArray[np.int64], shift: int, wanted: int) -> NDArray[np.int64]:
    """The cells at shift `wanted` that hold these cells of a smaller or the same shift."""
    signed = cells - ZERO
    away = np.abs(signed)
    wider = np.where(away == 0, 0, ((away - 1) >> (wanted - shift)) + 1)
    return ZERO + np.sign(signed) * wider


def cells_of_keys(keys: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    """Cells of a double's top bits (sign included), plus one unless the double is zero."""
    negative = 1 << (63 - shift)
    return np.where(keys >= negative, ZERO + negative - keys, ZERO + keys)


def keys_of_cells(cells: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    """The inverse of `cells_of_keys` (for the zero cell: the key of 0.0)."""
    negative = 1 << (63 - shift)
    return np.where(cells < ZERO, negative + ZERO - cells, cells - ZERO)


def middle_of(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """The middle of each bucket; of one without end its infinity. Shapes [n]."""
    finite = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        return np.where(finite, low / 2 + high / 2, np.where(np.isfinite(low), high, low))
