"""Facts: what Spark must count to judge many cases, found in few passes over the data.

Cases with the same groups share a pass. Each case's conditions become a filter of its own
aggregates, and what an answer claims of a group (the ends of a quantile, the items of a list) is
joined to the group's rows, so that a quantile is judged by counting and nothing is sorted.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import BY_TIME, Aggregate, AggregateFunction, Expression
from shedder.cql.sql.aggregate_sql import of_pairs
from shedder.cql.sql.exact_query import POSITION, SqlDialect, render
from shedder.queries.certification.claims import Case, Key
from spark_ingest.cases import CONDITIONS_MAX, Facts, condition_of, quoted, within
from spark_ingest.runtime.spark_session import having
from spark_ingest.value_counts import BY_VALUE, find_by_value, passes_by_value

# Planning takes longer than counting when a statement is too long.
_FACTS_MAX = 200
# Statements with more columns than this, by itself 100, Spark interprets.
_COMPILED = "spark.sql.codegen.maxFields"
_COMPILED_COLUMNS = 10_000
_BITS_MAX = 62  # Of a BIGINT, whose sign stays out of it.
_MASK = "__m"  # And a number; no stream has columns that begin so.


@dataclass(slots=True)
class Truths:
    """Facts by case number, then by group, then by the output's name ('' has `rows` only).

    passes: over the tuples, that it took to find them.
    """

    passes: int = 0
    by_case: dict[int, dict[Key, dict[str, Facts]]] = field(default_factory=dict)

    def groups(self, case: Case) -> dict[Key, dict[str, Facts]]:
        """The groups that the case truly has."""
        return self.by_case.get(case.number, {})

    def of(self, first: int, cases: Iterable[Case]) -> Truths:
        """The facts of some cases that were looked at under numbers from `first` on."""
        found = {
            case.number: self.by_case[case.number + first]
            for case in cases
            if case.number + first in self.by_case
        }
        return Truths(self.passes, found)


@dataclass(frozen=True, slots=True)
class _Fact:
    """One fact of a pass, in one of its columns.

    output: the case's output that it is about; '' for the case itself.
    """

    case: Case
    output: str
    name: str
    column: int


@dataclass(slots=True)
class _Pass:
    """Cases with the same groups, the facts to find, and the claims to join.

    conditions: which tuples are in an answer, and place: bits of the tuple's masks.
    columns: SQL and place; what several facts need is found once.
    """

    groups: tuple[Expression, ...]
    conditions: dict[str, int] = field(default_factory=dict)
    facts: list[_Fact] = field(default_factory=list)
    columns: dict[str, int] = field(default_factory=dict)
    spans: list[tuple[int | None, int | None]] = field(default_factory=list)
    claims: dict[Key, dict[str, Any]] = field(default_factory=dict)
    types: dict[str, pa.DataType] = field(default_factory=dict)

    def look_at(self, case: Case) -> None:
        """Have the tuples of an answer read."""
        self.spans.append((case.answer.start_us, case.answer.end_us))

    @property
    def is_full(self) -> bool:
        """Return whether its statement is as long as it should be."""
        return len(self.columns) >= _FACTS_MAX or len(self.conditions) >= CONDITIONS_MAX

    def met(self, condition: str) -> str:
        """Build the SQL condition that a tuple is in an answer, by the masks."""
        word, bit = divmod(self.conditions.setdefault(condition, len(self.conditions)), _BITS_MAX)
        return f"({_MASK}{word} & {1 << bit}L) <> 0"

    @property
    def masks(self) -> list[str]:
        """The masks: each condition is looked at once."""
        met = list(self.conditions)
        words = [met[first : first + _BITS_MAX] for first in range(0, len(met), _BITS_MAX)]
        return [
            " | ".join(
                f"CASE WHEN {each} THEN {1 << at}L ELSE 0L END" for at, each in enumerate(word)
            )
            for word in words
        ]

    def find(self, case: Case, output: str, name: str, sql: str) -> None:
        """Have a fact found."""
        column = self.columns.setdefault(sql, len(self.columns))
        self.facts.append(_Fact(case, output, name, column))


Passed = Callable[[int, int], None]
"""Is told how many passes over the tuples have ended, and of how many."""


def find_truths(
    spark: SparkSession,
    relation: str,
    time_column: str,
    cases: Iterable[Case],
    passed: Passed = lambda _done, _of: None,
) -> Truths:
    """Find the facts of all judgeable cases.

    Args:
      spark: the session.
      relation: a view with the stream's columns and POSITION (baseline.relation).
      time_column: the stream's event time.
      cases: answers that hold no tuple beyond the relation.
      passed: is told how far it is.
    """
    cases, truths = [case for case in cases if case.judgeable], Truths()
    passes = list(_passes(cases, time_column))
    by_value = list(passes_by_value(cases, time_column))

    def done() -> None:
        truths.passes += 1
        passed(truths.passes, len(passes) + len(by_value))

    with (
        tempfile.TemporaryDirectory(prefix="shedder-claims-") as scratch,
        having(spark, _COMPILED, _COMPILED_COLUMNS),
    ):
        for number, one in enumerate(passes):
            file = Path(scratch) / f"{number}.parquet"
            pq.write_table(_claims_table(one), file)
            table = spark.sql(_sql(one, relation, time_column, file)).toArrow()
            _take(one, table, truths)
            done()
        find_by_value(spark, relation, time_column, by_value, truths.by_case, done)
    return truths


def _passes(cases: Iterable[Case], time_column: str) -> Iterator[_Pass]:
    """Of each case, the one which finds its groups comes first.

    What is kept of text, or of a tuple's place in time, has no fixed width, and a pass with any of
    it is aggregated row by row, without code of its own: such facts have passes for themselves.
    """
    fixed: dict[tuple[Expression, ...], _Pass] = {}
    varying: dict[tuple[Expression, ...], _Pass] = {}
    later: list[_Pass] = []
    for case in cases:
        groups = case.query.groups
        pair = fixed.setdefault(groups, _Pass(groups)), varying.setdefault(groups, _Pass(groups))
        _add(*pair, case, time_column)
        if pair[0].is_full:
            yield fixed.pop(groups)
        if pair[1].is_full:
            later.append(varying.pop(groups))
    yield from fixed.values()
    yield from (one for one in [*later, *varying.values()] if one.columns)


def _add(fixed: _Pass, varying: _Pass, case: Case, time_column: str) -> None:
    condition = condition_of(case, time_column)
    fixed.look_at(case)
    fixed.find(case, "", "rows", f"count_if({fixed.met(condition)})")
    for name, aggregate in case.aggregates():
        one = varying if _varies(aggregate) else fixed
        one.look_at(case)
        if aggregate.function is AggregateFunction.QUANTILE:
            _claim_ends(one, case, name, aggregate)
        order = f"struct({quoted(time_column)}, {quoted(POSITION)})"
        prefix = _prefix(case, name)
        for fact, sql in _facts_of(aggregate, one.met(condition), prefix, order):
            one.find(case, name, fact, sql)


def _varies(aggregate: Aggregate) -> bool:
    """Return whether what is kept of it has no fixed width."""
    if aggregate.function in BY_TIME:
        return True
    of_text = aggregate.argument is not None and aggregate.argument.type is ColumnType.VARCHAR
    return of_text and aggregate.function in (AggregateFunction.MIN, AggregateFunction.MAX)


def _facts_of(
    aggregate: Aggregate, condition: str, prefix: str, order: str
) -> Iterator[tuple[str, str]]:
    """Name and SQL of each fact that judging this aggregate needs; order: of rows, by time."""
    if aggregate.argument is None:
        yield "value", f"count_if({condition})"
        return
    chosen = _chosen(aggregate, condition)
    match aggregate.function:
        case function if function in BY_VALUE:
            return  # Separate statements count by value: value_counts.py.
        case function if aggregate.second is not None:
            y = render(aggregate.second, SqlDialect.SPARK)
            other = f"CASE WHEN {condition} THEN {y} END"
            yield "value", of_pairs(function, chosen, other)
            yield "scale", _scale(function, chosen, other)
        case AggregateFunction.COUNT:
            yield "value", f"count({chosen})"
        case AggregateFunction.SUM | AggregateFunction.AVG:
            exact = _exactly(chosen, aggregate.argument.type)
            yield "sum", f"sum({exact})"
            yield "count", f"count({chosen})"
            yield "absolute", f"sum(abs({exact}))"
        case AggregateFunction.MIN:
            yield "value", f"min({chosen})"
        case AggregateFunction.MAX:
            yield "value", f"max({chosen})"
        case AggregateFunction.FIRST | AggregateFunction.LAST:
            by = "min_by" if aggregate.function is AggregateFunction.FIRST else "max_by"
            yield "value", f"{by}({chosen}, CASE WHEN {chosen} IS NOT NULL THEN {order} END)"
        case AggregateFunction.VAR:
            yield "value", f"var_samp({chosen})"
            yield "scale", f"abs(avg({chosen}))"
        case AggregateFunction.STDDEV:
            yield "value", f"stddev_samp({chosen})"
            yield "scale", f"abs(avg({chosen}))"
        case AggregateFunction.QUANTILE:
            yield "n", f"count({chosen})"
            yield "below_low", f"count_if(coalesce({chosen} < {prefix}low, FALSE))"
            yield "to_high", f"count_if(coalesce({chosen} <= {prefix}high, {chosen} IS NOT NULL))"
            yield "below", f"count_if({chosen} < {prefix}value)"
            yield "upto", f"count_if({chosen} <= {prefix}value)"


def _chosen(aggregate: Aggregate, condition: str) -> str:
    assert aggregate.argument is not None, aggregate
    return f"CASE WHEN {condition} THEN {render(aggregate.argument, SqlDialect.SPARK)} END"


def _scale(function: AggregateFunction, x: str, y: str) -> str:
    """What rounding in a function of pairs is measured by: the largest that it could be."""
    spreads = f"stddev_pop(CASE WHEN {y} IS NOT NULL THEN {x} END)"
    others = f"stddev_pop(CASE WHEN {x} IS NOT NULL THEN {y} END)"
    match function:
        case AggregateFunction.CORR:
            return "1D"
        case AggregateFunction.REGR_SLOPE:
            return f"try_divide({spreads}, {others})"
        case AggregateFunction.REGR_INTERCEPT:
            sizes = [
                f"abs(avg(CASE WHEN {b} IS NOT NULL THEN {a} END))" for a, b in ((x, y), (y, x))
            ]
            return f"{sizes[0]} + {sizes[1]} * try_divide({spreads}, {others})"
        case _:
            return f"{spreads} * {others}"


def _claim_ends(one: _Pass, case: Case, name: str, aggregate: Aggregate) -> None:
    """The ends of a quantile's intervals; an end that is open is null, and counts as infinite."""
    kind, prefix = _arrow(aggregate), _prefix(case, name)
    one.types |= {f"{prefix}{part}": kind for part in ("low", "high", "value")}
    for key, claim in case.claims(name):
        row = one.claims.setdefault(key, {})
        exact = claim.bound == "exact"
        row[f"{prefix}value"] = claim.value
        row[f"{prefix}low"] = claim.value if exact else claim.low
        row[f"{prefix}high"] = claim.value if exact else claim.high


def _claims_table(one: _Pass) -> pa.Table:
    """A row per group that any answer of the pass has; without groups, one row."""
    rows = list(one.claims.items()) if one.groups else [((), one.claims.get((), {}))]
    columns = {
        f"__key{at}": pa.array([key[at] for key, _ in rows], _type_of(group))
        for at, group in enumerate(one.groups)
    }
    for name, kind in one.types.items():
        columns[name] = pa.array([row.get(name) for _, row in rows], kind)
    return pa.table(columns or {"__none": pa.nulls(len(rows), pa.int64())})


def _sql(one: _Pass, relation: str, time_column: str, claims: Path) -> str:
    groups = [render(group, SqlDialect.SPARK) for group in one.groups]
    keys = [f"{sql} AS `g{at}`" for at, sql in enumerate(groups)]
    facts = [f"{sql} AS `f{at}`" for sql, at in one.columns.items()]
    join = ""
    if one.types:
        on = " AND ".join(f"{sql} <=> `__key{at}`" for at, sql in enumerate(groups)) or "TRUE"
        join = f" LEFT JOIN parquet.`{claims}` ON {on}"
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    masks = "".join(f", {mask} AS {_MASK}{at}" for at, mask in enumerate(one.masks))
    where = within(one.spans, time_column)
    tuples = f"(SELECT *{masks} FROM {quoted(relation)} WHERE {where}) AS t"  # noqa: S608
    return f"SELECT {', '.join(keys + facts)} FROM {tuples}{join}{by}"  # noqa: S608


def _take(one: _Pass, table: pa.Table, truths: Truths) -> None:
    keys = [_naive(table[f"g{at}"]).to_pylist() for at in range(len(one.groups))]
    group_keys: Sequence[Key] = list(zip(*keys, strict=True)) if keys else [()] * table.num_rows
    columns = [
        [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in column]
        for column in (table[f"f{at}"].to_pylist() for at in range(len(one.columns)))
    ]
    for fact in one.facts:
        found = truths.by_case.setdefault(fact.case.number, {})
        for key, value in zip(group_keys, columns[fact.column], strict=True):
            if fact.output == "" and (value or not one.groups):
                found[key] = {"": {"rows": value}}
            elif key in found:
                found[key].setdefault(fact.output, {})[fact.name] = value


def _prefix(case: Case, name: str) -> str:
    at = next(at for at, (output, _) in enumerate(case.aggregates()) if output == name)
    return f"__c{case.number}_{at}_"


def _type_of(expression: Expression) -> pa.DataType:
    assert expression.type is not None, expression
    return expression.type.arrow


def _arrow(aggregate: Aggregate) -> pa.DataType:
    assert aggregate.argument is not None
    return _type_of(aggregate.argument)


def _exactly(sql: str, kind: ColumnType | None) -> str:
    """A number as a type whose sum is exact; of fewer than 2^32 tuples, where they are INTEGER."""
    match kind:
        case ColumnType.INTEGER:
            return f"CAST({sql} AS BIGINT)"
        case ColumnType.BIGINT:
            return f"CAST({sql} AS DECIMAL(38, 0))"
        case _:
            return sql


def _naive(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """Spark's timestamps have a zone (UTC); those of answers have none."""
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
