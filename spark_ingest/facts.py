"""Facts: what Spark must count to judge many cases, found in few passes over the data.

Cases with the same groups share a pass. Each case's conditions become a filter of its own
aggregates, and what an answer claims of a group (the ends of a quantile, the items of a list) is
joined to the group's rows, so that a quantile is judged by counting and nothing is sorted.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from shedder.cql.aggregate_sql import SparkAggregates, of_pairs, set_sql
from shedder.cql.expression import (
    JOINS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Expression,
    inputs,
)
from shedder.cql.render import POSITION, SqlDialect, render
from shedder.cql.types import ColumnType
from spark_ingest.cases import Case, Facts, Key
from spark_ingest.joins import find_joins

# Above about a hundred aggregates in one statement, Spark no longer compiles them.
_FACTS_MAX = 80
# Every distinct count in a statement makes Spark read each row once more.
_DISTINCT_MAX = 8


@dataclass(slots=True)
class Truths:
    """Facts by case number, then by group, then by the output's name ('' has `rows` only)."""

    by_case: dict[int, dict[Key, dict[str, Facts]]] = field(default_factory=dict)

    def groups(self, case: Case) -> dict[Key, dict[str, Facts]]:
        """The groups that the case truly has."""
        return self.by_case.get(case.number, {})


@dataclass(frozen=True, slots=True)
class _Fact:
    """One column of a pass. output: the case's output that it is about; '' for the case itself."""

    case: Case
    output: str
    name: str
    sql: str


@dataclass(slots=True)
class _Pass:
    """Cases with the same groups, the facts to find, and the claims to join."""

    groups: tuple[Expression, ...]
    facts: list[_Fact] = field(default_factory=list)
    claims: dict[Key, dict[str, Any]] = field(default_factory=dict)
    types: dict[str, pa.DataType] = field(default_factory=dict)
    distinct: int = 0

    @property
    def full(self) -> bool:
        return len(self.facts) >= _FACTS_MAX or self.distinct >= _DISTINCT_MAX


def find_truths(
    spark: SparkSession, relation: str, time_column: str, cases: Iterable[Case]
) -> Truths:
    """Find the facts of all judgeable cases.

    Args:
      spark: the session.
      relation: a view with the stream's columns and POSITION (baseline.relation).
      time_column: the stream's event time.
      cases: answers that hold no tuple beyond the relation.
    """
    cases, truths = list(cases), Truths()
    with tempfile.TemporaryDirectory(prefix="shedder-claims-") as scratch:
        for number, one in enumerate(_passes(cases, time_column)):
            file = Path(scratch) / f"{number}.parquet"
            pq.write_table(_claims_table(one), file)
            table = spark.sql(_sql(one, relation, file)).toArrow()
            _take(one, table, truths)
    for case in cases:
        if case.judgeable:
            find_joins(spark, relation, case, truths.groups(case))
    return truths


def _passes(cases: Iterable[Case], time_column: str) -> Iterator[_Pass]:
    open_passes: dict[tuple[tuple[Expression, ...], bool], _Pass] = {}
    for case in cases:
        if not case.judgeable:
            continue
        distinct = any(
            aggregate.function is AggregateFunction.COUNT_DISTINCT
            for _, aggregate in case.aggregates()
        )
        kind = (case.query.groups, distinct)
        one = open_passes.setdefault(kind, _Pass(case.query.groups))
        _add(one, case, time_column)
        if one.full:
            yield open_passes.pop(kind)
    yield from open_passes.values()


def _add(one: _Pass, case: Case, time_column: str) -> None:
    condition = _condition(case, time_column)
    one.facts.append(_Fact(case, "", "rows", f"count_if({condition})"))
    for name, aggregate in case.aggregates():
        match aggregate.function:
            case AggregateFunction.QUANTILE:
                _claim_ends(one, case, name, aggregate)
            case AggregateFunction.TOP:
                _claim_items(one, case, name, aggregate)
            case AggregateFunction.COUNT_DISTINCT:
                one.distinct += 1
            case _:
                pass
        order = f"struct({_quoted(time_column)}, {_quoted(POSITION)})"
        for fact, sql in _facts_of(aggregate, condition, _prefix(case, name), order):
            one.facts.append(_Fact(case, name, fact, sql))


def _facts_of(
    aggregate: Aggregate, condition: str, prefix: str, order: str
) -> Iterator[tuple[str, str]]:
    """Name and SQL of each fact that judging this aggregate needs; order: of rows, by time."""
    if aggregate.argument is None:
        yield "value", f"count_if({condition})"
        return
    x = render(aggregate.argument, SqlDialect.SPARK)
    chosen = f"CASE WHEN {condition} THEN {x} END"
    if aggregate.function in SET_FUNCTIONS:
        sides = (
            f"CASE WHEN {condition} THEN {render(each, SqlDialect.SPARK)} END"
            for each in inputs(aggregate)
        )
        yield "value", set_sql(SparkAggregates(), aggregate.function, *sides)
        return
    match aggregate.function:
        case function if function in JOINS:
            return  # They count by value, in statements of their own: joins.py.
        case function if aggregate.second is not None:
            y = render(aggregate.second, SqlDialect.SPARK)
            other = f"CASE WHEN {condition} THEN {y} END"
            yield "value", of_pairs(function, chosen, other)
            yield "scale", _scale(function, chosen, other)
        case AggregateFunction.COUNT:
            yield "value", f"count({chosen})"
        case AggregateFunction.SUM | AggregateFunction.AVG:
            wide = _is_integer(aggregate.argument)
            exact = f"CAST({chosen} AS DECIMAL(38, 0))" if wide else chosen
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
        case AggregateFunction.STDDEV:
            yield "value", f"stddev_samp({chosen})"
        case AggregateFunction.COUNT_DISTINCT:
            yield "value", f"count(DISTINCT {chosen})"
        case AggregateFunction.QUANTILE:
            yield "n", f"count({chosen})"
            yield "below_low", f"count_if(coalesce({chosen} < {prefix}low, FALSE))"
            yield "to_high", f"count_if(coalesce({chosen} <= {prefix}high, {chosen} IS NOT NULL))"
            yield "below", f"count_if({chosen} < {prefix}value)"
            yield "upto", f"count_if({chosen} <= {prefix}value)"
        case AggregateFunction.TOP:
            for at in range(round(aggregate.parameter or 0)):
                yield f"item{at}", f"count_if({chosen} = {prefix}item{at})"


def _scale(function: AggregateFunction, x: str, y: str) -> str:
    """What rounding in a function of pairs is measured by: the largest that it could be."""
    spreads = f"stddev_pop(CASE WHEN {y} IS NOT NULL THEN {x} END)"
    others = f"stddev_pop(CASE WHEN {x} IS NOT NULL THEN {y} END)"
    match function:
        case AggregateFunction.CORR:
            return "1D"
        case AggregateFunction.REGR_SLOPE:
            return f"try_divide({spreads}, {others})"
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


def _claim_items(one: _Pass, case: Case, name: str, aggregate: Aggregate) -> None:
    kind, prefix = _arrow(aggregate), _prefix(case, name)
    one.types |= {f"{prefix}item{at}": kind for at in range(round(aggregate.parameter or 0))}
    for key, claim in case.claims(name):
        row = one.claims.setdefault(key, {})
        for at, item in enumerate(claim.value or []):
            row[f"{prefix}item{at}"] = item["value"]


def _condition(case: Case, time_column: str) -> str:
    """Which tuples are in the answer: its window, its position and the query's WHERE."""
    time, answer = _quoted(time_column), case.answer
    parts = [f"{_quoted(POSITION)} < {answer.position}"]
    parts += [f"{time} >= {_moment(answer.start_us)}"] if answer.start_us is not None else []
    parts += [f"{time} < {_moment(answer.end_us)}"] if answer.end_us is not None else []
    if case.query.where is not None:
        parts.append(f"coalesce({render(case.query.where, SqlDialect.SPARK)}, FALSE)")
    return "(" + " AND ".join(parts) + ")"


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


def _sql(one: _Pass, relation: str, claims: Path) -> str:
    groups = [render(group, SqlDialect.SPARK) for group in one.groups]
    keys = [f"{sql} AS `g{at}`" for at, sql in enumerate(groups)]
    facts = [f"{fact.sql} AS `f{at}`" for at, fact in enumerate(one.facts)]
    join = ""
    if one.types:
        on = " AND ".join(f"{sql} <=> `__key{at}`" for at, sql in enumerate(groups)) or "TRUE"
        join = f" LEFT JOIN parquet.`{claims}` ON {on}"
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    return f"SELECT {', '.join(keys + facts)} FROM {_quoted(relation)}{join}{by}"  # noqa: S608


def _take(one: _Pass, table: pa.Table, truths: Truths) -> None:
    keys = [_naive(table[f"g{at}"]).to_pylist() for at in range(len(one.groups))]
    group_keys: Sequence[Key] = list(zip(*keys, strict=True)) if keys else [()] * table.num_rows
    for at, fact in enumerate(one.facts):
        found = truths.by_case.setdefault(fact.case.number, {})
        for key, counted in zip(group_keys, table[f"f{at}"].to_pylist(), strict=True):
            value = None if isinstance(counted, float) and math.isnan(counted) else counted
            if fact.output == "" and (value or not one.groups):
                found[key] = {"": {"rows": value}}
            elif key in found:
                found[key].setdefault(fact.output, {})[fact.name] = value


def _prefix(case: Case, name: str) -> str:
    at = next(at for at, (output, _) in enumerate(case.aggregates()) if output == name)
    return f"__c{case.number}_{at}_"


def _moment(us: int) -> str:
    """A constant of the runs' own type: casting the column would cost more than all the rest."""
    return f"CAST(timestamp_micros({us}) AS TIMESTAMP_NTZ)"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type_of(expression: Expression) -> pa.DataType:
    assert expression.type is not None, expression
    return expression.type.arrow


def _arrow(aggregate: Aggregate) -> pa.DataType:
    assert aggregate.argument is not None
    return _type_of(aggregate.argument)


def _is_integer(expression: Expression) -> bool:
    return expression.type in (ColumnType.INTEGER, ColumnType.BIGINT)


def _naive(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """Spark's timestamps have a zone (UTC); those of answers have none."""
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
