"""Catalog table of backfills: their ranges of positions, and the parts that are done."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, replace
from typing import Any

from shedder.archive.catalog.checksummed_tables import CheckedTables
from shedder.archive.metadata.catalog_entries import Footer, Run, basics_from_json, basics_to_json
from shedder.cql.statements.archive_layout import Layout, layout_from_text, layout_text
from shedder.errors import CorruptData

_COLUMNS = "stream_id, name, first_position, end_position, layout, plan, rows, adopted_us"
_PART_COLUMNS = "stream_id, name, part, rows, poison, runs, queries"
_OF_PARTS = ("backfill_parts", "backfill_summaries")
_PART = "stream_id = ? AND name = ? AND part = ?"


@dataclass(frozen=True, slots=True)
class Backfill:
    """A part of a stream's past that is being added, or was added.

    first_position, end_position: below 0, and reserved for this backfill; each part has as many.
    layout: layout of its runs.
    plan: JSON; how the source was divided into parts at the beginning.
    rows: rows that were adopted.
    adopted_us: time of adoption; us; None while the backfill goes on.
    """

    stream_id: int
    name: str
    first_position: int
    end_position: int
    layout: Layout
    plan: str
    rows: int = 0
    adopted_us: int | None = None


@dataclass(frozen=True, slots=True)
class Summarised:
    """A standing query's text, and the event time from which it was built; None: of all."""

    text: str
    from_us: int | None


@dataclass(frozen=True, slots=True)
class BackfillPart:
    """A part of a backfill that is done: its runs wait in `backfills/`.

    poison: rows that were kept aside. queries: the standing queries by name, of which summaries
    were built; these are megabytes, and read for themselves.
    """

    stream_id: int
    name: str
    part: int
    rows: int
    poison: int
    runs: tuple[Run, ...]
    queries: dict[str, Summarised]


class BackfillTable:
    """Catalog tables of backfills. Errors are those of `CheckedTables`."""

    def __init__(self, tables: CheckedTables) -> None:
        self._tables = tables

    def put(self, it: Backfill) -> None:
        """Note that a backfill has begun."""
        place = (it.stream_id, it.name, it.first_position, it.end_position)
        of = (layout_text(it.layout), it.plan, it.rows, it.adopted_us)
        self._tables.insert("backfills", *place, *of)

    def entries(self, stream_id: int | None = None) -> list[Backfill]:
        """The backfills of a stream, or of all, those that are done among them, by name."""
        where = "" if stream_id is None else "WHERE stream_id = ? "
        arguments = () if stream_id is None else (stream_id,)
        order = "ORDER BY stream_id, name"
        rows = self._tables.select("backfills", _COLUMNS, where + order, *arguments)
        return [Backfill(*[*row[:4], layout_from_text(row[4]), *row[5:]]) for row in rows]

    def find(self, stream_id: int, name: str) -> Backfill | None:
        """The backfill of this name, if there ever was one."""
        found = (each for each in self.entries(stream_id) if each.name == name)
        return next(found, None)

    def put_part(self, part: BackfillPart, summaries: bytes) -> None:
        """Note that a part is done, or with other summaries; its files are in place.

        summaries: engine.summaries' bytes.
        """
        runs = json.dumps([_stored(run) for run in part.runs])
        place = (part.stream_id, part.name, part.part)
        queries = json.dumps({name: astuple(each) for name, each in part.queries.items()})
        with self._tables.transaction():
            self._tables.insert("backfill_parts", *place, part.rows, part.poison, runs, queries)
            self._tables.insert("backfill_summaries", *place, summaries)

    def parts(self, stream_id: int, name: str) -> list[BackfillPart]:
        """The parts of a backfill that are done, by number."""
        where = "WHERE stream_id = ? AND name = ? ORDER BY part"
        return [
            _part(row)
            for row in self._tables.select("backfill_parts", _PART_COLUMNS, where, stream_id, name)
        ]

    def part(self, stream_id: int, name: str, part: int) -> BackfillPart | None:
        """One part of a backfill, if it is done."""
        rows = self._tables.select(
            "backfill_parts", _PART_COLUMNS, f"WHERE {_PART}", stream_id, name, part
        )
        return _part(rows[0]) if rows else None

    def summaries(self, part: BackfillPart) -> bytes:
        """What was built of a part."""
        place = (part.stream_id, part.name, part.part)
        columns = "stream_id, name, part, summaries"
        rows = self._tables.select("backfill_summaries", columns, f"WHERE {_PART}", *place)
        if not rows:
            raise CorruptData(
                f"{self._tables.path}: part {part.part} of {part.name!r} has no summaries"
            )
        found: bytes = rows[0][3]
        return found

    def drop_part(self, stream_id: int, name: str, part: int) -> None:
        """Forget a part: it has to be done again."""
        with self._tables.transaction():
            for table in _OF_PARTS:
                self._tables.execute(f"DELETE FROM {table} WHERE {_PART}", stream_id, name, part)  # noqa: S608

    def finish(self, it: Backfill, rows: int, adopted_us: int) -> None:
        """Note that the runs of a backfill are part of the archive, and forget its parts."""
        with self._tables.transaction():
            self.drop_parts(it.stream_id, it.name)
            self.put(replace(it, rows=rows, adopted_us=adopted_us))

    def drop_parts(self, stream_id: int, name: str) -> None:
        """Forget all that is done of a backfill; its positions are not given out again."""
        where = "stream_id = ? AND name = ?"
        with self._tables.transaction():
            for table in _OF_PARTS:
                self._tables.execute(f"DELETE FROM {table} WHERE {where}", stream_id, name)  # noqa: S608

    def drop_stream(self, stream_id: int) -> None:
        """Forget the backfills of a stream."""
        for table in ("backfills", *_OF_PARTS):
            self._tables.execute(f"DELETE FROM {table} WHERE stream_id = ?", stream_id)  # noqa: S608


def _part(row: tuple[Any, ...]) -> BackfillPart:
    return BackfillPart(*[*row[:5], _restored(row[5]), _summaries_from(row[6])])


def _summaries_from(text: str) -> dict[str, Summarised]:
    return {name: Summarised(*each) for name, each in json.loads(text).items()}


def _stored(run: Run) -> list[Any]:
    assert run.footer is not None
    return [
        *(run.stream_id, run.first_position, run.end_position, run.file, run.size_bytes, run.crc),
        *(run.low_us, run.high_us, layout_text(run.layout), basics_to_json(run.basics)),
        *(run.blocks, run.footer.offset, run.footer.crc, run.halvings),
    ]


def _restored(text: str) -> tuple[Run, ...]:
    return tuple(_run(row) for row in json.loads(text))


def _run(row: list[Any]) -> Run:
    known = [*row[:8], layout_from_text(row[8]), basics_from_json(row[9]), row[10]]
    return replace(Run(*known), footer=Footer(row[11], row[12]), halvings=row[13])
