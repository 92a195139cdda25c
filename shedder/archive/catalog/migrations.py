"""Catalogs of older versions, brought up to the present one in a single transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from shedder.archive.catalog.sqlite_tables import SCHEMA_VERSION, TABLE_STATEMENTS, row_checksum
from shedder.errors import CorruptData

_RUNS_1 = """
CREATE TABLE runs (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  end_position INTEGER NOT NULL, file TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL,
  crc INTEGER NOT NULL, min_ts INTEGER NOT NULL, max_ts INTEGER NOT NULL, layout TEXT NOT NULL,
  basics TEXT NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (stream_id, first_position))
""".strip()

_RUNS_2 = """
CREATE TABLE runs (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  end_position INTEGER NOT NULL, file TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL,
  crc INTEGER NOT NULL, min_ts INTEGER NOT NULL, max_ts INTEGER NOT NULL, layout TEXT NOT NULL,
  basics TEXT NOT NULL, blocks INTEGER NOT NULL, footer_offset INTEGER, footer_crc INTEGER,
  checksum INTEGER NOT NULL, PRIMARY KEY (stream_id, first_position))
""".strip()

_PARTS_9 = """
CREATE TABLE backfill_parts (stream_id INTEGER NOT NULL, name TEXT NOT NULL, part INTEGER NOT NULL,
  rows INTEGER NOT NULL, poison INTEGER NOT NULL, runs TEXT NOT NULL, queries TEXT NOT NULL,
  summaries BLOB NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (stream_id, name, part))
""".strip()


def statements_of(version: int) -> set[str]:
    """The definitions of the tables of a catalog of this version."""
    found = set(TABLE_STATEMENTS)
    if version < 13:
        found -= {_definition("tables"), _definition("table_images")}
    if version < 12:
        found -= {_definition("generation")}
    if version < 11:
        found -= {_definition("backfill_parts"), _definition("backfill_summaries")}
        found |= {_PARTS_9}
    if version < 10:
        found -= {_definition("lazy_rollups")}
    if version < 9:
        found -= {_definition("backfills"), _PARTS_9}
    if version < 4:
        found -= {_definition("copies"), _definition("scans")}
    if version < 3:
        found -= {_definition("quarantined")}
    if version < 7:
        found -= {_definition("rollups"), _definition("rolled")}
    if version < 6:
        found -= {_definition("indexes")}
    if version < 5:
        found -= {_definition("deleted"), _definition("deletions")}
    if version < 8:
        found -= {_definition("emptied"), _definition("scrubs"), _definition("runs")}
        found |= {_RUNS_1 if version < 2 else _RUNS_2}
    return found


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring a catalog up to date; all of it or, when an error is raised, nothing.

    Args:
      connection: in no transaction.
      version: that the catalog has now, from 1.

    Raises:
      CorruptData: a row that has to be written again fails its checksum.
      sqlite3.Error: SQLite cannot read or write.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in _STEPS[version - 1 :]:
            step(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _runs_get_blocks(connection: sqlite3.Connection) -> None:
    """1 to 2: a run has blocks, here 1, and its file a footer, not known of these files."""
    _widen_runs(connection, _RUNS_2, (1, None, None))


def _runs_may_be_quarantined(connection: sqlite3.Connection) -> None:
    """2 to 3: a table of damaged runs; there are none yet."""
    connection.execute(_definition("quarantined"))


def _runs_may_have_copies(connection: sqlite3.Connection) -> None:
    """3 to 4: tables of sampled copies and of how they were scanned; there are none yet."""
    connection.execute(_definition("copies"))
    connection.execute(_definition("scans"))


def _rows_may_be_deleted(connection: sqlite3.Connection) -> None:
    """4 to 5: tables of deleted rows; there are none yet."""
    connection.execute(_definition("deleted"))
    connection.execute(_definition("deletions"))


def _columns_may_be_indexed(connection: sqlite3.Connection) -> None:
    """5 to 6: a table of indexed columns; there are none yet."""
    connection.execute(_definition("indexes"))


def _runs_may_be_rolled_up(connection: sqlite3.Connection) -> None:
    """6 to 7: tables of rollups and of runs' partial aggregates; there are none yet."""
    connection.execute(_definition("rollups"))
    connection.execute(_definition("rolled"))


def _runs_may_be_purged(connection: sqlite3.Connection) -> None:
    """7 to 8: a run may hold fewer rows than positions, or none, and knows when it was scrubbed."""
    connection.execute(_definition("emptied"))
    connection.execute(_definition("scrubs"))
    _widen_runs(connection, _definition("runs"), (0, 0))


def _streams_may_be_backfilled(connection: sqlite3.Connection) -> None:
    """8 to 9: tables of backfills and of their parts; there are none yet."""
    connection.execute(_definition("backfills"))
    connection.execute(_PARTS_9)


def _rollups_may_be_lazy(connection: sqlite3.Connection) -> None:
    """9 to 10: a table of lazy rollups; there are none yet."""
    connection.execute(_definition("lazy_rollups"))


def _summaries_of_parts_lie_apart(connection: sqlite3.Connection) -> None:
    """10 to 11: what is done of a backfill is listed without megabytes for each of its parts."""
    connection.execute("CREATE TEMP TABLE old_parts AS SELECT * FROM backfill_parts")
    connection.execute("DROP TABLE backfill_parts")
    connection.execute(_definition("backfill_parts"))
    connection.execute(_definition("backfill_summaries"))
    for *row, checksum in connection.execute("SELECT * FROM temp.old_parts"):
        if row_checksum(row) != checksum:
            raise CorruptData(f"table backfill_parts: row {row[0]!r} fails its checksum")
        *part, summaries = row
        _insert(connection, "backfill_parts", part)
        _insert(connection, "backfill_summaries", [*part[:3], summaries])
    connection.execute("DROP TABLE temp.old_parts")


def _commits_are_counted(connection: sqlite3.Connection) -> None:
    """11 to 12: the catalog has a generation, which every commit raises."""
    connection.execute(_definition("generation"))
    _insert(connection, "generation", [1, 1])


def _there_may_be_tables(connection: sqlite3.Connection) -> None:
    """12 to 13: tables of tables and of their images; there are none yet."""
    connection.execute(_definition("tables"))
    connection.execute(_definition("table_images"))


def _widen_runs(
    connection: sqlite3.Connection, definition: str, more: tuple[int | None, ...]
) -> None:
    """Make the table of runs anew, with further columns."""
    rows = _checked(connection, "runs")
    connection.execute("DROP TABLE runs")
    connection.execute(definition)
    for row in rows:
        _insert(connection, "runs", [*row, *more])


_STEPS: list[Callable[[sqlite3.Connection], None]] = [
    _runs_get_blocks,
    _runs_may_be_quarantined,
    _runs_may_have_copies,
    _rows_may_be_deleted,
    _columns_may_be_indexed,
    _runs_may_be_rolled_up,
    _runs_may_be_purged,
    _streams_may_be_backfilled,
    _rollups_may_be_lazy,
    _summaries_of_parts_lie_apart,
    _commits_are_counted,
    _there_may_be_tables,
]
"""Step i makes version i + 2 out of version i + 1."""


def _insert(connection: sqlite3.Connection, table: str, row: list[Any]) -> None:
    marks = ", ".join("?" * (len(row) + 1))
    connection.execute(f"INSERT INTO {table} VALUES ({marks})", [*row, row_checksum(row)])  # noqa: S608


def _checked(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    rows = connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 (constant names)
    for row in rows:
        if row_checksum(row[:-1]) != row[-1]:
            raise CorruptData(f"table {table}: row {row[0]!r} fails its checksum")
    return [row[:-1] for row in rows]


def _definition(table: str) -> str:
    (found,) = (s for s in TABLE_STATEMENTS if s.startswith(f"CREATE TABLE {table} ("))
    return found
