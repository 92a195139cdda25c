"""The catalog: what exists in a data directory, in SQLite, every row with its own checksum."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from shedder.archive.catalog.backfill_table import Backfill, BackfillTable
from shedder.archive.catalog.checksummed_tables import CheckedTables
from shedder.archive.catalog.rollup_table import RollupTable
from shedder.archive.catalog.run_annotations import RunAnnotations
from shedder.archive.catalog.table_definitions import TableDefinitions
from shedder.archive.files.durable_marks import DurableMarks
from shedder.archive.metadata.catalog_entries import (
    Copy,
    Footer,
    PaneEntry,
    QueryEntry,
    Rolled,
    Run,
    StreamEntry,
    basics_from_json,
    basics_to_json,
    schema_from_json,
    schema_to_json,
)
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.statements.archive_layout import layout_from_text, layout_text
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import QueryExists, StreamExists

_JOINED = struct.Struct("<q")  # The sequence at which a query joins a replay.
_STREAM_COLUMNS = "id, name, definition, retained_from, retained_position"
_RUN_COLUMNS = (
    "stream_id, first_position, end_position, file, bytes, crc, min_ts, max_ts, layout, basics, "
    "blocks, footer_offset, footer_crc, purged, halvings"
)


class Catalog:
    """An open catalog: streams, queries, runs, panes, a checkpoint, and the tables of its parts.

    All parts use the same tables, so one transaction spans changes of several parts. Errors,
    threads and transactions are those of `CheckedTables`.

    annotations: what is noted of runs.
    rollups: rollups, and the partial aggregates of runs.
    backfills: backfills, and their parts that are done.
    tables: definitions of tables, and their images.
    """

    def __init__(self, tables: CheckedTables) -> None:
        self._tables = tables
        self.annotations = RunAnnotations(tables)
        self.rollups = RollupTable(tables)
        self.backfills = BackfillTable(tables)
        self.tables = TableDefinitions(tables)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        read_only: bool = False,
        must_exist: bool = False,
        marks: DurableMarks | None = None,
    ) -> Self:
        """Open or create a catalog; arguments and errors are those of `CheckedTables.open`."""
        return cls(
            CheckedTables.open(path, read_only=read_only, must_exist=must_exist, marks=marks)
        )

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return self._tables.path

    @property
    def generation(self) -> int:
        """The number of the last commit."""
        return self._tables.generation

    def close(self) -> None:
        """Close; SQLite folds its write-ahead log into the file."""
        self._tables.close()

    def turn(self, on_progress: ProgressCallback = no_progress) -> AbstractContextManager[None]:
        """As `CheckedTables.turn`."""
        return self._tables.turn(on_progress)

    def transaction(self) -> AbstractContextManager[None]:
        """As `CheckedTables.transaction`."""
        return self._tables.transaction()

    def problems(self) -> list[str]:
        """As `CheckedTables.problems`."""
        return self._tables.problems()

    # --- streams ---

    def add_stream(self, schema: StreamSchema) -> StreamEntry:
        """Give a stream its id.

        Raises:
          StreamExists: there is one of this name.
        """
        definition = schema_to_json(schema)
        with self.transaction():
            if self._tables.query("SELECT 1 FROM streams WHERE name = ?", schema.name):
                raise StreamExists(f"stream {schema.name!r} exists")
            last = self._tables.query("SELECT seq FROM sqlite_sequence WHERE name = 'streams'")
            number = last[0][0] + 1 if last else 1
            self._tables.insert("streams", number, schema.name, definition, None, 0)
        return StreamEntry(number, schema)

    def streams(self) -> list[StreamEntry]:
        """All streams, by id."""
        rows = self._tables.select("streams", _STREAM_COLUMNS, "ORDER BY id")
        return [StreamEntry(row[0], schema_from_json(row[2]), *row[3:]) for row in rows]

    def last_stream_id(self) -> int:
        """The highest id that was given to a stream; 0: none was."""
        given = self._tables.query("SELECT seq FROM sqlite_sequence WHERE name = 'streams'")
        return max([0, *(entry.id for entry in self.streams()), *(int(row[0]) for row in given)])

    def skip_to(self, *, generation: int, stream_id: int) -> None:
        """Count on from a generation and a stream's id that the catalog has lost."""
        with self.transaction():
            self._tables.skip_to(generation)
            self._tables.execute("DELETE FROM sqlite_sequence WHERE name = 'streams'")
            self._tables.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES ('streams', ?)", stream_id
            )

    def put_stream(self, entry: StreamEntry) -> None:
        """Change a stream's definition; its id and name stay."""
        definition = schema_to_json(entry.schema)
        retained = (entry.retained_from_us, entry.retained_position)
        self._tables.insert("streams", entry.id, entry.schema.name, definition, *retained)

    def set_retained(self, stream_id: int, from_us: int, position: int) -> None:
        """Note that retention has removed tuples: before an event time, below a position."""
        with self.transaction():
            for row in self._tables.select("streams", _STREAM_COLUMNS, "WHERE id = ?", stream_id):
                self._tables.insert("streams", *row[:3], from_us, position)
            self.annotations.drop_emptied(stream_id, position)

    def drop_stream(self, stream_id: int) -> None:
        """Forget a stream and its runs. Its id is not used again."""
        with self.transaction():
            for part in (self.annotations, self.rollups, self.backfills):
                part.drop_stream(stream_id)
            self._tables.execute("DELETE FROM runs WHERE stream_id = ?", stream_id)
            self._tables.execute("DELETE FROM streams WHERE id = ?", stream_id)

    # --- queries ---

    def add_query(self, query: QueryEntry) -> None:
        """List a standing query.

        Raises:
          QueryExists: there is one of this name.
        """
        with self.transaction():
            if self._tables.query("SELECT 1 FROM queries WHERE name = ?", query.name):
                raise QueryExists(f"query {query.name!r} exists")
            self._put_query(query)

    def _put_query(self, query: QueryEntry) -> None:
        self._tables.insert(
            "queries",
            query.name,
            query.text,
            query.parameters,
            query.stream_id,
            query.from_position,
            query.created_us,
        )

    def set_parameters(self, name: str, change: Callable[[str], str]) -> bool:
        """Change the parameters of a standing query; return False if there is none of this name."""
        with self.transaction():
            for query in self.queries():
                if query.name == name:
                    self._put_query(replace(query, parameters=change(query.parameters)))
                    return True
        return False

    def queries(self) -> list[QueryEntry]:
        """All standing queries, by name."""
        columns = "name, text, parameters, stream_id, from_position, created_us"
        return [
            QueryEntry(*row) for row in self._tables.select("queries", columns, "ORDER BY name")
        ]

    def drop_query(self, name: str) -> None:
        """Forget a query and its panes."""
        with self.transaction():
            self._tables.execute("DELETE FROM panes WHERE query = ?", name)
            self._tables.execute("DELETE FROM queries WHERE name = ?", name)
            for mark in ("joined", "left"):
                self._tables.execute("DELETE FROM checkpoint_parts WHERE key = ?", f"{mark}/{name}")

    # --- runs ---

    def add_run(self, run: Run) -> None:
        """Make a run and what is beside it part of the archive; all files must be in place."""
        with self.transaction():
            self._tables.insert(
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
                self.annotations.add_copy(run, copy)
            for rolled in run.rolled:
                self.rollups.add_rolled(run, rolled)

    def runs(self, stream_id: int | None = None) -> list[Run]:
        """The runs of a stream, or of all, in order of position."""
        where = "" if stream_id is None else "WHERE stream_id = ? "
        arguments = () if stream_id is None else (stream_id,)
        order = "ORDER BY stream_id, first_position"
        rows = self._tables.select("runs", _RUN_COLUMNS, where + order, *arguments)
        copies, rolled = self.annotations.copies(), self.rollups.rolled()
        return [_run(row, copies.get(row[:2], ()), rolled.get(row[:2], ())) for row in rows]

    def drop_run(self, run: Run) -> None:
        """Forget a run; its file becomes an orphan."""
        with self.transaction():
            self.annotations.drop_run(run)
            self.rollups.drop_run(run)
            self._tables.execute(
                "DELETE FROM runs WHERE stream_id = ? AND first_position = ?",
                run.stream_id,
                run.first_position,
            )

    def adopt_backfill(self, it: Backfill, runs: Sequence[Run], adopted_us: int) -> None:
        """Make all runs of a backfill part of the archive; its parts are not needed any more."""
        with self.transaction():
            for run in runs:
                self.add_run(run)
            self.backfills.finish(it, sum(run.rows for run in runs), adopted_us)

    # --- panes ---

    def put_pane(self, query: str, start_us: int, blob: bytes) -> int:
        """Store a closed pane, in place of an older version; returns its version, from 1."""
        with self.transaction():
            where = "WHERE query = ? AND start_us = ?"
            known = self._tables.query(f"SELECT version FROM panes {where}", query, start_us)  # noqa: S608
            version = known[0][0] + 1 if known else 1
            self._tables.insert("panes", query, start_us, version, blob)
        return version

    def panes(self, query: str, start_us: int, end_us: int) -> list[PaneEntry]:
        """The panes of a query that begin in [start_us, end_us), in order."""
        rows = self._tables.select(
            "panes",
            "query, start_us, version, blob",
            "WHERE query = ? AND start_us >= ? AND start_us < ? ORDER BY start_us",
            query,
            start_us,
            end_us,
        )
        return [PaneEntry(*row[1:]) for row in rows]

    def drop_panes(self, query: str, before_us: int) -> None:
        """Delete panes that begin before an event time."""
        with self.transaction():
            self._tables.execute(
                "DELETE FROM panes WHERE query = ? AND start_us < ?", query, before_us
            )

    def drop_panes_at(self, query: str, starts_us: Sequence[int]) -> None:
        """Delete the panes that begin at these event times; those that are not there stay away."""
        with self.transaction():
            for start_us in starts_us:
                self._tables.execute(
                    "DELETE FROM panes WHERE query = ? AND start_us = ?", query, start_us
                )

    # --- checkpoint ---

    def write_checkpoint(
        self, log_sequence: int, parts: Mapping[str, bytes], kept: Collection[str] = ()
    ) -> None:
        """Replace the checkpoint. Queries that have left, and are not in it, are gone for good.

        Args:
          log_sequence: every record of the log below it is in the parts.
          parts: a blob per key; keys that are missing here are forgotten.
          kept: keys whose blobs stay as the checkpoint before had them.
        """
        with self.transaction():
            there = {key for (key,) in self._tables.query("SELECT key FROM checkpoint_parts")}
            assert there.issuperset(kept), set(kept) - there
            left = {key.removeprefix("left/") for key in there if key.startswith("left/")}
            for name in left:
                if f"query/{name}" in parts:  # It was begun before the query left.
                    parts = {**parts, f"left/{name}": b""}
                else:
                    self.drop_query(name)
            for key in there.difference(kept):
                self._tables.execute("DELETE FROM checkpoint_parts WHERE key = ?", key)
            for key, blob in parts.items():
                self._tables.insert("checkpoint_parts", key, blob)
            self._tables.insert("checkpoint", 1, log_sequence)

    def join_checkpoint(self, query: QueryEntry, sequence: int, parts: Mapping[str, bytes]) -> None:
        """List a standing query that joins a replay of the log at this sequence, and not before.

        Args:
          query: of which there is none of this name. parts: more of the checkpoint, as of there.
        """
        with self.transaction():
            self.add_query(query)
            for key, blob in parts.items():
                self._tables.insert("checkpoint_parts", key, blob)
            self._tables.insert("checkpoint_parts", f"joined/{query.name}", _JOINED.pack(sequence))

    def leave_checkpoint(self, name: str) -> None:
        """Drop a standing query behind the checkpoint, which may need it: others took its panes.

        A replay of the log begins with it, and drops it at the end.
        """
        self._tables.insert("checkpoint_parts", f"left/{name}", b"")

    def left(self) -> set[str]:
        """The queries that were dropped after the checkpoint, and are still among `queries`."""
        where = "WHERE substr(key, 1, 5) = 'left/'"
        return {row[0][5:] for row in self._tables.select("checkpoint_parts", "key, blob", where)}

    def joined(self) -> dict[str, int]:
        """The queries that came after the checkpoint, by name, and where they join a replay."""
        where = "WHERE substr(key, 1, 7) = 'joined/'"
        rows = self._tables.select("checkpoint_parts", "key, blob", where)
        return {key.removeprefix("joined/"): _JOINED.unpack(blob)[0] for key, blob in rows}

    def durable_sequence(self) -> int:
        """Every record of the log below it was durable once, as is proved by what is here."""
        return max([self.checkpoint_sequence(), *self.joined().values()])

    def checkpoint_sequence(self) -> int:
        """The log sequence of the checkpoint; 0 when there is none."""
        rows = self._tables.select("checkpoint", "one, log_sequence", "")
        return int(rows[0][1]) if rows else 0

    def checkpoint_parts(self) -> dict[str, bytes]:
        """The blobs of the checkpoint."""
        return {row[0]: row[1] for row in self._tables.select("checkpoint_parts", "key, blob", "")}


def _run(row: tuple[Any, ...], copies: tuple[Copy, ...], rolled: tuple[Rolled, ...]) -> Run:
    footer = None if row[11] is None else Footer(row[11], row[12])
    basics = basics_from_json(row[9])
    known = (layout_from_text(row[8]), basics, row[10], footer, copies, rolled, *row[13:])
    return Run(*row[:8], *known)
