"""One-time queries: each is planned, and its plan is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
import structlog

from shedder.archive.layouts.readable_part import ReadablePart
from shedder.archive.tasks.deadline import Deadline
from shedder.archive.tasks.interruptible_call import awaited
from shedder.archive.tasks.progress import Progress
from shedder.cql.binding.bind import bind
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Select
from shedder.cql.text.durations import timestamp_text
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.archive_question import ArchiveQuestion
from shedder.engine.one_time_queries.exact_reader import ExactReader
from shedder.engine.one_time_queries.inserted_rows import await_inserted, with_notes
from shedder.engine.one_time_queries.reduction_choice import reduction_for
from shedder.engine.one_time_queries.stream_sources import StreamSources
from shedder.engine.runtime.background_tasks import Watch
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import BadQuery, BeforeRetention, DiskFull, StorageFailed
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.precision_table import precision_table
from shedder.queries.evidence.precision_parts import interval_parts
from shedder.queries.one_time.plan import TimeRange
from shedder.queries.one_time.plan_execution import execute, find
from shedder.queries.one_time.scan_prices import scan_prices
from shedder.queries.one_time.source_choice import choose, explained
from shedder.streams.live_sample import SampleView
from shedder.streams.windows import Span, span_of

_log = structlog.get_logger("shedder.one_time")


class OneTime:
    """Answers queries once. Safe from any thread."""

    def __init__(
        self, core: EngineState, reader: ExactReader, rewrite: Callable[[str], None]
    ) -> None:
        """rewrite: rewrites runs of a stream that are due, soon and on another thread."""
        self._core = core
        self._reader = reader
        self._rewrite = rewrite

    def ask(self, select: Select, timeout_s: float | None, watch: Watch | None = None) -> Answer:
        """Answer a query as a task, which can be watched and cancelled.

        Raises:
          UnknownStream. As `answer`.
        """
        stream = self._core.stream(select.stream)
        notes = await_inserted(self._core, (select.stream,))
        progress = Progress(f"answer from {select.stream}", "tuples")
        with self._core.tasks.running(progress, watch=watch):
            answer = self.answer(stream, select, Deadline(timeout_s, progress))
        return with_notes(answer, notes)

    def answer(self, stream: Stream, select: Select, deadline: Deadline) -> Answer:
        """The answer over everything that is durable now.

        Raises:
          BadQuery, UnknownColumn, TypeMismatch: it cannot be bound.
          UnknownReduction, BadReduction: REDUCE BY names none, or one that fails.
          DeadlineExceeded: not done in time. Cancelled. BudgetExceeded: too little memory.
          BeforeRetention: the window begins before what is kept.
          PrecisionUnavailable: contract FAIL and the target is missed.
        """
        query = _one_time_query(select, stream)
        with self._sources(stream, query, deadline) as sources:
            known = sources.known
            answer = execute(query, choose(query, known), known.stretch, sources)
        self._note(stream, sources.dropped())
        return answer

    def precision(
        self, select: Select, timeout_s: float | None, watch: Watch | None = None
    ) -> pa.Table:
        """Answer a query, and return the parts of its intervals. Raises: as `ask`."""
        stream = self._core.stream(select.stream)
        await_inserted(self._core, (select.stream,))
        query = _one_time_query(select, stream)
        progress = Progress(f"precision of an answer from {select.stream}", "tuples")
        with self._core.tasks.running(progress, watch=watch):
            deadline = Deadline(timeout_s, progress)
            with self._sources(stream, query, deadline) as sources:
                known, clock_s = sources.known, self._core.machine.monotonic_s
                plan, begin_s = choose(query, known), clock_s()
                found = find(query, plan, known.stretch, sources)
                prices = scan_prices(query, found, clock_s() - begin_s)
        self._note(stream, sources.dropped())
        return precision_table(*interval_parts(query, found.steps, prices))

    def explain(self, select: Select) -> str:
        """The plan by which `answer` would answer, in words."""
        stream = self._core.stream(select.stream)
        query = _one_time_query(select, stream)
        with self._sources(stream, query, Deadline()) as sources:
            return explained(query, sources.known, choose(query, sources.known))

    @contextmanager
    def _sources(
        self, stream: Stream, query: BoundQuery, deadline: Deadline
    ) -> Iterator[StreamSources]:
        """The sources of a query as of now; the archive is held until the end."""
        reduction = reduction_for(query, self._core.load, deadline)
        question, sample = self._as_of_now(stream, query, deadline)
        with question.snapshot:
            rng = np.random.default_rng(self._core.machine.random_bits(128))
            yield StreamSources(question, sample, reduction, self._reader, rng)

    def _note(self, stream: Stream, dropped: list[tuple[ReadablePart, float]]) -> None:
        """Mark what a question has left out of lazy runs; where that fails, the answer stands."""
        if not dropped:
            return
        try:
            self._core.store.layouts.note_scans(dropped)
        except (DiskFull, StorageFailed) as error:
            _log.error("scans_not_noted", stream=stream.schema.name, error=str(error))
        self._rewrite(stream.schema.name)

    def _as_of_now(
        self, stream: Stream, query: BoundQuery, deadline: Deadline
    ) -> tuple[ArchiveQuestion, SampleView | None]:
        """The stream's archive and sample once everything that is durable now has been applied."""

        def look() -> tuple[ArchiveQuestion, SampleView | None]:
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
                TimeRange.of(span, stream.watermark_us),
                built=stream.built,
                dropped=stream.drops.within(span.start_us, span.end_us),
                doubted=stream.lost.doubted(start_us),
            )
            return ArchiveQuestion(query, snapshot, stretch, deadline), sample

        # When ingest is behind, the caller may cancel the query meanwhile.
        return awaited(self._core.executor.call(look), deadline.check)


def _one_time_query(select: Select, stream: Stream) -> BoundQuery:
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
