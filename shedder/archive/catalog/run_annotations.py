"""Catalog annotations of runs: damage, deletions, copies and how they were scanned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Self

from shedder.archive.catalog.checksummed_tables import CheckedTables
from shedder.archive.metadata.catalog_entries import Copy, Footer, Run
from shedder.archive.metadata.deleted_positions import Deleted, Deletion

SCANS_MIN = 4
MISSES_MAX = 0.5
"""A copy is dropped when, of at least so many scans, more than this share found it too coarse."""

_OF_RUNS = ("quarantined", "deleted", "copies", "scans", "scrubs")
_DELETION_COLUMNS = "number, stream_id, text, rows, low_us, high_us, position, deleted_us"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a run is not read any more, and since when (microseconds UTC)."""

    stream_id: int
    first_position: int
    found_us: int
    problem: str


@dataclass(frozen=True, slots=True)
class Scans:
    """How a run was scanned since it got its lazy copy (of rows, or of aggregates), or ever.

    dead: tuples whose place is below this were dropped by some scan; the vacuum takes them out of
    the copy. scans: how many there were. misses: those for which the copy was too coarse.
    """

    dead: float = 0.0
    scans: int = 0
    misses: int = 0

    def after(self, *, missed: bool, dead: float = 0.0) -> Self:
        """With one more scan."""
        return replace(
            self, dead=max(self.dead, dead), scans=self.scans + 1, misses=self.misses + missed
        )

    @property
    def is_useless(self) -> bool:
        """Return whether too many scans missed the copy."""
        return self.scans >= SCANS_MIN and self.misses > MISSES_MAX * self.scans


class RunAnnotations:
    """Catalog tables of what is noted of runs. Errors are those of `CheckedTables`."""

    def __init__(self, tables: CheckedTables) -> None:
        self._tables = tables

    def quarantine(self, mark: Quarantine) -> None:
        """Note that a run is damaged."""
        self._tables.insert(
            "quarantined", mark.stream_id, mark.first_position, mark.found_us, mark.problem
        )

    def release(self, run: Run) -> None:
        """Note that a run is whole again."""
        where = "WHERE stream_id = ? AND first_position = ?"
        self._tables.execute(f"DELETE FROM quarantined {where}", run.stream_id, run.first_position)  # noqa: S608

    def quarantined(self) -> list[Quarantine]:
        """All damaged runs, in order of stream and position."""
        columns = "stream_id, first_position, found_us, problem"
        rows = self._tables.select("quarantined", columns, "ORDER BY stream_id, first_position")
        return [Quarantine(*row) for row in rows]

    def add_copy(self, run: Run, copy: Copy) -> None:
        """Make a copy part of a run; its file must be in place and durable."""
        self._tables.insert(
            "copies",
            run.stream_id,
            run.first_position,
            copy.reduction,
            copy.file,
            copy.rows,
            copy.size_bytes,
            copy.crc,
            copy.footer.offset,
            copy.footer.crc,
        )

    def drop_copy(self, run: Run, copy: Copy) -> None:
        """Forget a copy; its file becomes an orphan."""
        where = "WHERE stream_id = ? AND first_position = ? AND reduction = ?"
        arguments = (run.stream_id, run.first_position, copy.reduction)
        self._tables.execute(f"DELETE FROM copies {where}", *arguments)  # noqa: S608

    def copies(self) -> dict[tuple[int, int], tuple[Copy, ...]]:
        """The copies of all runs, by stream and first position, by rising reduction."""
        columns = (
            "stream_id, first_position, reduction, file, rows, bytes, crc, "
            "footer_offset, footer_crc"
        )
        found: dict[tuple[int, int], tuple[Copy, ...]] = {}
        for row in self._tables.select("copies", columns, "ORDER BY reduction"):
            copy = Copy(*row[2:7], Footer(*row[7:]))  # type: ignore[call-arg]
            found[row[:2]] = (*found.get(row[:2], ()), copy)
        return found

    def put_scans(self, stream_id: int, first_position: int, scans: Scans) -> None:
        """Note how a run was scanned, in place of what was known."""
        self._tables.insert(
            "scans", stream_id, first_position, scans.dead, scans.scans, scans.misses
        )

    def scans(self) -> dict[tuple[int, int], Scans]:
        """Return how runs were scanned, by stream and first position."""
        columns = "stream_id, first_position, dead, scans, misses"
        return {row[:2]: Scans(*row[2:]) for row in self._tables.select("scans", columns, "")}

    def add_deletion(self, deletion: Deletion, marks: Mapping[int, Deleted]) -> None:
        """Note deleted rows, all of them or none.

        Args:
          deletion: what was said.
          marks: by first position of the run, all of its deleted rows, the older ones included.
        """
        stream = deletion.stream_id
        with self._tables.transaction():
            known = self._tables.select(
                "deletions", _DELETION_COLUMNS, "ORDER BY number DESC LIMIT 1"
            )
            number = known[0][0] + 1 if known else 1
            self._tables.insert("deletions", number, *astuple(deletion))
            for first_position, mark in marks.items():
                self._tables.insert("deleted", stream, first_position, mark.rows, mark.packed)

    def put_deleted(self, run: Run, mark: Deleted) -> None:
        """Note the deleted rows of one run, in place of what was known."""
        self._tables.insert("deleted", run.stream_id, run.first_position, mark.rows, mark.packed)

    def deletions(self) -> list[Deletion]:
        """All deletions, in order."""
        rows = self._tables.select("deletions", _DELETION_COLUMNS, "ORDER BY number")
        return [Deletion(*row[1:]) for row in rows]

    def deleted(self) -> dict[tuple[int, int], Deleted]:
        """The deleted rows of all runs, by stream and first position."""
        rows = self._tables.select("deleted", "stream_id, first_position, rows, packed", "")
        return {row[:2]: Deleted(*row[2:]) for row in rows}

    def add_emptied(self, run: Run) -> None:
        """Note that a run was purged of all of its rows."""
        self._tables.insert("emptied", run.stream_id, run.first_position, run.end_position)

    def emptied(self) -> list[tuple[int, int, int]]:
        """Stretches whose runs have no rows any more: stream, first position, end position."""
        columns = "stream_id, first_position, end_position"
        rows = self._tables.select("emptied", columns, "ORDER BY stream_id, first_position")
        return [(row[0], row[1], row[2]) for row in rows]

    def put_scrubbed(self, run: Run, scrubbed_us: int) -> None:
        """Note when a run was last read against its checksum and found whole."""
        self._tables.insert("scrubs", run.stream_id, run.first_position, scrubbed_us)

    def scrubbed(self) -> dict[tuple[int, int], int]:
        """Return times of the last scrub that found runs whole, by stream and first position."""
        rows = self._tables.select("scrubs", "stream_id, first_position, scrubbed_us", "")
        return {row[:2]: row[2] for row in rows}

    def add_index(self, stream_id: int, column: str) -> None:
        """Note that a column has a value index."""
        self._tables.insert("indexes", stream_id, column)

    def drop_index(self, stream_id: int, column: str) -> None:
        """Note that a column has none any more."""
        where = "WHERE stream_id = ? AND column_name = ?"
        self._tables.execute(f"DELETE FROM indexes {where}", stream_id, column)  # noqa: S608

    def indexes(self) -> list[tuple[int, str]]:
        """The columns that have a value index, with their streams."""
        columns = "stream_id, column_name"
        rows = self._tables.select("indexes", columns, "ORDER BY stream_id, column_name")
        return [(row[0], row[1]) for row in rows]

    def drop_emptied(self, stream_id: int, position: int) -> None:
        """Forget emptied stretches that end at or before a position: retention has removed them."""
        where = "WHERE stream_id = ? AND end_position <= ?"
        self._tables.execute(f"DELETE FROM emptied {where}", stream_id, position)  # noqa: S608

    def drop_run(self, run: Run) -> None:
        """Forget all that is noted of a run."""
        where = "WHERE stream_id = ? AND first_position = ?"
        for table in _OF_RUNS:
            sql = f"DELETE FROM {table} {where}"  # noqa: S608
            self._tables.execute(sql, run.stream_id, run.first_position)

    def drop_stream(self, stream_id: int) -> None:
        """Forget all that is noted of a stream and its runs."""
        for table in (*_OF_RUNS, "deletions", "emptied", "indexes"):
            self._tables.execute(f"DELETE FROM {table} WHERE stream_id = ?", stream_id)  # noqa: S608
