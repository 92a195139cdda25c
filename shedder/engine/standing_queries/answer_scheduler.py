"""Schedule of answers: closed windows and stale answers, at once or in slices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from shedder.engine.standing_queries.standing_query import StandingQuery, StreamFacts
from shedder.engine.standing_queries.stream_state import Stream

SHARE = 0.25  # CPU time of answers per time of all other work, while load is shed.
SAVED_S_MAX = 0.05  # Most unused time of answers that is kept for later, in seconds.


class Answering:
    """Schedules answers of standing queries. Runs on the apply thread.

    Queries with one slide are due together, and late tuples make many answers stale. Answering all
    of them at once holds the apply queue for up to a second. The age of the queue then reports an
    overload that is only a burst. So while load is shed, a few queries are answered per batch.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """clock_s: never goes back."""
        self._clock_s = clock_s
        self._waiting: dict[int, deque[str]] = {}  # By stream, queries that were not looked at,
        self._stale: dict[int, set[str]] = {}  # and those that may have to be answered again.
        self._saved_s = 0.0
        self._at_s = clock_s()

    def after(self, stream: Stream, stretch: int, *, incremental: bool) -> None:
        """Answer the queries whose windows the watermark has passed.

        Args:
          stream: whose panes are closed. stretch: refresh periods are so many times as long.
          incremental: answers take no more than their share of the time. The queries that have
            waited longest come first; the rest wait.
        """
        if not incremental:
            self._waiting.pop(stream.id, None)
            facts = stream.facts()
            for name in list(stream.queries):
                self._answer(stream, facts, name, stretch)
            return
        waiting, facts = self._line(stream, stream.queries), stream.facts()
        now = self._clock_s()
        self._saved_s = min(self._saved_s + SHARE * (now - self._at_s), SAVED_S_MAX)
        while waiting and self._saved_s >= 0:
            self._answer(stream, facts, waiting.popleft(), stretch)
            before, now = now, self._clock_s()
            self._saved_s -= now - before
        self._at_s = now

    def refresh(self, streams: Iterable[Stream], *, incremental: bool, idle: bool) -> bool:
        """Answer stale ones again; when idle, also one of those whose windows were put off.

        Only one such window per call, so that new records are applied first. All of them at once
        would take as long as the overload that put them off, and begin the next overload.

        Args:
          streams: all. incremental: as of `after`. idle: nothing waits to be applied.

        Returns:
          Whether there may be more to do when idle.
        """
        deferred_windows = None
        for stream in streams:
            stale = [each for each in list(stream.queries.values()) if each.stale]
            if incremental:
                names = [each.state.name for each in stale]
                self._stale.setdefault(stream.id, set()).update(names)
                self._line(stream, names)
            facts = stream.facts()
            for standing_query in () if incremental else stale:
                standing_query.guard(partial(standing_query.refresh, facts))
            for standing_query in list(stream.queries.values()) if idle else ():
                if standing_query.deferred_windows and not standing_query.stale:
                    deferred_windows = facts, standing_query
        if deferred_windows is None:
            return any(self._waiting.values())
        facts, standing_query = deferred_windows
        standing_query.guard(partial(standing_query.refresh, facts))
        return not standing_query.failed

    def go_on(self, streams: Iterable[Stream], stretch: int) -> bool:
        """Answer one waiting query while the apply queue is empty; return whether more may wait."""
        live = {stream.id: stream for stream in streams}
        self._waiting = {
            key: names for key, names in self._waiting.items() if names and key in live
        }
        self._stale = {key: names for key, names in self._stale.items() if key in self._waiting}
        for key, waiting in self._waiting.items():
            stream = live[key]
            self._answer(stream, stream.facts(), waiting.popleft(), stretch)
            return True
        return False

    def _line(self, stream: Stream, names: Iterable[str]) -> deque[str]:
        """Add names to the waiting queries of a stream, and return them."""
        waiting = self._waiting.setdefault(stream.id, deque())
        there = set(waiting)
        waiting.extend(name for name in names if name not in there)
        return waiting

    def _answer(self, stream: Stream, facts: StreamFacts, name: str, stretch: int) -> None:
        stale = self._stale.get(stream.id, set())
        may_be_stale = name in stale
        stale.discard(name)
        standing_query = stream.queries.get(name)
        if standing_query is not None:
            standing_query.guard(
                partial(_answer_due, standing_query, facts, stretch, again=may_be_stale)
            )


def _answer_due(
    standing_query: StandingQuery, facts: StreamFacts, stretch: int, *, again: bool
) -> None:
    """Answer what has closed, or again what has not."""
    standing_query.windows_closed(facts, stretch)
    if again and standing_query.stale:
        standing_query.refresh(facts)
