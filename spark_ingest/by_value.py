"""What needs each value counted by itself: distinct values, sets, joins, frequent values.

Questions with the same groups over the same values share a pass: every value's tuples are counted
once per question's condition, and the counts of a group then become its facts.
"""

# Nothing here is SQL that someone sent: names are quoted, constants are typed, the rest is ours.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from shedder.cql.expression import (
    JOINS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Expression,
)
from shedder.cql.render import SqlDialect, render
from shedder.queries.cases import Case, Key
from spark_ingest.cases import Facts, condition_of, quoted, within

BY_VALUE = JOINS | SET_FUNCTIONS | {AggregateFunction.FREQUENT, AggregateFunction.COUNT_DISTINCT}
"""Aggregates that are not found beside others in one pass over the tuples."""

# Above about a hundred aggregates in one statement, Spark no longer compiles them.
_COUNTS_MAX = 60
_VALUE = "__value"  # No stream has columns that begin so.


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A fact: its name, the SQL over a group's values that finds it, and which counts it needs."""

    case: Case
    output: str
    fact: str
    sql: str


@dataclass(slots=True)
class _Pass:
    """Counts of the tuples with each value, c0, c1 ..., and what is made of them.

    sides: the expressions whose values are counted; both arguments of a join. shared: the counts
    whose sum over the group is needed beside each value's own.
    """

    groups: tuple[Expression, ...]
    sides: tuple[Expression, ...]
    counts: list[str] = field(default_factory=list)
    shared: set[int] = field(default_factory=set)
    wanted: list[_Wanted] = field(default_factory=list)
    spans: list[tuple[int | None, int | None]] = field(default_factory=list)

    def count(self, condition: str, side: int | None = None) -> str:
        """The name of the count of tuples that meet a condition."""
        if side is not None:
            condition = f"__side = {side} AND {condition}"
        if condition not in self.counts:
            self.counts.append(condition)
        return f"c{self.counts.index(condition)}"


def find_by_value(
    spark: SparkSession,
    relation: str,
    time_column: str,
    cases: Iterable[Case],
    groups_of: Mapping[int, Mapping[Key, dict[str, Facts]]],
) -> int:
    """Put what the cases claim of values into the facts of their groups.

    Of FREQUENT the values that are in truth, as `frequent`; of the others the number, as `value`.

    Args:
      spark: the session.
      relation: a view with the stream's columns and POSITION.
      time_column: the stream's event time.
      cases: judgeable ones.
      groups_of: by the case's number: its true groups, with facts by output.

    Returns:
      How many passes over the tuples it took.
    """
    passes = 0
    for one in _passes(cases, time_column):
        table = spark.sql(_sql(one, relation, time_column)).toArrow()
        keys = [_plain(table[f"g{at}"]) for at in range(len(one.groups))]
        for at, wanted in enumerate(one.wanted):
            column = table[f"f{at}"]
            listed = wanted.fact == "frequent"
            values = _listed(column) if listed else column.to_pylist()
            groups = groups_of.get(wanted.case.number, {})
            for row, value in enumerate(values):
                key = tuple(part[row] for part in keys)
                if key in groups:
                    groups[key].setdefault(wanted.output, {})[wanted.fact] = value
        passes += 1
    return passes


def _passes(cases: Iterable[Case], time_column: str) -> Iterator[_Pass]:
    gathered: dict[tuple[Any, ...], _Pass] = {}
    for case in cases:
        condition = condition_of(case, time_column)
        for name, aggregate in case.aggregates():
            if aggregate.function not in BY_VALUE:
                continue
            assert aggregate.argument is not None, aggregate
            joined = aggregate.second is not None
            sides = (aggregate.argument, *((aggregate.second,) if aggregate.second else ()))
            kind = (case.query.groups, sides)
            one = gathered.setdefault(kind, _Pass(case.query.groups, sides))
            one.spans.append((case.answer.start_us, case.answer.end_us))
            _add(one, case, name, aggregate, condition, joined=joined)
            if len(one.counts) >= _COUNTS_MAX:
                yield gathered.pop(kind)
    yield from gathered.values()


def _add(
    one: _Pass, case: Case, name: str, aggregate: Aggregate, condition: str, *, joined: bool
) -> None:
    fact = "value"
    match aggregate.function:
        case AggregateFunction.COUNT_DISTINCT:
            sql = f"count_if({one.count(condition)} > 0)"
        case AggregateFunction.SELF_JOIN_SIZE:
            count = f"CAST({one.count(condition)} AS DOUBLE)"
            sql = f"coalesce(sum({count} * {count}), 0D)"
        case AggregateFunction.JOIN_SIZE:
            assert joined, aggregate
            left, right = (f"CAST({one.count(condition, side)} AS DOUBLE)" for side in (0, 1))
            sql = f"coalesce(sum({left} * {right}), 0D)"
        case AggregateFunction.FREQUENT:
            assert aggregate.parameter is not None
            share, fact = Fraction(repr(aggregate.parameter)), "frequent"
            count = one.count(condition)
            at = int(count.removeprefix("c"))
            one.shared.add(at)
            wide = f"CAST({count} AS DECIMAL(38, 0)) * {share.denominator}"
            least = f"CAST(n{at} AS DECIMAL(38, 0)) * {share.numerator}"
            sql = f"collect_list(CASE WHEN {count} > 0 AND {wide} >= {least} THEN {_VALUE} END)"
        case function:
            first, second = (
                one.count(f"({condition} AND coalesce({render(each, SqlDialect.SPARK)}, FALSE))")
                for each in aggregate.conditions
            )
            sql = _of_sets(function, f"{first} > 0", f"{second} > 0")
    one.wanted.append(_Wanted(case, name, fact, sql))


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


def _sql(one: _Pass, relation: str, time_column: str) -> str:
    """Tuples to values and their counts, these to groups and their facts."""
    keys = [f"g{at}" for at in range(len(one.groups))]
    named = [
        f"{render(group, SqlDialect.SPARK)} AS {key}"
        for group, key in zip(one.groups, keys, strict=True)
    ]
    sides = (
        f"SELECT *, {render(side, SqlDialect.SPARK)} AS {_VALUE}, {at} AS __side "
        f"FROM {quoted(relation)} WHERE {within(one.spans, time_column)}"
        for at, side in enumerate(one.sides)
    )
    counts = [f"count_if({condition}) AS c{at}" for at, condition in enumerate(one.counts)]
    by = ", ".join([*(render(group, SqlDialect.SPARK) for group in one.groups), _VALUE])
    values = (
        f"SELECT {', '.join([*named, _VALUE, *counts])} FROM ({' UNION ALL '.join(sides)}) AS t "
        f"WHERE {_VALUE} IS NOT NULL GROUP BY {by}"
    )
    if one.shared:
        part = f"PARTITION BY {', '.join(keys)}" if keys else ""
        totals = [f"sum(c{at}) OVER ({part}) AS n{at}" for at in sorted(one.shared)]
        values = f"SELECT *, {', '.join(totals)} FROM ({values}) AS w"
    facts = [f"{wanted.sql} AS f{at}" for at, wanted in enumerate(one.wanted)]
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *facts])} FROM ({values}) AS c{grouped}"


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
