"""Changes of a table that are replayed from the log, without an engine."""

from __future__ import annotations

import weakref

import pyarrow as pa
import pytest

from shedder.archive.log.table_changes import ChangeKind, TableChange
from shedder.archive.tables.table_rows import PIECE_BYTES_MAX, TableRows, arrow_columns
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema
from shedder.engine.tables.live_tables import LiveTable, NumberedChange
from shedder.engine.tables.table_history import HistoryMemory, TableHistory

KEY = ColumnDefinition("k", ColumnType.BIGINT, False)
SCHEMA = TableSchema("t", (KEY, ColumnDefinition("v", ColumnType.VARCHAR, True)), ("k",))


def batch_of(key: int, text: pa.Array) -> pa.RecordBatch:
    columns = [pa.array([key]), text]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_columns(SCHEMA.columns))


def upsert(version: int, batch: pa.RecordBatch) -> NumberedChange:
    return NumberedChange(TableChange(1, ChangeKind.UPSERT, version, 0), batch)


def empty_table() -> LiveTable:
    history = TableHistory(HistoryMemory(lambda: 0, 1 << 20))
    return LiveTable(1, TableRows(SCHEMA), stored_version=-1, history=history)


@pytest.mark.slow
def test_replayed_changes_may_have_more_text_than_an_arrow_array_holds() -> None:
    text = pa.array(["x" * PIECE_BYTES_MAX])  # Of every change: they take its memory once.
    table = LiveTable(
        1,
        TableRows(SCHEMA),
        stored_version=-1,
        history=TableHistory(HistoryMemory(lambda: 0, 1 << 20)),
    )
    changes = 2**31 // PIECE_BYTES_MAX + 1
    for version in range(1, changes + 1):
        table.apply(upsert(version, batch_of(version % 2, text)))
    assert (table.version, table.rows.version) == (changes, changes)
    assert sorted(table.rows.table()["k"].to_pylist()) == [0, 1]


def test_pieces_with_more_text_than_an_arrow_array_holds_stay_apart() -> None:
    text = pa.array(["x" * PIECE_BYTES_MAX])
    rows, pieces = TableRows(SCHEMA), 2**31 // PIECE_BYTES_MAX + 1
    for key in range(pieces):
        rows = rows.changed(ChangeKind.UPSERT, batch_of(key, text), version=key + 1)
    assert (rows.rows, len(rows.pieces)) == (pieces, pieces)


@pytest.mark.slow
def test_replayed_changes_that_wait_take_little_memory() -> None:
    table = LiveTable(
        1,
        TableRows(SCHEMA),
        stored_version=-1,
        history=TableHistory(HistoryMemory(lambda: 0, 1 << 20)),
    )
    waiting = []
    for version in range(1, 10):
        batch = batch_of(1, pa.array(["x" * (PIECE_BYTES_MAX // 4)]))
        waiting.append(weakref.ref(batch))
        table.apply(upsert(version, batch))
    del batch
    held = [ref() for ref in waiting]
    assert sum(batch is not None for batch in held) <= 5
    assert table.rows.rows == 1
