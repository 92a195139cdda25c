"""Tables of a standing row query: their changes in the order of the log, and their stored state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shedder.archive.log.table_changes import ChangeKind, TableChange
from shedder.archive.tables.table_rows import TableRows
from shedder.dataflow.tables.table_places import Reached, TablePlaces
from shedder.dataflow.tables.table_versions import TableVersions
from shedder.errors import CorruptData
from shedder.streams.ipc import table_bytes


@dataclass(slots=True)
class ReadTable:
    """A table in FROM.

    corrects: the places of its versions are instants, as of `Dataflow.corrects`; else they are
      those of `TablePlaces`.
    version: number of the last change that was read.
    """

    name: str
    table_id: int
    versions: TableVersions
    corrects: bool
    version: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _WaitingChange:
    """A change of some tables' versions.

    reached: by alias of a stream. instant_us: its place in tables that correct.
    """

    tables: Sequence[ReadTable]
    kind: ChangeKind
    batch: pa.RecordBatch
    reached: Mapping[str, Reached]
    instant_us: int

    def apply(self, places: TablePlaces) -> None:
        """Change the versions."""
        corrects = all(it.corrects for it in self.tables)
        behind = self.instant_us if corrects else places.next(self.reached)
        for table in self.tables:
            versions, place = table.versions, self.instant_us if table.corrects else behind
            change = versions.upsert if self.kind is ChangeKind.UPSERT else versions.delete
            change(self.batch, place)


@dataclass(frozen=True, slots=True)
class TablesState:
    """Stored state: the versions that a restart needs beside the present rows of the tables.

    places: as of `TablePlaces.to_json`. newest_us: by alias of a stream, as of `Reached`.
    tables: (version, history) by alias; history: as of `TableVersions.history`.
    """

    places: Sequence[Any]
    newest_us: Mapping[str, int | None]
    tables: Mapping[str, tuple[int, pa.Table]]

    def to_metadata(self) -> dict[str, bytes]:
        """The state as metadata of a schema; none without tables."""
        if not self.tables:
            return {}
        header = {
            "places": self.places,
            "newest_us": self.newest_us,
            "versions": {alias: version for alias, (version, _) in self.tables.items()},
        }
        parts = {f"table/{alias}": table_bytes(it) for alias, (_, it) in self.tables.items()}
        return {"tables": json.dumps(header).encode(), **parts}

    @classmethod
    def from_metadata(cls, stored: Mapping[bytes, bytes]) -> TablesState:
        """Read what `to_metadata` wrote."""
        if b"tables" not in stored:
            return cls((), {}, {})
        header = json.loads(stored[b"tables"])
        tables = {
            alias: (version, pa.ipc.open_stream(stored[f"table/{alias}".encode()]).read_all())
            for alias, version in header["versions"].items()
        }
        return cls(header["places"], header["newest_us"], tables)


class QueryTables:
    """The tables of one query, by alias. Used by the apply thread, or before the query stands."""

    def __init__(self, tables: Mapping[str, ReadTable], places: TablePlaces | None = None) -> None:
        """places: that the joins of the query look up; None: it has none."""
        self.by_alias = dict(tables)
        self._places = TablePlaces() if places is None else places
        self._loaded: dict[str, TableRows] = {}
        self._waiting: list[_WaitingChange] = []
        self._has_past = False  # Of the tables that do not correct.

    def load(self, rows: Mapping[str, TableRows], instant_us: int) -> None:
        """Begin with the present rows, or with what has changed in them since the last call.

        rows: by alias. No tuple has joined versions of a table.
        instant_us: first instant with the rows of a table that corrects.
        """
        for alias, now in rows.items():
            table, before = self.by_alias[alias], self._loaded.get(alias)
            if self._has_past and not table.corrects:
                continue
            place = instant_us if table.corrects else 0
            held = {id(piece) for piece in now.pieces}
            known = () if before is None else before.pieces
            for piece in known:
                if id(piece) not in held:
                    table.versions.delete(piece, place)
            held = {id(piece) for piece in known}
            for piece in now.pieces:
                if id(piece) not in held:
                    table.versions.upsert(piece, place)
            table.version = now.version
            self._loaded[alias] = now

    def load_past(
        self,
        rows: Mapping[str, TableRows],
        versions: Mapping[str, pa.Table],
        reached: Sequence[Mapping[str, Reached]],
    ) -> None:
        """Begin with earlier versions, which tuples of the past join.

        rows: now, by alias. versions: as of `TableVersions.history`. reached: by alias of a
        stream, at each change.
        """
        self._has_past = True
        self._places.begin_with(reached)
        for alias, now in rows.items():
            table = self.by_alias[alias]
            table.versions.clear()
            for piece in now.pieces:
                table.versions.upsert(piece, 0)
            table.versions.restore(versions[alias])
            table.version = now.version

    def change_past(
        self, header: TableChange, batch: pa.RecordBatch, reached: Mapping[str, Reached]
    ) -> None:
        """Apply a change that came since `load_past`, while the past is read.

        A table that corrects has no past; `load` has its changes. reached: by alias of a stream.
        """
        tables = [it for it in self._behind(header) if not it.corrects]
        for table in tables:
            table.version = header.version
        if tables:
            _WaitingChange(tables, header.kind, batch, reached, 0).apply(self._places)

    def _behind(self, header: TableChange) -> list[ReadTable]:
        """Return the tables that a change is new to: an image may have it."""
        tables = [it for it in self.by_alias.values() if it.table_id == header.table]
        return [it for it in tables if header.version > it.version]

    def end_past(self, newest_us: Mapping[str, int | None]) -> None:
        """The past has been read. newest_us: by alias of a stream, of its tuples."""
        self._places.note_newest(newest_us)

    def reads(self, table_id: int) -> bool:
        """Return whether the query reads a table."""
        return any(each.table_id == table_id for each in self.by_alias.values())

    def begin(self) -> None:
        """Tuples and changes come from now on."""
        self._loaded.clear()

    @property
    def newest_place(self) -> int:
        """The place behind all changes."""
        return self._places.newest

    @property
    def has_places(self) -> bool:
        """Return whether tuples join the versions at their places."""
        return not all(it.corrects for it in self.by_alias.values())

    def change(
        self,
        header: TableChange,
        batch: pa.RecordBatch,
        reached: Mapping[str, Reached],
        instant_us: int,
        *,
        waits: bool,
    ) -> None:
        """Apply a change.

        reached: by alias of a stream. instant_us: first instant with a change of a table that
          corrects. waits: versions and places change at the next `go_on`, because a step reads
          them.
        """
        tables = self._behind(header)
        for table in tables:
            table.version = header.version
        if tables:
            change = _WaitingChange(tables, header.kind, batch, dict(reached), instant_us)
            self._waiting.append(change)
        if not waits:
            self.go_on()

    def go_on(self) -> None:
        """Change the versions and places: no step reads them now."""
        for each in self._waiting:
            each.apply(self._places)
        self._waiting.clear()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the changes that wait for `go_on`."""
        return sum(each.batch.nbytes for each in self._waiting)

    def state(
        self,
        needs_from_us: Mapping[str, int | None],
        needs_from: int | None,
        newest_us: Mapping[str, int | None],
        begin_us: int,
    ) -> TablesState:
        """Return the state for a checkpoint, and forget what no later restart needs.

        needs_from_us, needs_from: as of `TablePlaces.forget`. newest_us: by alias of a stream.
        begin_us: instant from which a restart makes rows.
        """
        place = self._places.forget(needs_from_us, needs_from)
        tables = {}
        for alias, table in self.by_alias.items():
            first = begin_us if table.corrects else place
            table.versions.forget(first)
            tables[alias] = (table.version, table.versions.history(first))
        return TablesState(self._places.to_json(), newest_us, tables)

    def restore(self, state: TablesState, rows: Mapping[str, TableRows], begin_us: int) -> None:
        """Go on from a stored state.

        rows: of the tables at that moment, by alias. begin_us: as of `state`.

        Raises:
          CorruptData: the rows are of another moment.
        """
        self.load(rows, begin_us)
        self.begin()
        self._places.restore(state.places)
        for alias, (version, history) in state.tables.items():
            table = self.by_alias[alias]
            if table.version != version:
                raise CorruptData(
                    f"table {table.name!r} has changes up to {table.version:,}, and the state of "
                    f"the query is as of change {version:,}: the catalog was repaired"
                )
            table.versions.restore(history, begin_us if table.corrects else 0)
