"""A producer that does not wait for the server: what finds no room there is spilled to disk."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shedder.archive.files.file_system import Files
from shedder.client.append_stream import Sender
from shedder.client.backlog import HOLD_S, Backlog, SpillState
from shedder.client.connection import Connection
from shedder.client.disk_buffer import Spill
from shedder.client.producer import Producer
from shedder.client.source_summaries import Helper
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import FailedPrecondition, Overloaded, SequenceGap, ShedderError
from shedder.queries.answers.database_api import Receipt
from shedder.wire.status import retry_after_ms

_LOOK_S = 0.05


class SpillingProducer:
    """Appends to one stream under a name, idempotently, and never waits for long. For one thread.

    A thread of its own sends batches in the order of their numbers, at the pace that the server
    sets. While the server is full or gone, batches go to disk, behind all that have no receipt
    yet; they are removed when the server has them. After a crash, `next_sequence` says which batch
    comes next: everything before it is stored at the server, or is on disk and will be sent.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        name: str,
        *,
        epoch: int | None,
        patience_s: float,
        spill: Path,
        helps: bool = False,
        thinning: str = "1",
        hold_s: float = HOLD_S,
        files: Files | None = None,
    ) -> None:
        """Look up the stream, and go on with what is on disk.

        helps, thinning: see `Client.producer`.
        hold_s: time that a batch waits for room in memory before it is spilled.
        files: the file system below `spill`; None means the machine's.

        Raises:
          StaleEpoch: a newer incarnation has written. BadSetting: there is no such share.
          FailedPrecondition: what is on disk is of another epoch, or does not follow on what the
            server has.
          DirectoryLocked, CorruptData, StorageFailed, DiskFull: as `Spill`.
        """
        self._patience_s = patience_s
        self._inner = Producer(
            connection, stream, name, epoch=epoch, patience_s=patience_s, thinning=thinning
        )
        self._inner.patience_s = 0.0  # From now on this one waits.
        waiting = Spill(spill, self._inner.schema, name, files)
        try:
            self._next = found_to = self._go_on(waiting)
            self._helper = (
                Helper(
                    connection,
                    self._inner.schema,
                    name,
                    directory=spill,
                    thinning=thinning,
                    files=files,
                )
                if helps
                else None
            )
        except BaseException:
            waiting.close()
            raise
        self._backlog = Backlog(waiting, self.epoch, hold_s)
        self._sender = Sender(self._inner, self._helper, self._backlog, found_to=found_to)
        self._thread = threading.Thread(
            target=self._sender.run, name=f"shedder-producer-{name}", daemon=True
        )
        self._thread.start()

    @property
    def stream(self) -> str:
        """The stream."""
        return self._inner.stream

    @property
    def name(self) -> str:
        """The producer's name."""
        return self._inner.name

    @property
    def epoch(self) -> int:
        """Its incarnation."""
        return self._inner.epoch

    @property
    def schema(self) -> StreamSchema:
        """Of the stream."""
        return self._inner.schema

    @property
    def next_sequence(self) -> int:
        """The number that the next batch gets."""
        return self._next

    @property
    def help_wanted(self) -> bool:
        """As of `Producer`."""
        return self._inner.help_wanted

    @property
    def left_out(self) -> int:
        """As of `Producer`."""
        return self._inner.left_out

    @property
    def to_follow(self) -> SpillState:
        """Rows on disk whose summaries the server has, or is getting."""
        if self._helper is None:
            return SpillState(0, 0, 0)
        return SpillState.of(self._helper.waiting)

    @property
    def spilled(self) -> SpillState:
        """What waits on disk."""
        with self._backlog.changed:
            return SpillState.of(self._backlog.spill)

    def push(self, data: Any, *, sequence: int | None = None) -> int:
        """Take rows; returns when all are on their way, or on disk.

        Args:
          data: as in `Client.push`; more than 65,536 rows become several batches.
          sequence: of the first batch; None goes on from the last one. A number that was taken
            already is not taken again.

        Returns:
          The number that the next batch gets.

        Raises:
          SchemaMismatch, BadTimestamp: these rows were not taken; those before them were.
          DiskFull, StorageFailed: the rows from `next_sequence` on were not taken.
          FailedPrecondition: this producer is closed.
          ShedderError: an earlier batch was refused for good; it is on disk.
        """
        for number, batch in enumerate(self._inner.conformed(data)):
            given = self._next if sequence is None else sequence + number
            if given > self._next:
                raise SequenceGap(self.name, self._next, given)
            if given == self._next:
                self._backlog.put(batch, given)
                self._next += 1
        return self._next

    def flush(self) -> Receipt:
        """Wait until the server has everything; the last batch's receipt (rows 0: there was none).

        Raises:
          Overloaded, Unreachable, Unavailable: no receipt has come for as long as the client's
            patience. What has none is still being sent.
          ShedderError: a batch was refused for good; it is on disk.
        """
        backlog = self._backlog
        with backlog.changed:
            while self._sender.pending:
                moved = backlog.changed.wait_for(
                    partial(self._is_past, backlog.receipts), self._patience_s
                )
                backlog.raise_failure()
                if not moved:
                    said = Overloaded(f"no receipt has come for {self._patience_s:g} s")
                    raise backlog.trouble or said
            backlog.raise_failure()
            return self._inner.outbox.receipt

    def close(self) -> None:
        """Flush and end; what the server does not take stays on disk, for the next of this name.

        Raises:
          DiskFull, StorageFailed: what has no receipt could not all be spilled.
          ShedderError: a batch was refused for good; it is on disk.
        """
        if self._backlog.stopping:
            return
        try:
            self.flush()
        except ShedderError as error:
            if retry_after_ms(error) is None:
                raise
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._end()

    def _go_on(self, spill: Spill) -> int:
        """Drop from disk what the server has; the number after all that is left."""
        stored = self._inner.next_sequence
        if not spill:
            return stored
        oldest = spill.waiting[0]
        if oldest.epoch != self.epoch:
            raise FailedPrecondition(
                f"{spill.directory} holds {len(spill)} batches of epoch {oldest.epoch}, not "
                f"{self.epoch}; send them first (epoch={oldest.epoch}), or move them away"
            )
        spill.drop_before(stored)
        if spill and spill.waiting[0].sequence != stored:
            raise FailedPrecondition(
                f"the server wants batch {stored} of producer {self.name!r}, and "
                f"{spill.directory} begins with {spill.waiting[0].sequence}: these are not of the "
                "same stream"
            )
        return spill.waiting[-1].sequence + 1 if spill else stored

    def _is_past(self, receipts: int) -> bool:
        return self._backlog.failure is not None or self._backlog.receipts > receipts

    def _end(self) -> None:
        self._backlog.stop()
        while self._thread.is_alive():
            self._inner.disconnect()  # It may be waiting for a receipt.
            self._thread.join(_LOOK_S)
        try:
            self._backlog.close()
        finally:
            if self._helper is not None:
                self._helper.close()
