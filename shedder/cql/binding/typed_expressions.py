"""Types for expressions whose columns are found by the caller, and checks of aggregates."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    LISTS,
    UNBOUND,
    Aggregate,
    Call,
    Column,
    Expression,
    Literal,
    Op,
    parts_of,
    size_of,
)
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.expressions.histograms import is_histogram
from shedder.cql.expressions.type_inference import typed_aggregate, typed_call, with_type
from shedder.cql.statements.statement import OrderKey
from shedder.errors import BadQuery, TypeMismatch

_PARTS_MAX = 100_000


class Typer:
    """Gives expressions their types."""

    def __init__(
        self, column: Callable[[Column], Expression], unbound: Callable[[Call], Expression]
    ) -> None:
        """Begin without expressions.

        Args:
          column: finds a column by its name.
          unbound: finds what stands for a call of UNBOUND, or for a call over PREV.
        """
        self._column = column
        self._unbound = unbound
        # By identity, with the node: a node that a tree has twice is bound once.
        self._bound: dict[int, tuple[Expression, Expression]] = {}

    def bound(self, node: Expression) -> Expression:
        """The expression with all types."""
        known = self._bound.get(id(node))
        if known is None:
            known = self._bound[id(node)] = (node, self._typed(node))
        return known[1]

    def value(self, node: Expression) -> Expression:
        """The expression with all types; a bare NULL is a BIGINT."""
        return with_type(self.bound(node), ColumnType.BIGINT)

    def condition(self, where: str, node: Expression) -> Expression:
        """The expression with all types, if it is a BOOLEAN.

        Raises:
          TypeMismatch.
        """
        found = with_type(self.bound(node), ColumnType.BOOLEAN)
        if found.type is not ColumnType.BOOLEAN:
            kind = found.type.value if found.type is not None else "a list"
            raise TypeMismatch(f"{where} takes a condition, not {text_of(found)}, which is {kind}")
        return found

    def _typed(self, node: Expression) -> Expression:
        match node:
            case Column():
                return self._column(node)
            case Literal():
                return node
            case Aggregate():
                argument = None if node.argument is None else self._part(node.argument)
                second = None if node.second is None else self._part(node.second)
                conditions = tuple(map(self._part, node.conditions))
                return typed_aggregate(node, argument, second, conditions)
            case Call(op=op) if op in UNBOUND or any(map(is_previous, node.args)):
                return self._unbound(node)
            case Call():
                return typed_call(node, tuple(self._part(arg) for arg in node.args))

    def _part(self, node: Expression) -> Expression:
        listed = isinstance(node, Aggregate) and node.function in LISTS
        if listed or is_histogram(node):
            raise TypeMismatch(f"{text_of(node)} is a list; it stands alone in the select list")
        return self.bound(node)


def is_previous(node: Expression) -> bool:
    """Return whether the expression is PREV(x), whose argument is no column."""
    return isinstance(node, Call) and node.op is Op.PREV


def replaced_columns(
    node: Expression, wanted: Callable[[Column], bool], by: Mapping[str, Expression]
) -> Expression:
    """The expression with outputs in place of their aliases, where `wanted`."""
    done: dict[int, Expression] = {}  # By identity: a node that a tree has twice is replaced once.

    def replaced(node: Expression) -> Expression:
        match node:
            case Column(name=name) if name.lower() in by and wanted(node):
                return by[name.lower()]
            case Call(args=args):
                if id(node) not in done:
                    new = tuple(map(replaced, args))
                    is_same = all(map(operator.is_, new, args))
                    done[id(node)] = node if is_same else replace(node, args=new)
                return done[id(node)]
            case _:
                return node  # An aggregate's argument is of the stream, never an alias.

    return replaced(node)


def not_too_large(node: Expression) -> Expression:
    """The expression, unless a large output stands in it many times."""
    if size_of(node) > _PARTS_MAX:
        raise BadQuery(
            f"with the outputs it names, an expression has more than {_PARTS_MAX:,} parts"
        )
    return node


def forbid_aggregates(where: str, node: Expression) -> None:
    """Refuse an aggregate in a clause.

    Raises:
      BadQuery.
    """
    for part in parts_of(node):
        if isinstance(part, Aggregate):
            hint = "; use HAVING" if where == "WHERE" else ""
            raise BadQuery(f"{text_of(part)} is an aggregate and cannot stand in {where}{hint}")


def aggregates_in(nodes: Iterable[Expression]) -> tuple[Aggregate, ...]:
    """Each distinct aggregate once, in order of appearance.

    Raises:
      BadQuery: one stands inside of another.
    """
    found: dict[Aggregate, None] = {}
    for node in nodes:
        for part in parts_of(node):
            if not isinstance(part, Aggregate):
                continue
            found[part] = None
            if any(isinstance(below, Aggregate) for below in parts_of(part) if below is not part):
                raise BadQuery(f"{text_of(part)}: an aggregate cannot stand inside another")
    return tuple(found)


def check_grouped(node: Expression, groups: Sequence[Expression]) -> None:
    """Refuse a column that is neither grouped nor aggregated.

    Raises:
      BadQuery.
    """
    seen: set[int] = set()  # A node that a tree has twice is checked once.

    def check(node: Expression) -> None:
        if id(node) in seen or node in groups:
            return
        seen.add(id(node))
        match node:
            case Column(name=name):
                raise BadQuery(
                    f"column {name!r} is neither in GROUP BY nor inside an aggregate; "
                    f"add GROUP BY {text_of(node)}, or ask for MIN({text_of(node)})"
                )
            case Call(args=args):
                for arg in args:
                    check(arg)

    check(node)


def check_order(order: Sequence[OrderKey]) -> None:
    """Refuse lists as keys of ORDER BY.

    Raises:
      TypeMismatch.
    """
    for key in order:
        if isinstance(key.expression, (Aggregate, Call)) and key.expression.type is None:
            raise TypeMismatch(f"{text_of(key.expression)} is a list and has no order")
