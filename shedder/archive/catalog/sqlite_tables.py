"""The catalog's tables, the checksum of a row, and SQLite's errors as ours."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c

from shedder.archive.files.shortage import has_descriptors
from shedder.errors import CorruptData, DiskFull, ResourcesShort, StorageFailed

SCHEMA_VERSION = 13
APPLICATION_ID = 0x53484544  # "SHED"

_SCRIPT = """
CREATE TABLE streams (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
  definition TEXT NOT NULL, retained_from INTEGER, retained_position INTEGER NOT NULL,
  checksum INTEGER NOT NULL);
CREATE TABLE queries (name TEXT PRIMARY KEY, text TEXT NOT NULL, parameters TEXT NOT NULL,
  stream_id INTEGER NOT NULL, from_position INTEGER NOT NULL, created_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  end_position INTEGER NOT NULL, file TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL,
  crc INTEGER NOT NULL, min_ts INTEGER NOT NULL, max_ts INTEGER NOT NULL, layout TEXT NOT NULL,
  basics TEXT NOT NULL, blocks INTEGER NOT NULL, footer_offset INTEGER, footer_crc INTEGER,
  purged INTEGER NOT NULL, halvings INTEGER NOT NULL,
  checksum INTEGER NOT NULL, PRIMARY KEY (stream_id, first_position));
CREATE TABLE quarantined (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  found_us INTEGER NOT NULL, problem TEXT NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (stream_id, first_position));
CREATE TABLE copies (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  reduction REAL NOT NULL, file TEXT NOT NULL UNIQUE, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
  crc INTEGER NOT NULL, footer_offset INTEGER NOT NULL, footer_crc INTEGER NOT NULL,
  checksum INTEGER NOT NULL, PRIMARY KEY (stream_id, first_position, reduction));
CREATE TABLE scans (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  dead REAL NOT NULL, scans INTEGER NOT NULL, misses INTEGER NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (stream_id, first_position));
CREATE TABLE deleted (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  rows INTEGER NOT NULL, packed BLOB NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (stream_id, first_position));
CREATE TABLE deletions (number INTEGER PRIMARY KEY, stream_id INTEGER NOT NULL,
  text TEXT NOT NULL, rows INTEGER NOT NULL, low_us INTEGER NOT NULL, high_us INTEGER NOT NULL,
  position INTEGER NOT NULL, deleted_us INTEGER NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE emptied (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  end_position INTEGER NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (stream_id, first_position));
CREATE TABLE scrubs (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  scrubbed_us INTEGER NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (stream_id, first_position));
CREATE TABLE indexes (stream_id INTEGER NOT NULL, column_name TEXT NOT NULL,
  checksum INTEGER NOT NULL, PRIMARY KEY (stream_id, column_name));
CREATE TABLE rollups (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
  stream_id INTEGER NOT NULL, text TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE lazy_rollups (rollup_id INTEGER PRIMARY KEY, stream_id INTEGER NOT NULL,
  checksum INTEGER NOT NULL);
CREATE TABLE rolled (stream_id INTEGER NOT NULL, first_position INTEGER NOT NULL,
  rollup_id INTEGER NOT NULL, file TEXT NOT NULL UNIQUE, rows INTEGER NOT NULL,
  bytes INTEGER NOT NULL, crc INTEGER NOT NULL, deleted INTEGER NOT NULL,
  checksum INTEGER NOT NULL, PRIMARY KEY (stream_id, first_position, rollup_id));
CREATE TABLE backfills (stream_id INTEGER NOT NULL, name TEXT NOT NULL,
  first_position INTEGER NOT NULL, end_position INTEGER NOT NULL, layout TEXT NOT NULL,
  plan TEXT NOT NULL, rows INTEGER NOT NULL, adopted_us INTEGER, checksum INTEGER NOT NULL,
  PRIMARY KEY (stream_id, name));
CREATE TABLE backfill_parts (stream_id INTEGER NOT NULL, name TEXT NOT NULL, part INTEGER NOT NULL,
  rows INTEGER NOT NULL, poison INTEGER NOT NULL, runs TEXT NOT NULL, queries TEXT NOT NULL,
  checksum INTEGER NOT NULL, PRIMARY KEY (stream_id, name, part));
CREATE TABLE backfill_summaries (stream_id INTEGER NOT NULL, name TEXT NOT NULL,
  part INTEGER NOT NULL, summaries BLOB NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (stream_id, name, part));
CREATE TABLE tables (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
  definition TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE table_images (table_id INTEGER PRIMARY KEY, file TEXT NOT NULL UNIQUE,
  version INTEGER NOT NULL, rows INTEGER NOT NULL, lost INTEGER NOT NULL, bytes INTEGER NOT NULL,
  crc INTEGER NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE panes (query TEXT NOT NULL, start_us INTEGER NOT NULL, version INTEGER NOT NULL,
  blob BLOB NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (query, start_us));
CREATE TABLE checkpoint (one INTEGER PRIMARY KEY CHECK (one = 1), log_sequence INTEGER NOT NULL,
  checksum INTEGER NOT NULL);
CREATE TABLE checkpoint_parts (key TEXT PRIMARY KEY, blob BLOB NOT NULL,
  checksum INTEGER NOT NULL);
CREATE TABLE generation (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL,
  checksum INTEGER NOT NULL);
"""

TABLE_STATEMENTS = [statement.strip() for statement in _SCRIPT.split(";") if statement.strip()]

TABLES = (
    "streams",
    "queries",
    "runs",
    "quarantined",
    "copies",
    "scans",
    "deleted",
    "deletions",
    "emptied",
    "scrubs",
    "indexes",
    "rollups",
    "lazy_rollups",
    "rolled",
    "backfills",
    "backfill_parts",
    "backfill_summaries",
    "tables",
    "table_images",
    "panes",
    "checkpoint",
    "checkpoint_parts",
    "generation",
)


def row_checksum(values: tuple[Any, ...] | list[Any]) -> int:
    """CRC-32C of a row: each value with its length before it, blobs as they are, others as JSON."""
    crc = 0
    for value in values:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        crc = google_crc32c.extend(google_crc32c.extend(crc, len(data).to_bytes(8, "little")), data)
    return int(crc)


_SQLITE_CORRUPT = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB
_NO_UTF8 = "Could not decode to UTF-8"  # Of Python's module, without a code.
_SQLITE_FULL = 13
_SQLITE_NOMEM = 7
_SQLITE_CANTOPEN = 14
_SQLITE_IOERR_NOMEM = (10 | 12 << 8, 10 | 21 << 8, 10 | 24 << 8)  # NOMEM, SHMMAP, MMAP
_SQLITE_IOERR_SHMOPEN = 10 | 18 << 8


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except UnicodeDecodeError as error:  # In the text of an error of SQLite, or in a definition.
        raise CorruptData(f"{path} is damaged: it holds text that is no UTF-8") from error
    except sqlite3.Error as error:
        extended = getattr(error, "sqlite_errorcode", 0)
        code = extended & 0xFF
        if code in _SQLITE_CORRUPT or str(error).startswith(_NO_UTF8):
            raise CorruptData(f"{path} is damaged: {error}") from error
        if code == _SQLITE_FULL:
            raise DiskFull(f"{path}: no space: {error}") from error
        if code == _SQLITE_NOMEM or extended in _SQLITE_IOERR_NOMEM:
            raise ResourcesShort(f"{path}: no memory could be had (ulimit -v): {error}") from error
        is_unopened = code == _SQLITE_CANTOPEN or extended == _SQLITE_IOERR_SHMOPEN
        if is_unopened and not has_descriptors():
            raise ResourcesShort(f"{path}: too many open files (ulimit -n): {error}") from error
        raise StorageFailed(f"{path}: {error}") from error
