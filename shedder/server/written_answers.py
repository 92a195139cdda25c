"""Answers of standing queries as they are sent, written once for all readers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from shedder.queries.answers.answer import Answer
from shedder.v1 import query_pb2

KEPT_BYTES_MAX = 64 << 20  # Of the messages and responses that are kept.


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """An answer as its message, and as the bytes of Invoke's response."""

    answer: Answer
    message: query_pb2.Answer
    invoked: bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the answer's rows, of the message and of the response."""
        return self.answer.table.nbytes + self.message.ByteSize() + len(self.invoked)


class WrittenAnswers:
    """The newest written answer of each query, as far as bytes_max goes. For the event loop.

    Beyond bytes_max the answers that were used longest ago go first. An answer that is larger than
    bytes_max is not kept.

    write: makes the message of an answer.
    """

    def __init__(
        self, write: Callable[[Answer], query_pb2.Answer], bytes_max: int = KEPT_BYTES_MAX
    ) -> None:
        self._write = write
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, WrittenAnswer] = OrderedDict()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all that is kept."""
        return self._size_bytes

    def of(self, name: str, answer: Answer) -> WrittenAnswer:
        """Return the written answer of a query; the same answer is written once."""
        kept = self._kept.get(name)
        if kept is not None and kept.answer is answer:
            self._kept.move_to_end(name)
            return kept
        self.forget(name)
        message = self._write(answer)
        invoked = query_pb2.InvokeResponse(answer=message).SerializeToString()
        written = WrittenAnswer(answer, message, invoked)
        if written.size_bytes <= self._bytes_max:
            self._kept[name] = written
            self._size_bytes += written.size_bytes
            while self._size_bytes > self._bytes_max:
                self.forget(next(iter(self._kept)))
        return written

    def forget(self, name: str) -> None:
        """Keep no answer of a query."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._size_bytes -= kept.size_bytes
