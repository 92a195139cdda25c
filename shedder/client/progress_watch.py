"""Progress of long work at the server, and its cancellation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from shedder.archive.tasks.progress import Progress
from shedder.v1 import query_pb2

PROGRESS_PERIOD_S: Final = 0.1


class Watched:
    """Progress of one call's pieces of work; cancelling one of them cancels the call."""

    def __init__(
        self, watch: Callable[[Progress], None] | None, cancel: Callable[[], object]
    ) -> None:
        """Pass each piece of work to `watch`, if there is one; `cancel` ends the call."""
        self._watch = watch
        self._cancel = cancel
        self._works: dict[int, Progress] = {}
        self._stack = ExitStack()

    def update(self, report: query_pb2.ExecuteResponse.Progress) -> None:
        """Receive the server's report on a piece of work.

        Raises:
          Cancelled: the callback that receives a new piece of work has cancelled it.
        """
        work = self._works.get(report.number)
        if work is None:
            assert self._watch is not None, "progress that was not requested"
            work = self._works[report.number] = Progress(report.what, report.unit)
            self._stack.enter_context(work.calling(self._call_off))
            self._watch(work)
        work.total = report.total
        work.advance(report.done - work.done)

    def _call_off(self) -> None:
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What the call raises after it was called off becomes Cancelled."""
        self._stack.__exit__(kind, error, trace)
