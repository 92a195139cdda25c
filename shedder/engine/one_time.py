"""One-time questions: from the live sample when that is good enough, else exactly."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from shedder.archive.exact import RELATION, ExactWorker
from shedder.archive.run_files import Snapshot
from shedder.cql.bind import bind
from shedder.cql.query import BoundQuery
from shedder.cql.render import SqlDialect, exact_sql, needs_positions
from shedder.cql.statement import LandmarkWindow, RangeWindow, Select, SnapshotWindow
from shedder.engine.core import Core
from shedder.engine.published import Published
from shedder.engine.stream import Stream
from shedder.errors import BeforeRetention, DeadlineExceeded, ShedderError, Unimplemented
from shedder.queries.answer import Answer
from shedder.queries.choose import Stretch, answer_once, explain_once
from shedder.queries.evidence import Evidence
from shedder.queries.finish import finish
from shedder.queries.from_exact import evidence_from_exact
from shedder.streams.batches import arrow_schema
from shedder.streams.sample import SampleView
from shedder.streams.windows import PaneGrid, Span

_log = structlog.get_logger("shedder.one_time")


@dataclass(frozen=True, slots=True, eq=False)
class _Moment:
    """A stream at one position: its sample (None: not of all that is kept), and its archive."""

    sample: SampleView | None
    snapshot: Snapshot
    stretch: Stretch


class OneTime:
    """Answers queries once. Safe from any thread."""

    def __init__(self, core: Core, exact: ExactWorker) -> None:
        self._core = core
        self._exact = exact
        self._slides = ThreadPoolExecutor(1, thread_name_prefix="shedder-exact-slides")
        self._slides_lock = threading.Lock()
        self._wanted: dict[Published, _Moment] = {}
        self._closed = False

    def answer(self, stream: Stream, select: Select, timeout_s: float | None) -> Answer:
        """The answer over everything that is durable now.

        Raises:
          BadQuery, UnknownColumn, TypeMismatch: it cannot be bound.
          DeadlineExceeded: not done within timeout_s. BudgetExceeded: too little memory.
          BeforeRetention: the window begins before what is kept.
          PrecisionUnavailable: contract FAIL and the target is missed.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        query = self._bind(stream, select)
        moment = self._moment(stream, query, timeout_s)
        with moment.snapshot:
            return answer_once(
                query,
                moment.sample,
                lambda: self._exactly(query, moment, _left(deadline)),
                moment.stretch,
            )

    def explain(self, stream: Stream, select: Select) -> str:
        """Which source would answer, and why."""
        query = self._bind(stream, select)
        moment = self._moment(stream, query, None)
        with moment.snapshot as snapshot:
            runs = sum(run.rows for run in snapshot.runs)
            tail = sum(batch.num_rows for batch in snapshot.tail)
            plan = explain_once(query, moment.sample, moment.stretch)
            files = len(snapshot.runs)
            return f"{plan}\narchive:   {runs:,} tuples in {files} runs, {tail:,} in the log"

    def answer_window(self, published: Published, span: Span) -> None:
        """On the apply thread: answer a standing query's window exactly, and tell it later.

        Slides may close faster than the archive is read. The newest slide that waits is the one
        that is answered next; those that it overtakes keep the answer they were given.
        """
        stream = self._core.stream(published.standing.query.schema.name)
        snapshot = self._core.store.snapshot(stream.id, span.start_us, span.end_us)
        moment = _Moment(None, snapshot, _stretch(span, stream.watermark_us))
        with self._slides_lock:
            if self._closed:
                return
            overtaken = self._wanted.pop(published, None)
            self._wanted[published] = moment
            if overtaken is None:
                self._slides.submit(self._answer_newest, published)
            else:
                overtaken.snapshot.release()

    def _answer_newest(self, published: Published) -> None:
        with self._slides_lock:
            moment = self._wanted.pop(published, None)
        if moment is None:
            return
        query = published.standing.query
        try:
            with moment.snapshot:
                answer = finish(query, self._exactly(query, moment, None))
            self._core.actor.post(lambda: published.tell_exact(answer))
        except ShedderError as error:
            _log.warning("exact_slide_failed", query=published.standing.name, error=str(error))

    def close(self) -> None:
        """Take no more slides; one that is being answered ends with the exact worker."""
        with self._slides_lock:
            self._closed = True
            self._wanted.clear()
        self._slides.shutdown(wait=False, cancel_futures=True)

    def _bind(self, stream: Stream, select: Select) -> BoundQuery:
        if select.reduction is not None:
            raise Unimplemented(
                f"REDUCE BY {select.reduction.name}() needs a layout that can be read in part; "
                "this version has ARCHIVE plain"
            )
        return bind(select, stream.schema)

    def _moment(self, stream: Stream, query: BoundQuery, timeout_s: float | None) -> _Moment:
        """The stream after everything that is durable now has been applied."""

        def look() -> _Moment:
            span = _span(query, stream.watermark_us)
            retained = self._core.store.retained_from_us(stream.id)
            if retained is not None and span.start_us is not None and span.start_us < retained:
                raise BeforeRetention(
                    f"the window begins at {span.start_us} us, retention has removed tuples "
                    f"before {retained} us"
                )
            whole = stream.sample.first == 0 and (retained is None or span.start_us is not None)
            sample = stream.sample.view() if whole else None
            snapshot = self._core.store.snapshot(stream.id, span.start_us, span.end_us)
            return _Moment(sample, snapshot, _stretch(span, stream.watermark_us))

        future = self._core.actor.call(look)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            raise DeadlineExceeded(f"no answer within {timeout_s} s: ingest is behind") from None

    def _exactly(self, query: BoundQuery, moment: _Moment, timeout_s: float | None) -> Evidence:
        stretch, snapshot = moment.stretch, moment.snapshot
        sql = exact_sql(query, RELATION, SqlDialect.DUCKDB, stretch.start_us, stretch.end_us)
        schema = arrow_schema(query.schema)
        table = self._exact.query(
            sql,
            snapshot.paths,
            snapshot.tail,
            schema,
            timeout_s,
            snapshot.tail_positions if needs_positions(query) else None,
        )
        return evidence_from_exact(
            query,
            table,
            start_us=stretch.start_us,
            end_us=stretch.end_us,
            watermark_us=stretch.watermark_us,
            complete=stretch.complete,
            position=snapshot.end_position,
        )


def _stretch(span: Span, watermark_us: int | None) -> Stretch:
    """A window that has no end, or whose end the watermark has passed, is complete."""
    passed = watermark_us is not None and span.end_us is not None and watermark_us >= span.end_us
    return Stretch(span.start_us, span.end_us, watermark_us, span.end_us is None or passed)


def _span(query: BoundQuery, watermark_us: int | None) -> Span:
    """The stretch that a one-time query is over: of a sliding window, the last one closed."""
    match query.window:
        case RangeWindow():
            grid = PaneGrid.of(query.window)
            end = grid.window_end(watermark_us)
            return Span(0, 0) if end is None else grid.window(end)
        case LandmarkWindow(start_us):
            return Span(start_us, None)
        case SnapshotWindow(start_us, end_us):
            return Span(start_us, end_us)
        case _:
            return Span(None, None)


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded("the time was used up before the archive could be read")
    return left
