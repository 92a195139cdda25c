"""Access control by tenant: a tenant uses its own streams and the queries on them, and no others.

Names belong to the whole engine, so one name is one stream. For a tenant, the streams of other
tenants do not exist. A tenant that wants to use a taken name learns that it is taken, but not by
which tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from shedder.cql.statements.statement import Statement
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.caller import Caller, Scope
from shedder.engine.tenants.statement_access import NameKind, names_of, scope_of
from shedder.errors import (
    NotFound,
    PermissionDenied,
    QueryExists,
    RollupExists,
    StreamExists,
    TableExists,
    UnknownQuery,
    UnknownRollup,
    UnknownStream,
    UnknownTable,
)

if TYPE_CHECKING:
    from shedder.engine.standing_queries.stream_state import Stream
    from shedder.engine.tables.live_tables import LiveTable


def own_streams(core: EngineState, caller: Caller) -> list[Stream]:
    """The streams that a caller may use. From any thread."""
    return [stream for stream in list(core.streams.values()) if caller.owns(stream)]


def check_stream(core: EngineState, caller: Caller, name: str) -> None:
    """Raise UnknownStream unless a caller may use a stream of this name."""
    stream, table = core.streams.get(name), core.tables.get(name)
    if table is not None and caller.owns(table):
        raise UnknownStream.from_message(f"{name!r} is a table, and a stream is needed here")
    if stream is None or not caller.owns(stream):
        raise UnknownStream(name, [each.schema.name for each in own_streams(core, caller)])


def own_tables(core: EngineState, caller: Caller) -> list[LiveTable]:
    """The tables that a caller may use. From any thread."""
    tables = map(core.tables.get, core.tables)  # One may be dropped meanwhile.
    return [table for table in tables if table is not None and caller.owns(table)]


def check_table(core: EngineState, caller: Caller, name: str) -> None:
    """Raise UnknownTable unless a caller may use a table of this name."""
    table = core.tables.get(name)
    if table is None or not caller.owns(table):
        raise UnknownTable(name, sorted(each.schema.name for each in own_tables(core, caller)))


def check_relation(core: EngineState, caller: Caller, name: str) -> None:
    """Raise UnknownStream unless a caller may use a stream or table of this name."""
    relation = core.tables.get(name) or core.streams.get(name)
    if relation is None or not caller.owns(relation):
        known = [stream.schema.name for stream in own_streams(core, caller)]
        known += [table.schema.name for table in own_tables(core, caller)]
        raise UnknownStream(name, known)


def check_query(core: EngineState, caller: Caller, name: str) -> None:
    """Raise UnknownQuery unless a caller may use a standing query of this name."""
    known = core.query_names(caller)
    if name not in known:
        raise UnknownQuery(name, known)


def own_views(core: EngineState, caller: Caller) -> list[str]:
    """The names of the views that a caller may use."""
    return [
        each.schema.name for each in own_streams(core, caller) if core.rows.view(each.schema.name)
    ]


def check_view(core: EngineState, caller: Caller, name: str) -> None:
    """Raise UnknownStream unless a caller may use a view of this name."""
    known = own_views(core, caller)
    if name not in known:
        there = ", ".join(known) or "none"
        raise UnknownStream.from_message(f"no view {name!r}; there are: {there}")


def _check_new_view(core: EngineState, caller: Caller, name: str) -> None:
    _check_new_stream(core, caller, name)
    check_new_query(core, caller, name)


def check_new_query(core: EngineState, caller: Caller, name: str) -> None:
    """Raise QueryExists where another tenant has a standing query of this name."""
    if name in core.query_names() and name not in core.query_names(caller):
        raise QueryExists(f"the name {name!r} is taken; give the query another one")


def check_statement(core: EngineState, caller: Caller, statement: Statement) -> None:
    """Check that a caller may use all names of a statement.

    Raises:
      UnknownStream, UnknownQuery, UnknownRollup: the name is another tenant's or does not exist;
        the message lists the caller's own. StreamExists, QueryExists, RollupExists: a new name is
        another tenant's.
      PermissionDenied: the statement concerns files of all tenants.
    """
    if caller.sees_all:
        return
    if scope_of(statement) is Scope.ADMIN:
        raise PermissionDenied("backups and scrubs read all tenants' files; they need admin")
    for used in names_of(statement):
        _CHECKS[used.kind](core, caller, used.name)


def absent(core: EngineState, caller: Caller, statement: Statement) -> str | None:
    """Say what of DROP IF EXISTS does not exist for the caller; None: the statement goes on."""
    for used in names_of(statement):
        if used.if_exists and not caller.sees_all:
            try:
                _CHECKS[used.kind](core, caller, used.name)
            except NotFound:
                return f"{used.kind.value} {used.name}"
    return None


def _check_new_stream(core: EngineState, caller: Caller, name: str) -> None:
    stream = core.streams.get(name)
    if stream is not None and not caller.owns(stream):
        raise StreamExists(f"the name {name!r} is taken; give the stream another one")
    _check_free(core, caller, name)


def _check_new_table(core: EngineState, caller: Caller, name: str) -> None:
    stream = core.streams.get(name)
    if stream is not None and not caller.owns(stream):
        raise TableExists(f"the name {name!r} is taken; give the table another one")
    _check_free(core, caller, name)


def _check_free(core: EngineState, caller: Caller, name: str) -> None:
    table = core.tables.get(name)
    if table is not None and not caller.owns(table):
        raise TableExists(f"the name {name!r} is taken; choose another one")


def _rollups(core: EngineState, caller: Caller, *, own: bool) -> list[str]:
    return sorted(
        entry.name
        for stream in list(core.streams.values())
        if caller.owns(stream) is own
        for entry, _ in core.store.rollups.entries(stream.id)
    )


def _check_rollup(core: EngineState, caller: Caller, name: str) -> None:
    known = _rollups(core, caller, own=True)
    if name not in known:
        raise UnknownRollup(name, known)


def _check_new_rollup(core: EngineState, caller: Caller, name: str) -> None:
    if name in _rollups(core, caller, own=False):
        raise RollupExists(f"the name {name!r} is taken; give the rollup another one")


def _check_described(core: EngineState, caller: Caller, name: str) -> None:
    streams = sorted(stream.schema.name for stream in own_streams(core, caller))
    tables = sorted(table.schema.name for table in own_tables(core, caller))
    queries = core.query_names(caller)
    if name not in (*streams, *tables, *queries):
        raise UnknownStream(name, streams + tables + queries)


_CHECKS: Mapping[NameKind, Callable[[EngineState, Caller, str], None]] = MappingProxyType(
    {
        NameKind.STREAM: check_stream,
        NameKind.QUERY: check_query,
        NameKind.VIEW: check_view,
        NameKind.NEW_VIEW: _check_new_view,
        NameKind.ROLLUP: _check_rollup,
        NameKind.TABLE: check_table,
        NameKind.RELATION: check_relation,
        NameKind.DESCRIBED: _check_described,
        NameKind.NEW_STREAM: _check_new_stream,
        NameKind.NEW_TABLE: _check_new_table,
        NameKind.NEW_QUERY: check_new_query,
        NameKind.NEW_ROLLUP: _check_new_rollup,
    }
)
