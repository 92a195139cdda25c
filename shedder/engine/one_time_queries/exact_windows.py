"""Exact answers of windows of standing queries with contract EXACT, one after the other."""

from __future__ import annotations

import threading
from concurrent.futures import Executor

import structlog

from shedder.archive.tasks.deadline import Deadline
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.archive_question import ArchiveQuestion
from shedder.engine.one_time_queries.exact_reader import ExactReader
from shedder.engine.one_time_queries.executor import is_retained
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.errors import ShedderError
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.one_time.plan import TimeRange
from shedder.streams.windows import Span

_log = structlog.get_logger("shedder.one_time")


class ExactWindows:
    """Reads closed windows from the archive, on a thread of its own."""

    def __init__(self, core: EngineState, reader: ExactReader) -> None:
        """Nothing runs before the first window."""
        self._core = core
        self._reader = reader
        self._slides: Executor | None = None  # From the first slide on.
        self._slides_lock = threading.Lock()
        self._wanted: dict[StandingQuery, ArchiveQuestion] = {}
        self._closed = False

    def answer(self, standing_query: StandingQuery, span: Span) -> None:
        """On the apply thread: answer a standing query's window exactly, and tell it later.

        Slides may close faster than the archive is read. The newest slide that waits is the one
        that is answered next; those that it overtakes keep the answer they were given.
        """
        stream = self._core.stream(standing_query.state.query.schema.name)
        dropped = stream.drops.within(span.start_us, span.end_us)
        if stream.built or dropped or stream.lost.doubted(span.start_us):
            return  # The archive does not have them all, or has some that were removed.
        if not is_retained(self._core, stream, span):
            return
        snapshot = self._core.store.snapshot(stream.id, span.start_us, span.end_us)
        stretch = TimeRange.of(span, stream.watermark_us)
        question = ArchiveQuestion(standing_query.state.query, snapshot, stretch, Deadline())
        with self._slides_lock:
            if self._closed:
                return
            overtaken = self._wanted.pop(standing_query, None)
            self._wanted[standing_query] = question
            if overtaken is None:
                if self._slides is None:
                    self._slides = self._core.machine.pool("shedder-exact-slides")
                self._slides.submit(self._answer_newest, standing_query)
            else:
                overtaken.snapshot.release()

    def _answer_newest(self, standing_query: StandingQuery) -> None:
        with self._slides_lock:
            question = self._wanted.pop(standing_query, None)
        if question is None:
            return
        try:
            with question.snapshot:
                evidence = self._reader.read(question, self._reader.way(question))
                answer = finish(question.query, evidence)
            self._core.executor.post(lambda: standing_query.tell_exact(answer, evidence))
        except ShedderError as error:
            _log.warning("exact_slide_failed", query=standing_query.state.name, error=str(error))

    def close(self) -> None:
        """Take no more slides; one that is being answered ends with the exact worker."""
        with self._slides_lock:
            self._closed = True
            self._wanted.clear()
            slides = self._slides
        if slides is not None:
            slides.shutdown(wait=False, cancel_futures=True)
