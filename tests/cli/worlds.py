"""Rows that commands have stored in a data directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import shedder


def stored_rows(directory: Path | str, stream: str) -> pa.Table:
    """All rows of a stream in order of arrival, without a query: an exact one begins a process."""
    with shedder.open(directory) as database:
        stored = database.ledger(stream).applied
        entries = database.core.store.streams()
        (number,) = [entry.id for entry in entries if entry.schema.name == stream]
        table = pa.Table.from_batches(rows for _, rows in database.core.store.scan(number))
    assert table.num_rows == stored
    return table
