"""Views and standing INSERTs: queries whose rows become a stream, created and dropped."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from shedder.cql.binding.insert_checks import insert_columns
from shedder.cql.binding.new_names import check_new_name
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import DEFAULT_LAYOUT
from shedder.cql.statements.bound_query import DEFAULT_TENANT, OWN_COLUMNS, StreamSchema
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import (
    ColumnDefinition,
    CreateInsert,
    CreateStream,
    CreateView,
)
from shedder.engine.controls.stream_definitions import StreamDefinitions
from shedder.engine.dataflow.row_target import EVENT_TIME, SIGN, RowTarget
from shedder.engine.dataflow.row_writer import RowWriter
from shedder.engine.engine_state import EngineState
from shedder.engine.registration.query_registry import QueryRegistry
from shedder.engine.registration.registration_wait import RegistrationWait
from shedder.engine.runtime.lifetime import Lifetime
from shedder.engine.tenants.tenant_limits import check_queries
from shedder.errors import (
    BadQuery,
    QueryExists,
    StreamExists,
    TypeMismatch,
    UnknownStream,
)

_WIDER = {
    ColumnType.BIGINT: {ColumnType.INTEGER},
    ColumnType.DOUBLE: {ColumnType.INTEGER, ColumnType.BIGINT},
    ColumnType.TIMESTAMP: {ColumnType.DATE},
}
"""Types that become the type of a column unasked."""


class ViewControls:
    """CREATE VIEW, DROP VIEW, and CREATE QUERY ... AS INSERT INTO."""

    def __init__(
        self,
        core: EngineState,
        lifetime: Lifetime,
        ddl: threading.RLock,
        definitions: StreamDefinitions,
        queries: QueryRegistry,
    ) -> None:
        self._core = core
        self._lifetime = lifetime
        self._ddl = ddl
        self._definitions = definitions
        self._queries = queries

    def create(
        self,
        statement: CreateView,
        tenant: str = DEFAULT_TENANT,
        timeout_s: float | None = None,
    ) -> bool:
        """Create a view, for a tenant; False when an equal one exists.

        The stream is made before the query. If the process ends between the two, the stream is
        empty, and the same statement takes it.

        timeout_s: as of `QueryRegistry.register`.

        Raises:
          StreamExists, TableExists, QueryExists: the name is taken. BadQuery: the view reads
          itself, or it cannot be bound. QuotaExceeded, BudgetExceeded, DeadlineExceeded: as of a
          standing query.
        """
        self._lifetime.check_open()
        core, name = self._core, statement.name
        waits = RegistrationWait(core, name, timeout_s)
        with waits.holding(self._ddl):
            known = core.rows.view(name)
            if known is not None:
                same = known.query.query.text == statement.select.text
                retain_us = core.stream(name).schema.retain_us
                if statement.if_not_exists or (same and retain_us == statement.retain_us):
                    return False
                raise StreamExists(
                    f"view {name!r} exists with another definition: {known.query.query.text}"
                )
            if name in statement.select.relations:
                raise BadQuery(f"view {name!r} reads itself: {name} -> {name}")
            check_new_name("view", name)
            self._check_query(name, tenant)
            made = self._queries.columns(statement.select)
            columns = _view_columns(made)
            definition = CreateStream(
                name, columns, EVENT_TIME, 0, statement.retain_us, DEFAULT_LAYOUT, False
            )
            waits.run(lambda: None)  # Before there is a stream that would have to be dropped.
            is_new = self._definitions.create_stream(definition, tenant)
            if not is_new and core.intakes[name].durable.position:
                raise StreamExists(f"{name!r} is a stream with tuples; give the view another name")
            target = RowTarget(name, tuple(it.name for it in columns[:-1]), is_view=True)
            try:
                self._queries.register_into(name, statement.select, target, waits)
            except BaseException:
                if is_new:
                    self._definitions.drop_stream(name)
                raise
            return True

    def drop(self, name: str) -> None:
        """Drop a view with its rows.

        The query is dropped before the stream. If the process ends between the two, the stream
        stays, as one without a view.

        Raises:
          UnknownStream: there is no such view. StreamInUse: queries read it, or a FOREIGN KEY
            references it.
        """
        self._lifetime.check_open()
        with self._ddl:
            core = self._core
            if core.rows.view(name) is None:
                is_stream = f"; {name!r} is a stream" if name in core.streams else ""
                raise UnknownStream.from_message(f"no view {name!r}{is_stream}")
            stream = core.stream(name)
            core.check_unused(stream, as_view=True)
            self._definitions.check_unreferenced(name)
            self._queries.drop_rows(core.rows.queries[name])
            self._definitions.drop_stream(name)

    def insert(
        self,
        statement: CreateInsert,
        tenant: str = DEFAULT_TENANT,
        timeout_s: float | None = None,
    ) -> bool:
        """Make a query standing whose rows go into a stream; False when an equal one exists.

        timeout_s: as of `QueryRegistry.register`.

        Raises:
          UnknownStream, UnknownColumn, TypeMismatch, BadQuery: it cannot be bound, the stream
          cannot have its rows, or they would come back to it. QueryExists: the name is taken.
          BudgetExceeded, DeadlineExceeded: as of a standing query.
        """
        self._lifetime.check_open()
        core, name = self._core, statement.name
        waits = RegistrationWait(core, name, timeout_s)
        with waits.holding(self._ddl):
            schema = core.stream(statement.stream).schema
            core.check_no_view(schema.name)
            known = core.rows.writers.get(name)
            made = self._queries.columns(statement.select)
            columns = insert_columns(schema, statement.columns, len(made))
            target = RowTarget(schema.name, columns, is_view=False)
            if known is not None and (
                statement.if_not_exists
                or (known.target, known.query.query.text) == (target, statement.select.text)
            ):
                return False
            _check_columns(schema, columns, made)
            self._check_no_cycle(name, statement.select, schema.name)
            check_new_name("query", name)
            self._check_query(name, tenant)
            self._queries.register_into(name, statement.select, target, waits)
            return True

    def preview(self, statement: CreateView | CreateInsert) -> dict[str, str]:
        """Return the query that `create` or `insert` would make; nothing is done.

        Raises:
          As `create` and `insert`, except for names that are taken.
        """
        self._lifetime.check_open()
        if isinstance(statement, CreateView):
            made = self._queries.columns(statement.select)
            columns = tuple(it.name for it in _view_columns(made))
            target = statement.name
        else:
            schema = self._core.stream(statement.stream).schema
            self._core.check_no_view(schema.name)
            made = self._queries.columns(statement.select)
            target, columns = schema.name, insert_columns(schema, statement.columns, len(made))
            _check_columns(schema, columns, made)
            self._check_no_cycle(statement.name, statement.select, target)
        facts = self._queries.explain_registration(statement.select)
        return {"inserts into": f"{target} ({', '.join(columns)})", **facts}

    def _check_query(self, name: str, tenant: str) -> None:
        if name in self._core.query_names():
            raise QueryExists(f"query {name!r} exists; choose another name")
        check_queries(self._core, tenant)

    def _check_no_cycle(self, name: str, select: RelationalSelect, target: str) -> None:
        """Raise BadQuery where the rows of a query would come back to one of its streams."""
        for source in select.relations:
            path = _path(list(self._core.rows.writers.values()), target, source)
            if path is not None:
                cycle = " -> ".join([source, *path])
                raise BadQuery(
                    f"the rows of query {name!r} would come back to a stream that it reads: {cycle}"
                )


def _path(writers: Sequence[RowWriter], start: str, end: str) -> list[str] | None:
    """Return the streams from one to another, along queries that insert; None: there is no way."""
    ways = {start: [start]}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        if here == end:
            return ways[here]
        for each in writers:
            into = each.target.stream
            if here in each.query.streams and into not in ways:
                ways[into] = [*ways[here], into]
                waiting.append(into)
    return None


def _view_columns(made: Sequence[ColumnDefinition]) -> tuple[ColumnDefinition, ...]:
    """Columns of a view: those of its query, and the event time of its rows."""
    for column in made:
        if column.name.lower() in OWN_COLUMNS:
            raise BadQuery(f"a view has no column {column.name!r}: the archive has this name")
    own = [replace(it, nullable=True) for it in made if it.name not in (EVENT_TIME, SIGN)]
    return (*own, ColumnDefinition(EVENT_TIME, ColumnType.TIMESTAMP, nullable=False))


def _check_columns(
    schema: StreamSchema, names: Sequence[str], made: Sequence[ColumnDefinition]
) -> None:
    """Check that a stream can have the rows of a query.

    Raises:
      BadQuery: a column that must have a value has none. TypeMismatch.
    """
    lacking = [it.name for it in schema.columns if not it.nullable and it.name not in names]
    if lacking:
        raise BadQuery(
            f"stream {schema.name!r} needs a value of {', '.join(lacking)} in each row; the query "
            f"is for {', '.join(names)}"
        )
    types = {column.name: column.type for column in schema.columns}
    for name, column in zip(names, made, strict=True):
        have, wanted = column.type, types[name]
        if have is not wanted and have not in _WIDER.get(wanted, ()):
            raise TypeMismatch(
                f"column {name!r} of stream {schema.name!r} is {wanted.value}, and the query has "
                f"{have.value}; write CAST(... AS {wanted.value})"
            )
