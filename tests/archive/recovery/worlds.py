"""Directories as a kill leaves them, with a catalog that is older than it was."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from shedder.archive.archive_store import Store
from tests.archive.schemas import SCHEMA
from tests.archive.worlds import checkpoint, ingest

ROWS = 100
_WAL_HEAD_BYTES, _FRAME_HEAD_BYTES = 32, 24


def killed(tmp_path: Path, *, rows: int = ROWS) -> Path:
    """Return a copy of an open directory: runs of 20 rows, 10 rows in the log, a checkpoint."""
    store = Store.open(tmp_path / "served", log_segment_bytes=4_000)
    store.create_stream(SCHEMA)
    for first in range(0, rows - 20, 20):
        ingest(store, first, 20)
        store.cut(1)
    last = ingest(store, rows - 20, 10)
    store.cut(1)
    checkpoint(store, last + 1, {"stream/1": b"state"})
    ingest(store, rows - 10, 10)
    shutil.copytree(tmp_path / "served", tmp_path / "data")
    store.close()
    return tmp_path / "data"


def frames(wal: Path) -> int:
    """Return the number of frames of a write-ahead log."""
    (page_bytes,) = struct.unpack(">I", wal.read_bytes()[8:12])
    size = wal.stat().st_size - _WAL_HEAD_BYTES
    return size // (_FRAME_HEAD_BYTES + int(page_bytes))


def flip_frame(wal: Path, number: int) -> None:
    """Flip one bit of a frame's page."""
    data = bytearray(wal.read_bytes())
    (page_bytes,) = struct.unpack(">I", data[8:12])
    begin = _WAL_HEAD_BYTES + number * (_FRAME_HEAD_BYTES + page_bytes)
    data[begin + _FRAME_HEAD_BYTES + 100] ^= 1
    wal.write_bytes(data)


def files_below(directory: Path) -> dict[str, bytes]:
    """Return the content of every file, except what SQLite makes anew, even to read."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
        and path.name not in ("LOCK", "catalog.sqlite-shm")
        and (path.name != "catalog.sqlite-wal" or path.stat().st_size)
    }
