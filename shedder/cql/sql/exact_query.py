"""Bound queries as SQL for DuckDB and Spark: the exact answer, a row per group.

Spark must run with its session time zone UTC.
"""

# No SQL text comes from a caller: names are quoted, constants are typed, the rest is ours.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from fractions import Fraction

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    BY_TIME,
    JOINS,
    LISTS,
    OF_PAIRS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Expression,
    as_whole_numbers,
    inputs,
)
from shedder.cql.expressions.functions import TOP_MAX
from shedder.cql.sql.aggregate_sql import (
    AggregateSql,
    DuckDbAggregates,
    SparkAggregates,
    set_sql,
)
from shedder.cql.sql.dialect_protocol import EngineSql
from shedder.cql.sql.duckdb import DuckDb
from shedder.cql.sql.expression_sql import ExpressionSql
from shedder.cql.sql.spark import Spark
from shedder.cql.statements.bound_query import BoundQuery


class SqlDialect(Enum):
    """An engine that answers exactly."""

    DUCKDB = "duckdb"
    SPARK = "spark"


ENGINES: dict[SqlDialect, EngineSql] = {SqlDialect.DUCKDB: DuckDb(), SqlDialect.SPARK: Spark()}
"""The words of each dialect."""

_AGGREGATES: dict[SqlDialect, AggregateSql] = {
    SqlDialect.DUCKDB: DuckDbAggregates(),
    SqlDialect.SPARK: SparkAggregates(),
}
_BY_VALUE = LISTS | JOINS
_SAME = {SqlDialect.DUCKDB: "IS NOT DISTINCT FROM", SqlDialect.SPARK: "<=>"}


POSITION = "__position"
"""The column that holds each tuple's position, of relations for queries that need it."""

LIVE = "__live"
"""The column that says whether a row is not deleted, of rows that are read in part."""


def needs_positions(query: BoundQuery) -> bool:
    """Return whether the exact answer reads positions."""
    return any(aggregate.function in BY_TIME for aggregate in query.aggregates)


def render(expression: Expression, dialect: SqlDialect) -> str:
    """An expression over the stream's columns as SQL.

    Args:
      expression: bound, without aggregates.
      dialect: whose SQL.

    Returns:
      An expression that may stand anywhere: an atom, a call or in brackets.
    """
    return ExpressionSql(ENGINES[dialect]).sql(expression)


def exact_sql(
    query: BoundQuery,
    relation: str,
    dialect: SqlDialect,
    start_us: int | None,
    end_us: int | None,
) -> str:
    """The SQL of the exact answer before HAVING, ORDER BY and LIMIT.

    Args:
      query: groups, aggregates and WHERE are used, its window is not.
      relation: name of the relation that has the stream's columns, and POSITION where the query
        needs_positions.
      dialect: whose SQL.
      start_us, end_us: only tuples with start_us <= event time < end_us; None: no such end.

    Returns:
      A SELECT with columns g0.. (query.groups) and a0.. (query.aggregates), one row per group,
      one row without groups. TOP and FREQUENT are lists of structs (value, count), by count from
      the largest, then by value from the smallest. Sums beyond BIGINT are NULL.
    """
    engine = ENGINES[dialect]
    time = engine.column(query.schema.time_column, ColumnType.TIMESTAMP)
    conditions = [
        f"{time} {operator} {engine.timestamp_constant(us)}"
        for operator, us in ((">=", start_us), ("<", end_us))
        if us is not None
    ]
    if query.where is not None:
        conditions.append(ExpressionSql(engine).sql(query.where))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    order = (time, engine.name(POSITION)) if needs_positions(query) else None
    source = f"{engine.name(relation)}{where}"
    return grouped_sql(query.groups, query.aggregates, source, order, dialect)


def grouped_sql(
    groups: Sequence[Expression],
    aggregates: Sequence[Aggregate],
    source: str,
    order: tuple[str, str] | None,
    dialect: SqlDialect,
) -> str:
    """The SQL of groups and their aggregates over the rows of a relation.

    Args:
      groups, aggregates: typed, over columns of the relation.
      source: SQL after FROM: the relation, perhaps with WHERE.
      order: SQL of event time and position, for FIRST and LAST.
      dialect: whose SQL.

    Returns:
      A SELECT as that of `exact_sql`.
    """
    writer = _Writer(groups, aggregates, dialect)
    plain = [
        f"{writer.aggregate(aggregate)} AS a{index}"
        for index, aggregate in enumerate(aggregates)
        if aggregate.function not in _BY_VALUE
    ]
    counted = [
        index for index, aggregate in enumerate(aggregates) if aggregate.function in _BY_VALUE
    ]
    rows = writer.rows(source, order)
    if not counted:
        return f"SELECT {_list(writer.keys, plain)} FROM ({rows}) AS r{writer.group_by}"
    # These count their values group by group first; each is a relation of its own.
    parts = [
        f"r AS ({rows})",
        f"m AS (SELECT {_list(writer.keys, plain or ['count(*) AS one'])} FROM r{writer.group_by})",
        *(f"t{index} AS ({writer.by_value(aggregates[index])})" for index in counted),
    ]
    outputs = [f"m.{key}" for key in writer.keys]
    outputs += [
        f"{writer.found(aggregate, f't{index}.items' if index in counted else f'm.a{index}')} "
        f"AS a{index}"
        for index, aggregate in enumerate(aggregates)
    ]
    joins = "".join(f" LEFT JOIN t{index} ON {writer.same('m', f't{index}')}" for index in counted)
    return f"WITH {', '.join(parts)} SELECT {', '.join(outputs)} FROM m{joins}"


def _list(*parts: Iterable[str]) -> str:
    return ", ".join(item for part in parts for item in part)


def _read(node: Aggregate) -> tuple[Expression, ...]:
    """The arguments of an aggregate; those of functions of pairs before their cast to DOUBLE."""
    found = inputs(node)
    return tuple(map(as_whole_numbers, found)) if node.function in OF_PAIRS else found


class _Writer:
    """The parts of one query's SQL. Each distinct argument is computed once, in columns x0.."""

    def __init__(
        self, groups: Sequence[Expression], aggregates: Sequence[Aggregate], dialect: SqlDialect
    ) -> None:
        self._groups = groups
        self._engine = ENGINES[dialect]
        self._aggregates = _AGGREGATES[dialect]
        self._expressions = ExpressionSql(self._engine)
        self._same = _SAME[dialect]
        arguments = (argument for part in aggregates for argument in _read(part))
        self._arguments: list[Expression] = list(dict.fromkeys(arguments))
        self.keys: Sequence[str] = [f"g{index}" for index in range(len(groups))]
        self.group_by = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""

    def rows(self, source: str, order: tuple[str, str] | None) -> str:
        """Groups and arguments of every tuple that counts."""
        columns = [
            f"{self._expressions.sql(group)} AS g{index}"
            for index, group in enumerate(self._groups)
        ]
        columns += [
            f"{self._expressions.sql(argument)} AS x{index}"
            for index, argument in enumerate(self._arguments)
        ]
        if order is not None:
            columns += [f"{order[0]} AS t", f"{order[1]} AS p"]
        return f"SELECT {_list(columns or ['1 AS one'])} FROM {source}"

    def column(self, argument: Expression | None) -> str:
        """The column of `rows` that holds an aggregate's argument."""
        assert argument is not None
        return f"x{self._arguments.index(argument)}"

    def aggregate(self, node: Aggregate) -> str:
        """An aggregate over `rows`, of those that need not count by value."""
        if node.argument is None:
            return "count(*)"
        kind = node.argument.type
        assert kind is not None
        if node.function in SET_FUNCTIONS:
            return set_sql(self._aggregates, node.function, *map(self.column, inputs(node)))
        if node.function in OF_PAIRS:
            return self._pairs(node)
        value = self.column(node.argument)
        match node.function:
            case AggregateFunction.COUNT:
                return f"count({value})"
            case AggregateFunction.COUNT_DISTINCT:
                return f"count(DISTINCT {value})"
            case AggregateFunction.MIN:
                return f"min({value})"
            case AggregateFunction.MAX:
                return f"max({value})"
            case AggregateFunction.FIRST | AggregateFunction.LAST:
                last = node.function is AggregateFunction.LAST
                return self._aggregates.by_time(value, last=last)
            case AggregateFunction.SUM:
                return self._aggregates.sum(value, kind)
            case AggregateFunction.AVG:
                return self._aggregates.average(value, kind)
            case AggregateFunction.VAR:
                return self._aggregates.variance(value, kind)
            case AggregateFunction.STDDEV:
                return f"sqrt({self._aggregates.variance(value, kind)})"
            case AggregateFunction.QUANTILE:
                assert node.parameter is not None
                return self._aggregates.quantile(value, node.parameter)
        raise AssertionError(node.function)

    def _pairs(self, node: Aggregate) -> str:
        parts = _read(node)
        x, y = map(self.column, parts)
        if all(part.type is not ColumnType.BIGINT for part in parts):  # DOUBLE holds them.
            x, y = f"CAST({x} AS DOUBLE)", f"CAST({y} AS DOUBLE)"
            return self._aggregates.pairs(node.function, x, y, whole=(False, False))
        whole = (parts[0].type is not ColumnType.DOUBLE, parts[1].type is not ColumnType.DOUBLE)
        return self._aggregates.pairs(node.function, x, y, whole=whole)

    def by_value(self, node: Aggregate) -> str:
        """A relation of g0.. and items: a list of values, or the size of a join.

        Groups without values are not in it.
        """
        return self._join(node) if node.function in JOINS else self._listed(node)

    def found(self, node: Aggregate, value: str) -> str:
        """The value of a group that may have had none: nothing joins with nothing 0 times."""
        return f"coalesce({value}, 0)" if node.function in JOINS else value

    def _join(self, node: Aggregate) -> str:
        by = ", ".join((*self.keys, "v"))
        counting = [(self.column(node.argument), "1 AS l", "1 AS r")]
        if node.second is not None:
            left, right = counting[0][0], self.column(node.second)
            counting = [(left, "1 AS l", "0 AS r"), (right, "0 AS l", "1 AS r")]
        sides = [
            f"SELECT {_list(self.keys, [f'{value} AS v', *counted])} FROM r "
            f"WHERE {value} IS NOT NULL"
            for value, *counted in counting
        ]
        double = self._engine.type_name(ColumnType.DOUBLE)
        counts = [f"CAST(sum({side}) AS {double}) AS {side}" for side in ("l", "r")]
        counted = (
            f"SELECT {_list(self.keys, ['v'], counts)} FROM ({' UNION ALL '.join(sides)}) AS s "
            f"GROUP BY {by}"
        )
        return (
            f"SELECT {_list(self.keys, ['sum(l * r) AS items'])} FROM ({counted}) AS c"
            f"{self.group_by}"
        )

    def _listed(self, node: Aggregate) -> str:
        assert node.parameter is not None
        value = self.column(node.argument)
        by = ", ".join((*self.keys, value))
        counted = (
            f"SELECT {_list(self.keys, [f'{value} AS v', 'count(*) AS n'])} FROM r "
            f"WHERE {value} IS NOT NULL GROUP BY {by}"
        )
        if node.function is AggregateFunction.FREQUENT:
            counted, most = self._frequent(counted, node.parameter), TOP_MAX
        else:
            most = int(node.parameter)
        items = self._aggregates.top(most)
        return (
            f"SELECT {_list(self.keys, [f'{items} AS items'])} FROM ({counted}) AS c{self.group_by}"
        )

    def _frequent(self, counted: str, share: float) -> str:
        """Of values v and their counts n, those that make up the share: n / total >= share."""
        exact = Fraction(repr(share))
        of_group = f"PARTITION BY {', '.join(self.keys)}" if self.keys else ""
        every = _list(self.keys, ["v", "n", f"sum(n) OVER ({of_group}) AS total"])
        enough = (
            f"{self._aggregates.wide('n')} * {exact.denominator} >= "
            f"{self._aggregates.wide('total')} * {exact.numerator}"
        )
        return f"SELECT * FROM (SELECT {every} FROM ({counted}) AS w) AS s WHERE {enough}"

    def same(self, left: str, right: str) -> str:
        """The condition that two relations are at the same group."""
        pairs = (f"{left}.{key} {self._same} {right}.{key}" for key in self.keys)
        return " AND ".join(pairs) or "TRUE"
