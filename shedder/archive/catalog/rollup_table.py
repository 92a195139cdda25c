"""Catalog table of rollups: their texts, and the runs that have their partial aggregates."""

from __future__ import annotations

from shedder.archive.catalog.checksummed_tables import CheckedTables
from shedder.archive.metadata.catalog_entries import Rolled, RollupEntry, Run
from shedder.errors import RollupExists

_COLUMNS = "stream_id, first_position, rollup_id, file, rows, bytes, crc, deleted"


class RollupsInCatalog(CheckedTables):
    """The part of the catalog that knows of rollups. Errors are those of `Catalog`."""

    def add_rollup(
        self, name: str, stream_id: int, text: str, *, lazy: bool = False
    ) -> RollupEntry:
        """Give a rollup its id.

        Raises:
          RollupExists: there is one of this name.
        """
        with self.transaction():
            if self._all("SELECT 1 FROM rollups WHERE name = ?", name):
                raise RollupExists(f"rollup {name!r} exists")
            last = self._all("SELECT seq FROM sqlite_sequence WHERE name = 'rollups'")
            number = last[0][0] + 1 if last else 1
            self._insert("rollups", number, name, stream_id, text)
            if lazy:
                self._insert("lazy_rollups", number, stream_id)
        return RollupEntry(number, name, stream_id, text, lazy)

    def rollups(self) -> list[RollupEntry]:
        """All rollups, by id."""
        rows = self._select("rollups", "id, name, stream_id, text", "ORDER BY id")
        lazy = {row[0] for row in self._select("lazy_rollups", "rollup_id, stream_id", "")}
        return [
            RollupEntry(number, name, stream, text, number in lazy)
            for number, name, stream, text in rows
        ]

    def drop_rollup(self, entry: RollupEntry) -> None:
        """Forget a rollup; its files become orphans."""
        with self.transaction():
            self._run("DELETE FROM rolled WHERE rollup_id = ?", entry.id)
            self._run("DELETE FROM lazy_rollups WHERE rollup_id = ?", entry.id)
            self._run("DELETE FROM rollups WHERE id = ?", entry.id)

    def add_rolled(self, run: Run, rolled: Rolled) -> None:
        """Make partial aggregates part of a run, in place of older ones of the same rollup."""
        self._insert(
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
        self._run(f"DELETE FROM rolled {where}", *arguments)  # noqa: S608

    def rolled(self) -> dict[tuple[int, int], tuple[Rolled, ...]]:
        """The partial aggregates of all runs, by stream and first position, by rollup."""
        found: dict[tuple[int, int], tuple[Rolled, ...]] = {}
        for row in self._select("rolled", _COLUMNS, "ORDER BY rollup_id"):
            found[row[:2]] = (*found.get(row[:2], ()), Rolled(*row[2:]))
        return found
