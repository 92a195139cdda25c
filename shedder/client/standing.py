"""A standing query on a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shedder.client.described import Described
from shedder.client.failures import deadline_s
from shedder.errors import CorruptData
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Receipt
from shedder.v1 import query_pb2
from shedder.wire.answers import answer_from_wire
from shedder.wire.cached_answer import LastAnswer
from shedder.wire.status import named_error

if TYPE_CHECKING:
    from shedder.client.connection import Connection


class RemoteQuery(Described):
    """A registered query, by name. Safe from any thread."""

    def __init__(self, connection: Connection, described: query_pb2.StandingQuery) -> None:
        super().__init__(described)
        self._connection = connection
        self._last = LastAnswer()

    def answer(self, after: Receipt | None = None, timeout_s: float | None = None) -> Answer:
        """The present answer.

        Args:
          after: wait until the tuples of this receipt are in the answer.
          timeout_s: how long to wait at most; None waits for ever.

        Raises:
          DeadlineExceeded: the tuples were not applied in time.
          PrecisionUnavailable: the contract is FAIL and a value misses its target.
        """
        request = invoke_request(self.name, after, timeout_s)
        response = self._connection.call(self._connection.invoke, request, deadline_s(timeout_s))
        answer = self._last.read(response)
        if answer is None:
            raise CorruptData(f"the server sent no answer of {self.name!r}")
        return answer

    def latest(self) -> Answer | None:
        """The last answer that was computed, at once; None before the first."""
        request = query_pb2.InvokeRequest(name=self.name, latest=True)
        return self._last.read(self._connection.call(self._connection.invoke, request))

    def subscribe(self) -> Iterator[Answer]:
        """Every slide's answer from now on; a slow reader gets the latest, with `missed` set.

        A slide that fails its contract raises; iterate anew to go on. Closing the iterator ends
        the subscription.
        """
        request = query_pb2.SubscribeRequest(name=self.name)
        call = self._connection.open(self._connection.query.Subscribe, request)
        call.initial_metadata()  # Sent when the server has begun to listen.
        return self._slides(call)

    def explain(self) -> str:
        """Source, bytes, thinning and predicted error of every aggregate."""
        request = query_pb2.DescribeRequest(name=self.name)
        return self._connection.call(self._connection.query.Describe, request).explanation

    def drop(self) -> None:
        """Unregister it."""
        request = query_pb2.UnregisterRequest(name=self.name)
        self._connection.call(self._connection.query.Unregister, request)

    def _slides(self, call: Any) -> Iterator[Answer]:
        try:
            while True:
                response = self._connection.read(call)
                if response is None:
                    return
                yield slide(response)
        finally:
            call.cancel()


def invoke_request(
    name: str, after: Receipt | None, timeout_s: float | None
) -> query_pb2.InvokeRequest:
    """Ask for the present answer."""
    return query_pb2.InvokeRequest(
        name=name,
        after_position=None if after is None else after.position,
        timeout_s=timeout_s,
    )


def slide(response: query_pb2.SubscribeResponse) -> Answer:
    """The answer of one slide.

    Raises:
      ShedderError: the slide has none; as the server raised it.
    """
    if response.WhichOneof("slide") == "failure":
        raise named_error(response.failure.reason, response.failure.message)
    return answer_from_wire(response.answer)
