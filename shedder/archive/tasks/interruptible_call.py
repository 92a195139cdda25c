"""Computing that cannot be interrupted, waited for by one who can be called off."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

_STEP_S = 0.02  # Between two looks at whether somebody still wants it.

T = TypeVar("T")


def aside(work: Callable[[], T], told: Callable[[], None]) -> T:
    """What work returns, or raises; it runs in a thread of its own.

    Sorts, deals and kernels over millions of tuples take longer than one who waits should. When
    told raises, nobody waits any more: the work goes on to its end, and what it found is forgotten.

    Args:
      work: computes, and changes nothing that others see.
      told: called now and then meanwhile; what it raises is raised.
    """
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    Thread(target=run, name="shedder-aside", daemon=True).start()
    return awaited(found, told)


def awaited(found: Future[T], told: Callable[[], None]) -> T:
    """What somebody else's work returns, or raises; told: as for `aside`."""
    while True:
        try:
            return found.result(_STEP_S)
        except TimeoutError:
            if found.done():  # Just now, or the error is the work's own.
                return found.result()
            told()
