"""Thinning keys: columns by whose values all inputs of a plan can be sampled alike.

A selection by a hash of these columns goes down to each stream: through an equality of a join to
both sides, through DISTINCT and set operations by place, through PARTITION BY and GROUP BY by
their columns. So the plan over the sampled tuples has exactly those rows of its result whose key
is in the sample. No row is false, below a negation either: the sides of a join or of EXCEPT lose
the same keys (universe sampling; Kandula et al. 2016, Quickr, section 4.1.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.conjunctions import conjuncts
from shedder.cql.expressions.expression import Call, Column, Expression, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    SetOperation,
    SetOperator,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.plans.plan_columns import column_names, columns_of
from shedder.cql.plans.push_down import pushed_down

_WHOLE = (ColumnType.INTEGER, ColumnType.BIGINT)
_BY_KEY = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)  # By columns of the left.


@dataclass(frozen=True, slots=True)
class ThinningKeys:
    """The key of each row of a plan, and of each tuple that its streams bring.

    columns: of the result, in its order; at least one.
    sources: by alias of a stream, names of its columns, of equal values in the same order.
    rows_max: copies and rows that one key can have in the relation at an instant; None: any number.
    """

    columns: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]
    rows_max: int | None


def thinning_keys(plan: Plan, hidden: frozenset[str]) -> ThinningKeys | None:
    """Return all columns of a plan that every input has; None: there are none.

    hidden: names that are left out.
    """
    plan = pushed_down(plan)
    found = dict[str, dict[str, str]]()
    for column in columns_of(plan):
        names = _sources(plan, Column(column.name, column.type))
        if names is not None and column.name not in hidden:
            found[column.name] = names
    if not found:
        return None
    aliases = next(iter(found.values()))
    sources = {alias: tuple(each[alias] for each in found.values()) for alias in aliases}
    return ThinningKeys(tuple(found), sources, _rows_max(plan, frozenset(found)))


def _sources(plan: Plan, column: Column) -> dict[str, str] | None:
    """Return the column of each stream, by alias, whose value a column of the rows has.

    None: for some stream there is no such column, or its tuples cannot be left out by their value.
    """
    match plan:
        case Scan(kind=RelationKind.STREAM, alias=alias, sample=None):
            return {alias: column.name}
        case Project(outputs=outputs):
            [made] = (it.expression for it in outputs if it.name == column.name)
            return _of_expression(plan.input, made)
        case Aggregated(sampling=None, listed=None, groups=groups):
            by_name = {f"g{at}": group for at, group in enumerate(groups)}
            return _of_expression(plan.input, by_name.get(column.name))
        case WindowOf(window=RowsWindow() as window):
            by_partition = column.name in window.partition and window.slide_rows == 1
            return _sources(plan.input, column) if by_partition else None
        case Filter() | Distinct() | WindowOf():
            return _sources(plan.input, column)
        case ToStream(operator=StreamOperator.ISTREAM | StreamOperator.DSTREAM):
            return _sources(plan.input, column)
        case SetOperation():
            at = [it.name for it in columns_of(plan.left)].index(column.name)
            other = columns_of(plan.right)[at]
            return _both(plan, column, Column(other.name, other.type))
        case Join():
            return _of_join(plan, column)
        case _:
            return None


def _of_expression(plan: Plan, expression: Expression | None) -> dict[str, str] | None:
    column = None if expression is None else _column(expression)
    return None if column is None else _sources(plan, column)


def _column(expression: Expression) -> Column | None:
    """Return the column of whose values, with their hashes, an expression is; None: of none."""
    match expression:
        case Column():
            return expression
        case Call(op=Op.CAST, args=(Column() as column,), type=kind):
            return column if kind in _WHOLE and column.type in _WHOLE else None
        case _:
            return None


def _both(plan: Join | SetOperation, left: Column, right: Column) -> dict[str, str] | None:
    """Return the columns of both sides; None: values that are equal may have different hashes."""
    if left.type is not right.type and not (left.type in _WHOLE and right.type in _WHOLE):
        return None
    ours, theirs = _sources(plan.left, left), _sources(plan.right, right)
    return None if ours is None or theirs is None else ours | theirs


def _of_join(join: Join, column: Column) -> dict[str, str] | None:
    """Return the columns of both sides, of which the other is equal by the condition.

    A column of the side that an outer join fills with NULLs does not tell the key. NOT IN looks
    for NULLs among all rows.
    """
    is_left = column.name in column_names(join.left)
    if join.kind not in (_BY_KEY if is_left else (JoinKind.INNER,)):
        return None
    ours, theirs = (join.left, join.right) if is_left else (join.right, join.left)
    equal, names = _equal_columns(ours, column), column_names(theirs)
    for one, two in _equalities(join.condition):
        for here, there in ((one, two), (two, one)):
            if here.name in equal and there.name in names:
                found = _both(join, *((column, there) if is_left else (there, column)))
                if found is not None:
                    return found
    return None


def _equalities(condition: Expression | None) -> Iterator[tuple[Column, Column]]:
    for term in conjuncts(condition):
        if isinstance(term, Call) and term.op is Op.EQ:
            one, two = map(_column, term.args)
            if one is not None and two is not None:
                yield one, two


def _equal_columns(plan: Plan, column: Column) -> frozenset[str]:
    """Return the names of columns that are equal to a column by inner joins, and its own."""
    pairs, waiting = list[tuple[str, str]](), [plan]
    while waiting:
        match waiting.pop():
            case Join(kind=JoinKind.INNER, left=left, right=right, condition=condition):
                pairs += [(one.name, two.name) for one, two in _equalities(condition)]
                waiting += [left, right]
            case Filter(input=source, condition=condition):
                waiting.append(source)
    found = {column.name}
    for _ in pairs:
        found |= {name for pair in pairs if found & set(pair) for name in pair}
    return frozenset(found)


def _rows_max(plan: Plan, key: frozenset[str]) -> int | None:
    """Return how many rows, copies among them, of one key a relation can have."""
    match plan:
        case Project(outputs=outputs):
            made = [it.expression for it in outputs if it.name in key]
            names = frozenset(it.name for it in made if isinstance(it, Column))
            return _rows_max(plan.input, names)
        case WindowOf(window=RowsWindow(rows=rows, partition=partition)):
            return rows if key.issuperset(partition) else None
        case Filter() | WindowOf() | Join(kind=JoinKind.SEMI | JoinKind.ANTI):
            source = plan.left if isinstance(plan, Join) else plan.input
            return _rows_max(source, key)
        case Distinct():
            return 1 if key.issuperset(column_names(plan)) else _rows_max(plan.input, key)
        case SetOperation(all=False) if key.issuperset(column_names(plan)):
            return 1
        case SetOperation(operator=SetOperator.EXCEPT | SetOperator.INTERSECT):
            return _rows_max(plan.left, key)
        case Aggregated(groups=groups):
            return 1 if key.issuperset(f"g{at}" for at in range(len(groups))) else None
        case _:
            return None
