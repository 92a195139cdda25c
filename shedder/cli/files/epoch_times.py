"""Times that are numbers since 1970, as microseconds; digits beyond them are rounded down."""

from __future__ import annotations

from enum import Enum
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cli.files.convertible_values import matching, where

_MOMENT = pa.timestamp("us")
_DIGITS = r"^(?P<sign>[+-]?)(?P<whole>[0-9]*)\.?(?P<part>[0-9]*)$"
_EXPONENT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+$"
_DIGITS_MAX = 18  # Of microseconds; year 9999 has 18. More could exceed int64.


class TimeUnit(Enum):
    """Unit of event times that are numbers since 1970."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"

    @property
    def decimals(self) -> int:
        """Decimals that are whole microseconds; -3: three digits of the integer are less."""
        match self:
            case TimeUnit.S:
                return 6
            case TimeUnit.MS:
                return 3
            case TimeUnit.US:
                return 0
            case TimeUnit.NS:
                return -3
            case _:
                assert_never(self)


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are numbers."""
    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def epoch_times(column: Any, unit: TimeUnit) -> tuple[Any, NDArray[np.bool_]]:
    """Read numbers, or text with numbers, as times.

    A double that is the closest one to a number of microseconds is that number.

    Returns:
      times: timestamp('us'), NULL for what is no number or beyond the calendar.
      cut: bool [rows]; whether digits beyond microseconds were left out.
    """
    if pa.types.is_floating(column.type):
        return _of_doubles(column.cast(pa.float64()), unit)
    text = column.cast(pa.string())
    times, cut = _of_digits(text, unit)
    exponents = matching(text, _EXPONENT)
    if exponents.null_count < len(text):
        others, others_cut = _of_doubles(exponents.cast(pa.float64()), unit)
        times, cut = pc.coalesce(times, others), cut | others_cut
    return times, cut


def _of_digits(text: Any, unit: TimeUnit) -> tuple[Any, NDArray[np.bool_]]:
    found: Any = pc.extract_regex(text, _DIGITS)
    sign, whole, part = (pc.struct_field(found, at) for at in range(3))
    has_digits = pc.greater(pc.add(pc.binary_length(whole), pc.binary_length(part)), pa.scalar(0))
    if unit.decimals < 0:
        kept = pc.utf8_slice_codeunits(whole, 0, unit.decimals)
        rest = pc.binary_join_element_wise(pc.utf8_slice_codeunits(whole, unit.decimals), part, "")
    else:
        padded = pc.utf8_rpad(part, unit.decimals, "0")
        kept = pc.binary_join_element_wise(
            whole, pc.utf8_slice_codeunits(padded, 0, unit.decimals), ""
        )
        rest = pc.utf8_slice_codeunits(part, unit.decimals)
    digits = pc.utf8_ltrim(kept, "0")
    is_held = pc.and_(has_digits, pc.less_equal(pc.binary_length(digits), pa.scalar(_DIGITS_MAX)))
    cut = np.asarray(pc.and_(is_held, pc.match_substring_regex(rest, "[1-9]")).fill_null(False))
    has_none = pc.equal(digits, pa.scalar(""))  # Of microseconds, or zeros alone.
    size = where(pc.if_else(has_none, "0", where(digits, is_held)).cast(pa.int64()), is_held)
    below = pc.negate(pc.add(size, pa.array(cut.astype(np.int64))))  # Down is away from 0.
    is_below = pc.equal(sign, pa.scalar("-"))
    return pc.if_else(is_below, below, size).cast(_MOMENT), cut


def _of_doubles(column: Any, unit: TimeUnit) -> tuple[Any, NDArray[np.bool_]]:
    numbers = np.asarray(column.fill_null(np.nan))
    is_held = np.abs(numbers) < 10.0 ** (_DIGITS_MAX - unit.decimals)
    numbers = np.where(is_held, numbers, 0.0)
    per = 10.0 ** abs(unit.decimals)
    micros = numbers * per if unit.decimals >= 0 else numbers / per
    nearest = np.rint(micros)
    back = nearest / per if unit.decimals >= 0 else nearest * per
    cut = (back != numbers) & is_held
    whole = np.where(cut, np.floor(micros), nearest).astype(np.int64)
    return pa.array(whole, mask=~is_held).cast(_MOMENT), cut
