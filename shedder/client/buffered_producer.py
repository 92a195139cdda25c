"""Buffered producer: never waits for the server, and spills batches without room to disk."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from shedder.archive.files.file_system import Files
from shedder.client.append_stream import Sender
from shedder.client.backlog import HOLD_S, Backlog, SpillState
from shedder.client.connection import Connection
from shedder.client.disk_buffer import Spill
from shedder.client.producer import Producer
from shedder.client.source_summaries import Helper
from shedder.client.taken_pushes import Taken
from shedder.cql.statements.bound_query import StreamSchema
from shedder.engine.ingest.producer_sequences import Content
from shedder.errors import FailedPrecondition, Overloaded, SequenceGap, ShedderError
from shedder.queries.answers.database_api import Receipt
from shedder.streams.content_fingerprint import fingerprint, joined
from shedder.streams.push_parts import Part
from shedder.wire.ingest import contents_from_wire
from shedder.wire.status import retry_after_ms

_LOOK_S = 0.05


class SpillingProducer:
    """Appends to one stream under a name, idempotently, and never waits for long. For one thread.

    A thread of its own sends batches in the order of their numbers, at the pace that the server
    sets. While the server is full or gone, batches go to disk, behind all that have no receipt
    yet; they are removed when the server has them. Each push takes one number. After a crash,
    `next_sequence` says which push comes next: everything before it is stored at the server, or is
    on disk and will be sent. If some batches of that push are, pushing it again takes the others.
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
            connection,
            stream,
            name,
            epoch=epoch,
            patience_s=0.0,  # Once it has begun, the sender waits.
            begin_patience_s=patience_s,
            thinning=thinning,
        )
        waiting = Spill(spill, self._inner.schema, name, files)
        try:
            self._next, self._rows = found_to = self._go_on(waiting)
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
        """The number that the next push gets."""
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
          data: as in `Client.push`; more than 65,536 rows become several batches of one number.
          sequence: of this push; None goes on from the last one. A number that was taken already
            is not taken again.

        Returns:
          The number that the next push gets.

        Raises:
          SchemaMismatch, BadTimestamp: these rows were not taken; those before them were. Under the
            same `sequence`, the rest can be pushed.
          SequenceReused: the number has other rows.
          DiskFull, StorageFailed: rows of `next_sequence` were not taken; push it again.
          FailedPrecondition: this producer is closed.
          ShedderError: an earlier batch was refused for good; it is on disk.
        """
        given = self._next if sequence is None else sequence
        if given > self._next:
            raise SequenceGap(self.name, self._next, given, rows=self._rows)
        is_taken = given < self._next  # Before the push: an older server numbers each batch.
        taken = Taken(self.name, given, self._content) if is_taken or self._rows else None
        for part, batch in self._inner.parts(data, ends_at_error=sequence is None):
            place = self._inner.outbox.check(part, is_numbered=sequence is not None)
            if is_taken:
                assert taken is not None
                taken.compare(batch, place)
            else:
                self._take(batch, place, taken)
        return self._next

    def _take(self, batch: pa.RecordBatch, part: Part, taken: Taken | None) -> None:
        """Take a batch of the next push, without the rows of it that were taken before."""
        here = self._rows - part.first_row
        if here > 0:
            assert taken is not None
            taken.compare(batch.slice(0, here), Part(part.first_row, is_last=False))
            if batch.num_rows < here or (batch.num_rows == here and not part.is_last):
                return
            batch, part = batch.slice(here), Part(self._rows, part.is_last)
        self._backlog.put(batch, self._next, part)
        self._rows += batch.num_rows
        if part.is_last:
            self._next, self._rows = self._next + 1, 0

    def _content(self, sequence: int) -> Content | None:
        """Return the content of a push that was taken; None: the content is not known."""
        rows, whole = 0, None
        waiting = self._backlog.of_push(sequence)
        if not waiting or waiting[0].part.first_row:
            try:
                described = self._inner.describe()
            except ShedderError:  # Not compared: this producer never waits for the server.
                return None
            if described.last.epoch != self.epoch:
                return None
            stored = [it for it in contents_from_wire(described) if it.sequence == sequence]
            if not stored:
                return None
            rows, whole = stored[0].rows, stored[0].fingerprint
        else:
            whole = 0
        for each in waiting:
            if each.part.skipped or each.part.first_row > rows:
                return None
            if each.part.first_row == rows:
                whole = joined(whole, fingerprint(each.batch, rows))
                rows += each.batch.num_rows
        return Content(sequence, rows, whole)

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

    def _go_on(self, spill: Spill) -> tuple[int, int]:
        """Drop from disk what the server has; number and first row of what comes next."""
        stored, described = self._inner.next_sequence, self._inner.described
        open_rows = described.open_rows if described.last.epoch == self.epoch else 0
        if not spill:
            return stored, open_rows
        oldest = spill.waiting[0]
        if oldest.epoch != self.epoch:
            raise FailedPrecondition(
                f"{spill.directory} holds {len(spill)} batches of epoch {oldest.epoch}, not "
                f"{self.epoch}; send them first (epoch={oldest.epoch}), or move them away"
            )
        spill.drop_before(stored, open_rows)
        if not spill:
            return stored, open_rows
        oldest = spill.waiting[0]
        if oldest.sequence != stored or oldest.first_row > open_rows:
            raise FailedPrecondition(
                f"the server wants batch {stored} of producer {self.name!r}, and "
                f"{spill.directory} begins with {oldest.sequence}: these are not of the "
                "same stream"
            )
        _, number, first_row = spill.waiting[-1].end
        return number, first_row

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
