"""Rows that commands have stored in a data directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import shedder
from shedder.engine.engine import Engine
from shedder.streams.batches import arrow_schema


def stored_rows(directory: Path | str, stream: str) -> pa.Table:
    """All rows of a stream of a directory in order of arrival."""
    with shedder.open(directory) as database:
        return rows_in(database, stream)


def rows_in(database: Engine, stream: str) -> pa.Table:
    """All rows of a stream in order of arrival, without a query: an exact one begins a process."""
    stored = database.ledger(stream).applied
    store = database.core.store
    (entry,) = [entry for entry in store.streams() if entry.schema.name == stream]
    batches = [rows for _, rows in store.scan(entry.id)]
    table = pa.Table.from_batches(batches, arrow_schema(entry.schema))
    assert table.num_rows == stored
    return table
