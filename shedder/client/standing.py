"""A standing query on a server, for blocking calls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from shedder.client.connection import Connection
from shedder.client.drivers import perform
from shedder.client.query_operations import QueryOperations, RegisteredQuery, next_slide
from shedder.client.steps import OpenCall
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Receipt
from shedder.v1 import query_pb2


class RemoteQuery(RegisteredQuery):
    """A registered query, by name. Safe from any thread."""

    def __init__(self, connection: Connection, described: query_pb2.StandingQuery) -> None:
        super().__init__(described)
        self._perform = partial(perform, connection)
        self._operations = QueryOperations(described.name)

    def answer(self, after: Receipt | None = None, timeout_s: float | None = None) -> Answer:
        """Return the present answer.

        Args:
          after: wait until the tuples of this receipt are in the answer.
          timeout_s: how long to wait at most; None waits for ever.

        Raises:
          DeadlineExceeded: the tuples were not applied in time.
          PrecisionUnavailable: the contract is FAIL and a value misses its target.
        """
        return self._perform(self._operations.answer(after, timeout_s))

    def latest(self) -> Answer | None:
        """Return the last answer that was computed, at once; None before the first."""
        return self._perform(self._operations.latest())

    def subscribe(self, after: str | None = None) -> Iterator[Answer]:
        """Return an iterator of the answers of all slides, or of all rows, from now on.

        A slow reader gets the latest slide, with `missed` set. A slide that fails its contract
        raises; iterate anew to go on. Closing the iterator ends the subscription.

        Args:
          after: of a row query, `resume` of an answer: go on behind that answer's rows, also after
            the server was restarted. None: the rows that are made from now on.

        Raises:
          OutputDiscarded: the reader was so slow that the next rows are not kept any more; the
            message has the token from which they are.
          BadSetting: the token is not of this query.
        """
        return self._slides(self._perform(self._operations.subscribe(after)))

    def explain(self) -> str:
        """Return source, bytes, thinning and predicted error of every aggregate."""
        return self._perform(self._operations.explain())

    def drop(self) -> None:
        """Unregister it."""
        self._perform(self._operations.drop())

    def _slides(self, subscription: OpenCall) -> Iterator[Answer]:
        try:
            while (answer := self._perform(next_slide(subscription))) is not None:
                yield answer
        finally:
            subscription.cancel()
