"""Handle of a standing query: its answers, subscriptions and DROP, for a user of the engine."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Protocol

from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.mailbox import Mailbox
from shedder.engine.runtime.subscribers import AnswerUpdate
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import BadSetting, DeadlineExceeded, ShedderError, UnknownQuery
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Receipt


class Registry(Protocol):
    """What keeps standing queries, as a handle of one of them uses it."""

    @property
    def core(self) -> EngineState:
        """The live state that the queries are part of."""

    def subscribe(self, standing_query: StandingQuery, mailbox: Mailbox) -> Callable[[], None]:
        """Put new answers into a mailbox; return what ends that."""

    def explain_standing(self, stream: Stream, standing_query: StandingQuery) -> str:
        """Return what a query keeps and predicts."""

    def drop_query(self, name: str) -> None:
        """Unregister a query."""


class Query:
    """A registered query of an engine in this process. Safe from any thread."""

    def __init__(self, registry: Registry, stream: Stream, standing_query: StandingQuery) -> None:
        self._registry = registry
        self._stream = stream
        self._standing_query = standing_query

    def __repr__(self) -> str:
        return f"<Query {self.name}: {self.text}>"

    @property
    def name(self) -> str:
        """The name it was registered under."""
        return self._standing_query.state.name

    @property
    def text(self) -> str:
        """Its text, parameters bound."""
        return self._standing_query.state.query.text

    @property
    def granted(self) -> Mapping[str, str]:
        """What registration granted: synopses, bytes, predicted errors."""
        return self._standing_query.granted

    @property
    def slides(self) -> bool:
        """Return whether the present answer is that of the last slide: at hand, without waiting."""
        return self._standing_query.state.grid.slides

    def answer(self, after: Receipt | None = None, timeout_s: float | None = None) -> Answer:
        """The present answer; of a sliding window, that of its last slide.

        Raises:
          DeadlineExceeded: the receipt's tuples were not applied within timeout_s.
          PrecisionUnavailable: the contract is FAIL and a value misses its target.
        """
        self._check_standing()
        if after is None and self.slides:
            return self._noted(_answer(self._standing_query.latest))
        future = self._registry.core.executor.call(lambda: self._fresh(after))
        try:
            return self._noted(_answer(future.result(timeout_s)))
        except FutureTimeout:
            future.cancel()  # The caller has stopped waiting.
            raise DeadlineExceeded(f"no answer of {self.name!r} within {timeout_s} s") from None

    def latest(self) -> Answer | None:
        """The newest answer that was made, at once.

        Raises:
          PrecisionUnavailable: the contract is FAIL and a value misses its target.
        """
        self._check_standing()
        latest = self._standing_query.latest
        return None if latest is None else self._noted(_answer(latest))

    def subscribe(self, after: str | None = None) -> Iterator[Answer]:
        """Every slide's answer from now on; a slow reader gets the latest, with `missed` set.

        Ends when the engine closes. A slide that fails its contract raises; iterate anew to go on.

        Raises:
          BadSetting: `after` is for row queries.
        """
        if after is not None:
            raise BadSetting(
                f"query {self.name!r} has no rows to resume after; its subscription begins with "
                "the next slide"
            )
        mailbox = Mailbox()
        remove = self._registry.subscribe(self._standing_query, mailbox)
        return _Slides(mailbox, remove, self._noted)

    def explain(self) -> str:
        """Source, bytes and predicted error of every aggregate."""
        return self._registry.explain_standing(self._stream, self._standing_query)

    def drop(self) -> None:
        """Unregister it."""
        self._registry.drop_query(self.name)

    def _noted(self, answer: Answer) -> Answer:
        return self._registry.core.rows.noted(answer, [self._stream.schema.name])

    def _check_standing(self) -> None:
        """Raise UnknownQuery when it was dropped; another one may have the name by now."""
        if self._stream.queries.get(self.name) is not self._standing_query:
            raise UnknownQuery(self.name, sorted(self._stream.queries))

    def _fresh(self, after: Receipt | None) -> AnswerUpdate | None:
        """On the apply thread: what was durable when this was asked has been applied."""
        if after is not None and after.position > self._stream.position:
            raise BadSetting(
                f"the receipt is for position {after.position}, "
                f"stream {self._stream.schema.name!r} has {self._stream.position}"
            )
        if self._standing_query.stale:
            self._standing_query.refresh(self._stream.facts())
        return self._standing_query.latest


def _answer(update: AnswerUpdate | None) -> Answer:
    assert update is not None, "a registered query always has an answer"
    if isinstance(update, ShedderError):
        # A fresh one: tracebacks grow on shared errors.
        raise type(update).from_message(str(update))
    return update


class _Slides(Iterator[Answer]):
    """A subscription; it ends with its reader, also when nothing was ever read."""

    def __init__(
        self, mailbox: Mailbox, remove: Callable[[], None], noted: Callable[[Answer], Answer]
    ) -> None:
        """noted: adds notes about the stream to an answer."""
        self._noted = noted
        self._updates: Iterator[tuple[AnswerUpdate, int]] = iter(mailbox)
        self._end = weakref.finalize(self, remove)

    def __next__(self) -> Answer:
        try:
            update, missed = next(self._updates)
            answer = self._noted(_answer(update))
        except BaseException:
            self.close()
            raise
        return replace(answer, missed=missed) if missed else answer

    def close(self) -> None:
        """End the subscription; nothing more comes."""
        self._end()
        self._updates = iter(())
