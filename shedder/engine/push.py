"""Pushing into the engine of this process: split, encode, append, wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, Protocol

from shedder.cql.query import StreamSchema
from shedder.errors import Overloaded
from shedder.queries.database import Receipt
from shedder.streams.batches import encode
from shedder.streams.conform import conform

IN_FLIGHT = 16  # Batches: enough for one group to gather while another is being fsynced.
_PAUSE_S = 0.02


class Appendable(Protocol):
    """What batches are appended to."""

    def schema(self, stream: str) -> StreamSchema:
        """A stream's definition."""

    def append(
        self, stream: str, payload: bytes, *, producer: str, epoch: int, sequence: int | None
    ) -> Future[Receipt]:
        """Append one encoded batch."""


def push(
    engine: Appendable, stream: str, data: Any, *, producer: str, epoch: int, sequence: int | None
) -> Receipt:
    """Append everything in `data`; the receipt of the last batch.

    Raises:
      SchemaMismatch, BadTimestamp, SequenceGap, StaleEpoch, DiskFull, StorageFailed. Batches
      before the one that failed are durable.
    """
    waiting: deque[Future[Receipt]] = deque()
    receipt = Receipt(stream, 0, 0)
    try:
        for number, batch in enumerate(conform(data, engine.schema(stream))):
            payload = encode(batch)
            given = None if sequence is None else sequence + number

            def append(payload: bytes = payload, given: int | None = given) -> Future[Receipt]:
                return engine.append(
                    stream, payload, producer=producer, epoch=epoch, sequence=given
                )

            waiting.append(_patiently(append, waiting))
            if len(waiting) > IN_FLIGHT:
                receipt = waiting.popleft().result()
    finally:
        wait_for(list(waiting))  # Also when a batch does not fit: those before it are durable.
    for future in waiting:
        receipt = future.result()
    return receipt


def _patiently(
    append: Callable[[], Future[Receipt]], waiting: deque[Future[Receipt]]
) -> Future[Receipt]:
    """Try until there is room: in this process the producer can simply wait."""
    while True:
        try:
            return append()
        except Overloaded:
            # Nothing of ours may be waiting, so the pause bounds how often we ask.
            wait_for(list(waiting) or [Future()], timeout=_PAUSE_S)
