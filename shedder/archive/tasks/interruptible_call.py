"""Waiting for work that cannot be interrupted, by a caller that can be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

_STEP_S = 0.02  # Seconds between two checks whether the caller was cancelled.

T = TypeVar("T")


def aside(work: Callable[[], T], on_progress: Callable[[], None]) -> T:
    """Run work in a thread of its own; return or raise what it returns or raises.

    Sorts, deals and kernels over millions of tuples take longer than a cancelled caller may wait.
    If `on_progress` raises, the caller stops waiting. The work runs to its end and its result is
    dropped.

    Args:
      work: function that computes, and changes nothing that other threads see.
      on_progress: called repeatedly meanwhile; what it raises is raised.
    """
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    Thread(target=run, name="shedder-aside", daemon=True).start()
    return awaited(found, on_progress)


def awaited(found: Future[T], on_progress: Callable[[], None]) -> T:
    """Return or raise what the work of another thread does; on_progress: as for `aside`."""
    while True:
        try:
            return found.result(_STEP_S)
        except TimeoutError:
            if found.done():  # Just now, or the error is the work's own.
                return found.result()
            on_progress()
