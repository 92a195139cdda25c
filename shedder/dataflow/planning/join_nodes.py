"""Nodes of joins: outer joins and [NOT] EXISTS are made of inner joins, unions and differences."""

from __future__ import annotations

from dataclasses import replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Literal, Op
from shedder.cql.plans.logical_plan import JoinKind
from shedder.cql.statements.statement import Output
from shedder.dataflow.joins.arriving_side import ArrivingSide
from shedder.dataflow.joins.equi_join import EquiJoinSpec
from shedder.dataflow.joins.match_condition import MatchCondition
from shedder.dataflow.multiplicity_kernels import Multiplicity
from shedder.dataflow.planning.graph_nodes import GraphNodes, columns_of

_HIDDEN = "#"  # First character of names that are made here; no column's name begins so.
_TRUE = Literal(True, ColumnType.BOOLEAN)


def add_join(
    nodes: GraphNodes, kind: JoinKind, condition: Expression | None, left: int, right: int
) -> int:
    """Add the nodes of a join that keeps rows without a match, or asks for a match alone."""
    if kind is JoinKind.ANTI_NULL_AWARE:
        return _not_in(nodes, condition, left, right)
    matches = _matches(nodes, condition, left, right)
    match kind:
        case JoinKind.SEMI:
            return _semi(nodes, matches, left, right)
        case JoinKind.ANTI:
            return nodes.without(left, _semi(nodes, matches, left, right))
        case _:
            pairs = add_pairs(nodes, matches, left, right)
            schema = nodes[pairs].schema
            alone = nodes.without(left, _semi(nodes, matches, left, right))
            both = nodes.union(pairs, nodes.padded(alone, schema))
            if kind is JoinKind.LEFT:
                return both
            alone = nodes.without(right, _semi(nodes, matches.mirrored(), right, left))
            return nodes.union(both, nodes.padded(alone, schema))


def add_pairs(
    nodes: GraphNodes,
    matches: MatchCondition,
    left: int,
    right: int,
    arriving: ArrivingSide | None = None,
) -> int:
    """Add an inner join. arriving: as of `EquiJoin`."""
    left, right = nodes.filtered(matches.left, left), nodes.filtered(matches.right, right)
    return nodes.equi_join(EquiJoinSpec(matches.keys, matches.rest), left, right, arriving)


def _matches(
    nodes: GraphNodes, condition: Expression | None, left: int, right: int
) -> MatchCondition:
    names = [frozenset(nodes[each].schema.names) for each in (left, right)]
    return MatchCondition.of(condition, *names)


def _not_in(nodes: GraphNodes, condition: Expression | None, left: int, right: int) -> int:
    """Add the rows of the left for which the condition is false of every row of the right.

    For one equality `a = b` that leaves out rows with a match, all rows while some b is NULL,
    and rows with a = NULL while there is any b.
    """
    matches = _matches(nodes, condition, left, right)
    if len(matches.keys) != 1 or matches != MatchCondition(matches.keys, None, None, None):
        unknown = Call(Op.COALESCE, (condition or _TRUE, _TRUE), ColumnType.BOOLEAN)
        matches = _matches(nodes, unknown, left, right)
        return nodes.without(left, _semi(nodes, matches, left, right))
    ((ours, theirs),) = matches.keys
    nulls = nodes.filtered(_is_null(theirs), right)
    kept = nodes.without(left, _semi(nodes, matches, left, right))
    anything = MatchCondition((), None, None, None)
    kept = nodes.without(kept, _semi(nodes, anything, kept, nulls))
    known = replace(anything, left=_is_null(ours))
    return nodes.without(kept, _semi(nodes, known, kept, right))


def _semi(nodes: GraphNodes, matches: MatchCondition, left: int, right: int) -> int:
    """Add the rows of the left for which a row of the right matches.

    If equal keys are enough, a row pairs with the distinct keys of the right. Otherwise the
    distinct left rows of all pairs say which values match.
    """
    columns = columns_of(nodes[left].schema)
    if matches.rest is None:
        ours = nodes.filtered(matches.left, left)
        keys = tuple(
            Output(f"{_HIDDEN}{at}", right_key) for at, (_, right_key) in enumerate(matches.keys)
        ) or (Output(f"{_HIDDEN}0", Literal(1, ColumnType.BIGINT)),)
        theirs = nodes.projected(keys, nodes.filtered(matches.right, right))
        named = tuple(
            (left_key, Column(output.name, output.expression.type))
            for (left_key, _), output in zip(matches.keys, keys, strict=False)
        )
        distinct = nodes.counted(Multiplicity.DISTINCT, (theirs,))
        return nodes.projected(columns, nodes.equi_join(EquiJoinSpec(named), ours, distinct))
    found = nodes.projected(columns, add_pairs(nodes, matches, left, right))
    distinct = nodes.counted(Multiplicity.DISTINCT, (found,))
    hidden = tuple(Output(f"{_HIDDEN}{at}", output.expression) for at, output in enumerate(columns))
    rows = nodes.projected(hidden, distinct)
    whole = tuple(
        (each.expression, Column(hide.name, each.expression.type))
        for each, hide in zip(columns, hidden, strict=True)
    )
    spec = EquiJoinSpec(whole, nulls_are_equal=True)
    return nodes.projected(columns, nodes.equi_join(spec, left, rows))


def _is_null(expression: Expression) -> Call:
    return Call(Op.IS_NULL, (expression,), ColumnType.BOOLEAN)
