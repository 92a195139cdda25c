"""Histories of tables in a checkpoint, so that a restart knows what earlier changes replaced."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.archive.tables.table_rows import TableRows
from shedder.engine.tables.change_places import ChangePlaces
from shedder.engine.tables.live_tables import LiveTables
from shedder.engine.tables.table_history import HistoryMemory, PastChange, TableHistory
from shedder.streams.ipc import table_bytes

PLACES = "table_places"  # The part of a checkpoint with the places of all changes.
_HISTORY = "table_history"  # Begins the part of one table; its id follows.
_CHANGE, _IS_ROW = "#change", "#is_row"  # Columns beside those of the table.


@dataclass(frozen=True, slots=True, eq=False)
class HistoryImage:
    """History of one table at one moment.

    rows: of the table. begin_us, begin: as of `TableHistory.restored`.
    """

    history: TableHistory
    rows: TableRows
    changes: tuple[PastChange, ...]
    begin_us: int
    begin: int

    @classmethod
    def of(cls, history: TableHistory, rows: TableRows) -> HistoryImage:
        """Take a history. On the apply thread."""
        return cls(history, rows, history.changes, history.begin_us, history.begin_number)

    def to_bytes(self) -> bytes:
        """The rows and keys of all changes as Arrow IPC; the rest as JSON in its metadata."""
        schema = self.rows.table().schema
        columns: list[pa.Field[Any]] = [pa.field(it.name, it.type) for it in schema]
        columns += [pa.field(_CHANGE, pa.int64()), pa.field(_IS_ROW, pa.bool_())]
        marked = pa.schema(columns)
        parts = []
        for at, change in enumerate(self.changes):
            for batch, is_row in ((change.keys, False), *((it, True) for it in change.replaced)):
                parts.append(_marked(batch, marked, at, is_row=is_row))
        header = {
            "version": self.rows.version,
            "begin": [self.begin_us, self.begin],
            "changes": [[it.number, it.changed_us] for it in self.changes],
        }
        table = pa.Table.from_batches(parts, marked).combine_chunks()
        return table_bytes(table.replace_schema_metadata({"history": json.dumps(header)}))


@dataclass(frozen=True, slots=True, eq=False)
class StoredHistories:
    """Histories of all tables for one checkpoint. Call `parts`, and `stored` once they are."""

    places: bytes
    images: Mapping[str, HistoryImage]
    kept: frozenset[str]

    @classmethod
    def of(cls, tables: LiveTables, places: ChangePlaces) -> StoredHistories:
        """Take the histories that changed since the newest checkpoint. On the apply thread."""
        found = {f"{_HISTORY}/{it.id}": (it.history, it.rows) for it in tables.values()}
        kept = frozenset(key for key, (history, _) in found.items() if history.is_stored)
        images = {key: HistoryImage.of(*it) for key, it in found.items() if key not in kept}
        return cls(json.dumps(places.to_json()).encode(), images, kept)

    def parts(self) -> dict[str, bytes]:
        """Return parts of the checkpoint; none without tables."""
        if not self.images and not self.kept:
            return {}
        return {PLACES: self.places, **{key: it.to_bytes() for key, it in self.images.items()}}

    def stored(self) -> None:
        """Note that the checkpoint has the images. On the apply thread."""
        for image in self.images.values():
            image.history.note_stored(image.changes)


def restored_history(
    memory: HistoryMemory, parts: Mapping[str, bytes], table_id: int, rows: TableRows
) -> TableHistory:
    """Return the history of a table as of its image.

    A checkpoint that has none is of an earlier version, or of other rows after a repair.
    """
    data = parts.get(f"{_HISTORY}/{table_id}")
    if data is None and not rows.version:  # The log has all of its changes.
        return TableHistory.restored(memory, (), begin_us=0, begin=0)
    if data is None:
        return TableHistory(memory, is_known=False)
    table = pa.ipc.open_stream(data).read_all()
    header: dict[str, Any] = json.loads(table.schema.metadata[b"history"])
    if header["version"] != rows.version:
        return TableHistory(memory, is_known=False)
    begin_us, begin = header["begin"]
    changes = _changes(table, rows, header["changes"])
    return TableHistory.restored(memory, changes, begin_us=begin_us, begin=begin)


def _changes(table: pa.Table, rows: TableRows, known: list[list[int]]) -> list[PastChange]:
    """Divide stored rows and keys. known: number and instant of each change."""
    schema, key = rows.table().schema, list(rows.schema.key)
    at, is_row = (np.asarray(table[name]) for name in (_CHANGE, _IS_ROW))
    found = []
    for place, (number, changed_us) in enumerate(known):
        first, end = np.searchsorted(at, [place, place + 1])
        split = first + int(np.count_nonzero(~is_row[first:end]))
        keys = table.slice(first, split - first).select(key).combine_chunks().to_batches()
        replaced = table.slice(split, end - split).select(schema.names).cast(schema)
        batches = tuple(it for it in replaced.combine_chunks().to_batches() if it.num_rows)
        found.append(PastChange(number, changed_us, keys[0], batches))
    return found


def _marked(batch: pa.RecordBatch, schema: pa.Schema, at: int, *, is_row: bool) -> pa.RecordBatch:
    """Return a batch with all columns of a schema, NULL where it has none."""
    size, names = batch.num_rows, batch.schema.names
    columns = [
        batch.column(field.name) if field.name in names else pa.nulls(size, field.type)
        for field in list(schema)[:-2]
    ]
    own = [pa.array(np.full(size, at)), pa.array(np.full(size, is_row))]
    return pa.RecordBatch.from_arrays([*columns, *own], schema=schema)
