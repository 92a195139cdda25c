"""Catalog table of rollups: their texts, and the runs that have their partial aggregates."""

from __future__ import annotations

from shedder.archive.catalog.checksummed_tables import CheckedTables
from shedder.archive.metadata.catalog_entries import Rolled, RollupEntry, Run
from shedder.errors import RollupExists

_COLUMNS = "stream_id, first_position, rollup_id, file, rows, bytes, crc, deleted"


class RollupTable:
    """Catalog tables of rollups. Errors are those of `CheckedTables`."""

    def __init__(self, tables: CheckedTables) -> None:
        self._tables = tables

    def add(self, name: str, stream_id: int, text: str, *, lazy: bool = False) -> RollupEntry:
        """Give a rollup its id.

        Raises:
          RollupExists: there is one of this name.
        """
        with self._tables.transaction():
            if self._tables.query("SELECT 1 FROM rollups WHERE name = ?", name):
                raise RollupExists(f"rollup {name!r} exists")
            last = self._tables.query("SELECT seq FROM sqlite_sequence WHERE name = 'rollups'")
            number = last[0][0] + 1 if last else 1
            self._tables.insert("rollups", number, name, stream_id, text)
            if lazy:
                self._tables.insert("lazy_rollups", number, stream_id)
        return RollupEntry(number, name, stream_id, text, lazy)

    def entries(self) -> list[RollupEntry]:
        """All rollups, by id."""
        rows = self._tables.select("rollups", "id, name, stream_id, text", "ORDER BY id")
        lazy = {row[0] for row in self._tables.select("lazy_rollups", "rollup_id, stream_id", "")}
        return [
            RollupEntry(number, name, stream, text, number in lazy)
            for number, name, stream, text in rows
        ]

    def drop(self, entry: RollupEntry) -> None:
        """Forget a rollup; its files become orphans."""
        with self._tables.transaction():
            self._tables.execute("DELETE FROM rolled WHERE rollup_id = ?", entry.id)
            self._tables.execute("DELETE FROM lazy_rollups WHERE rollup_id = ?", entry.id)
            self._tables.execute("DELETE FROM rollups WHERE id = ?", entry.id)

    def add_rolled(self, run: Run, rolled: Rolled) -> None:
        """Make partial aggregates part of a run, in place of older ones of the same rollup."""
        self._tables.insert(
            "rolled",
            run.stream_id,
            run.first_position,
            rolled.rollup_id,
            rolled.file,
            rolled.rows,
            rolled.size_bytes,
            rolled.crc,
            rolled.deleted,
        )

    def drop_rolled(self, run: Run, rolled: Rolled) -> None:
        """Forget a run's partial aggregates; their file becomes an orphan."""
        where = "WHERE stream_id = ? AND first_position = ? AND rollup_id = ?"
        arguments = (run.stream_id, run.first_position, rolled.rollup_id)
        self._tables.execute(f"DELETE FROM rolled {where}", *arguments)  # noqa: S608

    def drop_run(self, run: Run) -> None:
        """Forget all partial aggregates of a run."""
        where = "WHERE stream_id = ? AND first_position = ?"
        self._tables.execute(f"DELETE FROM rolled {where}", run.stream_id, run.first_position)  # noqa: S608

    def drop_stream(self, stream_id: int) -> None:
        """Forget the rollups of a stream, and their partial aggregates."""
        for table in ("rollups", "lazy_rollups", "rolled"):
            self._tables.execute(f"DELETE FROM {table} WHERE stream_id = ?", stream_id)  # noqa: S608

    def rolled(self) -> dict[tuple[int, int], tuple[Rolled, ...]]:
        """The partial aggregates of all runs, by stream and first position, by rollup."""
        found: dict[tuple[int, int], tuple[Rolled, ...]] = {}
        for row in self._tables.select("rolled", _COLUMNS, "ORDER BY rollup_id"):
            found[row[:2]] = (*found.get(row[:2], ()), Rolled(*row[2:]))
        return found
