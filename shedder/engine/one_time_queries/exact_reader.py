"""Exact reading of a stream's archive and tail: from a rollup, by an index, or all files."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace

import pyarrow as pa
import structlog

from shedder.archive.exact.client import RELATION, ExactWorker
from shedder.archive.exact.relation import ExactRelation, Without
from shedder.archive.metadata.catalog_entries import Run
from shedder.cql.sql.exact_query import POSITION, SqlDialect, exact_sql, needs_positions
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.archive_question import ArchiveQuestion
from shedder.engine.one_time_queries.damaged_run_bounds import without_missing
from shedder.engine.one_time_queries.index_source import (
    LookedUp,
    Lookup,
    WantedRows,
    look_up,
    planned,
)
from shedder.engine.one_time_queries.rollup_source import (
    RolledUp,
    evidence_from_rollup,
    not_rolled_up,
    rolled_up,
)
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import CorruptData
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.from_exact import evidence_from_exact
from shedder.queries.one_time.plan import PlanStep, Source
from shedder.streams.batches import arrow_schema

_log = structlog.get_logger("shedder.one_time")

ExactWay = RolledUp | Lookup | None
"""How everything is read; None: from all files."""


def is_soonest(question: ArchiveQuestion, way: ExactWay) -> bool:
    """Return whether the exact answer is sooner there than any part."""
    match way:
        case RolledUp():
            return way.is_small
        case Lookup():
            return way.is_small and question.query.reduction is None
        case None:
            return False


def exact_step(question: ArchiveQuestion, way: ExactWay) -> PlanStep:
    """The exact reading as a step of a plan."""
    if way is not None:
        return way.step
    runs, tail = question.snapshot.runs, question.snapshot.tail
    rows = sum(run.rows for run in runs) + sum(batch.num_rows for batch in tail)
    return PlanStep(Source.ARCHIVE, tuples=rows)


class ExactReader:
    """Reads exact evidence with a worker process. Safe from any thread."""

    def __init__(
        self, core: EngineState, worker: ExactWorker, rewrite: Callable[[str], None]
    ) -> None:
        """rewrite: rewrites runs of a stream that are due, soon and on another thread."""
        self._core = core
        self._worker = worker
        self._rewrite = rewrite

    def way(self, question: ArchiveQuestion) -> ExactWay:
        """The rollup or the index that leaves the least to be read."""
        store, stream = self._core.store, self._core.stream(question.query.schema.name)
        rolled = rolled_up(store, stream.id, question)
        if rolled is not None and rolled.is_small:
            return rolled
        query = question.query
        wanted = WantedRows(query.schema, query.where, question.snapshot, question.deadline.check)
        lookup = planned(store, stream.id, wanted)
        return lookup if rolled is None or is_soonest(question, lookup) else rolled

    def read(self, question: ArchiveQuestion, way: ExactWay) -> Evidence:
        """From all that there is; what cannot be read is missing, and the evidence says so."""
        stream, snapshot = self._core.stream(question.query.schema.name), question.snapshot
        try:
            evidence = self._read(stream, question, way)
        except CorruptData:  # Of a file, maybe, that was whole when it was read before.
            for run in snapshot.runs:
                snapshot.files.distrust(run)
            if not self._quarantine_damaged(question):
                raise
            evidence = self._read(stream, question, self.way(question))
        lacking = not_rolled_up(self._core.store, stream.id, question)
        if lacking is not None:
            self._core.store.rollups.want(*lacking)
            self._rewrite(stream.schema.name)
        return evidence

    def _read(self, stream: Stream, question: ArchiveQuestion, way: ExactWay) -> Evidence:
        if isinstance(way, RolledUp):
            evidence = evidence_from_rollup(self._core.store, self._worker, way, self._rewrite)
            self._note_scans(stream, way.scanned)
            return evidence
        query, snapshot, stretch = question.query, question.snapshot, question.stretch
        schema = arrow_schema(query.schema)
        read = {*query.columns, query.schema.time_column}
        columns = [name for name in schema.names if name in read]
        found = look_up(way, columns)
        self._quarantine_damaged(question, found.done)
        sql = exact_sql(query, RELATION, SqlDialect.DUCKDB, stretch.start_us, stretch.end_us)
        selection = snapshot.selection(found.done)
        numbered = needs_positions(query)
        rows_read = [*columns, POSITION] if numbered else columns
        relation = ExactRelation(
            RELATION,
            pa.schema([schema.field(name) for name in columns]),
            files=selection.ordered,
            dealt=selection.dealt,
            tail=[batch.select(columns) for batch in snapshot.tail],
            tail_positions=snapshot.tail_positions if numbered else None,
            more=[batch.select(rows_read) for batch in found.rows],
            without=Without(selection.marked, selection.deleted),
        )
        table = self._worker.query(
            sql,
            [relation],
            timeout_s=question.deadline.left_s(),
            progress=question.deadline.progress,
        )
        evidence = evidence_from_exact(
            query,
            table,
            start_us=stretch.start_us,
            end_us=stretch.end_us,
            watermark_us=stretch.watermark_us,
            complete=stretch.complete,
            position=snapshot.end_position,
        )
        read_itself = (run for run in snapshot.runs if run.first_position not in found.done)
        self._note_scans(stream, [(run, None) for run in read_itself])
        return without_missing(query, _by_index(evidence, found, snapshot.runs), snapshot)

    def _quarantine_damaged(
        self, question: ArchiveQuestion, done: Container[int] = frozenset()
    ) -> bool:
        """Put the runs of a snapshot that are damaged into quarantine; whether there were any."""
        damaged = question.snapshot.without_damage(lambda _: question.deadline.check(), done)
        for run, problem in damaged:
            _log.error("run_damaged", stream=question.query.schema.name, problem=problem)
            self._core.store.quarantine.add(run, problem)
        return bool(damaged)

    def _note_scans(self, stream: Stream, scanned: list[tuple[Run, int | None]]) -> None:
        """Note of which runs a rollup was read, and which had to be read themselves."""
        if self._core.store.rollups.note_scans(stream.id, scanned):
            self._rewrite(stream.schema.name)


def _by_index(evidence: Evidence, found: LookedUp, runs: Sequence[Run]) -> Evidence:
    """The evidence with what an index has saved of reading."""
    if not found.done:
        return evidence
    rows = sum(run.rows for run in runs)
    saved = sum(run.rows for run in runs if run.first_position in found.done) - found.read
    sources = (*evidence.sources, f"index on {found.column}")
    return replace(evidence, archive_share_read=1.0 - saved / rows, sources=sources)
