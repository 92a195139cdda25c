"""Tables of an engine: rows that the apply thread has put in force, by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from shedder.archive.log.table_changes import ChangeKind, TableChange
from shedder.archive.tables.table_rows import PIECE_BYTES_MAX, PIECE_ROWS_MAX, TableRows
from shedder.cql.statements.table_schema import TableSchema
from shedder.engine.tables.table_history import TableHistory, rows_before
from shedder.errors import UnknownTable

Changed = tuple[ChangeKind, pa.RecordBatch]
"""A change before it has a number: its kind, and its rows or keys."""

PastRows = Callable[[], TableRows]
"""Computes the rows of a table as of an instant, on any thread."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberedChange:
    """A change on its way from the log to its table.

    after: rows of the table after the change; None: replayed, so the apply thread computes them.
    replaced: rows that the change took out; only beside `after`.
    """

    header: TableChange
    batch: pa.RecordBatch
    after: TableRows | None = None
    replaced: tuple[pa.RecordBatch, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Replayed:
    """A change from the log. number: as of `PastChange`."""

    header: TableChange
    batch: pa.RecordBatch
    number: int


class LiveTable:
    """One table. Its rows change on the apply thread, or before it starts.

    id: in the catalog.
    stored_version: of its image; -1: it has none.
    """

    def __init__(
        self, table_id: int, rows: TableRows, *, stored_version: int, history: TableHistory
    ) -> None:
        """history: begins with `rows`, or with the changes that are replayed."""
        self.id = table_id
        self._history = history
        self.stored_version = stored_version
        self._rows = rows
        self._newest = rows
        self._replayed: list[_Replayed] = []  # Not in rows yet.
        self._replayed_rows = self._replayed_bytes = 0
        self._is_dropped = False
        self._writing = threading.Lock()
        self._folding = threading.Lock()

    @property
    def schema(self) -> TableSchema:
        """The table's definition."""
        return self._newest.schema

    @property
    def rows(self) -> TableRows:
        """All rows as of the last record that was applied. From any thread."""
        if self._replayed:
            self._fold()
        return self._rows

    @property
    def version(self) -> int:
        """Number of the last change that was applied."""
        return self._replayed[-1].header.version if self._replayed else self._rows.version

    @property
    def history(self) -> TableHistory:
        """What the newest changes have replaced. On the apply thread."""
        if self._replayed:
            self._fold()
        return self._history

    def facts(self) -> dict[str, str | int]:
        """Properties of the table, for the control table."""
        rows = self.rows
        return {
            "id": self.id,
            "tenant": self.schema.tenant,
            "rows": rows.rows,
            "size_bytes": rows.size_bytes,
            "version": rows.version,
            "lost_changes": rows.lost,
        }

    def past(self, as_of_us: int | None) -> PastRows:
        """Return what computes the rows as of an instant. None: of now. On the apply thread.

        Raises:
          BeforeRetention: the rows of that instant are not kept.
        """
        rows = self.rows
        if as_of_us is None:
            return lambda: rows
        return partial(rows_before, rows, self._history.since(self.schema.name, as_of_us))

    def change(
        self,
        make: Callable[[TableRows], Changed | None],
        write: Callable[[NumberedChange], None],
        clock_us: Callable[[], int],
    ) -> int:
        """Make one change durable; the next one begins with its rows.

        Args:
          make: computes the change from the newest rows; None: there is nothing to change.
          write: returns when the change is durable.
          clock_us: us since 1970. AS OF this instant, the rows have the change.

        Returns:
          the number of rows or keys of the change.

        Raises:
          UnknownTable: it was dropped. What `make` and `write` raise: nothing has changed.
        """
        with self._writing:
            if self._is_dropped:
                raise UnknownTable(self.schema.name, [])
            self._fold()
            made = make(self._newest)
            if made is None:
                return 0
            kind, batch = made
            version = self._newest.version + 1
            after, replaced = self._newest.replaced(kind, batch, version=version)
            header = TableChange(self.id, kind, version, clock_us())
            write(NumberedChange(header, batch, after, replaced))
            self._newest = after
            return batch.num_rows

    def apply(self, change: NumberedChange) -> None:
        """Put a durable change in force. On the apply thread, or replaying.

        After a repair the image may be newer than the checkpoint where a replay begins.
        """
        header = change.header
        if change.after is not None:
            keys = change.batch.select(list(self.schema.key))
            number = self._history.place()
            self._history.add(number, header.arrival_us, keys, change.replaced)
            self._rows = change.after
        elif header.version > self.version:
            rows = self._replayed_rows + change.batch.num_rows
            size = self._replayed_bytes + change.batch.nbytes
            if rows > PIECE_ROWS_MAX or size > PIECE_BYTES_MAX:
                self._fold()
            self._replayed.append(_Replayed(header, change.batch, self._history.place()))
            self._replayed_rows += change.batch.num_rows
            self._replayed_bytes += change.batch.nbytes

    def note_lost(self, changes: int) -> None:
        """Count changes behind the last one that are lost or may be; each takes a number."""
        rows = self.rows
        self._history.lose()
        self._history.begin()
        version, lost = rows.version + changes, rows.lost + changes
        self._rows = self._newest = replace(rows, version=version, lost=lost)

    def note_stored(self, version: int) -> None:
        """Note that a checkpoint has an image with the changes up to this one."""
        self.stored_version = version

    def _fold(self) -> None:
        """Put replayed changes into the rows; together they take less time than one by one."""
        with self._folding:
            if self._replayed:
                self._keep_history()
                changes = [(it.header.kind, it.batch, it.header.version) for it in self._replayed]
                self._rows = self._newest = self._rows.changed_by(changes)
                self._replayed, self._replayed_rows, self._replayed_bytes = [], 0, 0

    def _keep_history(self) -> None:
        """Keep what replayed changes replace: of the rows, those with their keys are looked at."""
        rows, names = self._rows, list(self.schema.key)
        keys = pa.concat_batches([it.batch.select(names) for it in self._replayed])  # type: ignore[attr-defined]
        _, pieces = rows.replaced(ChangeKind.DELETE, keys, version=rows.version + 1)
        rows = replace(rows, pieces=pieces)
        for each in self._replayed:
            header, batch = each.header, each.batch
            if header.version != rows.version + 1:  # A change is lost.
                self._history.lose()
            rows, replaced = rows.replaced(header.kind, batch, version=header.version)
            self._history.add(each.number, header.arrival_us, batch.select(names), replaced)

    def end_replay(self) -> None:
        """Go on from what was replayed; before the apply thread starts."""
        self.history.begin()

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Make no change during the block, and none after it unless the block fails."""
        with self._writing:
            yield
            self._is_dropped = True


class LiveTables(Mapping[str, LiveTable]):
    """All tables by name. They are added and removed on the apply thread, or before it starts."""

    def __init__(self) -> None:
        self._by_name: dict[str, LiveTable] = {}

    def __getitem__(self, name: str) -> LiveTable:
        """Look a table up by name; KeyError if there is none."""
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(list(self._by_name))

    def __len__(self) -> int:
        """Count the tables."""
        return len(self._by_name)

    def add(self, table: LiveTable) -> None:
        """Make a table live."""
        self._by_name[table.schema.name] = table

    def remove(self, name: str) -> None:
        """Forget a table; changes of it that are in the log have no effect."""
        del self._by_name[name]

    def apply(self, change: NumberedChange) -> None:
        """Put a durable change in force; one of a table that was dropped has no effect."""
        for table in self._by_name.values():
            if table.id == change.header.table:
                table.apply(change)

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows of all tables."""
        return sum(table.rows.size_bytes for table in list(self._by_name.values()))
