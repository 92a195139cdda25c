"""Conjunctions: conditions as terms joined by AND, and the columns that expressions read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Op, chained, parts_of


def conjuncts(condition: Expression | None) -> list[Expression]:
    """The terms of a condition that are joined by AND; none: of None."""
    return [] if condition is None else chained(Op.AND, condition)


def conjunction(terms: Sequence[Expression]) -> Expression | None:
    """The terms joined by AND, as a balanced tree; None: of none."""
    if len(terms) < 2:
        return terms[0] if terms else None
    middle = (len(terms) + 1) // 2
    left, right = conjunction(terms[:middle]), conjunction(terms[middle:])
    assert left is not None
    assert right is not None
    return Call(Op.AND, (left, right), ColumnType.BOOLEAN)


def names_in(expression: Expression) -> frozenset[str]:
    """Names of the columns that an expression reads."""
    return frozenset(part.name for part in parts_of(expression) if isinstance(part, Column))


def with_columns(expression: Expression, by: Mapping[str, Expression]) -> Expression:
    """The expression, without aggregates, with other expressions in place of columns, by name."""
    done: dict[int, Expression] = {}  # By identity: a node that a tree has twice is replaced once.

    def replaced(node: Expression) -> Expression:
        if isinstance(node, Column):
            return by.get(node.name, node)
        if not isinstance(node, Call):
            return node
        if id(node) not in done:
            done[id(node)] = replace(node, args=tuple(map(replaced, node.args)))
        return done[id(node)]

    return replaced(expression)
