"""The catalog: what exists in a data directory, in SQLite, every row with its own checksum."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from shedder.archive.backfills_in_catalog import BackfillsInCatalog
from shedder.archive.entries import (
    Copy,
    Footer,
    Pane,
    QueryEntry,
    Rolled,
    Run,
    StreamEntry,
    basics_from_json,
    basics_to_json,
    schema_from_json,
    schema_to_json,
)
from shedder.archive.marks import MarksInCatalog
from shedder.archive.migrations import migrate, statements_of
from shedder.archive.rollups_in_catalog import RollupsInCatalog
from shedder.archive.tables import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    TABLE_STATEMENTS,
    TABLES,
    row_checksum,
    translated,
)
from shedder.cql.layout import layout_from_text, layout_text
from shedder.cql.query import StreamSchema
from shedder.errors import (
    CorruptData,
    NewerFormat,
    QueryExists,
    ShedderError,
    StorageFailed,
    StreamExists,
)

_STREAM_COLUMNS = "id, name, definition, retained_from, retained_position"
_RUN_COLUMNS = (
    "stream_id, first_position, end_position, file, bytes, crc, min_ts, max_ts, layout, basics, "
    "blocks, footer_offset, footer_crc, purged, halvings"
)


class Catalog(MarksInCatalog, RollupsInCatalog, BackfillsInCatalog):
    """An open catalog; any thread may call it. Several changes: `with catalog.transaction():`.

    Every method raises CorruptData when rows fail their checksum or the file is no database,
    DiskFull or StorageFailed when SQLite cannot read or write; then nothing was changed.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()
        self._depth = 0

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """Open or create a catalog.

        Args:
          path: of the SQLite file.
          read_only: it must exist and is not changed.

        Raises:
          NewerFormat: a newer version wrote it.
          CorruptData: it is not a catalog.
          StorageFailed: it cannot be opened.
        """
        mode = "ro" if read_only else "rw"
        with translated(path):
            if not read_only:
                _create(path)
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=10,
            )
        catalog = cls(connection, path)
        try:
            catalog._prepare(read_only)
        except ShedderError:
            connection.close()
            raise
        return catalog

    def close(self) -> None:
        """Close; SQLite folds its write-ahead log into the file."""
        with self._lock, translated(self.path):
            self._connection.close()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Nobody else changes the catalog meanwhile; waits for a transaction to be over.

        Who needs this and a lock of his own takes this one first, so that nobody who waits for
        that lock waits for a checkpoint, too.
        """
        with self._lock:
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside, or none of them. May be nested; the outermost one commits.

        A second thread waits until the transaction of the first one is over.
        """
        with self._lock:
            if self._depth:
                yield
                return
            with translated(self.path):
                self._connection.execute("BEGIN IMMEDIATE")
            self._depth = 1
            try:
                yield
                with translated(self.path):
                    self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._depth = 0

    # --- streams ---

    def add_stream(self, schema: StreamSchema) -> StreamEntry:
        """Give a stream its id.

        Raises:
          StreamExists: there is one of this name.
        """
        definition = schema_to_json(schema)
        with self.transaction():
            if self._all("SELECT 1 FROM streams WHERE name = ?", schema.name):
                raise StreamExists(f"stream {schema.name!r} exists")
            last = self._all("SELECT seq FROM sqlite_sequence WHERE name = 'streams'")
            number = last[0][0] + 1 if last else 1
            self._insert("streams", number, schema.name, definition, None, 0)
        return StreamEntry(number, schema)

    def streams(self) -> list[StreamEntry]:
        """All streams, by id."""
        rows = self._select("streams", _STREAM_COLUMNS, "ORDER BY id")
        return [StreamEntry(row[0], schema_from_json(row[2]), *row[3:]) for row in rows]

    def put_stream(self, entry: StreamEntry) -> None:
        """Change a stream's definition; its id and name stay."""
        definition = schema_to_json(entry.schema)
        retained = (entry.retained_from_us, entry.retained_position)
        self._insert("streams", entry.id, entry.schema.name, definition, *retained)

    def set_retained(self, stream_id: int, from_us: int, position: int) -> None:
        """Note that retention has removed tuples: before an event time, below a position."""
        with self.transaction():
            for row in self._select("streams", _STREAM_COLUMNS, "WHERE id = ?", stream_id):
                self._insert("streams", *row[:3], from_us, position)
            where = "WHERE stream_id = ? AND end_position <= ?"
            self._run(f"DELETE FROM emptied {where}", stream_id, position)  # noqa: S608

    def drop_stream(self, stream_id: int) -> None:
        """Forget a stream and its runs. Its id is not used again."""
        with self.transaction():
            self._drop_marks(stream_id)
            self._drop_backfills(stream_id)
            self._run("DELETE FROM runs WHERE stream_id = ?", stream_id)
            self._run("DELETE FROM streams WHERE id = ?", stream_id)

    # --- queries ---

    def add_query(self, query: QueryEntry) -> None:
        """List a standing query.

        Raises:
          QueryExists: there is one of this name.
        """
        with self.transaction():
            if self._all("SELECT 1 FROM queries WHERE name = ?", query.name):
                raise QueryExists(f"query {query.name!r} exists")
            self._insert(
                "queries",
                query.name,
                query.text,
                query.parameters,
                query.stream_id,
                query.from_position,
                query.created_us,
            )

    def queries(self) -> list[QueryEntry]:
        """All standing queries, by name."""
        columns = "name, text, parameters, stream_id, from_position, created_us"
        return [QueryEntry(*row) for row in self._select("queries", columns, "ORDER BY name")]

    def drop_query(self, name: str) -> None:
        """Forget a query and its panes."""
        with self.transaction():
            self._run("DELETE FROM panes WHERE query = ?", name)
            self._run("DELETE FROM queries WHERE name = ?", name)

    # --- runs ---

    def add_run(self, run: Run) -> None:
        """Make a run and what is beside it part of the archive; all files must be in place."""
        with self.transaction():
            self._insert(
                "runs",
                run.stream_id,
                run.first_position,
                run.end_position,
                run.file,
                run.size_bytes,
                run.crc,
                run.low_us,
                run.high_us,
                layout_text(run.layout),
                basics_to_json(run.basics),
                run.blocks,
                None if run.footer is None else run.footer.offset,
                None if run.footer is None else run.footer.crc,
                run.purged,
                run.halvings,
            )
            for copy in run.copies:
                self.add_copy(run, copy)
            for rolled in run.rolled:
                self.add_rolled(run, rolled)

    def runs(self, stream_id: int | None = None) -> list[Run]:
        """The runs of a stream, or of all, in order of position."""
        where = "" if stream_id is None else "WHERE stream_id = ? "
        arguments = () if stream_id is None else (stream_id,)
        order = "ORDER BY stream_id, first_position"
        rows = self._select("runs", _RUN_COLUMNS, where + order, *arguments)
        copies, rolled = self.copies(), self.rolled()
        return [_run(row, copies.get(row[:2], ()), rolled.get(row[:2], ())) for row in rows]

    def drop_run(self, run: Run) -> None:
        """Forget a run; its file becomes an orphan."""
        with self.transaction():
            self._drop_marks(run.stream_id, run.first_position)
            self._run(
                "DELETE FROM runs WHERE stream_id = ? AND first_position = ?",
                run.stream_id,
                run.first_position,
            )

    # --- panes ---

    def put_pane(self, query: str, start_us: int, blob: bytes) -> int:
        """Store a closed pane, in place of an older version; returns its version, from 1."""
        with self.transaction():
            where = "WHERE query = ? AND start_us = ?"
            known = self._all(f"SELECT version FROM panes {where}", query, start_us)  # noqa: S608
            version = known[0][0] + 1 if known else 1
            self._insert("panes", query, start_us, version, blob)
        return version

    def panes(self, query: str, start_us: int, end_us: int) -> list[Pane]:
        """The panes of a query that begin in [start_us, end_us), in order."""
        rows = self._select(
            "panes",
            "query, start_us, version, blob",
            "WHERE query = ? AND start_us >= ? AND start_us < ? ORDER BY start_us",
            query,
            start_us,
            end_us,
        )
        return [Pane(*row[1:]) for row in rows]

    def drop_panes(self, query: str, before_us: int) -> None:
        """Delete panes that begin before an event time."""
        with self.transaction():
            self._run("DELETE FROM panes WHERE query = ? AND start_us < ?", query, before_us)

    def drop_panes_at(self, query: str, starts_us: Sequence[int]) -> None:
        """Delete the panes that begin at these event times; those that are not there stay away."""
        with self.transaction():
            for start_us in starts_us:
                self._run("DELETE FROM panes WHERE query = ? AND start_us = ?", query, start_us)

    # --- checkpoint ---

    def write_checkpoint(self, log_sequence: int, parts: Mapping[str, bytes]) -> None:
        """Replace the checkpoint.

        Args:
          log_sequence: every record of the log below it is in the parts.
          parts: a blob per key; keys that are missing here are forgotten.
        """
        with self.transaction():
            self._run("DELETE FROM checkpoint_parts")
            for key, blob in parts.items():
                self._insert("checkpoint_parts", key, blob)
            self._insert("checkpoint", 1, log_sequence)

    def checkpoint_sequence(self) -> int:
        """The log sequence of the checkpoint; 0 when there is none."""
        rows = self._select("checkpoint", "one, log_sequence", "")
        return int(rows[0][1]) if rows else 0

    def checkpoint_parts(self) -> dict[str, bytes]:
        """The blobs of the checkpoint."""
        return {row[0]: row[1] for row in self._select("checkpoint_parts", "key, blob", "")}

    # --- verification ---

    def problems(self) -> list[str]:
        """What SQLite's own integrity check and the rows' checksums find."""
        with self._lock:
            try:
                with translated(self.path):
                    found = self._connection.execute("PRAGMA integrity_check(20)").fetchall()
            except ShedderError as error:
                return [str(error)]
            problems = [f"{self.path}: {row[0]}" for row in found if row[0] != "ok"]
            for table in TABLES:
                try:
                    with translated(self.path):
                        names = self._connection.execute(f"PRAGMA table_info({table})").fetchall()
                    columns = ", ".join(name[1] for name in names if name[1] != "checksum")
                    self._select(table, columns, "")
                except ShedderError as error:
                    problems.append(str(error))
        return problems

    # --- SQLite ---

    def _prepare(self, read_only: bool) -> None:
        with self._lock, translated(self.path):
            run = self._connection.execute
            version = run("PRAGMA user_version").fetchone()[0]
            application = run("PRAGMA application_id").fetchone()[0]
            new = version == 0 and application == 0
            if version > SCHEMA_VERSION and application == APPLICATION_ID:
                raise NewerFormat(
                    f"{self.path} has format {version}; this version reads up to {SCHEMA_VERSION}"
                )
            if not new and application != APPLICATION_ID:
                raise CorruptData(f"{self.path} is not a catalog (application id {application:#x})")
            found = run("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise CorruptData(f"{self.path} is damaged: {found}")
            if not new:
                self._check_tables(version)
            old = 0 < version < SCHEMA_VERSION
            if read_only:
                if old:  # read a copy, brought up to date in memory
                    self._connection = _copy(self._connection)
                    migrate(self._connection, version)
                return
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = FULL")
            run("PRAGMA journal_size_limit = 67108864")
            if new:
                run("BEGIN IMMEDIATE")
                for statement in TABLE_STATEMENTS:
                    run(statement)
                run(f"PRAGMA application_id = {APPLICATION_ID}")
                run(f"PRAGMA user_version = {SCHEMA_VERSION}")
                run("COMMIT")
            elif old:
                migrate(self._connection, version)

    def _check_tables(self, version: int) -> None:
        """The tables' definitions have no checksum of their own; we know what they are."""
        with closing(sqlite3.connect(":memory:")) as known:
            for statement in statements_of(version):
                known.execute(statement)
            strange = _objects(self._connection) ^ _objects(known)
        if strange:
            raise CorruptData(f"{self.path} is damaged: not the tables it should have: {strange}")

    def _insert(self, table: str, *values: Any) -> None:
        """Insert or replace a row; values are all of its columns but the checksum, in order."""
        marks = ", ".join("?" * (len(values) + 1))
        sql = f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608 (constant names)
        self._run(sql, *values, row_checksum(values))

    def _select(
        self, table: str, columns: str, rest: str, *arguments: Any
    ) -> list[tuple[Any, ...]]:
        """Rows without their checksums, which are verified; columns are all, in order."""
        rows = self._all(f"SELECT {columns}, checksum FROM {table} {rest}", *arguments)  # noqa: S608
        for row in rows:
            if row_checksum(row[:-1]) != row[-1]:
                raise CorruptData(f"{self.path}: table {table}: row {row[0]!r} fails its checksum")
        return [row[:-1] for row in rows]

    def _all(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self._lock, translated(self.path):
            return self._connection.execute(sql, arguments).fetchall()

    def _run(self, sql: str, *arguments: Any) -> None:
        with self._lock, translated(self.path):
            self._connection.execute(sql, arguments)


def _run(row: tuple[Any, ...], copies: tuple[Copy, ...], rolled: tuple[Rolled, ...]) -> Run:
    footer = None if row[11] is None else Footer(row[11], row[12])
    basics = basics_from_json(row[9])
    known = (layout_from_text(row[8]), basics, row[10], footer, copies, rolled, *row[13:])
    return Run(*row[:8], *known)


def _objects(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    """Tables and indexes: type, name, table, definition."""
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


def _copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.backup(copy)
    connection.close()
    return copy


def _create(path: Path) -> None:
    """Make the file, unless it is there, as others may not read it: SQLite would let them.

    The write-ahead log and its index get the mode of the file from SQLite.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
    except OSError as error:
        raise StorageFailed(f"cannot open {path}: {error}") from error
