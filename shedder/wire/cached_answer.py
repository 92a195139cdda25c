"""Responses of Invoke as bytes: an answer that stays the same is written once and read once.

Standing queries are asked more often than their windows slide, so most responses are those of
the call before. Neither end makes a message of them again.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from shedder.errors import CorruptData
from shedder.queries.answers.answer import Answer
from shedder.v1.query_pb2 import InvokeRequest, InvokeResponse
from shedder.wire.answers import answer_from_wire

KEPT_BYTES_MAX = 1 << 20  # Larger responses are read each time rather than kept.


def invoke(channel: Any) -> Any:
    """The method Invoke of a channel, whose responses stay bytes."""
    return channel.unary_unary(
        "/shedder.v1.Query/Invoke", request_serializer=InvokeRequest.SerializeToString
    )


class LastAnswer:
    """Reads a query's responses; the same bytes as last time give the same answer. Thread-safe."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Answer | None] = (b"", None)

    def read(self, response: bytes) -> Answer | None:
        """The answer in a response; None when it has none.

        Raises:
          CorruptData: the bytes are no response, or the table in them is damaged.
        """
        kept, answer = self._last  # One reading: another thread may put its own there.
        if response == kept:
            return answer
        answer = _answer_in(response)
        if len(response) <= KEPT_BYTES_MAX:
            self._last = (response, answer)
        return answer


def _answer_in(response: bytes) -> Answer | None:
    try:
        message = InvokeResponse.FromString(response)
    except DecodeError as error:
        raise CorruptData(f"the response to Invoke is damaged: {error}") from None
    return answer_from_wire(message.answer) if message.HasField("answer") else None
