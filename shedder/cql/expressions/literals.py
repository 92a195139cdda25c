"""Constants: numbers and strings as written, and parameters as bound, to `Literal`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Literal
from shedder.cql.text.durations import (
    INT32_MAX,
    INT64_MAX,
    date_days,
    datetime_us,
    day_number,
    timestamp_us,
)
from shedder.errors import BadQuery

Parameters = Sequence[Any] | Mapping[str, Any]

_Number = TypeVar("_Number", int, float)

NULL = Literal(None)
_TRUE = {"true", "t", "yes", "on", "1"}
_FALSE = {"false", "f", "no", "off", "0"}


def number(text: str, *, negative: bool = False) -> Literal:
    """A numeric literal: BIGINT when it is written as a whole number, else DOUBLE.

    Raises:
      ValueError: it fits neither.
    """
    sign = -1 if negative else 1
    try:
        whole = sign * int(text)
    except ValueError:
        value = sign * float(text)
        if math.isinf(value):
            raise ValueError(f"{text} does not fit a DOUBLE") from None
        return Literal(value, ColumnType.DOUBLE)
    return integer(whole)


def integer(value: int) -> Literal:
    """A BIGINT.

    Raises:
      ValueError: it does not fit 64 bits.
    """
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise ValueError(f"{value} does not fit a BIGINT; write {value}.0 for a DOUBLE")
    return Literal(value, ColumnType.BIGINT)


def double(value: float) -> Literal:
    """A DOUBLE; NaN is NULL."""
    return NULL if math.isnan(value) else Literal(value, ColumnType.DOUBLE)


def converted(text: str, kind: ColumnType) -> Literal:
    """The constant that a string means as another type: TIMESTAMP '...', CAST('5' AS BIGINT).

    Raises:
      ValueError: it means none.
    """
    match kind:
        case ColumnType.VARCHAR:
            return Literal(text, kind)
        case ColumnType.TIMESTAMP:
            return Literal(timestamp_us(text), kind)
        case ColumnType.DATE:
            return Literal(date_days(text), kind)
        case ColumnType.BOOLEAN:
            word = text.strip().lower()
            if word not in _TRUE | _FALSE:
                raise ValueError(f"{text!r} is not a BOOLEAN; write TRUE or FALSE")
            return Literal(word in _TRUE, kind)
        case ColumnType.DOUBLE:
            return double(_read(float, text, kind))
        case ColumnType.INTEGER:
            whole = _read(int, text, kind)
            if not -INT32_MAX - 1 <= whole <= INT32_MAX:
                raise ValueError(f"{text} does not fit an INTEGER; make it a BIGINT")
            return Literal(whole, kind)
        case _:
            return Literal(integer(_read(int, text, kind)).value, kind)


def _read(reader: Callable[[str], _Number], text: str, kind: ColumnType) -> _Number:
    try:
        return reader(text)
    except ValueError:
        raise ValueError(f"{text!r} is no {kind.value}") from None


def bound(value: Any) -> Literal:
    """A parameter's value as a constant; a timedelta is its microseconds.

    Raises:
      ValueError: no type of ours holds it.
    """
    if hasattr(value, "as_py"):  # a pyarrow scalar
        value = value.as_py()
    elif isinstance(value, (np.datetime64, np.timedelta64)):  # Of nanoseconds item is a number.
        value = _in_micros(value)
    elif hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a numpy scalar
        value = value.item()
    match value:
        case None:
            return NULL
        case bool():
            return Literal(value, ColumnType.BOOLEAN)
        case int():
            return integer(value)
        case float() | Decimal():
            return double(float(value))
        case str():
            _encodable(value)
            return Literal(value, ColumnType.VARCHAR)
        case datetime():
            return Literal(datetime_us(value), ColumnType.TIMESTAMP)
        case date():
            return Literal(day_number(value), ColumnType.DATE)
        case timedelta():
            return integer(value // timedelta(microseconds=1))
    raise ValueError(f"a parameter cannot be a {type(value).__name__}: {value!r:.80}")


def _in_micros(value: np.datetime64 | np.timedelta64) -> datetime | timedelta | int | None:
    """A moment or duration of numpy as Python's, as a number where that has none; NaT is None."""
    if np.isnat(value):
        return None
    wanted = np.dtype(f"{value.dtype.kind}8[us]")
    if not np.can_cast(value.dtype, wanted, "same_kind"):
        raise ValueError(f"{value!r} is of no fixed length")
    micros = value.astype(wanted)
    if np.can_cast(value.dtype, wanted, "safe") and micros.astype(value.dtype) != value:
        raise ValueError(f"{value!r} is more than 2^63 microseconds")
    found: datetime | timedelta | int = micros.item()
    if isinstance(found, int) and wanted.kind == "M":
        raise ValueError(f"{value!r} is outside of the years 1 to 9999")
    return found


def _encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the text {text!r:.80} is not valid Unicode") from None


class Bindings:
    """The values of `?`, `$1` and `:name`; remembers which were used."""

    def __init__(self, parameters: Parameters | None) -> None:
        self._parameters = parameters
        self._used: set[int | str] = set()

    def value(self, mark: str) -> Literal:
        """The constant for a mark: `?3` and `$3` are the third, `:name` is by name.

        Raises:
          BadQuery: there is none, or its value cannot be bound.
        """
        try:
            return bound(self._find(mark))
        except ValueError as error:
            raise BadQuery(f"parameter {self._shown(mark)}: {error}") from error

    def check_used(self) -> None:
        """Refuse parameters that no mark asked for.

        Raises:
          BadQuery: names them.
        """
        if isinstance(self._parameters, Mapping):
            spare = [str(name) for name in self._parameters if name not in self._used]
        else:
            given = range(len(self._parameters or ()))
            spare = [f"number {index + 1}" for index in given if index not in self._used]
        if spare:
            raise BadQuery(f"the statement has no mark for parameter {', '.join(spare)}")

    def _find(self, mark: str) -> Any:
        key: int | str = mark[1:] if mark[0] == ":" else int(mark[1:]) - 1
        shown = self._shown(mark)
        if self._parameters is None:
            raise BadQuery(f"parameter {shown} has no value; none were given")
        if isinstance(self._parameters, Mapping):
            if key not in self._parameters:
                raise BadQuery(f"parameter {shown} has no value; parameters were given by name")
            self._used.add(key)
            return self._parameters[str(key)]
        if isinstance(key, str):
            raise BadQuery(f"parameter {shown} has no value; parameters were given in a list")
        if not 0 <= key < len(self._parameters):
            raise BadQuery(f"parameter {shown} has no value; {len(self._parameters)} were given")
        self._used.add(key)
        return self._parameters[key]

    @staticmethod
    def _shown(mark: str) -> str:
        return f"number {mark[1:]}" if mark[0] == "?" else mark
