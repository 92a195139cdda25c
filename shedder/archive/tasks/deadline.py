"""Deadlines: the time limit of an answer, and its progress and cancellation."""

from __future__ import annotations

import time

from shedder.archive.tasks.progress import Progress
from shedder.errors import DeadlineExceeded


class Deadline:
    """The time that an answer has, and the progress by which it is told of and called off."""

    def __init__(self, timeout_s: float | None = None, progress: Progress | None = None) -> None:
        self._timeout_s = timeout_s
        self._ends = None if timeout_s is None else time.monotonic() + timeout_s
        self.progress = Progress("an answer", "tuples") if progress is None else progress

    def check(self) -> None:
        """Raise what `left_s` raises."""
        self.left_s()

    def left_s(self) -> float | None:
        """The time that is left; None without end.

        Raises:
          Cancelled: it was called off. DeadlineExceeded: there is no time left.
        """
        self.progress.advance()
        if self._ends is None:
            return None
        left = self._ends - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(
                f"no answer within {self._timeout_s:g} s: the time was used up before the archive "
                "could be read"
            )
        return left
