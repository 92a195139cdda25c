"""Registry of standing queries: register, find, follow and drop."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from shedder.cql.binding.new_names import check_new_name, check_outputs
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import (
    ColumnDefinition,
    Select,
    Statement,
    aggregates_of_one_stream,
)
from shedder.engine.allocation.rebalancer import Rebalancer
from shedder.engine.allocation.width_prices import width_prices
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_target import RowTarget
from shedder.engine.engine_state import EngineState
from shedder.engine.load_shedding.controller_loop import Overload
from shedder.engine.rebuild.row_query_factory import rows_of_table
from shedder.engine.registration.explain_precision import precision_of
from shedder.engine.registration.explain_query import explain, explain_row_query
from shedder.engine.registration.join_precision import join_precision
from shedder.engine.registration.query_handle import Query
from shedder.engine.registration.registrar import Registrar
from shedder.engine.registration.registration_wait import RegistrationWait
from shedder.engine.registration.row_query_handle import RowHandle
from shedder.engine.registration.row_registrar import RowRegistrar
from shedder.engine.runtime.caller import OPERATOR, Caller
from shedder.engine.runtime.lifetime import Lifetime
from shedder.engine.runtime.mailbox import Mailbox
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.tenants.access_control import check_new_query, check_relation
from shedder.engine.tenants.statement_access import names_of
from shedder.engine.tenants.tenant_limits import check_queries
from shedder.errors import BadQuery, QueryExists, ShedderError, UnknownQuery
from shedder.queries.answers.answer import Answer
from shedder.streams.windows import Span


class QueryRegistry:
    """All standing queries of an engine. Safe from any thread."""

    def __init__(
        self,
        core: EngineState,
        lifetime: Lifetime,
        ddl: threading.RLock,
        sharing: Rebalancer,
        overload: Overload,
        checkpoints: Checkpoints,
        answer_exactly: Callable[[StandingQuery, Span], None],
    ) -> None:
        """answer_exactly: answers a window of a query with contract EXACT, later."""
        self.core = core
        self._lifetime = lifetime
        self._ddl = ddl
        self._sharing = sharing
        self._overload = overload
        self._checkpoints = checkpoints
        self._registrar = Registrar(core, sharing, checkpoints, answer_exactly)
        self._row_registrar = RowRegistrar(core, checkpoints)
        self._mailboxes: set[Mailbox] = set()

    def register(
        self,
        name: str,
        statement: Statement,
        *,
        caller: Caller = OPERATOR,
        timeout_s: float | None = None,
    ) -> Query | RowHandle:
        """Make a query standing; one of the same name and text is returned as it is.

        timeout_s: how long it waits for other definitions and for the records that came before it;
        None: until all are applied.

        Raises:
          BadQuery, UnknownColumn, UnknownStream; QueryExists: another text has this name;
          PrecisionUnavailable: contract FAIL and the target cannot be promised.
          DeadlineExceeded: the query does not stand; the message says what it waited for.
        """
        self._lifetime.check_open()
        select: Select | RelationalSelect
        if isinstance(statement, RelationalSelect):
            select = statement
        else:
            select = aggregates_of_one_stream(statement)
        for used in names_of(statement):
            check_relation(self.core, caller, used.name)
        check_new_query(self.core, caller, name)
        return self.register_select(name, select, timeout_s)

    def register_select(
        self, name: str, select: Select | RelationalSelect, timeout_s: float | None = None
    ) -> Query | RowHandle:
        """Make a parsed query standing. timeout_s: as of `register`."""
        select = rows_of_table(self.core, select)
        waits = RegistrationWait(self.core, name, timeout_s)
        with waits.holding(self._ddl):
            if name in self.core.rows or isinstance(select, RelationalSelect):
                return self._register_rows(name, select, waits)
            stream = self.core.stream(select.stream)
            for other in list(self.core.streams.values()):
                if name in other.queries:
                    standing_query = other.queries[name]
                    original_text = standing_query.granted.get(
                        "asked", standing_query.state.query.text
                    )
                    if select.text in (original_text, standing_query.state.query.text):
                        return Query(self, other, standing_query)
                    raise QueryExists(f"query {name!r} exists with another text: {original_text}")
            check_new_name("query", name)
            check_outputs(select)
            check_queries(self.core, stream.schema.tenant)
            standing_query = self._registrar.register(name, stream, select, waits)
            return Query(self, stream, standing_query)

    def _register_rows(
        self, name: str, select: Select | RelationalSelect, waits: RegistrationWait
    ) -> RowHandle:
        """Make a row query standing, or find it."""
        known = self.core.row_query(name)
        if known is not None and known.query.text == select.text:
            return RowHandle(self, known)
        if name in self.core.query_names():
            text = self._text_of(name)
            raise QueryExists(f"query {name!r} exists with another text: {text}")
        assert isinstance(select, RelationalSelect)
        check_new_name("query", name)
        relations = [self.core.tables.get(it) or self.core.stream(it) for it in select.relations]
        for tenant in {relation.schema.tenant for relation in relations}:
            check_queries(self.core, tenant)
        query = self._row_registrar.register(name, select, waits)
        return RowHandle(self, query)

    def columns(self, select: RelationalSelect) -> tuple[ColumnDefinition, ...]:
        """Return the columns of a row query. Raises: as `register`."""
        return self._row_registrar.columns(select)

    def register_into(
        self, name: str, select: RelationalSelect, target: RowTarget, waits: RegistrationWait
    ) -> None:
        """Make a row query standing that inserts its rows into a target. Raises: as `register`."""
        self._row_registrar.register(name, select, waits, target)

    def _text_of(self, name: str) -> str:
        rows = self.core.row_query(name)
        if rows is not None:
            return rows.query.text
        return self.core.standing_query(name)[1].state.query.text

    def explain_registration(self, select: Select | RelationalSelect) -> dict[str, str]:
        """What `register_select` would grant, and how it would rewrite the query."""
        self._lifetime.check_open()
        select = rows_of_table(self.core, select)
        if isinstance(select, RelationalSelect):
            return self._row_registrar.preview(select)
        return self._registrar.preview(self.core.stream(select.stream), select)

    def query(self, name: str, caller: Caller = OPERATOR) -> Query | RowHandle:
        """A standing query by name."""
        rows = self.core.row_query(name, caller)
        if rows is not None:
            return RowHandle(self, rows)
        stream, standing_query = self.core.standing_query(name, caller)
        return Query(self, stream, standing_query)

    def drop_query(self, name: str) -> None:
        """Unregister a standing query.

        Raises:
          UnknownQuery. DiskFull, StorageFailed: it stands.
        """
        with self._ddl:
            rows = self.core.row_query(name)
            if rows is not None:
                if self.core.rows.view(name) is not None:
                    raise BadQuery(f"{name!r} is a view; DROP VIEW drops it with its rows")
                self.drop_rows(rows)
                return
            stream, standing_query = self.core.standing_query(name)

            def forget() -> None:
                self.core.forget_query(stream, standing_query)
                standing_query.listeners.tell(UnknownQuery(name, sorted(stream.queries)))

            self._checkpoints.leave(name, stream.id, forget)
        self._sharing.soon()

    def drop_rows(self, query: RowQuery) -> None:
        """Unregister a row query. Raises: as `drop_query`."""

        def forget() -> None:
            self.core.rows.remove(query.name)
            query.output.end(UnknownQuery(query.name, self.core.names_beside(query)))

        self._checkpoints.leave(query.name, query.stream_id, forget)

    def listen(
        self, name: str, listener: Callable[[Answer | ShedderError], None]
    ) -> Callable[[], None]:
        """Be told of every new answer, on the apply thread; returns how to stop that."""
        return self.core.standing_query(name)[1].listeners.add(listener)

    def subscribe(self, standing_query: StandingQuery, mailbox: Mailbox) -> Callable[[], None]:
        """Put a query's new answers into a mailbox until it is removed or the engine closes."""
        stop = standing_query.listeners.add(mailbox.put)
        self._mailboxes.add(mailbox)

        def remove() -> None:
            stop()
            self._mailboxes.discard(mailbox)

        return remove

    def explain_standing(self, stream: Stream, standing_query: StandingQuery) -> str:
        """What a standing query keeps and predicts."""
        costs = self._overload.cost_ns(standing_query.state.name)
        return self.core.look(lambda: explain(stream, standing_query, costs))

    def precision(self, name: str) -> pa.Table:
        """Return the parts of each interval of the present answer of a query.

        Raises:
          UnknownQuery. BadQuery, RowQueryFailed: as `join_precision`.
        """
        self._lifetime.check_open()
        rows = self.core.row_query(name)
        if rows is not None:
            return self.core.look(lambda: join_precision(rows))
        stream, standing_query = self.core.standing_query(name)
        found = [each for each in self._sharing.requests() if each.name == name]
        group_bytes_max = self.core.settings.group_bytes_max
        prices = width_prices(found[0], group_bytes_max=group_bytes_max) if found else {}
        return self.core.look(lambda: precision_of(stream, standing_query, prices))

    def explain_rows(self, query: RowQuery) -> str:
        """Return what a row query reads and holds."""

        def text() -> str:
            rows = self.core.rows
            return explain_row_query(query, rows.operators(query), rows.writers.get(query.name))

        return self.core.look(text)

    def expected_precision(self, query: RowQuery) -> dict[str, str]:
        """What a row query with ON OVERLOAD SHED is expected to get."""
        return self._row_registrar.expected_precision(query)

    def close(self) -> None:
        """End every subscription."""
        self.core.rows.end()
        for mailbox in list(self._mailboxes):
            mailbox.close()
