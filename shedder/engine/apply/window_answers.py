"""Answers of standing queries on the apply thread, and the CPU time that they take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shedder.cql.statements.overload_policy import Policy
from shedder.engine.engine_state import EngineState
from shedder.engine.standing_queries.answer_scheduler import Answering
from shedder.engine.standing_queries.stream_state import Stream

REFRESH_SECONDS = 0.1  # How old the answer of a window that does not slide gets under load.


class WindowAnswers:
    """Answers windows, at once or when there is time.

    refresh_at: when answers of windows that do not slide are due, on the machine's clock, in s.
    """

    def __init__(self, core: EngineState) -> None:
        self._core = core
        self._answering = Answering(core.machine.monotonic_s)
        self.refresh_at = 0.0

    def after(self, stream: Stream) -> None:
        """Answer the windows whose panes have just been closed."""
        core = self._core
        thins = stream.schema.on_overload.policy is Policy.THIN
        incremental = thins and core.coalesces
        with self._measured():
            self._answering.after(stream, core.stretch if thins else 1, incremental=incremental)

    def go_on(self) -> bool:
        """Answer some of what waits; return whether more does."""
        with self._measured():
            return self._answering.go_on(self._core.streams.values(), self._core.stretch)

    def refresh(self, now_s: float, *, idle: bool = False) -> bool:
        """Answer some of what is stale; return whether more is."""
        self.refresh_at = now_s + REFRESH_SECONDS * self._core.stretch
        with self._measured():
            incremental = self._core.coalesces
            return self._answering.refresh(
                self._core.streams.values(), incremental=incremental, idle=idle
            )

    @contextmanager
    def _measured(self) -> Iterator[None]:
        before_ns = self._core.machine.cpu_ns()
        yield
        self._core.meter.answered(self._core.machine.cpu_ns() - before_ns)
