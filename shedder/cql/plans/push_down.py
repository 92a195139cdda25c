"""Selection push-down: conditions are applied as near to the streams as they mean the same.

A condition is over values alone, so it commutes with bag operators (Golab 2006, section 3.5.3). It
stays above a ROWS window, which counts all rows; above RSTREAM, whose instants depend on all rows;
above the side of an outer join that is filled with NULLs; and above LIMIT.

DISTINCT, set operations and GROUP BY make -0.0 to 0.0 and NaN to NULL. So conditions over DOUBLE
stay above them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.conjunctions import conjunction, conjuncts, names_in, with_columns
from shedder.cql.expressions.expression import Column, Expression, parts_of
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
    SetOperator,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.plans.plan_columns import column_names, columns_of
from shedder.cql.statements.statement import RangeWindow

Terms = Sequence[Expression]


def pushed_down(plan: Plan) -> Plan:
    """Return a plan with the same result, whose conditions are as low as they can be."""
    return _with(plan, ())


def _with(plan: Plan, terms: Terms) -> Plan:
    """The rows of a plan for which all terms are true."""
    match plan:
        case Filter(input=source, condition=condition):
            return _with(source, [*conjuncts(condition), *terms])
        case Project(input=source, outputs=outputs):
            made = {output.name: output.expression for output in outputs}
            below, above = _renamed(terms, made)
            return _filtered(replace(plan, input=_with(source, below)), above)
        case Join():
            return _join(plan, terms)
        case Distinct(input=source):
            below, above = _parted(terms, without_doubles=True)
            return _filtered(replace(plan, input=_with(source, below)), above)
        case SetOperation():
            return _set_operation(plan, terms)
        case Aggregated(input=source, groups=groups):
            made = {f"g{at}": group for at, group in enumerate(groups)}
            of_groups, above = _parted(terms, without_doubles=True)
            below, others = _renamed(of_groups, made)
            return _filtered(replace(plan, input=_with(source, below)), [*others, *above])
        case WindowOf(input=source, window=window, condition=condition):
            if isinstance(window, RowsWindow) or _collapses(plan):
                return _filtered(replace(plan, input=_with(source, ())), terms)
            below = [*conjuncts(condition), *terms]
            return replace(plan, input=_with(source, below), condition=None)
        case ToStream(operator=StreamOperator.RSTREAM) | Ordered():
            return _filtered(replace(plan, input=_with(plan.input, ())), terms)
        case ToStream(input=source):
            below, above = _parted(terms, without_doubles=True)
            return _filtered(replace(plan, input=_with(source, below)), above)
        case Scan():
            return _filtered(plan, terms)


def _join(plan: Join, terms: Terms) -> Plan:
    """A join whose inputs have the conditions that only they are needed for."""
    left, right = (column_names(side) for side in (plan.left, plan.right))
    on = conjuncts(plan.condition)
    ours: list[Expression] = []
    theirs: list[Expression] = []
    above: list[Expression] = []
    match plan.kind:
        case JoinKind.INNER:
            both = [*on, *terms]
            ours = [term for term in both if names_in(term) <= left]
            theirs = [term for term in both if term not in ours and names_in(term) <= right]
            on = [term for term in both if term not in ours and term not in theirs]
        case JoinKind.SEMI | JoinKind.ANTI:
            ours = list(terms)
            theirs = [term for term in on if _is_of(term, right)]
            on = [term for term in on if term not in theirs]
        case JoinKind.ANTI_NULL_AWARE:
            ours = list(terms)
        case JoinKind.LEFT:
            ours = [term for term in terms if names_in(term) <= left]
            above = [term for term in terms if term not in ours]
            theirs = [term for term in on if _is_of(term, right)]
            on = [term for term in on if term not in theirs]
        case JoinKind.FULL:
            above = list(terms)
    made = Join(plan.kind, _with(plan.left, ours), _with(plan.right, theirs), conjunction(on))
    return _filtered(made, above)


def _set_operation(plan: SetOperation, terms: Terms) -> Plan:
    """Columns are matched by place, and have the names of the left side."""
    ours, theirs = columns_of(plan.left), columns_of(plan.right)
    pairs = zip(ours, theirs, strict=True)
    by = {left.name: Column(right.name, right.type) for left, right in pairs}
    is_bag_union = plan.operator is SetOperator.UNION and plan.all
    below, above = _parted(terms, without_doubles=not is_bag_union)
    renamed, others = _renamed(below, by)
    kept = [term for term in below if term not in others]
    made = replace(plan, left=_with(plan.left, kept), right=_with(plan.right, renamed))
    return _filtered(made, [*others, *above])


def _filtered(plan: Plan, terms: Terms) -> Plan:
    condition = conjunction(terms)
    return plan if condition is None else Filter(plan, condition)


def _renamed(
    terms: Terms, by: Mapping[str, Expression]
) -> tuple[list[Expression], list[Expression]]:
    """Terms over the expressions that columns are, and the terms for which that is not possible."""
    below: list[Expression] = []
    above: list[Expression] = []
    for term in terms:
        columns = [part for part in parts_of(term) if isinstance(part, Column)]
        if columns and all(_is_same(column, by.get(column.name)) for column in columns):
            below.append(with_columns(term, by))
        else:
            above.append(term)
    return below, above


def _is_same(column: Column, other: Expression | None) -> bool:
    """Return whether an expression has the type of a column. A bare NULL has none."""
    return other is not None and other.type is not None and other.type is column.type


def _parted(terms: Terms, *, without_doubles: bool) -> tuple[list[Expression], list[Expression]]:
    """Terms that read columns, none of them DOUBLE, and other terms."""
    below: list[Expression] = []
    above: list[Expression] = []
    for term in terms:
        kinds = [part.type for part in parts_of(term) if isinstance(part, Column)]
        is_below = bool(kinds) and not (without_doubles and ColumnType.DOUBLE in kinds)
        (below if is_below else above).append(term)
    return below, above


def _is_of(term: Expression, names: frozenset[str]) -> bool:
    """Return whether a term reads columns, and these alone."""
    read = names_in(term)
    return bool(read) and read <= names


def _collapses(plan: WindowOf) -> bool:
    return isinstance(plan.window, RangeWindow) and plan.window.collapse is not None
