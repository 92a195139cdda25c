"""Wait of a registration for other definitions, and for the records that came before it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from typing import TypeVar

import structlog

from shedder.engine.engine_state import EngineState
from shedder.errors import DeadlineExceeded

PROGRESS_S = 5.0  # Between two lines of the log about a wait.

Result = TypeVar("Result")

_log = structlog.get_logger("shedder.engine")


class RegistrationWait:
    """Runs the work of one registration on the apply thread.

    The query takes its place in the log behind the records that are durable when `run` is first
    called. Records that come later are applied behind the work, so the caller does not wait for
    them. Nor does a later `run` wait again: its work is ahead of all that waits.
    """

    def __init__(self, core: EngineState, name: str, timeout_s: float | None = None) -> None:
        """name: of the query. timeout_s: of all waits together; None: there is no limit."""
        self._core = core
        self._name = name
        self._timeout_s = timeout_s
        self._ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._has_waited = False  # For the records before the registration.

    @contextmanager
    def holding(self, definitions: threading.RLock) -> Iterator[None]:
        """Hold the lock of definitions during the block.

        Raises:
          DeadlineExceeded: another definition has held it all the time.
        """
        left_s = -1.0  # Without a limit.
        if self._ends_s is not None:
            left_s = max(0.0, self._ends_s - time.monotonic())
        if not definitions.acquire(timeout=left_s):
            raise self._too_late("another definition")
        try:
            yield
        finally:
            definitions.release()

    def run(self, work: Callable[[], Result], *, urgent: bool = False) -> Result:
        """Return the result of work, which may be left out only before it begins.

        urgent: ahead of the records that wait to be applied, even at first.

        Raises:
          DeadlineExceeded: nothing of the work is done. What the work raises.
        """
        core = self._core
        places = {name: it.durable.position for name, it in list(core.intakes.items())}
        future = core.executor.call(work, urgent=urgent or self._has_waited)
        result = self._result(future, places)
        self._has_waited = self._has_waited or not urgent
        return result

    def _result(self, future: Future[Result], places: dict[str, int]) -> Result:
        """Wait for the result of work. places: as of `_text`."""
        while True:
            left_s = PROGRESS_S
            if self._ends_s is not None:
                left_s = max(0.0, min(PROGRESS_S, self._ends_s - time.monotonic()))
            try:
                return future.result(left_s)
            except FutureTimeout:
                if future.done():  # Just now; or the work itself says so.
                    return future.result()
            if self._ends_s is None or time.monotonic() < self._ends_s:
                _log.info("registration_waits", query=self._name, for_what=self._text(places))
            elif future.cancel():
                raise self._too_late(self._text(places))
            else:
                return future.result()

    def _too_late(self, for_what: str) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"query {self._name!r} was not registered within {self._timeout_s} s; it waits for "
            f"{for_what}"
        )

    def _text(self, places: dict[str, int]) -> str:
        """Say how many rows are before the registration. places: where it stands, by stream."""
        streams = self._core.streams
        now = {name: streams[name].position for name in places if name in streams}
        behind = {name: places[name] - at for name, at in now.items() if at < places[name]}
        if not behind:
            return "the records before it, which have 0 rows to go"
        parts = [f"{it} is at position {now[it]:,} of {places[it]:,}" for it in sorted(behind)]
        return (
            f"the records before it, which have {sum(behind.values()):,} rows to go: "
            f"{', '.join(parts)}"
        )
