"""What the catalog lists of backfills: their stretches of positions, and what is done of them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, replace
from typing import Any

from shedder.archive.checked_tables import CheckedTables
from shedder.archive.entries import Footer, Run, basics_from_json, basics_to_json
from shedder.cql.layout import Layout, layout_from_text, layout_text

_COLUMNS = "stream_id, name, first_position, end_position, layout, plan, rows, adopted_us"
_PART_COLUMNS = "stream_id, name, part, rows, poison, runs, queries, summaries"


@dataclass(frozen=True, slots=True)
class Backfill:
    """A stretch of a stream's past that is brought in, or was.

    first_position, end_position: below 0, and given to nobody else; each part has as many of them.
    layout: in which its runs are written. plan: JSON of how the source is cut into parts, as of its
    beginning. rows: that were adopted. adopted_us: when; None: it goes on.
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
    (engine.summaries' bytes) were built.
    """

    stream_id: int
    name: str
    part: int
    rows: int
    poison: int
    runs: tuple[Run, ...]
    queries: dict[str, Summarised]
    summaries: bytes


class BackfillsInCatalog(CheckedTables, ABC):
    """The part of the catalog that knows of backfills. Errors are those of `Catalog`."""

    @abstractmethod
    def add_run(self, run: Run) -> None:
        """Make a run part of the archive."""

    def put_backfill(self, it: Backfill) -> None:
        """Note that a backfill has begun."""
        place = (it.stream_id, it.name, it.first_position, it.end_position)
        of = (layout_text(it.layout), it.plan, it.rows, it.adopted_us)
        self._insert("backfills", *place, *of)

    def backfills(self, stream_id: int | None = None) -> list[Backfill]:
        """The backfills of a stream, or of all, those that are done among them, by name."""
        where = "" if stream_id is None else "WHERE stream_id = ? "
        arguments = () if stream_id is None else (stream_id,)
        order = "ORDER BY stream_id, name"
        rows = self._select("backfills", _COLUMNS, where + order, *arguments)
        return [Backfill(*[*row[:4], layout_from_text(row[4]), *row[5:]]) for row in rows]

    def put_backfill_part(self, part: BackfillPart) -> None:
        """Note that a part is done, or with other summaries; its files are in place."""
        runs = json.dumps([_stored(run) for run in part.runs])
        place = (part.stream_id, part.name, part.part, part.rows, part.poison)
        queries = json.dumps({name: astuple(each) for name, each in part.queries.items()})
        self._insert("backfill_parts", *place, runs, queries, part.summaries)

    def backfill_parts(self, stream_id: int, name: str) -> list[BackfillPart]:
        """The parts of a backfill that are done, by number."""
        where = "WHERE stream_id = ? AND name = ? ORDER BY part"
        rows = self._select("backfill_parts", _PART_COLUMNS, where, stream_id, name)
        return [
            BackfillPart(*[*row[:5], _restored(row[5]), _asked(row[6]), row[7]]) for row in rows
        ]

    def drop_backfill_part(self, stream_id: int, name: str, part: int) -> None:
        """Forget a part: it has to be done again."""
        where = "stream_id = ? AND name = ? AND part = ?"
        self._run(f"DELETE FROM backfill_parts WHERE {where}", stream_id, name, part)  # noqa: S608

    def adopt_backfill(self, it: Backfill, runs: tuple[Run, ...], adopted_us: int) -> Backfill:
        """Make all of its runs part of the archive; its parts are not needed any more."""
        done = replace(it, rows=sum(run.rows for run in runs), adopted_us=adopted_us)
        with self.transaction():
            for run in runs:
                self.add_run(run)
            self.drop_backfill_parts(it.stream_id, it.name)
            self.put_backfill(done)
        return done

    def drop_backfill_parts(self, stream_id: int, name: str) -> None:
        """Forget all that is done of a backfill; its positions are not given out again."""
        where = "stream_id = ? AND name = ?"
        self._run(f"DELETE FROM backfill_parts WHERE {where}", stream_id, name)  # noqa: S608

    def _drop_backfills(self, stream_id: int) -> None:
        for table in ("backfills", "backfill_parts"):
            self._run(f"DELETE FROM {table} WHERE stream_id = ?", stream_id)  # noqa: S608


def _asked(text: str) -> dict[str, Summarised]:
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
