"""Logical plans as SQL for DuckDB: the exact rows of a query that is answered once."""

# No SQL text comes from a caller: names are quoted, constants are typed, the rest is ours.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import BY_TIME, Call, Column, Expression, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Ordered,
    Plan,
    Project,
    RowsWindow,
    Scan,
    SetOperation,
    ToStream,
    WindowOf,
)
from shedder.cql.sql.duckdb import DuckDb
from shedder.cql.sql.exact_query import SqlDialect, grouped_sql
from shedder.cql.sql.expression_sql import ExpressionSql
from shedder.cql.statements.statement import OrderKey
from shedder.cql.text.unsupported import later
from shedder.errors import BadQuery


@dataclass(frozen=True, slots=True)
class RelationSql:
    """Where the rows of a scan are.

    relation: name of a relation of DuckDB that has the columns of the stream or table. DuckDB 2.0.0
      loses an IS NULL filter on a registered Arrow table where it makes an anti-join of LEFT JOIN
      and IS NULL, so Arrow data is copied into a table of DuckDB first.
    start_us, end_us: only rows with start_us <= event time < end_us are read; None: no such end.
      They are those of the scan's window as of the stream's watermark.
    """

    relation: str
    start_us: int | None = None
    end_us: int | None = None


def plan_sql(plan: Plan, relations: Mapping[str, RelationSql]) -> str:
    """The SQL of a plan's rows.

    Args:
      plan: of a bound query.
      relations: of its scans, by their aliases.

    Returns:
      A SELECT whose columns have the names of the plan's columns. Rows are in order where the
      plan is `Ordered`.

    Raises:
      BadQuery: the plan's result is a stream. Unimplemented: SAMPLE.
    """
    return _Writer(relations).sql(plan)


class _Writer:
    """The parts of one plan's SQL. Each node is a SELECT over the SELECTs of its inputs."""

    def __init__(self, relations: Mapping[str, RelationSql]) -> None:
        self._relations = relations
        self._engine = DuckDb()
        self._expressions = ExpressionSql(self._engine)

    def sql(self, plan: Plan) -> str:
        """The rows of a node."""
        match plan:
            case Scan():
                return self._scan(plan)
            case WindowOf():
                return self._window(plan)
            case Filter():
                return (
                    f"SELECT * FROM ({self.sql(plan.input)}) AS q WHERE {self._of(plan.condition)}"
                )
            case Project(input=Ordered() as ordered) if _only_drops(plan):
                listed = ", ".join(self._engine.name(item.name) for item in plan.outputs)
                return (
                    f"SELECT {listed} FROM ({self.sql(ordered.input)}) AS q{self._order(ordered)}"
                )
            case Project():
                return f"SELECT {self._outputs(plan)} FROM ({self.sql(plan.input)}) AS q"
            case Distinct():
                return f"SELECT DISTINCT * FROM ({self.sql(plan.input)}) AS q"
            case Ordered():
                return f"SELECT * FROM ({self.sql(plan.input)}) AS q{self._order(plan)}"
            case Join():
                return self._join(plan)
            case SetOperation():
                word = plan.operator.value + (" ALL" if plan.all else "")
                sides = self.sql(plan.left), self.sql(plan.right)
                return f"SELECT * FROM (({sides[0]}) {word} ({sides[1]})) AS q"
            case Aggregated():
                return self._aggregated(plan)
            case ToStream():
                raise BadQuery(
                    f"{plan.operator.value} is the stream of changes of a standing query; a query "
                    "that is answered once has rows and no changes: leave the word away"
                )
        assert_never(plan)

    def _scan(self, scan: Scan) -> str:
        if scan.sample is not None:
            raise later("SAMPLE")
        source = self._relations[scan.alias]
        columns = ", ".join(
            f"{self._stored(scan, column.name, column.type)} AS {self._engine.name(column.name)}"
            for column in scan.columns
        )
        where = _where(self._stretch(scan, source))
        return f"SELECT {columns} FROM {self._engine.name(source.relation)}{where}"

    def _stored(self, scan: Scan, name: str, kind: ColumnType) -> str:
        """A column of the relation by its name in the plan; NaN is NULL."""
        stored = Column(name.removeprefix(f"{scan.alias}."), kind)
        return self._expressions.sql(stored)

    def _stretch(self, scan: Scan, source: RelationSql) -> list[str]:
        if scan.time_column is None:
            return []
        time = self._stored(scan, scan.time_column, ColumnType.TIMESTAMP)
        return [
            f"{time} {operator} {self._engine.timestamp_constant(us)}"
            for operator, us in ((">=", source.start_us), ("<", source.end_us))
            if us is not None
        ]

    def _window(self, window: WindowOf) -> str:
        if isinstance(window.window, RowsWindow):
            raise later("[ROWS n]")
        rows = self.sql(window.input)
        if window.condition is None:
            return rows
        return f"SELECT * FROM ({rows}) AS q WHERE {self._of(window.condition)}"

    def _join(self, join: Join) -> str:
        left, right = f"({self.sql(join.left)}) AS l", f"({self.sql(join.right)}) AS r"
        condition = "TRUE" if join.condition is None else self._of(join.condition)
        match join.kind:
            case JoinKind.INNER if join.condition is None:
                return f"SELECT * FROM {left} CROSS JOIN {right}"
            case JoinKind.INNER | JoinKind.LEFT | JoinKind.FULL:
                return f"SELECT * FROM {left} {join.kind.value} JOIN {right} ON {condition}"
            case JoinKind.SEMI:
                return (
                    f"SELECT * FROM {left} WHERE EXISTS (SELECT 1 FROM {right} WHERE {condition})"
                )
            case JoinKind.ANTI:
                matches = f"SELECT 1 FROM {right} WHERE {condition}"
                return f"SELECT * FROM {left} WHERE NOT EXISTS ({matches})"
            case JoinKind.ANTI_NULL_AWARE:
                return self._null_aware(join, left, right)
        assert_never(join.kind)

    def _null_aware(self, join: Join, left: str, right: str) -> str:
        """NOT IN: DuckDB hashes it where it is one equality; else it compares all pairs."""
        condition = join.condition
        assert condition is not None
        if isinstance(condition, Call) and condition.op is Op.EQ:
            value, other = map(self._of, condition.args)
            return f"SELECT * FROM {left} WHERE {value} NOT IN (SELECT {other} FROM {right})"
        possible = f"SELECT 1 FROM {right} WHERE ({self._of(condition)}) IS NOT FALSE"
        return f"SELECT * FROM {left} WHERE NOT EXISTS ({possible})"

    def _aggregated(self, plan: Aggregated) -> str:
        order = None
        if any(each.function in BY_TIME for each in plan.aggregates):
            raise later("FIRST and LAST in a query with joins, subqueries or tables")
        source = f"({self.sql(plan.input)}) AS q"
        return grouped_sql(plan.groups, plan.aggregates, source, order, SqlDialect.DUCKDB)

    def _outputs(self, project: Project) -> str:
        return ", ".join(
            f"{self._of(item.expression)} AS {self._engine.name(item.name)}"
            for item in project.outputs
        )

    def _order(self, ordered: Ordered) -> str:
        text = ""
        if ordered.keys:
            text = f" ORDER BY {', '.join(map(self._key, ordered.keys))}"
        if ordered.limit is not None:
            text += f" LIMIT {ordered.limit}"
        return text + (f" OFFSET {ordered.offset}" if ordered.offset else "")

    def _key(self, key: OrderKey) -> str:
        return f"{self._of(key.expression)} {'DESC' if key.descending else 'ASC'} NULLS LAST"

    def _of(self, expression: Expression) -> str:
        return self._expressions.sql(expression)


def _only_drops(project: Project) -> bool:
    """Return whether the outputs are columns of the input under their own names."""
    return all(
        isinstance(item.expression, Column) and item.expression.name == item.name
        for item in project.outputs
    )


def _where(conditions: Iterable[str]) -> str:
    text = " AND ".join(conditions)
    return f" WHERE {text}" if text else ""
