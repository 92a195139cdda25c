"""Deadlines and progress: timeouts, cancellation, and the callbacks of both."""

from __future__ import annotations

import pytest

from shedder.archive.tasks.deadline import Deadline
from shedder.archive.tasks.progress import Progress
from shedder.errors import Cancelled, DeadlineExceeded


def test_without_a_timeout_there_is_no_end():
    assert Deadline().left_s() is None


def test_what_is_left_is_at_most_what_was_given():
    left = Deadline(60.0).left_s()
    assert left is not None
    assert 0 < left <= 60.0


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_no_time_is_an_error_that_names_it(timeout_s):
    with pytest.raises(DeadlineExceeded, match=f"within {timeout_s:g} s"):
        Deadline(timeout_s).left_s()


def test_what_was_called_off_ends_though_there_is_time():
    progress = Progress("an answer", "tuples")
    deadline = Deadline(60.0, progress)
    progress.cancel()
    with pytest.raises(Cancelled, match="an answer was cancelled"):
        deadline.left_s()


def test_what_waits_for_others_is_called_when_it_is_called_off():
    progress = Progress("an answer", "tuples")
    called = []
    with progress.calling(lambda: called.append(1)):
        assert called == []
        progress.cancel()
        assert called == [1]
    progress.cancel()
    assert called == [1]


def test_what_was_called_off_before_does_not_begin_to_wait():
    progress = Progress("an answer", "tuples")
    progress.cancel()
    with pytest.raises(Cancelled), progress.calling(_breaks):
        _breaks()


def test_what_breaks_because_it_was_called_off_says_so():
    progress = Progress("an answer", "tuples")
    with pytest.raises(Cancelled), progress.calling(lambda: None):
        _breaks(progress)


def test_what_breaks_by_itself_stays_what_it_is():
    progress = Progress("an answer", "tuples")
    with pytest.raises(BrokenPipeError), progress.calling(lambda: None):
        _breaks()


def _breaks(progress: Progress | None = None) -> None:
    if progress is not None:
        progress.cancel()
    raise BrokenPipeError("the worker is gone")
