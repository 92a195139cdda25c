"""Answering windows that have closed: at once, or while work is shed a few after each batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from shedder.engine.stream import Stream

SHARE = 0.25  # Of the time that all else takes, what answers may take while work is shed.
SAVED_S_MAX = 0.05  # So much of it may be saved up.


class Answering:
    """Says whose windows are answered, and when. On the apply thread.

    Queries of one slide are due together. Answering all of them in one go keeps what has come
    waiting for as long as that takes, a second where there are many; then the age of the queue
    says that there is too much work, where there is only much at a time.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """clock_s: never goes back."""
        self._clock_s = clock_s
        self._waiting: dict[int, deque[str]] = {}  # By stream, queries that were not looked at.
        self._saved_s = 0.0
        self._at_s = clock_s()

    def after(self, stream: Stream, stretch: int, *, spreads: bool) -> None:
        """The watermark may have passed windows of a stream: answer who is due.

        Args:
          stream: whose panes are closed. stretch: refresh periods are so many times as long.
          spreads: answers take no more than their share of the time; who has waited longest is
            answered first, and whoever is not waits.
        """
        if not spreads:
            self._waiting.pop(stream.id, None)
            for name in list(stream.queries):
                _answer(stream, name, stretch)
            return
        waiting = self._waiting.setdefault(stream.id, deque())
        there = set(waiting)
        waiting.extend(name for name in stream.queries if name not in there)
        now = self._clock_s()
        self._saved_s = min(self._saved_s + SHARE * (now - self._at_s), SAVED_S_MAX)
        while waiting and self._saved_s >= 0:
            _answer(stream, waiting.popleft(), stretch)
            before, now = now, self._clock_s()
            self._saved_s -= now - before
        self._at_s = now

    def go_on(self, streams: Iterable[Stream], stretch: int) -> bool:
        """Nothing waits to be applied: answer one who waits; whether there may be more."""
        live = {stream.id: stream for stream in streams}
        self._waiting = {key: who for key, who in self._waiting.items() if who and key in live}
        for key, waiting in self._waiting.items():
            _answer(live[key], waiting.popleft(), stretch)
            return True
        return False


def _answer(stream: Stream, name: str, stretch: int) -> None:
    published = stream.queries.get(name)
    if published is not None:
        published.guard(partial(published.windows_closed, stream, stretch))
