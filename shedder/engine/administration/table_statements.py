"""INSERT, UPDATE and DELETE of rows of tables."""

from __future__ import annotations

import pyarrow as pa

from shedder.archive.log.table_changes import ChangeKind
from shedder.archive.tables.table_rows import TableRows
from shedder.cql.binding.insert_checks import (
    bare_nulls,
    filled,
    insert_columns,
    values_batch,
    wants_rows,
)
from shedder.cql.binding.table_checks import relational, rows_to_delete, updated_rows
from shedder.cql.statements.statement import Delete, Insert, Update
from shedder.cql.statements.table_schema import TableSchema
from shedder.engine.controls.table_pushes import upsert
from shedder.engine.services import Services
from shedder.engine.tables.live_tables import Changed
from shedder.errors import BadQuery, BudgetExceeded, KeyExists
from shedder.queries.answers.answer import Answer
from shedder.streams.batch_conversion import conform_batch


def insert_rows(services: Services, statement: Insert, timeout_s: float | None) -> Answer:
    """Put the rows of an INSERT into a table, all or none; the answer comes when they are durable.

    Raises:
      KeyExists: the table has a key of them, or the statement has one twice; not of OR REPLACE.
      SchemaMismatch: a NULL in a column that has none. RateExceeded: the rows are over a rate of
      the tenant's quota. BadQuery. What `TableControls.change` raises.
    """
    table = services.tables.table(statement.stream)
    if statement.producer is not None:
        raise BadQuery(
            f"PRODUCER is for streams; {statement.stream!r} is a table, where a repeated INSERT OR "
            "REPLACE has the same result"
        )
    batch = conform_batch(_rows_of(services, statement, table.schema, timeout_s), table.schema)
    core = services.core
    now_s = core.machine.monotonic_s()
    core.tenants.admit(table.schema.tenant, batch.num_rows, batch.nbytes, now_s)

    def make(rows: TableRows) -> Changed | None:
        if statement.replaces:
            return upsert(rows, batch)
        for key, where in (
            (rows.first_repeated(batch), "is in the statement twice"),
            (rows.first_existing(batch), "is there"),
        ):
            if key is not None:
                raise KeyExists(
                    f"table {table.schema.name!r}: the key {key} {where}; INSERT OR REPLACE "
                    "replaces its row"
                )
        return upsert(rows, batch)

    return _status(services.tables.change(table, make), f"inserted into {statement.stream}")


def update_rows(services: Services, statement: Update) -> Answer:
    """Change rows of a table, all or none; the answer comes when they are durable.

    Raises:
      UnknownTable, UnknownColumn, TypeMismatch, BadQuery. SchemaMismatch: a value does not fit its
      column. What `TableControls.change` raises.
    """
    table = services.tables.table(statement.table)

    def make(rows: TableRows) -> Changed | None:
        changed = updated_rows(statement, table.schema, rows.pieces)
        conformed = [conform_batch(batch, table.schema) for batch in changed]
        return (ChangeKind.UPSERT, _joined(conformed)) if conformed else None

    return _status(services.tables.change(table, make), f"updated in {statement.table}")


def delete_rows(services: Services, statement: Delete) -> Answer:
    """Delete rows of a table, all or none; the answer comes when that is durable.

    Raises:
      UnknownColumn, TypeMismatch, BadQuery. What `TableControls.change` raises.
    """
    name = statement.select.stream
    table = services.tables.table(name)

    def make(rows: TableRows) -> Changed | None:
        gone = rows_to_delete(statement, table.schema, rows.pieces)
        keys = [batch.select(list(table.schema.key)) for batch in gone if batch.num_rows]
        return (ChangeKind.DELETE, _joined(keys)) if keys else None

    return _status(services.tables.change(table, make), f"deleted from {name}")


def _status(rows: int, what: str) -> Answer:
    return Answer.status(f"1 row {what}" if rows == 1 else f"{rows:,} rows {what}")


def _rows_of(
    services: Services, statement: Insert, schema: TableSchema, timeout_s: float | None
) -> pa.RecordBatch:
    """The rows of VALUES, or the answer of the query."""
    select = statement.select
    if select is None:
        return values_batch(statement, schema)
    is_table = select.stream in services.core.tables
    if is_table or not select.outputs or wants_rows(select):
        rows = relational(select, is_table=is_table)
        with services.row_queries.batches(rows, timeout_s) as batches:
            answer = batches.read_all()
        if answer.cut:
            raise BudgetExceeded(f"nothing was inserted: the rows to insert were {answer.cut}")
        found = answer.table
    else:
        answer = services.one_time.ask(select, timeout_s)
        found = answer.table.select(list(answer.outputs))
    names = insert_columns(schema, statement.columns, found.num_columns)
    untyped = bare_nulls(select.outputs, names)
    columns = {
        name: column.combine_chunks()
        for name, column in zip(names, found.columns, strict=True)
        if name not in untyped
    }
    return filled(columns, found.num_rows, schema)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    joined: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]
    return joined
