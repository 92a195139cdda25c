"""One-time row queries: each is bound, and a thread reads its rows batch by batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Thread

from shedder.archive.exact.client import ExactWorker
from shedder.archive.exact.result_spool import ResultSpool, SpoolSpace
from shedder.archive.exact.worker import ResultLimits
from shedder.archive.tasks.deadline import Deadline
from shedder.archive.tasks.interruptible_call import awaited
from shedder.archive.tasks.progress import Progress
from shedder.cql.binding.relational_binding import bind_relational
from shedder.cql.binding.top_of_rows import check_lists_nothing
from shedder.cql.plans.logical_plan import Scan, scans_of
from shedder.cql.sql.plan_sql import needs_event_order
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.table_schema import RelationSchema
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.executor import check_retained
from shedder.engine.one_time_queries.inserted_rows import await_inserted, with_notes
from shedder.engine.one_time_queries.plan_text import plan_text
from shedder.engine.one_time_queries.row_pruning import (
    conditions_of,
    rows_needed,
    spans_of,
    windows_of,
)
from shedder.engine.one_time_queries.row_reader import RowQuestion, RowReader, narrowed
from shedder.engine.one_time_queries.row_sources import RowSource
from shedder.engine.one_time_queries.table_source import TableSource
from shedder.engine.runtime.background_tasks import Watch
from shedder.engine.tables.live_tables import PastRows
from shedder.errors import BadQuery
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.answer_batches import AnswerBatches
from shedder.queries.one_time.plan import TimeRange
from shedder.streams.windows import Span

SPACE_RESULTS = 4  # Results of the largest size that may lie on disk until their rows are taken.


class RowQueries:
    """Answers row queries once. Safe from any thread."""

    def __init__(self, core: EngineState, worker: ExactWorker) -> None:
        settings = core.settings
        self._core = core
        self._worker = worker
        self._limits = ResultLimits(settings.result_rows_max, settings.result_bytes_max)
        self._space = SpoolSpace(SPACE_RESULTS * settings.result_bytes_max)

    def batches(
        self, select: RelationalSelect, timeout_s: float | None, watch: Watch | None = None
    ) -> AnswerBatches:
        """Answer a query as a task, which can be watched and cancelled.

        A thread reads the rows; what the caller has not taken yet lies in memory and on disk.

        Raises here, or behind the last batch:
          UnknownStream, UnknownColumn, TypeMismatch, BadQuery, Unimplemented: it cannot be bound.
          DeadlineExceeded: not read in time. Cancelled. BudgetExceeded: too little memory.
          BeforeRetention: a window begins before what is kept.
        """
        notes = await_inserted(self._core, select.relations)
        progress = Progress(f"rows of {', '.join(select.relations)}", "rows")
        spool = ResultSpool(self._core.store.directory / "tmp", self._space)
        answers: list[Answer] = []
        began_s = time.monotonic()

        def read() -> None:
            try:
                with self._core.tasks.running(progress, watch=watch):
                    answer = self._read(select, Deadline(timeout_s, progress), spool)
                answer = with_notes(answer, notes)
                answers.append(replace(answer, elapsed_ms=(time.monotonic() - began_s) * 1e3))
            except BaseException as error:
                spool.end(error)
            else:
                spool.end()

        def close() -> None:
            progress.cancel()
            spool.close()

        Thread(target=read, name="shedder-rows", daemon=True).start()
        try:
            schema = spool.schema
        except BaseException:
            close()
            raise
        return AnswerBatches(schema, iter(spool), lambda: answers[0], close)

    def explain(self, select: RelationalSelect) -> str:
        """The plan by which `batches` would answer, as a tree."""
        with self._question(select, Deadline()) as question:
            plan = question.bound.plan
            sources, needed = narrowed(question), rows_needed(plan)
            lookups = {
                alias: each.lookup(self._core.store, question.deadline.check)
                for alias, each in sources.items()
            }
            return plan_text(plan, sources, question.tables, needed, lookups)

    def _read(self, select: RelationalSelect, deadline: Deadline, spool: ResultSpool) -> Answer:
        with self._question(select, deadline) as question:
            return RowReader(self._core, self._worker, self._limits, question, spool).answer()

    @contextmanager
    def _question(self, select: RelationalSelect, deadline: Deadline) -> Iterator[RowQuestion]:
        """The bound query and its sources as of now; the archive is held until the end."""
        core = self._core
        if select.sheds:
            raise BadQuery(
                "ON OVERLOAD: a query that is answered once has all rows; leave ON OVERLOAD away"
            )
        if select.confidence is not None:
            raise BadQuery(
                "CONFIDENCE: the rows of a query that is answered once are exact; leave CONFIDENCE "
                "away"
            )
        check_lists_nothing(select)
        names = select.relations
        known = {name: core.tables.get(name) for name in names}  # It may be dropped meanwhile.
        tables = {name: table for name, table in known.items() if table is not None}
        streams = {name: core.stream(name) for name in names if name not in tables}
        schemas: dict[str, RelationSchema] = {
            **{name: stream.schema for name, stream in streams.items()},
            **{name: table.schema for name, table in tables.items()},
        }
        now_us = self._now_us(select, deadline) if "NOW(" in select.text else None
        bound = bind_relational(select, schemas, now_us)

        with ExitStack() as held:

            def look() -> tuple[dict[str, RowSource], dict[str, tuple[Scan, PastRows]]]:
                # What was durable before the query is applied by now.
                watermarks_us = {name: each.watermark_us for name, each in streams.items()}
                windows = windows_of(bound.plan, watermarks_us)
                spans = spans_of(bound.plan, windows)
                is_ordered = needs_event_order(bound.plan)
                conditions = conditions_of(bound.plan)
                found: dict[str, RowSource] = {}
                read: dict[str, tuple[Scan, PastRows]] = {}
                for scan in scans_of(bound.plan):
                    alias = scan.alias
                    if scan.relation in tables:
                        read[alias] = (scan, tables[scan.relation].past(scan.as_of_us))
                        continue
                    source = self._source(scan, windows[alias], spans[alias], is_ordered)
                    found[alias] = replace(source, where=conditions[alias])
                    held.callback(found[alias].snapshot.release)
                return found, read

            sources, past = awaited(core.executor.call(look), deadline.check)
            read = {alias: TableSource(scan, rows()) for alias, (scan, rows) in past.items()}
            yield RowQuestion(bound, sources, read, deadline)

    def _source(self, scan: Scan, window: Span, span: Span, is_ordered: bool) -> RowSource:
        """What a scan reads. On the apply thread."""
        stream, store = self._core.stream(scan.relation), self._core.store
        if window.start_us is not None:  # [FROM t SLIDE s] is a long window from t on.
            window = replace(window, start_us=span.start_us)
        check_retained(self._core, stream, window)
        start_us = window.start_us
        if start_us is None:
            start_us = store.retention.retained_from_us(stream.id)
        stretch = replace(
            TimeRange.of(window, stream.watermark_us),
            built=stream.built,
            dropped=stream.drops.within(span.start_us, span.end_us),
            doubted=stream.lost.doubted(start_us),
        )
        snapshot = store.snapshot(stream.id, span.start_us, span.end_us)
        pruned = len(store.runs(stream.id)) - len(snapshot.runs) - len(snapshot.missing)
        return RowSource(
            stream.id, scan, stream.schema, window, span, snapshot, stretch, pruned, is_ordered
        )

    def _now_us(self, select: RelationalSelect, deadline: Deadline) -> int | None:
        """The least watermark of all streams; None: one of them has none."""

        def look() -> int | None:
            streams = [name for name in select.relations if name not in self._core.tables]
            watermarks_us = [self._core.stream(name).watermark_us for name in streams]
            known = [each for each in watermarks_us if each is not None]
            return min(known, default=None) if len(known) == len(watermarks_us) else None

        return awaited(self._core.executor.call(look), deadline.check)
