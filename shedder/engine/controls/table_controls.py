"""Creation, removal and changes of tables; a change is durable when its log record is."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shedder.archive.files.data_directory import FORMAT_TABLES
from shedder.archive.files.file_system import Bytes
from shedder.archive.log.records import RecordType
from shedder.archive.log.table_changes import body_of
from shedder.archive.tables.table_rows import TableRows
from shedder.cql.binding.table_checks import check_new_table
from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.cql.statements.statement import CreateTable
from shedder.cql.statements.table_schema import TableSchema
from shedder.cql.statements.table_text import text_of_table
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.lifetime import Lifetime
from shedder.engine.tables.live_tables import Changed, LiveTable, NumberedChange
from shedder.engine.tables.table_history import TableHistory
from shedder.engine.tenants.tenant_limits import check_archive
from shedder.errors import (
    BatchTooLarge,
    BudgetExceeded,
    StreamExists,
    TableExists,
    TableInUse,
    UnknownTable,
)

TABLES_SHARE = 4  # Rows of tables take at most 1/4 of the memory budget.


class TableControls:
    """CREATE TABLE, DROP TABLE, and changes of rows."""

    def __init__(
        self,
        core: EngineState,
        lifetime: Lifetime,
        ddl: threading.RLock,
        checkpoints: Checkpoints,
    ) -> None:
        self._core = core
        self._lifetime = lifetime
        self._ddl = ddl
        self._checkpoints = checkpoints

    def table(self, name: str) -> LiveTable:
        """Look up a table.

        Raises:
          UnknownTable.
        """
        found = self._core.tables.get(name)
        if found is None:
            raise UnknownTable(name, sorted(self._core.tables))
        return found

    def create(self, statement: CreateTable, tenant: str = DEFAULT_TENANT) -> bool:
        """Create a table, for a tenant; False when an equal one exists.

        Raises:
          TableExists: there is one of this name with another definition. StreamExists: the name is
          a stream's. DiskFull, StorageFailed: there is none.
        """
        self._lifetime.check_open()
        with self._ddl:
            core, name = self._core, statement.name
            schema = TableSchema(
                name, statement.columns, statement.key, tenant, statement.retroactive
            )
            if name in core.tables:
                known = core.tables[name].schema
                if statement.if_not_exists or text_of_table(known) == text_of_table(schema):
                    return False
                raise TableExists(
                    f"table {name!r} exists with another definition: {text_of_table(known)}"
                )
            if name in core.streams:
                raise StreamExists(f"{name!r} is a stream; give the table another name")
            check_new_table(statement)
            core.store.allow(FORMAT_TABLES)
            entry = core.store.catalog.tables.add(schema)
            history = TableHistory(core.table_histories)
            table = LiveTable(entry.id, TableRows(schema), stored_version=-1, history=history)
            core.executor.call(lambda: core.tables.add(table)).result()
            return True

    def drop(self, name: str) -> None:
        """Forget a table and delete its rows.

        Raises:
          UnknownTable. TableInUse: standing queries read it. DiskFull, StorageFailed: it is as it
            was.
        """
        self._lifetime.check_open()
        with self._ddl:
            core, table = self._core, self.table(name)
            readers = sorted(core.rows.of_table(name))
            if readers:
                raise TableInUse(
                    f"table {name!r} has standing row queries: {', '.join(readers)}; "
                    f"{core.rows.how_to_drop(readers)}"
                )
            self._checkpoints.end_begun()

            def forget() -> None:
                self._checkpoints.settle()  # It may have an image of the table.
                entries = {entry.id: entry for entry in core.store.catalog.tables.entries()}
                image = entries[table.id].image
                core.store.catalog.tables.drop(table.id)
                core.tables.remove(name)
                core.store.tables.retire([] if image is None else [image.file])
                core.store.tables.remove_retired()

            with table.ending():
                core.executor.call(forget).result()

    def change(self, table: LiveTable, make: Callable[[TableRows], Changed | None]) -> int:
        """Make one change of a table; returns when it is durable and reads show it.

        Args:
          table: of `table`.
          make: computes the change from the newest rows; None: there is nothing to change.

        Returns:
          the number of rows that were put, or of keys that were deleted.

        Raises:
          BudgetExceeded, QuotaExceeded, BatchTooLarge: there is no room for it. UnknownTable: it
          was dropped. Overloaded, DiskFull, StorageFailed, Draining. What `make` raises. Nothing
          has changed then.
        """
        self._lifetime.check_open()
        core = self._core
        rows = table.change(make, lambda change: self._write(table, change), core.clock_us)
        if rows:
            core.executor.call(lambda: None).result()
        return rows

    def _write(self, table: LiveTable, change: NumberedChange) -> None:
        core, after = self._core, change.after
        assert after is not None
        body = body_of(change.batch)
        most = core.settings.queue_bytes_max
        if body.size > most:
            raise BatchTooLarge(
                f"the change of table {table.schema.name!r} has {body.size:,} bytes, and one "
                f"statement may have {most:,}; change fewer rows at a time, with WHERE"
            )
        self._check_room(table, after)
        parts: list[Bytes] = [change.header.to_bytes(), body]
        core.log_queue.write(RecordType.TABLE, parts, change)

    def _check_room(self, table: LiveTable, after: TableRows) -> None:
        """Refuse what makes a table larger than memory or its tenant's quota allow."""
        core = self._core
        more_bytes = after.size_bytes - table.rows.size_bytes
        if more_bytes <= 0:
            return
        share = core.settings.memory_bytes // TABLES_SHARE
        most, there = min(core.settings.table_bytes, share), core.tables.size_bytes
        if there + more_bytes > most:
            raise BudgetExceeded(
                f"the rows of all tables have {there:,} bytes; {more_bytes:,} more are over the "
                f"limit of {most:,} (settings table_bytes and memory_bytes). DELETE rows, or DROP "
                "a table"
            )
        check_archive(core, table.schema.tenant)
