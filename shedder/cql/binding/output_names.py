"""Names of outputs: expansion of stars, and aliases in the clauses of a SELECT."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from shedder.cql.binding.relational_scope import NameScope
from shedder.cql.binding.select_list import free_name
from shedder.cql.binding.typed_expressions import not_too_large, replaced_columns
from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.expressions.expression_text import quoted, text_of
from shedder.cql.statements.relational_tree import Star
from shedder.cql.statements.statement import Output
from shedder.errors import BadQuery


def expanded(items: Iterable[Output | Star], scope: NameScope) -> tuple[Output, ...]:
    """The select list with all columns in place of stars, each output with a name of its own.

    A column of a star that has the name of an output before it gets a number behind its name.

    Raises:
      BadQuery: the qualifier of a star names no relation.
    """
    outputs: list[Output] = []
    taken = {item.name.lower() for item in items if isinstance(item, Output) and _is_named(item)}
    for item in items:
        match item:
            case Output() if _is_named(item):
                outputs.append(item)
                continue
            case Output():
                columns: Sequence[tuple[str, Expression]] = [(item.name, item.expression)]
            case Star(qualifier=qualifier):
                columns = scope.star(qualifier)
        for name, expression in columns:
            unique = free_name(name, taken)
            taken.add(unique.lower())
            outputs.append(Output(unique, expression))
    return tuple(outputs)


def _is_named(item: Output) -> bool:
    """Return whether the name was given with AS: a column alone has its own without."""
    return not isinstance(item.expression, Column) or item.expression.name != item.name


class Aliases:
    """Aliases of outputs in the clauses of a SELECT."""

    def __init__(self, scope: NameScope, items: Iterable[Output]) -> None:
        """scope: of FROM. items: the select list without stars."""
        self._scope = scope
        self._own = replace(scope, outer=None)
        self._aliases = {item.name.lower(): item.expression for item in items}

    def in_where(self, node: Expression) -> Expression:
        """Outputs in place of their aliases, where no column of FROM has the name.

        Raises:
          BadQuery: the name is that of an output and of a column of the query around.
        """
        return not_too_large(replaced_columns(node, self._is_alias, self._aliases))

    def after_groups(self, node: Expression, groups: Collection[Expression]) -> Expression:
        """Outputs in place of their aliases, where no group is a column of the name."""

        def is_alias(column: Column) -> bool:
            return column.qualifier is None and not self._is_group(column, groups)

        return not_too_large(replaced_columns(node, is_alias, self._aliases))

    def in_order(self, node: Expression, groups: Collection[Expression] | None) -> Expression:
        """An alias alone is the output; inside of an expression columns come first.

        groups: None: the query has none.
        """
        if isinstance(node, Column) and node.qualifier is None:
            return self._aliases.get(node.name.lower(), node)
        return self.in_where(node) if groups is None else self.after_groups(node, groups)

    def _is_alias(self, column: Column) -> bool:
        if column.qualifier is not None or column.name.lower() not in self._aliases:
            return False
        if self._own.find(column) is not None:
            return False
        around = self._scope.find(column)
        if around is not None:
            raise BadQuery(
                f"the name {column.name!r} could be the output {quoted(column.name)} of the "
                f"subquery, or {text_of(around)} of the query around it; write the qualifier"
            )
        return True

    def _is_group(self, column: Column, groups: Collection[Expression]) -> bool:
        try:
            found = self._own.find(column)
        except BadQuery:  # It can be several columns; the alias is one thing.
            return False
        return found is not None and found in groups
