"""Placement of conditions: relations of FROM and conditions over them to a tree of joins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shedder.cql.binding.expression_translation import balanced
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Op, chained, parts_of
from shedder.cql.plans.logical_plan import Filter, Join, JoinKind, Plan
from shedder.errors import BadQuery


@dataclass(frozen=True, slots=True)
class JoinPart:
    """A part of FROM that inner joins connect with other parts.

    names: of its columns in the plan. shown: for errors. crosses: CROSS JOIN allows all pairs.
    """

    plan: Plan
    names: frozenset[str]
    shown: str
    crosses: bool = False


def conjuncts(condition: Expression | None) -> list[Expression]:
    """The conditions of a chain of AND."""
    return [] if condition is None else chained(Op.AND, condition)


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """One typed condition of several; None: of none."""
    if not conditions:
        return None
    found = balanced(Op.AND, conditions)
    return _typed(found) if len(conditions) > 1 else found


def _typed(node: Expression) -> Expression:
    """The chain of AND with types; its terms have theirs."""
    if isinstance(node, Call) and node.op is Op.AND and node.type is None:
        return Call(Op.AND, tuple(map(_typed, node.args)), ColumnType.BOOLEAN)
    return node


def names_in(expression: Expression) -> frozenset[str]:
    """Names of the columns that an expression reads."""
    return frozenset(part.name for part in parts_of(expression) if isinstance(part, Column))


def filtered(plan: Plan, conditions: Sequence[Expression]) -> Plan:
    """The rows for which all conditions are true."""
    condition = conjunction(conditions)
    return plan if condition is None else Filter(plan, condition)


def connected(parts: Sequence[JoinPart], conditions: Iterable[Expression]) -> JoinPart:
    """The inner join of parts, in the order in which conditions connect them.

    A condition over one part filters that part. A condition over several is of the join at which
    the last of them comes in. A condition without columns filters the result.

    Raises:
      BadQuery: a part is connected with the others by no condition and by no CROSS JOIN.
    """
    waiting = list(dict.fromkeys(conditions))
    filters = [[each for each in waiting if _is_of(each, part.names)] for part in parts]
    for each in filters:
        waiting = [condition for condition in waiting if condition not in each]
    first, *rest = (
        JoinPart(filtered(part.plan, own), part.names, part.shown, part.crosses)
        for part, own in zip(parts, filters, strict=True)
    )
    while rest:
        following = _following(first, rest, waiting)
        rest.remove(following)
        names = first.names | following.names
        over = [condition for condition in waiting if _is_of(condition, names)]
        waiting = [condition for condition in waiting if condition not in over]
        plan = Join(JoinKind.INNER, first.plan, following.plan, conjunction(over))
        first = JoinPart(plan, names, f"{first.shown}, {following.shown}", first.crosses)
    return JoinPart(filtered(first.plan, waiting), first.names, first.shown, first.crosses)


def _is_of(condition: Expression, names: frozenset[str]) -> bool:
    read = names_in(condition)
    return bool(read) and read <= names


def _following(
    first: JoinPart, rest: Sequence[JoinPart], waiting: Sequence[Expression]
) -> JoinPart:
    """The next part: one that a condition connects, else one of a CROSS JOIN."""
    for part in rest:
        names = first.names | part.names
        if any(_is_of(condition, names) for condition in waiting):
            return part
    for part in rest:
        if part.crosses or first.crosses:
            return part
    raise BadQuery(
        f"{rest[0].shown} is joined with {first.shown} without a condition; add one to WHERE or ON "
        f"that compares columns of both, or write CROSS JOIN for all pairs"
    )
