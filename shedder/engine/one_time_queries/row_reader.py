"""Reading of the rows of one question: by few row groups, or by the exact worker over all runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import structlog

from shedder.archive.exact.client import ExactWorker
from shedder.archive.exact.relation import ExactRelation
from shedder.archive.exact.result_spool import ResultSpool
from shedder.archive.exact.worker import ResultLimits
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.tasks.deadline import Deadline
from shedder.cql.plans.logical_plan import BoundRelational
from shedder.cql.sql.plan_sql import RelationSql, plan_sql
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.index_source import look_up
from shedder.engine.one_time_queries.row_notes import notes_of
from shedder.engine.one_time_queries.row_pruning import (
    first_by_time,
    first_span,
    rows_needed,
)
from shedder.engine.one_time_queries.row_sources import RowSource, either, hull
from shedder.engine.one_time_queries.table_source import TableSource
from shedder.errors import CorruptData
from shedder.queries.answers.answer import Answer, InputProgress
from shedder.queries.one_time.plan import TimeRange

_log = structlog.get_logger("shedder.one_time")
_Source = TypeVar("_Source", RowSource, TableSource)
_CUT = {
    "rows": "cut behind {rows:,} rows, the limit of an answer (result_rows_max)",
    "bytes": "cut behind {rows:,} rows, at the limit of {bytes:,} bytes (result_bytes_max)",
}


@dataclass(frozen=True, slots=True, eq=False)
class RowQuestion:
    """A bound query and the sources of its scans by alias, at one moment.

    sources: of streams. tables: of tables.
    """

    bound: BoundRelational
    sources: Mapping[str, RowSource]
    tables: Mapping[str, TableSource]
    deadline: Deadline


def narrowed(question: RowQuestion) -> dict[str, RowSource]:
    """The sources without runs that ORDER BY time with LIMIT needs no row of."""
    sources = dict(question.sources)
    first = first_by_time(question.bound.plan)
    if first is not None:
        ((alias, source),) = sources.items()
        runs = [(run, source.live_rows(run)) for run in source.runs]
        span = first_span(first, source.span, runs, source.tail_times_us())
        sources[alias] = replace(source, span=span)
    return sources


class RowReader:
    """Reads the rows of one question into a spool."""

    def __init__(
        self,
        core: EngineState,
        worker: ExactWorker,
        limits: ResultLimits,
        question: RowQuestion,
        spool: ResultSpool,
    ) -> None:
        self._core = core
        self._worker = worker
        self._limits = limits
        self._question = question
        self._spool = spool
        self._has_begun = False

    def answer(self) -> Answer:
        """Read all rows; return the answer without them."""
        try:
            return self._attempt()
        except CorruptData:  # Of a file, maybe, that was whole when it was read before.
            for source in self._question.sources.values():
                for run in source.snapshot.runs:
                    source.snapshot.files.distrust(run)
            if self._has_begun or not self._quarantine(self._question.sources.values()):
                raise
            return self._attempt()

    def _attempt(self) -> Answer:
        plan, deadline = self._question.bound.plan, self._question.deadline
        needed, tables = rows_needed(plan), self._question.tables
        sources = dict(self._question.sources)
        if needed is not None and sources:
            ((alias, source),) = sources.items()
            relation, found = source.first_rows(_name(0), needed)
            relations, named = [relation], {alias: _name(0)}
            read, rows_read = _count(found.groups, "row group"), found.rows
        else:
            sources = self._looked_up()
            while self._quarantine(sources.values()):  # Others may be needed in their place.
                sources = self._looked_up()
            relations, named = _relations(sources)
            runs = sum(len(_scanned(source)) for source in sources.values())
            read, rows_read = _count(runs, "run"), sum(map(_rows_read, sources.values()))
            used = (source.found.column for source in sources.values() if source.found.done)
            read = (*read, *dict.fromkeys(f"index on {column}" for column in used))
        said = {
            alias: RelationSql(
                named[alias], source.span.start_us, source.span.end_us, source.schema.seed
            )
            for alias, source in sources.items()
        }
        if any(relation.tail for relation in relations):
            read = (*read, "the log")
        for aliases in _grouped(tables, lambda table: id(table.rows)):
            name, table = _name(len(relations)), tables[aliases[0]]
            relation = table.relation(name, _columns(tables[alias] for alias in aliases), needed)
            relations.append(replace(relation, is_shared=len(aliases) > 1))
            said |= dict.fromkeys(aliases, RelationSql(name))
            read = (*read, f"table {table.rows.schema.name}")
        rows, cut = self._spooled(plan_sql(plan, said), relations, deadline)
        stored = sum(map(_stored_rows, self._question.sources.values()))
        share = rows_read / stored if stored else 0.0
        return replace(self._facts(sources, rows, cut), sources=read, archive_share_read=share)

    def _looked_up(self) -> dict[str, RowSource]:
        """The sources, with the rows that value indexes find."""
        check = self._question.deadline.check
        return {
            alias: replace(
                source, found=look_up(source.lookup(self._core.store, check), source.columns)
            )
            for alias, source in narrowed(self._question).items()
        }

    def _spooled(
        self, sql: str, relations: Sequence[ExactRelation], deadline: Deadline
    ) -> tuple[int, str]:
        """Put the rows of a query into the spool; how many, and the limit that ended them."""
        columns = self._question.bound.columns
        schema = pa.schema([pa.field(each.name, each.type.arrow) for each in columns])
        rows = 0
        reading = self._worker.reading(
            sql,
            relations,
            self._limits,
            timeout_s=deadline.left_s(),
            progress=deadline.progress,
        )
        with reading as result:
            self._has_begun = True
            self._spool.begin(schema)
            for batch in result:
                self._spool.put(batch.cast(schema))
                rows += batch.num_rows
                deadline.progress.advance(batch.num_rows)
        return rows, result.cut

    def _facts(self, sources: Mapping[str, RowSource], rows: int, cut: str) -> Answer:
        """Everything but the rows, and what was read for them."""
        known = [source.stretch for source in sources.values()]
        one = known[0] if len(known) == 1 else TimeRange(complete=all(s.complete for s in known))
        watermarks_us = [s.watermark_us for s in known if s.watermark_us is not None]
        tables = self._question.tables.values()
        missing = any(source.missing or source.snapshot.holes for source in sources.values())
        missing = missing or any(table.rows.lost for table in tables)
        is_whole = not missing and not any(stretch.doubted for stretch in known)
        position = next(iter(sources.values())).snapshot.end_position if len(sources) == 1 else 0
        schema = self._spool.schema
        text = _CUT[cut].format(rows=rows, bytes=self._limits.bytes_max or 0) if cut else ""
        return Answer(
            schema.empty_table(),
            query=self._question.bound.text,
            start_us=one.start_us,
            end_us=one.end_us,
            watermark_us=min(watermarks_us, default=None)
            if len(watermarks_us) == len(known)
            else None,
            position=position,
            complete=one.complete and is_whole,
            inputs=tuple(
                InputProgress(
                    source.schema.name,
                    alias,
                    source.snapshot.end_position,
                    source.stretch.watermark_us,
                )
                for alias, source in sources.items()
            ),
            notes=(
                *notes_of(list(sources.values())),
                *dict.fromkeys(note for table in tables for note in table.notes()),
            ),
            cut=text,
        )

    def _quarantine(self, sources: Iterable[RowSource]) -> bool:
        """Put damaged runs into quarantine; whether there were any."""
        found = False
        for source in sources:
            damaged = source.snapshot.without_damage(
                lambda _: self._question.deadline.check(), source.done
            )
            for run, problem in damaged:
                _log.error("run_damaged", stream=source.schema.name, problem=problem)
                self._core.store.quarantine.add(run, problem)
            found = found or bool(damaged)
        return found


def _relations(
    sources: Mapping[str, RowSource],
) -> tuple[list[ExactRelation], dict[str, str]]:
    """The relations that scans read, and the name of each scan's by alias.

    Scans of the same rows share a relation; relations with the same tail share it. So a tail is
    sent once to the exact worker, which holds it beside DuckDB's memory.
    """
    relations: list[ExactRelation] = []
    named: dict[str, str] = {}
    for of_tail in _grouped(sources, _tail_of):
        several = {alias: sources[alias] for alias in of_tail}
        columns, span = _columns(several.values()), hull(each.span for each in several.values())
        where = either([each.where for each in several.values()])
        tail = replace(several[of_tail[0]], span=span, where=where)
        owner = None
        for aliases in _grouped(several, lambda source: source.span):
            name = _name(len(relations))
            relation = several[aliases[0]].relation(name, columns, tail if owner is None else None)
            relations.append(replace(relation, is_shared=len(aliases) > 1, tail_of=owner))
            named |= dict.fromkeys(aliases, name)
            owner = owner or name
    return relations, named


def _tail_of(source: RowSource) -> Hashable:
    """The batches of a tail; two snapshots of one moment may differ in what is in runs.

    Rows that an index has found are held beside the tail, and only their own scan reads them.
    """
    own = source.scan.alias if source.found.done else ""
    return source.schema.name, own, *map(id, source.snapshot.tail)


def _columns(sources: Iterable[RowSource | TableSource]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for source in sources for name in source.columns))


def _grouped(sources: Mapping[str, _Source], key: Callable[[_Source], Hashable]) -> list[list[str]]:
    """The aliases of sources, together where their keys are equal."""
    groups: dict[Hashable, list[str]] = {}
    for alias, source in sources.items():
        groups.setdefault(key(source), []).append(alias)
    return list(groups.values())


def _scanned(source: RowSource) -> list[Run]:
    """The runs whose files are scanned."""
    return [run for run in source.runs if run.first_position not in source.found.done]


def _rows_read(source: RowSource) -> int:
    """The rows of runs that are scanned, and those that were read where an index says."""
    return sum(map(source.live_rows, _scanned(source))) + source.found.read


def _stored_rows(source: RowSource) -> int:
    """The rows of the runs that a source needs."""
    return sum(map(source.live_rows, source.runs))


def _count(number: int, what: str) -> tuple[str, ...]:
    """What was read, as a source of the answer; nothing where nothing was."""
    return (f"{number:,} {what}{'s' * (number != 1)}",) if number else ()


def _name(number: int) -> str:
    """The name under which SQL reads a scan; no text of a caller is part of it."""
    return f"r{number}"
