"""Exact counts of single values: distinct values, sets, joins, lists of values.

Questions share a pass as long as their groups and values have the same types. A tuple becomes a
row for each kind of question (groups and values of it), with a bit for each condition that it
meets; the bits of a value's rows are counted, and the counts of a group become its facts.
"""

# No SQL text comes from a caller: names are quoted, constants are typed, the rest is ours.
# ruff: noqa: S608

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    JOINS,
    LISTS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Expression,
)
from shedder.cql.sql.exact_query import SqlDialect, render
from shedder.queries.certification.claims import Case, Key
from spark_ingest.cases import CONDITIONS_MAX, Facts, condition_of, quoted, within

BY_VALUE = JOINS | SET_FUNCTIONS | LISTS | {AggregateFunction.COUNT_DISTINCT}
"""Aggregates that are not found beside others in one pass over the tuples."""

_KINDS_MAX = 16  # That a tuple becomes rows of: more would need more room for all of their values.
_BITS_MAX = 62  # Of a BIGINT, whose sign stays out of it.
_VALUE = "__value"  # No stream has columns that begin so.
_SPARK = {
    ColumnType.BOOLEAN: "BOOLEAN",
    ColumnType.INTEGER: "INT",
    ColumnType.BIGINT: "BIGINT",
    ColumnType.DOUBLE: "DOUBLE",
    ColumnType.VARCHAR: "STRING",
    ColumnType.TIMESTAMP: "TIMESTAMP_NTZ",
    ColumnType.DATE: "DATE",
}


@dataclass(slots=True)
class _Kind:
    """Questions with the same groups over the same values: both arguments of a join.

    bits: the conditions that tuples are counted by, each on one of the sides.
    """

    groups: tuple[Expression, ...]
    sides: tuple[Expression, ...]
    bits: list[tuple[int, str]] = field(default_factory=list)

    def count(self, condition: str, side: int = 0) -> int:
        """Return which count is that of the tuples that meet a condition."""
        if (side, condition) not in self.bits:
            self.bits.append((side, condition))
        return self.bits.index((side, condition))

    def mask(self, side: int) -> str:
        """The bits that a tuple has on one side."""
        bits = [
            f"CASE WHEN {condition} THEN {1 << at}L ELSE 0L END"
            for at, (of, condition) in enumerate(self.bits)
            if of == side
        ]
        return " | ".join(bits)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A fact of a kind's groups, in one of the pass's columns."""

    case: Case
    output: str
    fact: str
    kind: int
    column: int


@dataclass(slots=True)
class Pass:
    """Kinds whose groups and values have these types, and what is wanted of them.

    columns: SQL and place; it is made of c0, c1, ..., the counts of a value, and of their sums over
    the group, n0, n1, ...; those are shared. Some values are ranked by counts: r0, r1, ...
    claimed: by kind, values that answers have listed.
    """

    groups: tuple[ColumnType, ...]
    value: ColumnType
    kinds: list[_Kind] = field(default_factory=list)
    current: dict[Any, int] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)
    ranked: set[int] = field(default_factory=set)
    wanted: list[_Wanted] = field(default_factory=list)
    spans: list[tuple[int | None, int | None]] = field(default_factory=list)
    claimed: set[tuple[int, Any]] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Return whether its statement is as long as it should be."""
        conditions = sum(len(kind.bits) for kind in self.kinds)
        return len(self.kinds) >= _KINDS_MAX or conditions >= CONDITIONS_MAX

    def kind_of(self, groups: tuple[Expression, ...], sides: tuple[Expression, ...]) -> int:
        """The number of the kind with room for two conditions more."""
        number = self.current.get((groups, sides))
        if number is None or len(self.kinds[number].bits) > _BITS_MAX - 2:
            number = self.current[groups, sides] = len(self.kinds)
            self.kinds.append(_Kind(groups, sides))
        return number

    def want(self, case: Case, output: str, fact: str, kind: int, sql: str) -> None:
        """Have a fact found."""
        column = self.columns.setdefault(sql, len(self.columns))
        self.wanted.append(_Wanted(case, output, fact, kind, column))


def find_by_value(
    spark: SparkSession,
    relation: str,
    time_column: str,
    passes: Iterable[Pass],
    groups_of: Mapping[int, Mapping[Key, dict[str, Facts]]],
    done: Callable[[], None] = lambda: None,
) -> None:
    """Put what the cases claim of values into the facts of their groups.

    Of lists the counts of the values that they have, as `counts`, of TOP also of the most frequent
    values, as `best`, and of FREQUENT the values that are in truth, as `frequent`; of the others
    the number, as `value`.

    Args:
      spark: the session.
      relation: a view with the stream's columns and POSITION.
      time_column: the stream's event time.
      passes: over the tuples, of `passes_by_value`.
      groups_of: by the case's number: its true groups, with facts by output.
      done: called after each pass that has ended.
    """
    with tempfile.TemporaryDirectory(prefix="shedder-claims-") as scratch:
        for number, one in enumerate(passes):
            claims = Path(scratch) / f"{number}.parquet"
            pq.write_table(_claims_table(one), claims)
            table = spark.sql(_sql(one, relation, time_column, claims)).toArrow()
            _take(one, table, groups_of)
            done()


def _take(
    one: Pass, table: pa.Table, groups_of: Mapping[int, Mapping[Key, dict[str, Facts]]]
) -> None:
    kinds = table["k"].to_numpy()
    rows = [np.flatnonzero(kinds == kind).tolist() for kind in range(len(one.kinds))]
    parts = [_plain(table[f"g{at}"]) for at in range(len(one.groups))]
    keys: list[Key] = list(zip(*parts, strict=True)) if parts else [()] * table.num_rows
    read: dict[int, list[Any]] = {}
    for wanted in one.wanted:
        if wanted.column not in read:
            read[wanted.column] = _READERS[wanted.fact](table[f"f{wanted.column}"])
        groups = groups_of.get(wanted.case.number, {})
        for row in rows[wanted.kind]:
            if keys[row] in groups:
                facts = groups[keys[row]].setdefault(wanted.output, {})
                facts[wanted.fact] = read[wanted.column][row]


def passes_by_value(cases: Iterable[Case], time_column: str) -> Iterator[Pass]:
    """As few passes over the tuples as find all that judgeable cases claim of values."""
    gathered: dict[tuple[Any, ...], Pass] = {}
    for case in cases:
        condition = condition_of(case, time_column)
        for name, aggregate in case.aggregates():
            if aggregate.function not in BY_VALUE:
                continue
            assert aggregate.argument is not None, aggregate
            sides = (aggregate.argument, *((aggregate.second,) if aggregate.second else ()))
            kind = tuple(_type(group) for group in case.query.groups), _widest(sides)
            one = gathered.setdefault(kind, Pass(*kind))
            one.spans.append((case.answer.start_us, case.answer.end_us))
            _add(one, case, name, aggregate, condition, one.kind_of(case.query.groups, sides))
            if one.is_full:
                yield gathered.pop(kind)
    yield from gathered.values()


def _add(one: Pass, case: Case, name: str, aggregate: Aggregate, condition: str, kind: int) -> None:
    counted = one.kinds[kind]
    match aggregate.function:
        case AggregateFunction.COUNT_DISTINCT:
            one.want(case, name, "value", kind, f"count_if(c{counted.count(condition)} > 0)")
        case AggregateFunction.SELF_JOIN_SIZE:
            count = f"CAST(c{counted.count(condition)} AS DOUBLE)"
            one.want(case, name, "value", kind, f"coalesce(sum({count} * {count}), 0D)")
        case AggregateFunction.JOIN_SIZE:
            left, right = (f"CAST(c{counted.count(condition, at)} AS DOUBLE)" for at in (0, 1))
            one.want(case, name, "value", kind, f"coalesce(sum({left} * {right}), 0D)")
        case function if function in LISTS:
            at = counted.count(condition)
            listed = f"listed IS NOT NULL AND c{at} > 0"
            pair = f"named_struct('value', {_VALUE}, 'count', c{at})"
            one.want(
                case, name, "counts", kind, f"collect_list(CASE WHEN {listed} THEN {pair} END)"
            )
            for _, claim in case.claims(name):
                one.claimed.update((kind, item["value"]) for item in claim.value or [])
            if function is AggregateFunction.TOP:  # One more than there are listed, at least.
                lists = [claim.value or [] for _, claim in case.claims(name)]
                one.ranked.add(at)
                met = f"r{at} <= {1 + max(map(len, lists), default=0)} AND c{at} > 0"
                best = f"collect_list(CASE WHEN {met} THEN {pair} END)"
                one.want(case, name, "best", kind, best)
            if function is AggregateFunction.FREQUENT:
                assert aggregate.parameter is not None
                share = Fraction(repr(aggregate.parameter))
                one.shared.add(at)
                wide = f"CAST(c{at} AS DECIMAL(38, 0)) * {share.denominator}"
                least = f"CAST(n{at} AS DECIMAL(38, 0)) * {share.numerator}"
                met = f"CASE WHEN c{at} > 0 AND {wide} >= {least} THEN {_VALUE} END"
                one.want(case, name, "frequent", kind, f"collect_list({met})")
        case function:
            first, second = (
                f"c{counted.count(_and(condition, each))} > 0" for each in aggregate.conditions
            )
            one.want(case, name, "value", kind, _of_sets(function, first, second))


def _and(condition: str, other: Expression) -> str:
    return f"({condition} AND coalesce({render(other, SqlDialect.SPARK)}, FALSE))"


def _of_sets(function: AggregateFunction, first: str, second: str) -> str:
    both = f"count_if({first} AND {second})"
    match function:
        case AggregateFunction.DISTINCT_BOTH:
            return both
        case AggregateFunction.DISTINCT_ONLY:
            return f"count_if({first} AND NOT {second})"
        case AggregateFunction.JACCARD:
            return f"try_divide(CAST({both} AS DOUBLE), count_if({first} OR {second}))"
        case _:
            raise AssertionError(function)


def _claims_table(one: Pass) -> pa.Table:
    """The values that answers have listed, by kind."""
    claimed = list(one.claimed)
    return pa.table(
        {
            "__kind": pa.array([kind for kind, _ in claimed], pa.int32()),
            "listed": pa.array([value for _, value in claimed], one.value.arrow),
        }
    )


def _sql(one: Pass, relation: str, time_column: str, claims: Path) -> str:
    """Tuples to a row for each kind, rows to values and their counts, these to groups' facts."""
    needed: dict[str, str] = {}

    def name(sql: str) -> str:
        return needed.setdefault(sql, f"e{len(needed)}")

    rows = [
        [str(number), *map(name, _cells(one, kind, side))]
        for number, kind in enumerate(one.kinds)
        for side in range(len(kind.sides))
    ]
    keys = ["k", *(f"g{at}" for at in range(len(one.groups)))]
    named = ", ".join(f"{sql} AS {alias}" for sql, alias in needed.items())
    tuples = f"SELECT {named} FROM {quoted(relation)} WHERE {within(one.spans, time_column)}"
    stacked = f"stack({len(rows)}, {', '.join(cell for row in rows for cell in row)})"
    bits = range(max(len(kind.bits) for kind in one.kinds))
    counts = [f"count_if((mask & {1 << at}L) <> 0) AS c{at}" for at in bits]
    values = (
        f"SELECT {', '.join([*keys, _VALUE, *counts])} FROM ({tuples}) AS t LATERAL VIEW {stacked} "
        f"AS {', '.join([*keys, _VALUE, 'mask'])} WHERE mask <> 0 AND {_VALUE} IS NOT NULL "
        f"GROUP BY {', '.join([*keys, _VALUE])}"
    )
    if one.shared or one.ranked:
        part = f"PARTITION BY {', '.join(keys)}"
        more = [f"sum(c{at}) OVER ({part}) AS n{at}" for at in sorted(one.shared)]
        order = "row_number() OVER ({} ORDER BY c{} DESC) AS r{}"
        more += [order.format(part, at, at) for at in sorted(one.ranked)]
        values = f"SELECT *, {', '.join(more)} FROM ({values}) AS w"
    if one.claimed:
        same = f"k = __kind AND {_VALUE} <=> listed"
        values = f"SELECT * FROM ({values}) AS w LEFT JOIN parquet.`{claims}` ON {same}"
    else:
        values = f"SELECT *, NULL AS listed FROM ({values}) AS w"
    facts = [f"{sql} AS f{at}" for sql, at in one.columns.items()]
    return f"SELECT {', '.join([*keys, *facts])} FROM ({values}) AS c GROUP BY {', '.join(keys)}"


def _cells(one: Pass, kind: _Kind, side: int) -> Iterator[str]:
    """What a tuple's row of a kind is made of: groups, value and mask."""
    for group, of in zip(kind.groups, one.groups, strict=True):
        yield f"CAST({render(group, SqlDialect.SPARK)} AS {_SPARK[of]})"
    yield f"CAST({render(kind.sides[side], SqlDialect.SPARK)} AS {_SPARK[one.value]})"
    yield kind.mask(side)


def _type(expression: Expression) -> ColumnType:
    assert expression.type is not None, expression
    return expression.type


def _widest(sides: tuple[Expression, ...]) -> ColumnType:
    """The type that both arguments of a join are compared in."""
    types = {_type(side) for side in sides}
    if len(types) == 1:
        return types.pop()
    return ColumnType.DOUBLE if ColumnType.DOUBLE in types else ColumnType.BIGINT


def _counts(column: pa.ChunkedArray[Any]) -> list[dict[Any, int]]:
    """By value, how often it is there; NaN is called None."""
    lists: Any = column.combine_chunks()
    pairs: Any = lists.flatten()
    values = _plain(pa.chunked_array([pairs.field("value")]))
    named = [None if value != value else value for value in values]  # noqa: PLR0124 (NaN)
    counted = list(zip(named, pairs.field("count").to_pylist(), strict=True))
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy()).tolist()
    return [dict(counted[first:last]) for first, last in zip([0, *ends], ends, strict=False)]


def _listed(column: pa.ChunkedArray[Any]) -> list[list[Any]]:
    """The values of each list."""
    lists: Any = column.combine_chunks()
    values = _plain(pa.chunked_array([lists.flatten()]))
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy()).tolist()
    return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _plain(column: pa.ChunkedArray[Any]) -> list[Any]:
    """Keys as answers have them: timestamps without a zone."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    return column.to_pylist()


_READERS: Mapping[str, Callable[[pa.ChunkedArray[Any]], list[Any]]] = MappingProxyType(
    {"value": _plain, "counts": _counts, "best": _counts, "frequent": _listed}
)
