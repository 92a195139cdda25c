"""Pushes into tables: each batch puts rows in the place of those with their keys."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from shedder.archive.log.table_changes import ChangeKind
from shedder.archive.tables.table_rows import TableRows
from shedder.engine.controls.table_controls import TableControls
from shedder.engine.engine_state import EngineState
from shedder.engine.tables.live_tables import Changed, LiveTable
from shedder.errors import BadBatch, BatchTooLarge, Overloaded
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import decode, encode

_PAUSE_S = 0.02  # Between two tries of a push while the log takes no more.


class TablePushes:
    """Pushes of this process and of clients into tables."""

    def __init__(self, core: EngineState, tables: TableControls) -> None:
        self._core = core
        self._tables = tables
        self._lock = threading.Lock()
        self._held_bytes = 0

    def push(self, name: str, data: Any) -> Receipt:
        """Put rows into a table; of equal keys the last row stays. Waits while there is no room.

        Each batch of the data is one change: a reader may see the first batches without the rest.

        Raises:
          UnknownTable, SchemaMismatch, BadTimestamp, BadBatch, InvalidRequest. What
          `TableControls.change` raises. Batches before the one that failed are durable.
        """
        table = self._tables.table(name)
        rows_put = 0
        limits = self._core.limits
        for batch in conform(data, table.schema, limits=limits):
            payload = encode(batch)  # The caller may change its own arrays after the push.
            self._put_patiently(table, decode(payload, table.schema, limits), len(payload))
            rows_put += batch.num_rows
        return Receipt(name, table.version, rows_put)

    @contextmanager
    def admitted(self, name: str, rows: int, size_bytes: int) -> Iterator[None]:
        """Hold room for a batch during the block, before it is received.

        Raises:
          UnknownTable. Overloaded: other batches take the room. RateExceeded: the tenant sends more
          than its quota. BatchTooLarge.
        """
        core, most = self._core, self._core.settings.queue_bytes_max
        tenant = self._tables.table(name).schema.tenant
        if rows > core.limits.rows_max or size_bytes > core.limits.bytes_max:
            raise BatchTooLarge(
                f"a batch of {rows} rows and {size_bytes} bytes; the limits are "
                f"{core.limits.rows_max} and {core.limits.bytes_max}"
            )
        core.tenants.admit(tenant, rows, size_bytes, core.machine.monotonic_s())
        with self._lock:
            held = self._held_bytes
            if held and held + size_bytes > most:
                raise Overloaded(
                    f"{held:,} bytes of pushes into tables are being written; {size_bytes:,} more "
                    f"are over the limit of {most:,}"
                )
            self._held_bytes += size_bytes
        try:
            yield
        finally:
            with self._lock:
                self._held_bytes -= size_bytes

    def put_encoded(self, name: str, payload: bytes | memoryview, rows: int) -> Receipt:
        """Put the rows of an encoded batch into a table, as one change.

        Args:
          name: of the table.
          payload: as of `decode`.
          rows: number that the sender declares.

        Raises:
          UnknownTable, SchemaMismatch, BadBatch, BatchTooLarge. What `TableControls.change` raises.
        """
        table = self._tables.table(name)
        batch = decode(payload, table.schema, self._core.limits)
        if batch.num_rows != rows:
            raise BadBatch(f"the batch has {batch.num_rows} rows, and declares {rows}")
        self._tables.change(table, partial(upsert, batch=batch))
        return Receipt(name, table.version, rows)

    def _put_patiently(self, table: LiveTable, batch: pa.RecordBatch, size_bytes: int) -> None:
        while True:
            try:
                with self.admitted(table.schema.name, batch.num_rows, size_bytes):
                    self._tables.change(table, partial(upsert, batch=batch))
            except Overloaded:
                self._core.machine.rest(_PAUSE_S)
            else:
                return


def upsert(rows: TableRows, batch: pa.RecordBatch) -> Changed | None:
    """Make the change that puts rows into a table; None: there are none."""
    return (ChangeKind.UPSERT, rows.last_of_each_key(batch)) if batch.num_rows else None
