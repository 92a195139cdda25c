"""Ranges and truths: what a value that is not known for certain can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from synopses.model.estimate import Bound, Estimates

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_EXACT_INT = float(2**53)  # nearer to zero no integer becomes another one as float64


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """The outcomes that a numeric expression can have, per row.

    low, high: float64 [rows], outward rounded; with `value` the value can be anything between.
    value: bool [rows], it can be a value. null: bool [rows], it can be NULL.
    """

    low: Floats
    high: Floats
    value: Mask
    null: Mask

    @classmethod
    def unknown(cls, rows: int) -> Self:
        """Any value, or NULL."""
        yes = np.ones(rows, np.bool_)
        return cls(np.full(rows, -np.inf), np.full(rows, np.inf), yes, yes)

    @classmethod
    def never(cls, rows: int) -> Self:
        """No outcome at all: the neutral element of `either`."""
        no = np.zeros(rows, np.bool_)
        return cls(np.full(rows, np.inf), np.full(rows, -np.inf), no, no)

    @classmethod
    def of_estimates(cls, estimates: Estimates) -> Self:
        """What the estimates leave open; not for text and lists."""
        exact = estimates.bound == Bound.EXACT
        open_ = estimates.bound == Bound.NONE
        low = np.where(open_, -np.inf, outward(estimates.low, -np.inf))
        high = np.where(open_, np.inf, outward(estimates.high, np.inf))
        return cls(low, high, ~(estimates.null & exact), estimates.null | open_)

    def where(self, mask: Mask, other: Range) -> Range:
        """These rows where mask is true, the other's elsewhere."""
        return Range(
            np.where(mask, self.low, other.low),
            np.where(mask, self.high, other.high),
            np.where(mask, self.value, other.value),
            np.where(mask, self.null, other.null),
        )

    def either(self, other: Range) -> Range:
        """The outcomes of one or the other."""
        low, high = self.ends(np.inf, -np.inf)
        other_low, other_high = other.ends(np.inf, -np.inf)
        return Range(
            np.minimum(low, other_low),
            np.maximum(high, other_high),
            self.value | other.value,
            self.null | other.null,
        )

    def when(self, mask: Mask) -> Range:
        """These outcomes where mask is true, none elsewhere."""
        return self.where(mask, Range.never(len(mask)))

    def ends(self, low: float, high: float) -> tuple[Floats, Floats]:
        """Both ends, with these in place of the ends of rows that can be no value."""
        return np.where(self.value, self.low, low), np.where(self.value, self.high, high)


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """The outcomes that a condition can have, per row: TRUE, FALSE, NULL (bool [rows] each)."""

    true: Mask
    false: Mask
    null: Mask

    @classmethod
    def unknown(cls, rows: int) -> Self:
        """Anything."""
        yes = np.ones(rows, np.bool_)
        return cls(yes, yes, yes)

    def where(self, mask: Mask, other: Truth) -> Truth:
        """These rows where mask is true, the other's elsewhere."""
        return Truth(
            np.where(mask, self.true, other.true),
            np.where(mask, self.false, other.false),
            np.where(mask, self.null, other.null),
        )

    def negated(self) -> Truth:
        """NOT."""
        return Truth(self.false, self.true, self.null)

    def both(self, other: Truth) -> Truth:
        """AND, three-valued."""
        nulls = (self.null & (other.true | other.null)) | (other.null & (self.true | self.null))
        return Truth(self.true & other.true, self.false | other.false, nulls)

    def any_of(self, other: Truth) -> Truth:
        """OR, three-valued, by De Morgan."""
        return self.negated().both(other.negated()).negated()

    def as_range(self) -> Range:
        """The condition as the number 0 or 1."""
        return Range(
            np.where(self.false, 0.0, 1.0),
            np.where(self.true, 1.0, 0.0),
            self.true | self.false,
            self.null,
        )


Outcomes = Range | Truth


def of_array(array: pa.Array[Any]) -> Outcomes | None:
    """Known values as outcomes of width zero; None for text."""
    null = _mask(array.is_null())
    kind = array.type
    if pa.types.is_boolean(kind):
        true = _mask(array.fill_null(False))
        return Truth(true, ~true & ~null, null)
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date(kind):
        array = array.cast(pa.int32())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    numbers: NDArray[Any] = array.fill_null(0).to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        null = null | np.isnan(numbers)
        numbers = np.where(null, 0.0, numbers)
    return Range(outward(numbers, -np.inf), outward(numbers, np.inf), ~null, null)


def outward(numbers: NDArray[Any], towards: float) -> Floats:
    """As float64, moved one step towards -inf or inf where an integer is not representable."""
    floats = np.asarray(numbers, np.float64)
    if numbers.dtype.kind == "f" or not len(floats):
        return floats
    big = np.abs(floats) >= _EXACT_INT
    return np.where(big, np.nextafter(floats, towards), floats) if big.any() else floats


def _mask(array: pa.Array[Any]) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask.astype(np.bool_, copy=False)
