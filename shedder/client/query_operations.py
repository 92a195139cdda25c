"""Operations on a standing query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shedder.client.failures import deadline_s
from shedder.client.statement_operations import describe_query
from shedder.client.steps import Open, OpenCall, Read, Steps, call
from shedder.errors import CorruptData
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Receipt
from shedder.v1 import query_pb2
from shedder.wire.answers import answer_from_wire
from shedder.wire.cached_answer import LastAnswer
from shedder.wire.status import named_error


class RegisteredQuery:
    """Name, text and grant of a registered query, as they were when the query was looked up."""

    def __init__(self, described: query_pb2.StandingQuery) -> None:
        self._described = described

    def __repr__(self) -> str:
        return f"<Query {self.name}: {self.text}>"

    @property
    def name(self) -> str:
        """The name it was registered under."""
        return self._described.name

    @property
    def text(self) -> str:
        """Its text, parameters bound."""
        return self._described.text

    @property
    def granted(self) -> Mapping[str, str]:
        """The grant of its registration, for people to read."""
        return dict(self._described.granted)


class QueryOperations:
    """The operations on one registered query, by name, as steps. Safe from any thread."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._last = LastAnswer()

    def answer(self, after: Receipt | None, timeout_s: float | None) -> Steps[Answer]:
        """Return the present answer: see `RemoteQuery.answer`."""
        request = query_pb2.InvokeRequest(
            name=self._name,
            after_position=None if after is None else after.position,
            timeout_s=timeout_s,
        )
        response = yield from call(lambda stubs: stubs.invoke, request, deadline_s(timeout_s))
        answer = self._last.read(response)
        if answer is None:
            raise CorruptData(f"the server sent no answer of {self._name!r}")
        return answer

    def latest(self) -> Steps[Answer | None]:
        """Return the last answer that was computed; None before the first."""
        request = query_pb2.InvokeRequest(name=self._name, latest=True)
        return self._last.read((yield from call(lambda stubs: stubs.invoke, request)))

    def subscribe(self, after: str | None) -> Steps[OpenCall]:
        """Begin a subscription; the call is open once the server sends slides."""
        request = query_pb2.SubscribeRequest(name=self._name, after=after)
        opened: OpenCall = yield Open(
            lambda stubs: stubs.query.Subscribe, request, awaits_start=True
        )
        return opened

    def explain(self) -> Steps[str]:
        """Return source, bytes, thinning and predicted error of every aggregate."""
        return str((yield from describe_query(self._name)).explanation)

    def drop(self) -> Steps[None]:
        """Unregister the query."""
        request = query_pb2.UnregisterRequest(name=self._name)
        yield from call(lambda stubs: stubs.query.Unregister, request)


def next_slide(subscription: OpenCall) -> Steps[Answer | None]:
    """Return the answer of the next slide; None when the subscription has ended.

    Raises:
      ShedderError: the slide has no answer, or the call has failed; as the server raised it.
    """
    response: query_pb2.SubscribeResponse | None = yield Read(subscription)
    if response is None:
        return None
    if response.WhichOneof("slide") == "failure":
        raise named_error(response.failure.reason, response.failure.message)
    return answer_from_wire(response.answer)
