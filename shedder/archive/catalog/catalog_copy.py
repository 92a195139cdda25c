"""A catalog as it was at one moment, written elsewhere while the catalog goes on changing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from shedder.archive.catalog.sqlite_tables import translated
from shedder.archive.files.file_system import Files
from shedder.archive.tasks.progress import Progress

_PAGES = 256  # 1 MiB between two looks at whether the work was called off.


@dataclass(slots=True, eq=False)
class CatalogMoment:
    """A reading transaction of its own: what it sees does not change. Make it with `moment_of`."""

    path: Path
    _connection: sqlite3.Connection

    @property
    def size_bytes(self) -> int:
        """Bytes that the copy will have."""
        run = self._connection.execute
        pages, size = run("PRAGMA page_count").fetchone(), run("PRAGMA page_size").fetchone()
        return int(pages[0] * size[0])

    @property
    def generation(self) -> int:
        """The generation that the copy will have."""
        with translated(self.path):
            found = self._connection.execute("SELECT number FROM generation").fetchone()
        return 0 if found is None else int(found[0])

    def write(self, files: Files, target: Path, progress: Progress) -> None:
        """Write it as a database of one file, durably.

        Raises:
          DiskFull, StorageFailed, CorruptData. Cancelled.
        """
        files.create(target).close()  # With the mode of our files; SQLite keeps it.
        size = self.size_bytes
        before = progress.done

        def look(_: int, left: int, pages: int) -> None:
            progress.advance(before + size * (pages - left) // max(1, pages) - progress.done)

        with translated(target), closing(sqlite3.connect(target, isolation_level=None)) as copy:
            copy.execute("PRAGMA synchronous = FULL")
            self._connection.backup(copy, pages=_PAGES, progress=look)
            copy.execute("PRAGMA journal_mode = DELETE")  # Readable without a file beside it.
        _sync(target)


@contextmanager
def moment_of(path: Path) -> Iterator[CatalogMoment]:
    """Hold on to a catalog as it is now.

    Raises:
      CorruptData, StorageFailed.
    """
    with translated(path):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
    with closing(connection):
        with translated(path):
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # It begins here.
        yield CatalogMoment(path, connection)


def _sync(path: Path) -> None:
    """What changed after SQLite's last fsync; it is a small file, so once more costs nothing."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
