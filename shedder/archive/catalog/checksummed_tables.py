"""Tables in an SQLite file, every row with its own checksum: the catalog's ground."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from shedder.archive.catalog.migrations import migrate, statements_of
from shedder.archive.catalog.sqlite_tables import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    TABLE_STATEMENTS,
    TABLES,
    row_checksum,
    translated,
)
from shedder.archive.files.durable_marks import FILE_NAME, DurableMarks, read_marks
from shedder.archive.tasks.progress import ProgressCallback, held, no_progress
from shedder.errors import (
    CommitUnknown,
    CorruptData,
    NewerFormat,
    ResourcesShort,
    ShedderError,
    StorageFailed,
)


class CheckedTables:
    """An open file; any thread may call it. Several changes: `with tables.transaction():`.

    Every method raises CorruptData when rows fail their checksum or the file is no database,
    DiskFull or StorageFailed when SQLite cannot read or write; then nothing was changed.

    A commit whose sync fails has written its frames to SQLite's write-ahead log. So has a commit
    that lacks memory for the log's index after the sync. If the process ended then, the next one
    would find the commit there, as if it had succeeded. So an empty commit takes the place of these
    frames at once. If it fails, too, the error is CommitUnknown: until the next commit that
    succeeds, a restart may find the state before or after the failed one.

    generation: the number of the last commit, which is stored with it. A commit is durable when
    its transaction ends; its number is noted in the durable marks then.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path, marks: DurableMarks | None = None
    ) -> None:
        self.path = path
        self.generation = 0
        self._marks = marks
        self._connection = connection
        self._lock = threading.RLock()
        self._depth = 0

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        read_only: bool = False,
        must_exist: bool = False,
        marks: DurableMarks | None = None,
    ) -> Self:
        """Open or create a catalog.

        Args:
          path: of the SQLite file.
          read_only: it must exist and is not changed, and a server may have it open. The marks
            beside it say how new it must be.
          must_exist: an empty file is damage, not a new catalog.
          marks: of the directory; a catalog that is older than they say is refused, and left as
            it is: SQLite would fold what is left of its write-ahead log into the file.

        Raises:
          NewerFormat: a newer version wrote it.
          CorruptData: it is not a catalog, or commits of it are missing.
          StorageFailed: it cannot be opened.
        """
        mode = "ro" if read_only else "rw"
        least = _marked(path) if read_only else 0  # Before the catalog, which may go on.
        if must_exist or marks is not None:
            _refuse_older(path, must_exist=must_exist, marks=marks)
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
        catalog = cls(connection, path, marks)
        try:
            catalog._prepare(read_only=read_only, must_exist=must_exist)
            catalog.generation = catalog.stored_generation()
            if catalog.generation < least:
                raise CorruptData(older_text(path, catalog.generation, least))
        except ShedderError:
            connection.close()
            raise
        if marks is not None:
            marks.note_generation(catalog.generation)
        return catalog

    def close(self) -> None:
        """Close; SQLite folds its write-ahead log into the file."""
        with self._lock, translated(self.path):
            self._connection.close()

    @contextmanager
    def turn(self, on_progress: ProgressCallback = no_progress) -> Iterator[None]:
        """Hold the catalog's lock for the block; wait for a running transaction to end.

        A caller that needs this lock and a lock of its own takes this one first. Otherwise the
        threads that wait for the caller's lock would wait for a checkpoint, too.

        on_progress: called repeatedly while this waits, and before the block. What it raises is
          raised.
        """
        with held(self._lock, on_progress):
            on_progress()
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
            before = self._connection.total_changes
            try:
                yield
                if self._connection.total_changes != before:
                    self._commit_generation()
            finally:
                self._depth = 0
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def stored_generation(self) -> int:
        """The number of the last commit, as the catalog has it."""
        rows = self.select("generation", "one, number", "")
        if not rows:
            raise CorruptData(f"{self.path} is damaged: it has lost its generation")
        return int(rows[0][1])

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
                    self.select(table, columns, "")
                except ShedderError as error:
                    problems.append(str(error))
        return problems

    def skip_to(self, generation: int) -> None:
        """Count commits on from a generation that the catalog has lost."""
        self.generation = max(self.generation, generation)

    def insert(self, table: str, *values: Any) -> None:
        """Insert or replace a row; values are all of its columns but the checksum, in order."""
        marks = ", ".join("?" * (len(values) + 1))
        sql = f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608 (constant names)
        self.execute(sql, *values, row_checksum(values))

    def select(self, table: str, columns: str, rest: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Rows without their checksums, which are verified; columns are all, in order."""
        rows = self.query(f"SELECT {columns}, checksum FROM {table} {rest}", *arguments)  # noqa: S608
        for row in rows:
            if row_checksum(row[:-1]) != row[-1]:
                raise CorruptData(f"{self.path}: table {table}: row {row[0]!r} fails its checksum")
        return [row[:-1] for row in rows]

    def query(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Rows of a statement that changes nothing; no checksum is verified."""
        with self._lock, translated(self.path):
            return self._connection.execute(sql, arguments).fetchall()

    def execute(self, sql: str, *arguments: Any) -> None:
        """Execute a statement that changes rows, in a transaction."""
        with self.transaction(), translated(self.path):
            self._connection.execute(sql, arguments)

    # --- inside ---

    def _commit_generation(self) -> None:
        """Commit the transaction as the next generation.

        Raises:
          DiskFull, ResourcesShort, StorageFailed: it is rolled back. CommitUnknown: until the next
            commit, a restart may find it.
        """
        try:
            self._commit()
        except (StorageFailed, ResourcesShort) as failed:  # A full disk fails before the sync.
            try:
                self._overwrite_failed_commit()
            except ShedderError as error:
                message = (
                    f"{failed}; a restart may find this commit: it was not written over: {error}"
                )
                raise CommitUnknown(message) from failed
            raise

    def _overwrite_failed_commit(self) -> None:
        """Commit nothing but a generation, in the place of the frames of a commit that failed.

        SQLite writes the next commit where the failed one began. Frames of the failed one behind it
        continue no checksum, so no reader takes them.
        """
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        with translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
        self._commit()

    def _commit(self) -> None:
        generation = self.generation + 1
        self.insert("generation", 1, generation)
        with translated(self.path):
            self._connection.execute("COMMIT")
        self.generation = generation
        if self._marks is not None:
            self._marks.note_generation(generation)

    def _prepare(self, *, read_only: bool, must_exist: bool) -> None:
        with self._lock, translated(self.path):
            run = self._connection.execute
            version = run("PRAGMA user_version").fetchone()[0]
            application = run("PRAGMA application_id").fetchone()[0]
            new = version == 0 and application == 0
            if new and (must_exist or read_only):
                raise CorruptData(empty_text(self.path))
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
                run("INSERT INTO generation VALUES (1, 1, ?)", [row_checksum([1, 1])])
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


def _marked(path: Path) -> int:
    """The generation that a catalog must have at least, as the marks in its directory say."""
    try:
        return read_marks(path.parent).generation
    except OSError as error:
        raise StorageFailed(f"cannot read {path.parent / FILE_NAME}: {error}") from error


def _refuse_older(path: Path, *, must_exist: bool, marks: DurableMarks | None) -> None:
    """Refuse a catalog that lacks commits, before SQLite changes anything.

    Raises:
      CorruptData, StorageFailed.
    """
    if not path.exists():
        return
    found = generation_of(path)
    if found is None and must_exist:
        raise CorruptData(empty_text(path))
    least = 0 if marks is None else marks.found.generation
    if found is not None and found < least:
        raise CorruptData(older_text(path, found, least))


def generation_of(path: Path) -> int | None:
    """The generation of a catalog, into which SQLite folds no write-ahead log.

    A catalog that is being made, or of a backup, is in SQLite's other journal mode until it was
    opened once. A kill then leaves a rollback journal, which only a writer can roll back.

    Returns:
      the number of the last commit that is there; 0 in a version that has none, or in a newer one;
      None where the file is empty.

    Raises:
      CorruptData, StorageFailed: the file cannot be read.
    """
    journal, wal = (path.with_name(f"{path.name}-{kind}") for kind in ("journal", "wal"))
    mode = "rw" if journal.exists() and not (wal.exists() and wal.stat().st_size) else "ro"
    with translated(path):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)
    with closing(connection), translated(path):
        version, application = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("user_version", "application_id")
        )
        if version == 0 and application == 0:
            return None
        query = "SELECT 1 FROM sqlite_schema WHERE name = 'generation'"
        if version > SCHEMA_VERSION or not connection.execute(query).fetchall():
            return 0
        rows = connection.execute("SELECT one, number, checksum FROM generation").fetchall()
    for one, number, crc in rows:
        if row_checksum([one, number]) != crc:
            raise CorruptData(f"{path}: table generation: row {one!r} fails its checksum")
    return int(rows[0][1]) if rows else 0


def empty_text(path: Path) -> str:
    """What is wrong with a catalog that is empty in a directory that is not new."""
    return (
        f"{path} is empty, though it has held a catalog: its commits were in {path.name}-wal, "
        "which is missing or damaged; put the right file back, or restore a backup"
    )


def older_text(path: Path, found: int, generation: int) -> str:
    """What is wrong with a catalog that lacks commits."""
    return (
        f"{path} has generation {found}, but generation {generation} was durable: "
        f"{generation - found} commits are missing, because {path.name}-wal is damaged or missing, "
        "or because the file is an older one; put the right files back, restore a backup, or let "
        "`shedder check --repair` rebuild what runs and log hold"
    )


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
