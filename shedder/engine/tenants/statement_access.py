"""Statement table: the scope that each class of statement needs, and the names that it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from shedder.cql.statements import statement as cql
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.engine.runtime.caller import Scope

S = TypeVar("S", bound=cql.Statement)


class NameKind(Enum):
    """What a name in a statement must be; a new name must not be another tenant's."""

    STREAM = "stream"
    TABLE = "table"
    RELATION = "stream or table"
    QUERY = "query"
    VIEW = "view"
    ROLLUP = "rollup"
    DESCRIBED = "stream, table or query"
    NEW_STREAM = "new stream"
    NEW_TABLE = "new table"
    NEW_QUERY = "new query"
    NEW_VIEW = "new view"
    NEW_ROLLUP = "new rollup"


@dataclass(frozen=True, slots=True)
class UsedName:
    """A name that a statement uses.

    if_exists: the statement does nothing when the name does not exist.
    """

    kind: NameKind
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class StatementAccess:
    """A row of the table.

    scope: needed beside the scope of the method that carries the statement.
    names: returns the names of a statement, in the order in which they are checked.
    """

    scope: Scope
    names: Callable[[Any], tuple[UsedName, ...]]


def scope_of(statement: cql.Statement) -> Scope:
    """Return the scope that a statement needs."""
    return STATEMENTS[type(statement)].scope


def names_of(statement: cql.Statement) -> tuple[UsedName, ...]:
    """Return the names that a statement uses, in the order in which they are checked."""
    return STATEMENTS[type(statement)].names(statement)


def _row(
    kind: type[S], scope: Scope, names: Callable[[S], tuple[UsedName, ...]] = lambda _: ()
) -> tuple[type[Any], StatementAccess]:
    return kind, StatementAccess(scope, names)


def _used(kind: NameKind, name: str, if_exists: bool = False) -> tuple[UsedName]:
    return (UsedName(kind, name, if_exists),)


def _stream(name: str) -> tuple[UsedName]:
    return _used(NameKind.STREAM, name)


def _relation(name: str) -> tuple[UsedName]:
    return _used(NameKind.RELATION, name)


def _query(name: str) -> tuple[UsedName]:
    return _used(NameKind.QUERY, name)


def _new(kind: NameKind, name: str, query: cql.Select | RelationalSelect) -> tuple[UsedName, ...]:
    return names_of(query) + _used(kind, name)


def _relations(select: RelationalSelect) -> tuple[UsedName, ...]:
    """The names in FROM at any depth."""
    return tuple(UsedName(NameKind.RELATION, name) for name in select.relations)


def _created_insert(insert: cql.CreateInsert) -> tuple[UsedName, ...]:
    return _stream(insert.stream) + _new(NameKind.NEW_QUERY, insert.name, insert.select)


def _inserted(insert: cql.Insert) -> tuple[UsedName, ...]:
    source = () if insert.select is None else _relation(insert.select.stream)
    return _relation(insert.stream) + source


def _subject(subject: cql.Statement | str) -> tuple[UsedName, ...]:
    """The names of what is explained: a statement, or the name of a query."""
    return _query(subject) if isinstance(subject, str) else names_of(subject)


STATEMENTS: Mapping[type[Any], StatementAccess] = MappingProxyType(
    dict(
        [
            _row(cql.Select, Scope.QUERY, lambda s: _relation(s.stream)),
            _row(RelationalSelect, Scope.QUERY, _relations),
            _row(
                cql.CreateQuery, Scope.QUERY, lambda s: _new(NameKind.NEW_QUERY, s.name, s.select)
            ),
            _row(cql.DropQuery, Scope.QUERY, lambda s: _used(NameKind.QUERY, s.name, s.if_exists)),
            _row(cql.CreateView, Scope.DEFINE, lambda s: _new(NameKind.NEW_VIEW, s.name, s.select)),
            _row(cql.DropView, Scope.DEFINE, lambda s: _used(NameKind.VIEW, s.name, s.if_exists)),
            _row(cql.CreateInsert, Scope.DEFINE, _created_insert),
            _row(cql.Explain, Scope.QUERY, lambda s: _subject(s.subject)),
            _row(cql.ExplainAllocation, Scope.QUERY),  # Of the caller's queries.
            _row(cql.ExplainPrecision, Scope.QUERY, lambda s: _subject(s.query)),
            _row(cql.Show, Scope.QUERY),  # Of the caller's streams and queries.
            _row(cql.Describe, Scope.QUERY, lambda s: _used(NameKind.DESCRIBED, s.name)),
            _row(cql.Insert, Scope.INGEST, _inserted),
            _row(cql.CreateStream, Scope.DEFINE, lambda s: _used(NameKind.NEW_STREAM, s.name)),
            _row(
                cql.DropStream, Scope.DEFINE, lambda s: _used(NameKind.STREAM, s.name, s.if_exists)
            ),
            _row(cql.CreateTable, Scope.DEFINE, lambda s: _used(NameKind.NEW_TABLE, s.name)),
            _row(cql.DropTable, Scope.DEFINE, lambda s: _used(NameKind.TABLE, s.name, s.if_exists)),
            _row(cql.Update, Scope.INGEST, lambda s: _used(NameKind.TABLE, s.table)),
            _row(cql.AlterStream, Scope.DEFINE, lambda s: _stream(s.name)),
            _row(cql.AlterOverload, Scope.DEFINE, lambda s: _stream(s.name)),
            _row(cql.AlterQuery, Scope.DEFINE, lambda s: _query(s.name)),
            _row(cql.AlterWeight, Scope.DEFINE, lambda s: _query(s.name)),
            _row(cql.AlterBytes, Scope.DEFINE, lambda s: _query(s.name)),
            _row(cql.AlterActivity, Scope.DEFINE, lambda s: _query(s.name)),
            _row(
                cql.CreateRollup,
                Scope.DEFINE,
                lambda s: _new(NameKind.NEW_ROLLUP, s.name, s.select),
            ),
            _row(
                cql.DropRollup, Scope.DEFINE, lambda s: _used(NameKind.ROLLUP, s.name, s.if_exists)
            ),
            _row(cql.CreateIndex, Scope.DEFINE, lambda s: _stream(s.stream)),
            _row(cql.DropIndex, Scope.DEFINE, lambda s: _stream(s.stream)),
            _row(cql.Delete, Scope.DEFINE, lambda s: _relation(s.select.stream)),
            _row(cql.Purge, Scope.DEFINE, lambda s: _stream(s.stream)),
            _row(cql.Backup, Scope.ADMIN),  # Backups and scrubs read files of all tenants.
            _row(cql.Scrub, Scope.ADMIN),
        ]
    )
)
