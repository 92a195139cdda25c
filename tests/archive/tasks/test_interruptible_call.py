"""Work that cannot be interrupted: its result, its error, and a caller that stops waiting."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from shedder.archive.tasks.interruptible_call import aside, awaited
from shedder.archive.tasks.progress import Progress, no_progress
from shedder.errors import Cancelled


def test_what_the_work_finds_is_returned():
    assert aside(lambda: 17, no_progress) == 17


@pytest.mark.parametrize("error", [ValueError("seventeen"), TimeoutError("its own")])
def test_what_the_work_raises_is_raised(error):
    def work() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        aside(work, no_progress)


def test_who_is_called_off_does_not_wait_for_the_end():
    progress, end = Progress("sorting", "rows"), threading.Event()
    threading.Timer(0.05, progress.cancel).start()
    with pytest.raises(Cancelled, match="sorting was cancelled"):
        aside(end.wait, progress.advance)
    assert not end.is_set()
    end.set()


def test_what_is_still_wanted_is_waited_for():
    looks = []
    ready = threading.Event()

    def on_progress() -> None:
        looks.append(1)
        if len(looks) == 3:
            ready.set()

    assert aside(ready.wait, on_progress)
    assert len(looks) >= 3


class DoneAsTheWaitEnds(Future[int]):
    """The work ends after the wait has and before the next check: threads seldom meet there."""

    def result(self, timeout: float | None = None) -> int:
        if timeout is not None and not self.done():
            self.set_result(17)
            raise TimeoutError
        return super().result(timeout)


def test_work_that_ends_as_the_wait_does_has_not_failed():
    assert awaited(DoneAsTheWaitEnds(), no_progress) == 17
