"""Logical plans as SQL for DuckDB and Spark: the exact rows of a query that is answered once.

Spark must run with its session time zone UTC.
"""

# No SQL text comes from a caller: names are quoted, constants are typed, the rest is ours.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import BY_TIME, Call, Column, Expression, Op, chained
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Ordered,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    SetOperation,
    ToStream,
    WindowOf,
    inputs_of,
)
from shedder.cql.sql.duckdb_random_keys import with_position_key
from shedder.cql.sql.exact_query import ENGINES, POSITION, SqlDialect, grouped_sql
from shedder.cql.sql.expression_sql import ExpressionSql
from shedder.cql.statements.statement import OrderKey
from shedder.cql.text.unsupported import later
from shedder.errors import BadQuery

# Columns of a stream beside those of the plan, whose names have a dot; none of them has.
_TIME, _AT, _KEY, _NUMBER, _ALL = "tuple_time", "tuple_position", "tuple_key", "row_no", "row_count"


@dataclass(frozen=True, slots=True)
class RelationSql:
    """Where the rows of a scan are.

    relation: name of the engine's relation that has the columns of the stream or table.
      A stream's has POSITION, too, where the plan `needs_event_order`.
    start_us, end_us: only rows with start_us <= event time < end_us are read; None: no such end.
      They are those of the scan's window as of the stream's watermark.
    seed: the stream's, for SAMPLE; None: SAMPLE is refused.
    """

    relation: str
    start_us: int | None = None
    end_us: int | None = None
    seed: int | None = None


def plan_sql(
    plan: Plan,
    relations: Mapping[str, RelationSql],
    dialect: SqlDialect = SqlDialect.DUCKDB,
) -> str:
    """The SQL of a plan's rows.

    Args:
      plan: of a bound query.
      relations: of its scans, by their aliases.
      dialect: whose SQL.

    Returns:
      A SELECT whose columns have the names of the plan's columns. Rows are in order where the
      plan is `Ordered`.

    Raises:
      BadQuery: the plan's result is a stream.
      Unimplemented: SAMPLE without a seed, or for Spark.
    """
    return _PlanWriter(relations, dialect).sql(plan)


def needs_event_order(plan: Plan) -> bool:
    """Return whether the SQL of a plan reads positions: for ROWS, FIRST, LAST and SAMPLE."""
    match plan:
        case Scan(sample=float()):
            return True
        case WindowOf(window=RowsWindow()):
            return True
        case Aggregated(aggregates=aggregates) if any(a.function in BY_TIME for a in aggregates):
            return True
    return any(map(needs_event_order, inputs_of(plan)))


class _PlanWriter:
    """The parts of one plan's SQL. Each node is a SELECT over the SELECTs of its inputs."""

    def __init__(self, relations: Mapping[str, RelationSql], dialect: SqlDialect) -> None:
        self._relations = relations
        self._dialect = dialect
        self._engine = ENGINES[dialect]
        self._expressions = ExpressionSql(self._engine)

    def sql(self, plan: Plan) -> str:
        """The rows of a node."""
        match plan:
            case Scan():
                return self._scan(plan)
            case WindowOf():
                return self._window(plan)
            case Filter():
                return self._filtered(self.sql(plan.input), plan.condition)
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

    def _scan(self, scan: Scan, *, ordered: bool = False) -> str:
        """The rows of a scan; ordered: with event time and position in columns of their own."""
        source, sampled = self._relations[scan.alias], scan.sample is not None
        columns = [
            f"{self._stored(scan, column.name, column.type)} AS {self._engine.name(column.name)}"
            for column in scan.columns
        ]
        if ordered:
            columns.append(f"{self._time(scan)} AS {_TIME}")
        if ordered or sampled:
            columns.append(f"{self._engine.name(POSITION)} AS {_AT}")
        where = _where(self._stretch(scan, source))
        rows = f"SELECT {', '.join(columns)} FROM {self._engine.name(source.relation)}{where}"
        if scan.sample is None:
            return rows
        if source.seed is None:
            raise later("SAMPLE")
        if self._dialect is not SqlDialect.DUCKDB:
            raise later(f"SAMPLE in SQL for {self._dialect.value}")
        dropped = (_KEY,) if ordered else (_KEY, _AT)
        keyed = with_position_key(rows, _AT, _KEY, source.seed)
        kept = f"{_KEY} < {int(scan.sample * 2**64)}::UHUGEINT"
        return f"SELECT {self._engine.all_but(*dropped)} FROM ({keyed}) AS q WHERE {kept}"

    def _stored(self, scan: Scan, name: str, kind: ColumnType) -> str:
        """A column of the relation by its name in the plan; NaN is NULL."""
        stored = Column(name.removeprefix(f"{scan.alias}."), kind)
        return self._expressions.sql(stored)

    def _time(self, scan: Scan) -> str:
        assert scan.time_column is not None
        return self._stored(scan, scan.time_column, ColumnType.TIMESTAMP)

    def _stretch(self, scan: Scan, source: RelationSql) -> list[str]:
        if scan.time_column is None:
            return []
        return [
            f"{self._time(scan)} {operator} {self._engine.timestamp_constant(us)}"
            for operator, us in ((">=", source.start_us), ("<", source.end_us))
            if us is not None
        ]

    def _window(self, window: WindowOf, *, ordered: bool = False) -> str:
        """The rows of a window as of the end of its scan's stretch."""
        scan = window.input
        if not isinstance(scan, Scan):
            raise BadQuery(
                "a window over a subquery holds its newest insertions, and a query that is "
                "answered once has none; put the window on the stream in the subquery"
            )
        newest = isinstance(window.window, RowsWindow)
        rows = self._scan(scan, ordered=ordered or newest)
        if window.condition is not None:
            rows = self._filtered(rows, window.condition)
        if isinstance(window.window, RowsWindow):
            rows = self._newest(rows, window.window)
        if newest and not ordered:
            return f"SELECT {self._engine.all_but(_TIME, _AT)} FROM ({rows}) AS q"
        return rows

    def _newest(self, rows: str, window: RowsWindow) -> str:
        """The newest rows of each partition, of the rows up to the last slide."""
        if window.slide_rows > 1:
            numbered = (
                f"SELECT *, row_number() OVER (ORDER BY {_TIME}, {_AT}) AS {_NUMBER}, "
                f"count(*) OVER () AS {_ALL} FROM ({rows}) AS q"
            )
            slid = f"{_NUMBER} <= {_ALL} - {_ALL} % {window.slide_rows}"
            kept = self._engine.all_but(_NUMBER, _ALL)
            rows = f"SELECT {kept} FROM ({numbered}) AS q WHERE {slid}"
        by = ", ".join(map(self._engine.name, window.partition))
        over = f"{f'PARTITION BY {by} ' if by else ''}ORDER BY {_TIME} DESC, {_AT} DESC"
        more = ""
        if window.added:
            number, previous = map(self._engine.name, window.added)
            more = f", {_AT} AS {number}, lead({_AT}) OVER ({over}) AS {previous}"
        numbered = f"SELECT *, row_number() OVER ({over}) AS {_NUMBER}{more} FROM ({rows}) AS q"
        kept = self._engine.all_but(_NUMBER)
        return f"SELECT {kept} FROM ({numbered}) AS q WHERE {_NUMBER} <= {window.rows}"

    def _join(self, join: Join) -> str:
        match join.kind:
            case JoinKind.SEMI | JoinKind.ANTI | JoinKind.ANTI_NULL_AWARE:
                return self._kept(join, self.sql(join.left))
            case JoinKind.INNER | JoinKind.LEFT | JoinKind.FULL:
                left, right = self.sql(join.left), self.sql(join.right)
                condition = "TRUE" if join.condition is None else self._of(join.condition)
                word = join.kind.value
                return f"SELECT * FROM ({left}) AS l {word} JOIN ({right}) AS r ON {condition}"
        assert_never(join.kind)

    def _kept(self, join: Join, left: str) -> str:
        """The left rows that a join of EXISTS or IN keeps."""
        right = f"({self.sql(join.right)}) AS r"
        condition = join.condition
        is_equality = isinstance(condition, Call) and condition.op is Op.EQ
        if join.kind is JoinKind.ANTI_NULL_AWARE and is_equality:  # DuckDB hashes NOT IN.
            assert isinstance(condition, Call)
            value, other = map(self._of, condition.args)
            return f"SELECT * FROM ({left}) AS l WHERE {value} NOT IN (SELECT {other} FROM {right})"
        text = "TRUE" if condition is None else self._of(condition)
        if join.kind is JoinKind.ANTI_NULL_AWARE:
            text = f"{text} IS NOT FALSE"
        word = "EXISTS" if join.kind is JoinKind.SEMI else "NOT EXISTS"
        return f"SELECT * FROM ({left}) AS l WHERE {word} (SELECT 1 FROM {right} WHERE {text})"

    def _aggregated(self, plan: Aggregated) -> str:
        order, rows = None, ""
        if any(each.function in BY_TIME for each in plan.aggregates):
            order, rows = (_TIME, _AT), self._by_time(plan.input)
        source = f"({rows or self.sql(plan.input)}) AS q"
        return grouped_sql(plan.groups, plan.aggregates, source, order, self._dialect)

    def _by_time(self, plan: Plan) -> str:
        """The rows of one stream with event time and position, for FIRST and LAST."""
        match plan:
            case Scan(kind=RelationKind.STREAM):
                return self._scan(plan, ordered=True)
            case WindowOf(input=Scan()):
                return self._window(plan, ordered=True)
            case Filter():
                return self._filtered(self._by_time(plan.input), plan.condition)
            case Join(kind=JoinKind.SEMI | JoinKind.ANTI | JoinKind.ANTI_NULL_AWARE):
                return self._kept(plan, self._by_time(plan.left))
        raise BadQuery(
            "FIRST and LAST are by event time, and rows of joins, tables and subqueries have none; "
            "write MIN or MAX, or put FIRST or LAST into a subquery over one stream"
        )

    def _filtered(self, rows: str, condition: Expression) -> str:
        """The rows for which a condition is true.

        DuckDB 2.0.0 loses an IS NULL that it pushes into a registered Arrow table where it makes an
        anti-join of LEFT JOIN and IS NULL. It does not push IS TRUE.
        """
        terms = [
            f"({self._of(term)} IS TRUE)"
            if isinstance(term, Call) and term.op is Op.IS_NULL
            else self._of(term)
            for term in chained(Op.AND, condition)
        ]
        return f"SELECT * FROM ({rows}) AS q WHERE {' AND '.join(terms)}"

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
