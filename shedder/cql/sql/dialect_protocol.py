"""Protocol of SQL dialects that evaluate CQL expressions."""

from __future__ import annotations

from typing import Protocol

from shedder.cql.expressions.column_types import ColumnType

INT64_MIN = -(1 << 63)


class EngineSql(Protocol):
    """One engine's words. Arguments and results are SQL expressions in brackets or atoms.

    Integer arithmetic is on BIGINT and gives NULL on overflow; DOUBLE arithmetic may give NaN,
    which the caller makes NULL with `not_nan`.
    """

    def type_name(self, kind: ColumnType) -> str:
        """The engine's name of a type."""

    def name(self, name: str) -> str:
        """A quoted identifier."""

    def all_but(self, *columns: str) -> str:
        """Return all columns in a select list, without some, which are given as SQL."""

    def text(self, value: str) -> str:
        """A string constant."""

    def column(self, name: str, kind: ColumnType, /) -> str:
        """A column of the stream as a value; NaN not yet removed."""

    def timestamp(self, us: str) -> str:
        """A TIMESTAMP from microseconds; NULL where the engine has no such time."""

    def timestamp_constant(self, us: int) -> str:
        """A constant TIMESTAMP that the engine can compare with statistics of files."""

    def microseconds(self, timestamp: str) -> str:
        """Microseconds from a TIMESTAMP."""

    def date(self, days: str) -> str:
        """A DATE from days, an INTEGER."""

    def days(self, date: str) -> str:
        """Days from a DATE, an INTEGER or BIGINT."""

    def add(self, left: str, right: str) -> str:
        """The sum of BIGINTs."""

    def subtract(self, left: str, right: str) -> str:
        """The difference of BIGINTs."""

    def multiply(self, left: str, right: str) -> str:
        """The product of BIGINTs."""

    def remainder(self, left: str, right: str) -> str:
        """The remainder of BIGINTs; `right` is never zero, but may be NULL or -1."""

    def not_nan(self, value: str) -> str:
        """A DOUBLE with NULL in place of NaN."""

    def not_nan_column(self, column: str) -> str:
        """As `not_nan`, of a column, whose name the result may repeat."""

    def floor(self, value: str) -> str:
        """The floor of a DOUBLE, a DOUBLE."""

    def ceiling(self, value: str) -> str:
        """The ceiling of a DOUBLE, a DOUBLE."""

    def round(self, value: str, digits: int) -> str:
        """A DOUBLE rounded half away from zero, as evaluate.py does it."""

    def double_to_integer(self, value: str, kind: ColumnType) -> str:
        """The whole part of a DOUBLE as INTEGER or BIGINT; NULL outside its range."""

    def narrow(self, value: str) -> str:
        """A BIGINT as INTEGER; NULL outside its range."""

    def number_in(self, text: str, regex: str, kind: ColumnType) -> str:
        """The number that a whole text is, or NULL if the text is not of the regex's shape."""

    def try_cast(self, value: str, kind: ColumnType) -> str:
        """A cast that gives NULL where it cannot be done."""

    def like(self, value: str, pattern: str) -> str:
        """LIKE with the backslash as escape; the pattern is plain text, not SQL."""

    def formatted(self, timestamp: str, form: str) -> str:
        """STRFTIME; the format is plain text, not SQL."""

    def truncate(self, unit: str, timestamp: str) -> str:
        """DATE_TRUNC, weeks from Monday."""

    def part(self, unit: str, timestamp: str) -> str:
        """EXTRACT: a BIGINT, for EPOCH a DOUBLE."""
