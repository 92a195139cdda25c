"""Spark's words. TIMESTAMP is Spark's type of that name, with the session in UTC."""

from __future__ import annotations

from collections.abc import Callable

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.text_functions import FORMAT_CODES, format_parts

_WHOLE_FROM = "9007199254740992D"  # 2^53: from here on every DOUBLE is a whole number
_TYPES = {
    ColumnType.BOOLEAN: "BOOLEAN",
    ColumnType.INTEGER: "INT",
    ColumnType.BIGINT: "BIGINT",
    ColumnType.DOUBLE: "DOUBLE",
    ColumnType.VARCHAR: "STRING",
    ColumnType.TIMESTAMP: "TIMESTAMP",
    ColumnType.DATE: "DATE",
}
# DOUBLEs whose whole part fits, as "at least" and "less than".
_RANGES = {
    ColumnType.INTEGER: ("-2147483648D", "2147483648D"),
    ColumnType.BIGINT: ("-9223372036854775808D", "9223372036854775808D"),
}
_PARTS = {
    "YEAR": "year({})",
    "QUARTER": "quarter({})",
    "MONTH": "month({})",
    "WEEK": "weekofyear({})",
    "DAY": "day({})",
    "DOY": "dayofyear({})",
    "DOW": "(dayofweek({}) - 1)",
    "ISODOW": "(weekday({}) + 1)",
    "HOUR": "hour({})",
    "MINUTE": "minute({})",
    "SECOND": "second({})",
    "MILLISECOND": "(pmod(unix_micros({}), 60000000L) div 1000L)",
    "MICROSECOND": "pmod(unix_micros({}), 60000000L)",
}


def _let(value: str, body: Callable[[str], str]) -> str:
    """Write a value once and use it many times: a lambda binds it."""
    name = f"v{len(value)}"  # An inner value is shorter than one that contains it.
    return f"element_at(transform(array({value}), {name} -> {body(name)}), 1)"


class Spark:
    """Implements EngineSql for Spark 4."""

    def type_name(self, kind: ColumnType) -> str:
        """VARCHAR is STRING, INTEGER is INT."""
        return _TYPES[kind]

    def name(self, name: str) -> str:
        """In backquotes."""
        return "`" + name.replace("`", "``") + "`"

    def all_but(self, *columns: str) -> str:
        """Return the star with EXCEPT."""
        return f"* EXCEPT ({', '.join(columns)})"

    def text(self, value: str) -> str:
        """A backslash escapes in Spark's strings."""
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def column(self, name: str, kind: ColumnType, /) -> str:
        """Parquet's timestamps without zone come as TIMESTAMP_NTZ."""
        quoted = self.name(name)
        return f"CAST({quoted} AS TIMESTAMP)" if kind is ColumnType.TIMESTAMP else quoted

    def timestamp(self, us: str) -> str:
        """timestamp_micros."""
        return f"timestamp_micros({us})"

    def timestamp_constant(self, us: int) -> str:
        """Folded by the optimizer."""
        return self.timestamp(f"CAST('{us}' AS BIGINT)")

    def microseconds(self, timestamp: str) -> str:
        """unix_micros."""
        return f"unix_micros({timestamp})"

    def date(self, days: str) -> str:
        """date_from_unix_date."""
        return f"date_from_unix_date({days})"

    def days(self, date: str) -> str:
        """unix_date."""
        return f"unix_date({date})"

    def add(self, left: str, right: str) -> str:
        """try_add makes the overflow NULL."""
        return f"try_add({left}, {right})"

    def subtract(self, left: str, right: str) -> str:
        """try_subtract makes the overflow NULL."""
        return f"try_subtract({left}, {right})"

    def multiply(self, left: str, right: str) -> str:
        """try_multiply makes the overflow NULL."""
        return f"try_multiply({left}, {right})"

    def remainder(self, left: str, right: str) -> str:
        """Java's, which gives 0 for the smallest BIGINT % -1."""
        return f"({left} % {right})"

    def not_nan(self, value: str) -> str:
        """nanvl."""
        return f"nanvl({value}, CAST(NULL AS DOUBLE))"

    def not_nan_column(self, column: str) -> str:
        """nanvl."""
        return self.not_nan(column)

    def floor(self, value: str) -> str:
        """Spark's own floor gives a BIGINT."""
        return _let(value, lambda v: self._by_integer("floor", v))

    def ceiling(self, value: str) -> str:
        """Spark's own ceil gives a BIGINT."""
        return _let(value, lambda v: self._by_integer("ceil", v))

    @staticmethod
    def _by_integer(function: str, v: str) -> str:
        return (
            f"CASE WHEN abs({v}) < {_WHOLE_FROM} THEN CAST({function}({v}) AS DOUBLE) ELSE {v} END"
        )

    def round(self, value: str, digits: int) -> str:
        """Spark's own round goes through decimals: 1.005 would be 1.01."""
        scale = f"CAST('1e{digits}' AS DOUBLE)"
        infinity = "CAST('Infinity' AS DOUBLE)"

        def rounded(v: str) -> str:
            scaled = f"(abs({v}) * {scale})"
            whole = self._by_integer("floor", scaled)
            half = f"CASE WHEN {scaled} - ({whole}) >= 0.5D THEN 1D ELSE 0D END"
            return (
                f"CASE WHEN {scaled} = {infinity} THEN {v} "
                f"ELSE signum({v}) * (({whole}) + ({half})) / {scale} END"
            )

        return _let(value, rounded)

    def double_to_integer(self, value: str, kind: ColumnType) -> str:
        """A cast truncates; outside the range it would saturate or err."""
        least, beyond = _RANGES[kind]
        name = _TYPES[kind]

        def whole(v: str) -> str:
            inside = f"{v} > {least} - 1D" if kind is ColumnType.INTEGER else f"{v} >= {least}"
            return f"CASE WHEN {inside} AND {v} < {beyond} THEN CAST({v} AS {name}) END"

        return _let(value, whole)

    def narrow(self, value: str) -> str:
        """try_cast knows the range."""
        return f"try_cast({value} AS INT)"

    def number_in(self, text: str, regex: str, kind: ColumnType) -> str:
        """No match gives the empty text, which is no number."""
        shape = self.text(rf"\A(?:{regex})\z")
        return f"try_cast(regexp_extract({text}, {shape}, 0) AS {_TYPES[kind]})"

    def try_cast(self, value: str, kind: ColumnType) -> str:
        """try_cast."""
        return f"try_cast({value} AS {_TYPES[kind]})"

    def like(self, value: str, pattern: str) -> str:
        """The backslash is the escape character."""
        return f"({value} LIKE {self.text(pattern)})"

    def formatted(self, timestamp: str, form: str) -> str:
        """date_format for each code, because equal letters side by side are one field of Java."""

        def written(v: str) -> str:
            parts = (
                f"date_format({v}, '{FORMAT_CODES[part]}')"
                if part in FORMAT_CODES
                else self.text(part.replace("%%", "%"))
                for part in format_parts(form)
            )
            return f"concat({', '.join(parts)})"

        return _let(timestamp, written)

    def truncate(self, unit: str, timestamp: str) -> str:
        """date_trunc."""
        return f"date_trunc('{unit}', {timestamp})"

    def part(self, unit: str, timestamp: str) -> str:
        """By the functions of Spark that are nearest."""
        if unit == "EPOCH":
            return f"(CAST(unix_micros({timestamp}) AS DOUBLE) / 1000000D)"
        return f"CAST({_PARTS[unit].format(timestamp)} AS BIGINT)"
