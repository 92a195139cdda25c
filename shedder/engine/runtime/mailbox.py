"""Mailbox of a subscriber: it holds the newest answer only, and counts the answers missed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from shedder.engine.runtime.subscribers import AnswerUpdate


class NewestAnswer:
    """The newest answer that was not taken, and how many were missed. Not thread-safe."""

    def __init__(self) -> None:
        self._update: AnswerUpdate | None = None
        self._missed = 0

    @property
    def is_there(self) -> bool:
        """Return whether an answer has come since the last one was taken."""
        return self._update is not None

    def put(self, update: AnswerUpdate) -> None:
        """Replace the answer; one that was not taken is missed."""
        self._missed += self.is_there
        self._update = update

    def take(self) -> tuple[AnswerUpdate, int] | None:
        """Take the answer, and how many were missed since the one before; None: there is none."""
        update, missed = self._update, self._missed
        self._update, self._missed = None, 0
        return None if update is None else (update, missed)


class Mailbox:
    """Filled from any thread, read in one thread."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._newest = NewestAnswer()
        self._closed = False

    def put(self, update: AnswerUpdate) -> None:
        """Replace the answer, and wake the reader."""
        with self._wake:
            self._newest.put(update)
            self._wake.notify()

    def close(self) -> None:
        """End reading, once the last answer is read."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def __iter__(self) -> Iterator[tuple[AnswerUpdate, int]]:
        """Each answer with the number of those missed since the one before."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._newest.is_there or self._closed)
                taken = self._newest.take()
            if taken is None:
                return
            yield taken
