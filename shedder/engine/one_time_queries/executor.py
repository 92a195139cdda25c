"""Executor of one-time queries: the live sample if it meets the target, else the archive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import structlog

from shedder.archive.exact.client import RELATION, ExactWorker, Without
from shedder.archive.layouts.readable_part import ReadablePart
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.store.snapshot import Snapshot
from shedder.archive.tasks.deadline import Deadline
from shedder.archive.tasks.interruptible_call import awaited
from shedder.archive.tasks.progress import Progress
from shedder.cql.binding.bind import bind
from shedder.cql.sql.exact_query import POSITION, SqlDialect, exact_sql, needs_positions
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Select
from shedder.cql.text.durations import timestamp_text
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.damaged_run_bounds import without_missing
from shedder.engine.one_time_queries.index_source import LookedUp, Lookup, look_up, planned
from shedder.engine.one_time_queries.reduction_choice import not_reduced, partly, reduction_for
from shedder.engine.one_time_queries.rollup_source import (
    RolledUp,
    evidence_from_rollup,
    not_rolled_up,
    rolled_up,
)
from shedder.engine.runtime.background_tasks import Watch
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import (
    BadQuery,
    BeforeRetention,
    CorruptData,
    DiskFull,
    ShedderError,
    StorageFailed,
)
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.from_exact import evidence_from_exact
from shedder.queries.one_time.source_choice import Stretch, answer_once, explain_once
from shedder.streams.batches import arrow_schema
from shedder.streams.live_sample import SampleView
from shedder.streams.windows import Span, span_of

_log = structlog.get_logger("shedder.one_time")


@dataclass(frozen=True, slots=True, eq=False)
class _Moment:
    """A stream at one position: its sample (None: not of all that is kept), and its archive."""

    sample: SampleView | None
    snapshot: Snapshot
    stretch: Stretch


class OneTime:
    """Answers queries once. Safe from any thread."""

    def __init__(
        self, core: EngineState, exact: ExactWorker, rewrite: Callable[[str], None]
    ) -> None:
        """rewrite: rewrites runs of a stream that are due, soon and on another thread."""
        self._core = core
        self._exact = exact
        self._rewrite = rewrite
        self._slides: Executor | None = None  # From the first slide on.
        self._slides_lock = threading.Lock()
        self._wanted: dict[StandingQuery, _Moment] = {}
        self._closed = False

    def ask(self, select: Select, timeout_s: float | None, watch: Watch | None = None) -> Answer:
        """Answer a query as a task, which can be watched and cancelled.

        Raises:
          UnknownStream. As `answer`.
        """
        stream = self._core.stream(select.stream)
        progress = Progress(f"answer from {select.stream}", "tuples")
        with self._core.tasks.running(progress, watch=watch):
            return self.answer(stream, select, Deadline(timeout_s, progress))

    def answer(self, stream: Stream, select: Select, deadline: Deadline) -> Answer:
        """The answer over everything that is durable now.

        Raises:
          BadQuery, UnknownColumn, TypeMismatch: it cannot be bound.
          UnknownReduction, BadReduction: REDUCE BY names none, or one that fails.
          DeadlineExceeded: not done in time. Cancelled. BudgetExceeded: too little memory.
          BeforeRetention: the window begins before what is kept.
          PrecisionUnavailable: contract FAIL and the target is missed.
        """
        query = _asked_once(select, stream)
        reduction = reduction_for(query, self._core.load, deadline)
        moment = self._moment(stream, query, deadline)
        with moment.snapshot as snapshot:
            rng = np.random.default_rng(self._core.machine.random_bits(128))
            rolled, lookup = self._ways(query, stream, moment, deadline)
            if _soonest(query, rolled, lookup) is not None:  # Exact, and sooner than any part.
                return answer_once(
                    query, None, lambda: self._exactly(query, moment, deadline), moment.stretch
                )
            reading = partly(query, snapshot, moment.stretch, reduction, deadline, rng)
            part = None if reading is None else reading.partly
            in_one_piece = part is None and query.reduction is not None

            def exactly() -> Evidence:
                evidence = self._exactly(query, moment, deadline)
                if query.reduction is None or (reading is not None and reading.has_read):
                    return evidence
                return replace(evidence, notes=(*evidence.notes, not_reduced(snapshot)))

            sample = None if in_one_piece else moment.sample
            answer = answer_once(query, sample, exactly, moment.stretch, part)
        self._note(stream, [] if reading is None else reading.dropped())
        return answer

    def _note(self, stream: Stream, dropped: list[tuple[ReadablePart, float]]) -> None:
        """Mark what a question has left out of lazy runs; where that fails, the answer stands."""
        if not dropped:
            return
        try:
            self._core.store.layouts.note_scans(dropped)
        except (DiskFull, StorageFailed) as error:
            _log.error("scans_not_noted", stream=stream.schema.name, error=str(error))
        self._rewrite(stream.schema.name)

    def explain(self, select: Select) -> str:
        """Return which source would answer, and why."""
        stream = self._core.stream(select.stream)
        query = _asked_once(select, stream)
        deadline = Deadline()
        reduction = reduction_for(query, self._core.load, deadline)
        moment = self._moment(stream, query, deadline)
        with moment.snapshot as snapshot:
            rng = np.random.default_rng(self._core.machine.random_bits(128))
            rolled, lookup = self._ways(query, stream, moment, deadline)
            if (way := _soonest(query, rolled, lookup)) is not None:
                return way.explain(query, moment.stretch)
            reading = partly(query, snapshot, moment.stretch, reduction, deadline, rng)
            part = None if reading is None else reading.partly
            runs = sum(run.rows for run in snapshot.runs)
            tail = sum(batch.num_rows for batch in snapshot.tail)
            blocks = sum(run.blocks + len(run.copies) for run in snapshot.runs)
            plan = explain_once(query, moment.sample, moment.stretch, part)
            by = "" if reduction is None or part is None else f"\nreduced:   by {reduction.text}"
            files = f"{len(snapshot.runs)} runs of {blocks:,} blocks"
            index = "" if lookup is None else f"; by the index on {lookup.column} where it helps"
            if rolled is not None:
                index = f"\nrollup:    {rolled.text}, where all is read"
            return f"{plan}{by}\narchive:   {runs:,} tuples in {files}, {tail:,} in the log{index}"

    def answer_window(self, published: StandingQuery, span: Span) -> None:
        """On the apply thread: answer a standing query's window exactly, and tell it later.

        Slides may close faster than the archive is read. The newest slide that waits is the one
        that is answered next; those that it overtakes keep the answer they were given.
        """
        stream = self._core.stream(published.standing.query.schema.name)
        lacks = stream.drops.within(span.start_us, span.end_us)
        if stream.built or lacks or stream.lost.doubted(span.start_us):
            return  # The archive does not have them all, or has some that were removed.
        if not is_retained(self._core, stream, span):
            return
        snapshot = self._core.store.snapshot(stream.id, span.start_us, span.end_us)
        moment = _Moment(None, snapshot, _stretch(span, stream.watermark_us))
        with self._slides_lock:
            if self._closed:
                return
            overtaken = self._wanted.pop(published, None)
            self._wanted[published] = moment
            if overtaken is None:
                if self._slides is None:
                    self._slides = self._core.machine.pool("shedder-exact-slides")
                self._slides.submit(self._answer_newest, published)
            else:
                overtaken.snapshot.release()

    def _answer_newest(self, published: StandingQuery) -> None:
        with self._slides_lock:
            moment = self._wanted.pop(published, None)
        if moment is None:
            return
        query = published.standing.query
        try:
            with moment.snapshot:
                answer = finish(query, self._exactly(query, moment, Deadline()))
            self._core.actor.post(lambda: published.tell_exact(answer))
        except ShedderError as error:
            _log.warning("exact_slide_failed", query=published.standing.name, error=str(error))

    def exactly(
        self,
        query: BoundQuery,
        snapshot: Snapshot,
        span: Span,
        watermark_us: int | None,
        deadline: Deadline,
    ) -> Evidence:
        """The exact answer over a part of a stream's archive and log tail."""
        return self._exactly(query, _Moment(None, snapshot, _stretch(span, watermark_us)), deadline)

    def close(self) -> None:
        """Take no more slides; one that is being answered ends with the exact worker."""
        with self._slides_lock:
            self._closed = True
            self._wanted.clear()
            slides = self._slides
        if slides is not None:
            slides.shutdown(wait=False, cancel_futures=True)

    def _ways(
        self, query: BoundQuery, stream: Stream, moment: _Moment, deadline: Deadline
    ) -> tuple[RolledUp | None, Lookup | None]:
        """The rollup and the index that are of use for the exact answer."""
        store, snapshot = self._core.store, moment.snapshot
        rolled = rolled_up(store, stream.id, query, snapshot, moment.stretch)
        return rolled, planned(store, stream.id, query, snapshot, deadline.check)

    def _moment(self, stream: Stream, query: BoundQuery, deadline: Deadline) -> _Moment:
        """The stream after everything that is durable now has been applied."""

        def look() -> _Moment:
            span = span_of(query.window, stream.watermark_us)
            check_retained(self._core, stream, span)
            retained = self._core.store.retention.retained_from_us(stream.id)
            start_us = retained if span.start_us is None else span.start_us
            whole = stream.sample.first == 0 and (retained is None or span.start_us is not None)
            if self._core.store.deletions.entries(stream.id):
                whole = False  # The sample holds rows that are gone.
            snapshot = self._core.store.snapshot(stream.id, span.start_us, span.end_us)
            if any(run.is_backfilled for run in (*snapshot.runs, *snapshot.missing)):
                whole = False  # The sample never saw them.
            sample = stream.sample.view() if whole else None
            stretch = replace(
                _stretch(span, stream.watermark_us),
                built=stream.built,
                dropped=stream.drops.within(span.start_us, span.end_us),
                doubted=stream.lost.doubted(start_us),
            )
            return _Moment(sample, snapshot, stretch)

        # When ingest is behind, the caller may cancel the query meanwhile.
        return awaited(self._core.actor.call(look), deadline.check)

    def _exactly(self, query: BoundQuery, moment: _Moment, deadline: Deadline) -> Evidence:
        """From all that there is; what cannot be read is missing, and the answer says so."""
        evidence = self._read_again(query, moment, deadline)
        store, stream = self._core.store, self._core.stream(query.schema.name)
        read = not_rolled_up(store, stream.id, query, moment.snapshot, moment.stretch)
        if read is not None:
            store.rollups.want(*read)
            self._rewrite(stream.schema.name)
        return evidence

    def _read_again(self, query: BoundQuery, moment: _Moment, deadline: Deadline) -> Evidence:
        """Once more where a file turns out to be damaged."""
        try:
            return self._read_exactly(query, moment, deadline)
        except CorruptData:  # Of a file, maybe, that was whole when it was read before.
            for run in moment.snapshot.runs:
                moment.snapshot.files.distrust(run)
            if not self._without_damage(query, moment.snapshot, deadline):
                raise
            return self._read_exactly(query, moment, deadline)

    def _without_damage(
        self,
        query: BoundQuery,
        snapshot: Snapshot,
        deadline: Deadline,
        done: Container[int] = frozenset(),
    ) -> bool:
        """Put the runs of a snapshot that are damaged into quarantine; whether there were any."""
        damaged = snapshot.without_damage(lambda _: deadline.check(), done)
        for run, problem in damaged:
            _log.error("run_damaged", stream=query.schema.name, problem=problem)
            self._core.store.quarantine.add(run, problem)
        return bool(damaged)

    def _read_exactly(self, query: BoundQuery, moment: _Moment, deadline: Deadline) -> Evidence:
        stretch, snapshot = moment.stretch, moment.snapshot
        stream = self._core.stream(query.schema.name)
        rolled, lookup = self._ways(query, stream, moment, deadline)
        if rolled is not None and not isinstance(_soonest(query, rolled, lookup), Lookup):
            evidence = evidence_from_rollup(
                self._core.store, self._exact, query, rolled, deadline, self._rewrite
            )
            self._note_scans(stream, rolled.scanned)
            return evidence
        schema = arrow_schema(query.schema)
        read = {*query.columns, query.schema.time_column}
        columns = [name for name in schema.names if name in read]
        found = look_up(query, lookup, columns, deadline.check)
        self._without_damage(query, snapshot, deadline, found.done)
        sql = exact_sql(query, RELATION, SqlDialect.DUCKDB, stretch.start_us, stretch.end_us)
        selection = snapshot.selection(found.done)
        numbered = needs_positions(query)
        rows_read = [*columns, POSITION] if numbered else columns
        table = self._exact.query(
            sql,
            selection.ordered,
            [batch.select(columns) for batch in snapshot.tail],
            pa.schema([schema.field(name) for name in columns]),
            deadline.left_s(),
            snapshot.tail_positions if numbered else None,
            selection.dealt,
            Without(selection.marked, selection.deleted),
            deadline.progress,
            [batch.select(rows_read) for batch in found.rows],
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
        return without_missing(query, _by_index(evidence, found, snapshot), snapshot)

    def _note_scans(self, stream: Stream, scanned: list[tuple[Run, int | None]]) -> None:
        """Note of which runs a rollup was read, and which had to be read themselves."""
        if self._core.store.rollups.note_scans(stream.id, scanned):
            self._rewrite(stream.schema.name)


def _soonest(
    query: BoundQuery, rolled: RolledUp | None, lookup: Lookup | None
) -> RolledUp | Lookup | None:
    """By what the exact answer is sooner there than any part; None: by nothing."""
    if rolled is not None and rolled.is_small:
        return rolled
    if lookup is not None and lookup.is_small and query.reduction is None:
        return lookup
    return None


def _by_index(evidence: Evidence, found: LookedUp, snapshot: Snapshot) -> Evidence:
    """The evidence with what an index has saved of reading."""
    if not found.done:
        return evidence
    rows = sum(run.rows for run in snapshot.runs)
    saved = sum(run.rows for run in snapshot.runs if run.first_position in found.done) - found.read
    sources = (*evidence.sources, f"index on {found.column}")
    return replace(evidence, archive_share_read=1.0 - saved / rows, sources=sources)


def _stretch(span: Span, watermark_us: int | None) -> Stretch:
    """A window that has no end, or whose end the watermark has passed, is complete."""
    passed = watermark_us is not None and span.end_us is not None and watermark_us >= span.end_us
    return Stretch(span.start_us, span.end_us, watermark_us, span.end_us is None or passed)


def _asked_once(select: Select, stream: Stream) -> BoundQuery:
    """The bound query.

    Raises:
      BadQuery: it has clauses of standing queries. UnknownColumn, TypeMismatch: as bind.
    """
    for clause, said in (("THINNING", select.thinning > 0), ("COSTING", bool(select.costing))):
        if said:
            raise BadQuery(
                f"{clause} is for standing queries: CREATE QUERY name AS SELECT ...; a question "
                "that is asked once reads less with REDUCE BY or a target"
            )
    return bind(select, stream.schema)


def check_retained(core: EngineState, stream: Stream, span: Span) -> None:
    """Check that retention has removed nothing of a window.

    Raises:
      BeforeRetention: it has removed tuples.
    """
    retained = core.store.retention.retained_from_us(stream.id)
    if retained is not None and span.start_us is not None and span.start_us < retained:
        raise BeforeRetention(
            f"the window begins at {timestamp_text(span.start_us)}, retention has removed tuples "
            f"before {timestamp_text(retained)}"
        )


def is_retained(core: EngineState, stream: Stream, span: Span) -> bool:
    """Return whether retention has removed nothing of a window; True if the window is open."""
    try:
        check_retained(core, stream, span)
    except BeforeRetention:
        return False
    return True
