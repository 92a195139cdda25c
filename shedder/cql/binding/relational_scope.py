"""Scopes: the relations in FROM of a query, by which its columns are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.expressions.expression_text import quoted
from shedder.cql.plans.logical_plan import WindowOf
from shedder.errors import BadQuery, UnknownColumn


@dataclass(frozen=True, slots=True)
class VisibleColumn:
    """A column of a relation in FROM: its name there, and its typed column in the plan."""

    name: str
    column: Column


@dataclass(frozen=True, slots=True)
class VisibleRelation:
    """A relation in FROM, by the name that the query gave it.

    window: over the relation; None: there is none.
    """

    alias: str
    columns: tuple[VisibleColumn, ...]
    window: WindowOf | None = None

    def is_named(self, qualifier: str) -> bool:
        """Return whether the qualifier means this relation."""
        return self.alias.lower() == qualifier.lower()


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A column of USING: its name, and its value in a joined row."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class NameScope:
    """What the names of one SELECT can mean.

    relations: of FROM, left to right. merged: columns of USING.
    outer: scope of the query around a subquery of an expression; None: there is none.
    """

    relations: tuple[VisibleRelation, ...]
    merged: tuple[MergedColumn, ...] = ()
    outer: NameScope | None = None

    def find(self, column: Column) -> Expression | None:
        """What a column means here, or around here; None: nothing.

        Raises:
          BadQuery: it can be several; the candidates are named.
        """
        found = self._own(column)
        if found is None and self.outer is not None:
            return self.outer.find(column)
        return found

    def required(self, column: Column) -> Expression:
        """What a column means.

        Raises:
          UnknownColumn. BadQuery: no relation has the qualifier, or it can mean several.
        """
        found = self.find(column)
        if found is not None:
            return found
        qualifier = column.qualifier
        if qualifier is not None and not any(each.is_named(qualifier) for each in self.visible()):
            known = ", ".join(dict.fromkeys(quoted(each.alias) for each in self.visible()))
            raise BadQuery(
                f"{quoted(qualifier)}.{quoted(column.name)}: no relation {quoted(qualifier)} in "
                f"FROM; there are {known}"
            )
        several = len(list(self.visible())) > 1
        raise UnknownColumn(
            column.name if qualifier is None else f"{qualifier}.{column.name}",
            [
                f"{relation.alias}.{each.name}" if several else each.name
                for relation in self.visible()
                for each in relation.columns
            ],
        )

    def visible(self) -> Iterator[VisibleRelation]:
        """The relations of this scope and of those around it, innermost first."""
        yield from self.relations
        if self.outer is not None:
            yield from self.outer.visible()

    def star(self, qualifier: str | None = None) -> list[tuple[str, Column]]:
        """The columns that a star means: their names, and how a query may write them.

        A column of USING stands once, before the others.

        Raises:
          BadQuery: no relation of this scope is named so.
        """
        if qualifier is not None:
            relations = [each for each in self.relations if each.is_named(qualifier)]
            if not relations:
                known = ", ".join(quoted(each.alias) for each in self.relations)
                shown = quoted(qualifier)
                raise BadQuery(f"{shown}.*: no relation {shown} in FROM; there are {known}")
            return [
                (each.name, Column(each.name, qualifier=relation.alias))
                for relation in relations
                for each in relation.columns
            ]
        merged = {each.name.lower() for each in self.merged}
        return [(each.name, Column(each.name)) for each in self.merged] + [
            (each.name, Column(each.name, qualifier=relation.alias))
            for relation in self.relations
            for each in relation.columns
            if each.name.lower() not in merged
        ]

    def _own(self, column: Column) -> Expression | None:
        if column.qualifier is None:
            for merged in self.merged:
                if merged.name.lower() == column.name.lower():
                    return merged.value
            candidates = self.relations
        else:
            qualifier = column.qualifier
            candidates = tuple(each for each in self.relations if each.is_named(qualifier))
        found = [
            (relation.alias, each)
            for relation in candidates
            for each in _named(relation.columns, column.name)
        ]
        if len(found) > 1:
            shown = " or ".join(f"{quoted(alias)}.{quoted(each.name)}" for alias, each in found)
            raise BadQuery(f"the name {column.name!r} could be {shown}; write one of them")
        return found[0][1].column if found else None


def _named(columns: Sequence[VisibleColumn], name: str) -> list[VisibleColumn]:
    """The column of exactly this name, or those that differ in case."""
    exact = [each for each in columns if each.name == name]
    return exact or [each for each in columns if each.name.lower() == name.lower()]
