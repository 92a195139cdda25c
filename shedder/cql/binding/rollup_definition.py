"""Rollups: partial aggregates per tumbling window and group, and what they can answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from shedder.cql.binding.bind import bind
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Literal,
    Op,
)
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import Contract, RangeWindow, Select
from shedder.cql.text.durations import UNITS_US, duration_text
from shedder.errors import BadQuery

OWN_PREFIX = "__"  # A rollup's own columns begin with it.


class PartialState(Flag):
    """What is kept of a column, besides the count of its values."""

    NONE = 0
    SUM = auto()
    SQUARES = auto()
    LEAST = auto()
    MOST = auto()


_NEEDS = {
    AggregateFunction.COUNT: PartialState.NONE,
    AggregateFunction.SUM: PartialState.SUM,
    AggregateFunction.AVG: PartialState.SUM,
    AggregateFunction.VAR: PartialState.SUM | PartialState.SQUARES,
    AggregateFunction.STDDEV: PartialState.SUM | PartialState.SQUARES,
    AggregateFunction.MIN: PartialState.LEAST,
    AggregateFunction.MAX: PartialState.MOST,
}
_DERIVED = ", ".join(function.value for function in _NEEDS)


@dataclass(frozen=True, slots=True)
class Rollup:
    """Partial aggregates per tumbling window of width_us (from the epoch on) and group.

    groups: columns of the stream. kept: by column, what is kept of it. Rows are counted always.
    """

    time_column: str
    width_us: int
    groups: tuple[Column, ...]
    kept: dict[Column, PartialState]

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read of the stream."""
        names = (self.time_column, *(c.name for c in self.groups), *(c.name for c in self.kept))
        return tuple(dict.fromkeys(names))


def rollup_of(select: Select, schema: StreamSchema) -> Rollup:
    """What a rollup's SELECT means.

    Raises:
      BadQuery: it has clauses or aggregates that a rollup cannot have. UnknownColumn, TypeMismatch.
    """
    query = bind(select, schema)
    for clause, said in (
        ("WHERE", query.where is not None),
        ("HAVING", query.having is not None),
        ("ORDER BY", bool(query.order)),
        ("LIMIT", query.limit is not None),
        ("WITHIN", query.target is not None),
        ("ELSE", query.contract is not Contract.WIDEN),
        ("REDUCE BY", query.reduction is not None),
        ("THINNING", query.thinning > 0),
        ("COSTING", query.costing is not None),
    ):
        if said:
            raise BadQuery(f"a rollup has no {clause}: it is of every tuple, and exact")
    kept: dict[Column, PartialState] = {}
    for aggregate in query.aggregates:
        if aggregate != _ROWS:
            column, state = _kept_of(aggregate)
            kept[column] = kept.get(column, PartialState.NONE) | state
    return Rollup(schema.time_column, _width_us(query), _groups_of(query, schema), kept)


_ROWS = Aggregate(AggregateFunction.COUNT, None, type=ColumnType.BIGINT)


def _width_us(query: BoundQuery) -> int:
    window = query.window
    if not isinstance(window, RangeWindow) or window.range_us != window.slide_us:
        raise BadQuery("a rollup needs a tumbling window: FROM stream [RANGE 1 HOUR]")
    return window.range_us


def _groups_of(query: BoundQuery, schema: StreamSchema) -> tuple[Column, ...]:
    groups = []
    for group in query.groups:
        if not isinstance(group, Column) or group.name == schema.time_column:
            raise BadQuery(
                f"a rollup's groups are columns other than {schema.time_column!r}, not "
                f"{text_of(group)}; the window is a group already"
            )
        if group.name.startswith(OWN_PREFIX):
            raise BadQuery(f"a rollup's groups cannot begin with __, as {group.name!r} does")
        groups.append(group)
    return tuple(groups)


def _kept_of(aggregate: Aggregate) -> tuple[Column, PartialState]:
    column, needs = aggregate.argument, _NEEDS.get(aggregate.function)
    if needs is None:
        raise BadQuery(f"{text_of(aggregate)} cannot be kept in a rollup; {_DERIVED} can")
    if not isinstance(column, Column):
        raise BadQuery(f"a rollup's aggregates are of columns, not {text_of(aggregate)}")
    if column.type is ColumnType.VARCHAR and needs:
        raise BadQuery(f"of text, a rollup keeps only COUNT, not {text_of(aggregate)}")
    return column, needs


# --- what it answers ------------------------------------------------------------------------------


def answers(rollup: Rollup, query: BoundQuery) -> bool:
    """Return whether whole windows of the rollup answer a query's groups, WHERE and aggregates."""
    if query.reduction is not None:
        return False
    per_tuple = (*query.groups, *((query.where,) if query.where is not None else ()))
    return all(_known(rollup, part) for part in per_tuple) and all(
        _derived(rollup, aggregate) for aggregate in query.aggregates
    )


def _derived(rollup: Rollup, aggregate: Aggregate) -> bool:
    if aggregate == _ROWS:
        return True
    needs = _NEEDS.get(aggregate.function)
    if needs is None or not isinstance(aggregate.argument, Column):
        return False
    kept = rollup.kept.get(aggregate.argument)
    return kept is not None and needs & kept == needs


def _known(rollup: Rollup, node: Expression) -> bool:
    """Return whether an expression has one value for all tuples of a window and group."""
    match node:
        case Literal():
            return True
        case Column():
            return node in rollup.groups
        case Call(op=Op.DATE_TRUNC | Op.EXTRACT, args=(Literal(value=str(unit)), Column(name))):
            if name == rollup.time_column:
                return _unit_us(unit) % rollup.width_us == 0
            return node.args[1] in rollup.groups
        case Call(op=Op.CAST, args=(Column(name),), type=ColumnType.DATE):
            if name == rollup.time_column:
                return UNITS_US["DAY"] % rollup.width_us == 0
            return node.args[0] in rollup.groups
        case Call(args=args):
            return all(_known(rollup, part) for part in args)
    return False


def _unit_us(unit: str) -> int:
    """A length that whole windows must fit into for the unit to be the same in all of each."""
    if unit == "EPOCH":
        return 1
    size = UNITS_US.get(unit, 0)
    day = UNITS_US["DAY"]  # Weeks, months, years and their parts begin where days begin.
    return size if 0 < size < day else day


def rollup_text(rollup: Rollup) -> str:
    """A rollup's window and groups, in words."""
    groups = ", ".join(column.name for column in rollup.groups)
    return f"{duration_text(rollup.width_us)}" + (f" by {groups}" if groups else "")
