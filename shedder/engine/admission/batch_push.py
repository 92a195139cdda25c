"""Pushing into the engine of this process: split, encode, append, wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, Protocol

import pyarrow as pa

from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import FailedPrecondition, Overloaded
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import ROWS_PER_BATCH, BatchLimits, encode

IN_FLIGHT = 16  # Batches: enough for one group to gather while another is being fsynced.
_PAUSE_S = 0.02


class Appendable(Protocol):
    """What batches are appended to."""

    @property
    def limits(self) -> BatchLimits:
        """How large one batch may be."""

    def schema(self, stream: str) -> StreamSchema:
        """A stream's definition."""

    def append(
        self,
        stream: str,
        payload: bytes,
        *,
        producer: str,
        epoch: int,
        sequence: int | None,
        rows: int,
        waits: bool,
    ) -> Future[Receipt]:
        """Append one encoded batch."""


class Pipeline:
    """Batches of one producer, several on their way to the disk at once. For one thread.

    receipt: of the last batch that is known to be durable; rows 0 before the first.
    """

    def __init__(self, engine: Appendable, stream: str, *, producer: str, epoch: int) -> None:
        self._engine = engine
        self._stream = stream
        self._producer = producer
        self._epoch = epoch
        self._waiting: deque[tuple[Future[Receipt], bool]] = deque()  # with: is it fresh
        self.receipt = Receipt(stream, 0, 0)

    def send(self, batch: pa.RecordBatch, sequence: int | None, *, is_fresh: bool = False) -> None:
        """Hand over one batch; waits while there is no room, as a producer in this process can.

        Args:
          batch: of exactly the stream's columns.
          sequence: its number; None goes on from the last one.
          is_fresh: nobody can have stored this number yet, so a replay is a mistake.

        Raises:
          ShedderError: this batch was refused, or an earlier one was lost.
        """
        future = self._append_patiently(encode(batch), batch.num_rows, sequence)
        self._waiting.append((future, is_fresh))
        if len(self._waiting) > IN_FLIGHT:
            self._await_oldest()

    def settle(self) -> None:
        """Wait until nothing is on its way, whatever came of it."""
        wait_for([future for future, _ in self._waiting])

    def drain(self) -> Receipt:
        """Wait until everything is durable; the last receipt.

        Raises:
          ShedderError: a batch was lost.
        """
        while self._waiting:
            self._await_oldest()
        return self.receipt

    def _await_oldest(self) -> None:
        future, is_fresh = self._waiting.popleft()
        self.receipt = future.result()
        if is_fresh and self.receipt.duplicate:
            raise FailedPrecondition(
                f"numbers of producer {self._producer!r} in stream {self._stream!r} were used by "
                "somebody else; give each producer its own name"
            )

    def _append_patiently(self, payload: bytes, rows: int, sequence: int | None) -> Future[Receipt]:
        while True:
            try:
                return self._engine.append(
                    self._stream,
                    payload,
                    producer=self._producer,
                    epoch=self._epoch,
                    sequence=sequence,
                    rows=rows,
                    waits=True,
                )
            except Overloaded:
                # Nothing of ours may be waiting, so the pause bounds how often we ask.
                ours = [future for future, _ in self._waiting]
                wait_for(ours or [Future()], timeout=_PAUSE_S)


def fitting(engine: Appendable, data: Any, schema: StreamSchema) -> Iterator[pa.RecordBatch]:
    """The data as batches that the engine takes.

    Raises:
      what `conform` raises.
    """
    rows_max = min(ROWS_PER_BATCH, engine.limits.rows_max)
    return conform(data, schema, rows_max=rows_max, limits=engine.limits)


def push(
    engine: Appendable, stream: str, data: Any, *, producer: str, epoch: int, sequence: int | None
) -> Receipt:
    """Append everything in `data`; the receipt of the last batch.

    Raises:
      SchemaMismatch, BadTimestamp, SequenceGap, StaleEpoch, DiskFull, StorageFailed. Batches
      before the one that failed are durable.
    """
    pipeline = Pipeline(engine, stream, producer=producer, epoch=epoch)
    try:
        for number, batch in enumerate(fitting(engine, data, engine.schema(stream))):
            pipeline.send(batch, None if sequence is None else sequence + number)
    finally:
        pipeline.settle()  # Also when a batch does not fit: those before it are durable.
    return pipeline.drain()
