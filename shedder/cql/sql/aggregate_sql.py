"""Aggregates in the words of DuckDB and Spark, with the meaning of docs/cql.md.

Arguments are columns without NaN. Infinities are values: a sum over one sign is infinite, over
both NULL; a variance over any is NULL. What finite values have beyond the range of DOUBLE is NaN,
which no other answer is. Integers are summed exactly.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.sql.integer_moments import integer_pairs, integer_variance
from synopses.model.overflow import SQUARES_MIN

_DECIMAL_DIGITS_MAX = 30
NAN = "CAST('NaN' AS DOUBLE)"
_INFINITY = "CAST('Infinity' AS DOUBLE)"
_ENDS = (("max", ""), ("min", "-"))


class AggregateSql(Protocol):
    """What exact_sql asks of an engine."""

    def sum(self, value: str, kind: ColumnType) -> str:
        """SUM: BIGINT or NULL for integers, DOUBLE for DOUBLE."""

    def average(self, value: str, kind: ColumnType) -> str:
        """AVG, a DOUBLE."""

    def variance(self, value: str, kind: ColumnType) -> str:
        """VAR of the sample, a DOUBLE; NULL for less than two values."""

    def pairs(
        self, function: AggregateFunction, first: str, second: str, *, whole: tuple[bool, bool]
    ) -> str:
        """A function of OF_PAIRS, as `of_pairs`; whole: which columns are whole numbers."""

    def by_time(self, value: str, *, last: bool) -> str:
        """The value at the smallest or largest (t, p), where it is not NULL."""

    def quantile(self, value: str, q: float) -> str:
        """The value of rank max(1, ceil(q * n)), with q the decimal number that was written."""

    def different(self, value: str) -> str:
        """Return how many different values there are, where `both` is asked beside it."""

    def both(self, left: str, right: str) -> str:
        """Return how many different values of one column are in the other, too."""

    def top(self, k: int) -> str:
        """The first k of (v, n) by n from the largest, then v from the smallest, as a list."""

    def wide(self, count: str) -> str:
        """A count as an integer whose product with another has room."""


def _decimal(q: float) -> str:
    """q as it was written, so that 0.07 of 100 is the 7th."""
    shown = f"{Decimal(repr(q)):f}"
    return shown if len(shown) <= _DECIMAL_DIGITS_MAX else repr(q)


def of_pairs(function: AggregateFunction, first: str, second: str, found: str | None = None) -> str:
    """A function of OF_PAIRS of two columns of numbers, in either's words.

    found: what it is over finite values; None: the engine's own function, of DOUBLE.
    Over any infinity, over nothing and where a column that is divided by is constant: NULL. Where
    the squares, or the sums of an intercept's means, are beyond the range of DOUBLE: NaN, which no
    other answer is.
    """
    x = f"CASE WHEN {second} IS NOT NULL THEN {first} END"
    y = f"CASE WHEN {first} IS NOT NULL THEN {second} END"
    divided = {
        AggregateFunction.CORR: (x, y),
        AggregateFunction.REGR_SLOPE: (y,),
        AggregateFunction.REGR_INTERCEPT: (y,),
    }
    refused = [f"max(abs({part})) = {_INFINITY}" for part in (x, y)]
    constant = divided.get(function, ())
    refused += [f"min({part}) = max({part})" for part in constant]
    found = f"{function.value.lower()}({x}, {y})"
    value = found
    if function is AggregateFunction.CORR:  # Rounding may take it past its ends.
        value = f"greatest(CAST(-1 AS DOUBLE), least(CAST(1 AS DOUBLE), {found}))"
    # NaN is above infinity in both.
    known = f"WHEN abs({found}) < {_INFINITY} THEN {value}"
    # Of columns that vary a NULL is lost as well: that is how engines say that a slope was.
    lost = [f"{found} IS NOT NULL", *(f"min({part}) < max({part})" for part in constant)]
    beyond = f"WHEN {' OR '.join(lost)} THEN {NAN}"
    return f"CASE WHEN {' OR '.join(refused)} THEN NULL {known} {beyond} END"


def added(value: str, *, finite: str, both: str = "NULL") -> str:
    """A sum or mean of DOUBLE, in either's words: NaN where finite values leave their range.

    Args:
      value: what is added.
      finite: the answer where it is finite; neither finite nor NULL where the sum is not.
      both: the answer where infinities of both signs meet.
    """
    above, below = (f"{end}({value}) = {sign}{_INFINITY}" for end, sign in _ENDS)
    return (
        f"CASE WHEN abs({finite}) < {_INFINITY} THEN {finite} "
        f"WHEN {above} AND {below} THEN {both} "
        f"WHEN {above} THEN {_INFINITY} WHEN {below} THEN -{_INFINITY} "
        f"WHEN {finite} IS NOT NULL THEN {NAN} END"
    )


def _variance(number: str) -> str:
    """VAR of a column of DOUBLE, in either's words: NaN where the squares are out of range."""
    found, rest = f"var_samp({number})", f"(count({number}) - 1)"
    refused = f"{rest} < 1 OR max(abs({number})) = {_INFINITY}"
    constant = f"WHEN min({number}) = max({number}) THEN CAST(0 AS DOUBLE)"
    squares = f"{found} * {rest}"
    inside = f"{squares} >= {SQUARES_MIN!r} AND {squares} < {_INFINITY}"
    return f"CASE WHEN {refused} THEN NULL {constant} WHEN {inside} THEN {found} ELSE {NAN} END"


class DuckDbAggregates:
    """Implements AggregateSql for DuckDB 2."""

    def sum(self, value: str, kind: ColumnType) -> str:
        """Kahan's sum, which infinities would make NaN; HUGEINT for integers."""
        if kind is not ColumnType.DOUBLE:
            return f"TRY_CAST(sum({value}) AS BIGINT)"
        return added(value, finite=f"fsum({value})")

    def average(self, value: str, kind: ColumnType) -> str:
        """As the sum."""
        if kind is not ColumnType.DOUBLE:
            return f"avg({value})"
        return added(value, finite=f"favg({value})")

    def variance(self, value: str, kind: ColumnType) -> str:
        """Welford's; of BIGINT, which DOUBLE does not hold, by sums in 128 bits."""
        if kind is ColumnType.BIGINT:
            return integer_variance(value)
        return _variance(value if kind is ColumnType.DOUBLE else f"CAST({value} AS DOUBLE)")

    def pairs(
        self, function: AggregateFunction, first: str, second: str, *, whole: tuple[bool, bool]
    ) -> str:
        """Of whole numbers by sums in 128 bits."""
        if not any(whole):
            return of_pairs(function, first, second)
        x, y = (
            f"CAST({part} AS BIGINT)" if each else part
            for part, each in zip((first, second), whole, strict=True)
        )
        there = f"CASE WHEN {y} IS NOT NULL THEN {x} END", f"CASE WHEN {x} IS NOT NULL THEN {y} END"
        return integer_pairs(function, *there, whole=whole)

    def by_time(self, value: str, *, last: bool) -> str:
        """Rows whose value is NULL are passed over."""
        return f"{'arg_max' if last else 'arg_min'}({value}, {{'t': t, 'p': p}})"

    def quantile(self, value: str, q: float) -> str:
        """A decimal q is multiplied exactly."""
        return f"quantile_disc({value}, {_decimal(q)})"

    def different(self, value: str) -> str:
        """count(DISTINCT)."""
        return f"count(DISTINCT {value})"

    def both(self, left: str, right: str) -> str:
        """Lists of the values; of no values there is no list."""
        lists = (f"list(DISTINCT {v}) FILTER ({v} IS NOT NULL)" for v in (left, right))
        return f"coalesce(len(list_intersect({', '.join(lists)})), 0)"

    def top(self, k: int) -> str:
        """A slice of an ordered list."""
        return f"list({{'value': v, 'count': n}} ORDER BY n DESC, v)[1:{k}]"

    def wide(self, count: str) -> str:
        """128 bits."""
        return f"CAST({count} AS HUGEINT)"


class SparkAggregates:
    """Implements AggregateSql for Spark 4."""

    def sum(self, value: str, kind: ColumnType) -> str:
        """Decimals for integers: a BIGINT sum would wrap or err."""
        if kind is not ColumnType.DOUBLE:
            return f"try_cast(sum(CAST({value} AS DECIMAL(38, 0))) AS BIGINT)"
        return added(value, finite=f"sum({value})")

    def average(self, value: str, kind: ColumnType) -> str:
        """Integers by their exact sum."""
        if kind is not ColumnType.DOUBLE:
            total = f"CAST(sum(CAST({value} AS DECIMAL(38, 0))) AS DOUBLE)"
            return f"({total} / nullif(count({value}), 0L))"
        return added(value, finite=f"avg({value})")

    def variance(self, value: str, kind: ColumnType) -> str:
        """As DuckDB's of DOUBLE."""
        return _variance(value if kind is ColumnType.DOUBLE else f"CAST({value} AS DOUBLE)")

    def pairs(
        self, function: AggregateFunction, first: str, second: str, *, whole: tuple[bool, bool]
    ) -> str:
        """Of DOUBLE."""
        numbers = (
            f"CAST({part} AS DOUBLE)" if each else part
            for part, each in zip((first, second), whole, strict=True)
        )
        return of_pairs(function, *numbers)

    def by_time(self, value: str, *, last: bool) -> str:
        """Rows whose order is NULL are passed over, those whose value is NULL are not."""
        order = f"CASE WHEN {value} IS NOT NULL THEN struct(t, p) END"
        return f"{'max_by' if last else 'min_by'}({value}, {order})"

    def quantile(self, value: str, q: float) -> str:
        """By sorting: percentile_disc takes no timestamps and gives BIGINTs as DOUBLE."""
        fraction = f"{_decimal(q)}BD" if "e" not in _decimal(q) else f"{q!r}D"
        rank = f"CAST(greatest(1, ceil({fraction} * count({value}))) AS INT)"
        return f"try_element_at(sort_array(collect_list({value})), {rank})"

    def different(self, value: str) -> str:
        """By the set: for a count(DISTINCT) beside it Spark would read each row once more."""
        return f"CAST(size(collect_set({value})) AS BIGINT)"

    def both(self, left: str, right: str) -> str:
        """Sets of the values; of no values they are empty."""
        common = f"array_intersect(collect_set({left}), collect_set({right}))"
        return f"CAST(size({common}) AS BIGINT)"

    def top(self, k: int) -> str:
        """Structs sort by their fields, so the count goes first and negative."""
        ordered = "sort_array(collect_list(struct(-n AS m, v AS v)))"
        item = "e -> struct(e.v AS value, -e.m AS count)"
        # collect_list of nothing is an empty list.
        return f"CASE WHEN count(*) > 0 THEN transform(slice({ordered}, 1, {k}), {item}) END"

    def wide(self, count: str) -> str:
        """38 digits."""
        return f"CAST({count} AS DECIMAL(38, 0))"


def set_sql(engine: AggregateSql, function: AggregateFunction, left: str, right: str) -> str:
    """A comparison of the values of two columns; NULLs are no values.

    Args:
      engine: whose words.
      function: one of SET_FUNCTIONS.
      left, right: columns that hold the values where p, and where q is true.
    """
    both = engine.both(left, right)
    match function:
        case AggregateFunction.DISTINCT_BOTH:
            return both
        case AggregateFunction.DISTINCT_ONLY:
            return f"({engine.different(left)} - {both})"
        case AggregateFunction.JACCARD:
            either = f"({engine.different(left)} + {engine.different(right)} - {both})"
            return f"(CAST({both} AS DOUBLE) / nullif({either}, 0))"
        case _:
            raise AssertionError(function)
