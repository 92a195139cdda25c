"""Decimal text as doubles, with a mask of the values that a double holds.

A double holds decimal text if the double, written with as many decimals, has the same digits.
So 0.1 and 0.30000000000000004 are held, and 9007199254740993 and 1234567890123456.78 are not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_ALWAYS_HELD_DIGITS = 15  # DBL_DIG of IEEE 754 binary64: so many digits survive the round trip.
_WRITTEN_DIGITS = 17  # Digits that programs need to write a double (C11, DBL_DECIMAL_DIG).
_INT_HELD_MAX = 2**53  # Up to here, a double holds every integer.


def doubles_of(text: Any) -> tuple[pa.Array[Any], NDArray[np.bool_]]:
    """Convert decimal text to the nearest doubles.

    Args:
      text: numbers such as -12, 0.5, .5, 1e-3, inf and nan; NULL stays NULL.

    Returns:
      values: float64 [rows].
      held: bool [rows]; False where digits are lost. True for NULL, inf and nan.

    Raises:
      pa.ArrowInvalid: a text is not a number.
    """
    values = text.cast(pa.float64())
    mantissa = pc.replace_substring_regex(text, r"[eE].*$", "")
    is_finite = pc.match_substring_regex(text, "[0-9]").fill_null(False)
    digits = pc.binary_length(_digits(mantissa)).fill_null(0)
    held = np.ones(len(text), np.bool_)
    suspects = np.flatnonzero(np.asarray(is_finite) & (np.asarray(digits) > _ALWAYS_HELD_DIGITS))
    if suspects.size:
        held[suspects] = _are_held(text.take(suspects), np.asarray(values.take(suspects)))
    overflowed = np.isinf(np.asarray(values.fill_null(0.0))) & np.asarray(is_finite)
    return values, held & ~overflowed


def _are_held(text: Any, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Compare the digits of finite numbers with those of their doubles."""
    has_exponent = np.asarray(pc.match_substring_regex(text, "[eE]"))
    mantissa = pc.replace_substring_regex(text, r"[eE].*$", "")
    fraction = pc.replace_substring_regex(mantissa, r"^[^.]*\.?", "")
    decimals = np.asarray(pc.binary_length(fraction))
    digits = _digits(mantissa)
    # A program that writes an exponent writes a double, unless there are more digits than it has.
    held = has_exponent & (np.asarray(pc.binary_length(digits)) <= _WRITTEN_DIGITS)
    for count in np.unique(decimals[~has_exponent]):
        rows = np.flatnonzero(~has_exponent & (decimals == count))
        written = _digits(pa.array(np.char.mod(f"%.{count}f", values[rows]).tolist(), pa.string()))
        held[rows] = np.asarray(pc.equal(written, digits.take(rows)))
    return held


def _digits(text: Any) -> Any:
    """The digits without sign, point and leading zeros."""
    return pc.replace_substring_regex(pc.replace_substring_regex(text, "[^0-9]", ""), "^0+", "")


def integers_held(integers: pa.Array[Any]) -> NDArray[np.bool_]:
    """Return which integers of any Arrow type a double holds; True for NULL."""
    numbers = np.asarray(integers.fill_null(0))
    doubles = numbers.astype(np.float64)
    limits = np.iinfo(numbers.dtype)
    low, high = float(limits.min), float(limits.max)
    small = (numbers <= _INT_HELD_MAX) & (numbers >= (-_INT_HELD_MAX if limits.min < 0 else 0))
    inside = (doubles >= low) & (doubles < high)
    back: NDArray[Any] = np.where(inside, doubles, 0.0).astype(numbers.dtype)
    held: NDArray[np.bool_] = small | (inside & (back == numbers))
    return held
