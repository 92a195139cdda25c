"""Doing a server's work while it asks for help: summaries now, and the rows later."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from shedder.archive.files.file_system import Files
from shedder.client.append_requests import append_request
from shedder.client.connection import Connection
from shedder.client.disk_buffer import Spill
from shedder.client.outbox import epoch_after
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.text.sampling_fractions import level_of
from shedder.engine.ingest.expected_rows import rows_name
from shedder.errors import FailedPrecondition, PlansChanged
from shedder.queries.answers.database_api import Receipt
from shedder.streams.push_parts import WHOLE, Part
from shedder.v1 import ingest_pb2, synopses_pb2
from shedder.wire.ingest import receipt_from_wire

if TYPE_CHECKING:
    from shedder.engine.remote_summaries.summary_builder import Plans


class Helper:
    """What one producer summarises of its batches, and the rows of them that have to follow.

    The rows of a batch are on disk before its summary is sent, and go when they have followed. So
    after a crash the newest of them belong to a batch that the server has, as a summary, or to one
    that it does not have: then the batch is sent anew, and its rows are forgotten here. For one
    thread.

    wanted: as the last answer said, the server still asks for help. waiting: rows on disk.
    """

    def __init__(
        self,
        connection: Connection,
        schema: StreamSchema,
        name: str,
        *,
        directory: Path,
        thinning: str = "1",
        files: Files | None = None,
    ) -> None:
        """Go on with what is on disk.

        Args:
          schema: of the stream. name: the producer's. directory: of its spill.
          thinning: the share of the rows that is read here, where the server does not read less.
          files: the file system below `directory`; None means the machine's.

        Raises:
          BadSetting: there is no such share.
          FailedPrecondition: what is on disk does not follow on what the server has.
          DirectoryLocked, CorruptData, StorageFailed, DiskFull: as `Spill`.
        """
        self._level = level_of(thinning)
        self._connection = connection
        self._stream = schema.name
        self._name = name
        self._rows_name = rows_name(name)
        self._plans: Plans | None = None
        # The batch whose rows are on disk, and whose summary was not sent.
        self._promised: tuple[int, Part] | None = None
        self.wanted = False
        self._epoch, followed = epoch_after(self._describe(self._rows_name), self._rows_name, None)
        self.waiting = Spill(directory, schema, self._rows_name, files)
        try:
            self._next = self._go_on(followed)
        except BaseException:
            self.waiting.close()
            raise

    def _go_on(self, followed: int) -> int:
        """Forget what has followed, and rows whose summary never arrived; the next number."""
        waiting = self.waiting
        waiting.drop_before(followed)
        if waiting and not self._newest_is_stored():
            waiting.drop_last()
        if waiting and waiting.waiting[0].sequence != followed:
            raise FailedPrecondition(
                f"the server wants rows {followed} of producer {self._rows_name!r}, and "
                f"{waiting.directory} begins with {waiting.waiting[0].sequence}: these are not of "
                "the same stream"
            )
        return waiting.waiting[-1].sequence + 1 if waiting else followed

    def keep(self, batch: pa.RecordBatch, *, epoch: int, sequence: int, part: Part = WHOLE) -> None:
        """Put a batch on disk, before `summarise`; what is there already stays.

        Raises:
          DiskFull, StorageFailed: there is no room for it, so it cannot be summarised.
        """
        if self._promised is None:
            beside = _beside(epoch, sequence, part)
            self.waiting.write(batch, epoch=self._epoch, sequence=self._next, beside=beside)
            self._promised = sequence, part

    def summarise(
        self, batch: pa.RecordBatch, *, epoch: int, sequence: int, part: Part = WHOLE
    ) -> Receipt:
        """Send what a batch that was kept comes to, under the batch's own number.

        May be called again after whatever error, for the same batch.

        Raises:
          what `Client.merge` raises.
        """
        assert self._promised == (sequence, part)
        merged = self._merge(batch, epoch, sequence, part)
        self._promised = None
        self._next += 1
        self.wanted = merged.help_wanted
        return receipt_from_wire(merged.receipt)

    def withdraw(self) -> None:
        """The last batch cannot be summarised, and is sent as it is: its rows do not follow."""
        if self._promised is not None:
            self._promised = None
            self.waiting.drop_last()

    @property
    def has_rows_to_follow(self) -> bool:
        """Return whether rows wait that may follow."""
        return len(self.waiting) > (self._promised is not None)

    def follow(self) -> Receipt:
        """Send the oldest rows that wait, for the archive alone.

        Raises:
          Overloaded, Unreachable: they wait on. CorruptData: as `Spill.read`.
        """
        oldest = self.waiting.waiting[0]
        request = append_request(
            self._stream,
            self._rows_name,
            self._epoch,
            oldest.sequence,
            self.waiting.read(oldest),
            summarised=True,
        )
        receipt = self._connection.call(self._connection.stubs.ingest.Append, request).receipt
        self.waiting.drop_before(oldest.sequence + 1)
        return receipt_from_wire(receipt)

    def close(self) -> None:
        """Leave what waits to the next of this name."""
        self.waiting.close()

    def _describe(self, producer: str) -> ingest_pb2.DescribeStreamResponse:
        request = ingest_pb2.DescribeStreamRequest(stream=self._stream, producer=producer)
        described: ingest_pb2.DescribeStreamResponse = self._connection.call(
            self._connection.stubs.ingest.DescribeStream, request
        )
        return described

    def _newest_is_stored(self) -> bool:
        """Return whether the server has the batch to which the newest rows belong, as a summary.

        It knows the last number of the newest epoch alone. Of an older one, the rows to follow
        tell.
        Rows that are declared lost do not say of which batch they are; there are none to follow.
        """
        newest = self.waiting.waiting[-1]
        if newest.lost:
            return True
        beside = self.waiting.beside(newest)
        assert beside is not None, "rows that follow say of which batch they are"
        epoch, sequence, first_row = _read_beside(beside)
        described = self._describe(self._name)
        last = described.last
        if not described.HasField("last") or epoch > last.epoch:
            return False
        if epoch < last.epoch:
            return bool(described.owed_rows >= self.waiting.rows)
        if sequence == last.sequence + 1:
            return bool(described.open_rows > first_row)
        return bool(sequence <= last.sequence)

    def _merge(
        self, batch: pa.RecordBatch, epoch: int, sequence: int, part: Part
    ) -> synopses_pb2.MergeResponse:
        from shedder.engine.remote_summaries.summary_builder import Plans

        for is_last in (False, True):
            if self._plans is None:
                plans_request = synopses_pb2.GetPlansRequest(stream=self._stream)
                text = self._connection.call(
                    self._connection.stubs.synopses.GetPlans, plans_request
                ).plans
                self._plans = Plans.from_json(text).thinned(self._level)
            request = synopses_pb2.MergeRequest(
                stream=self._stream,
                producer=ingest_pb2.Producer(name=self._name, epoch=epoch),
                sequence=sequence,
                summaries=summaries_of(self._plans, [batch]),
                tuples_follow=True,
                first_row=part.first_row,
                more=not part.is_last,
            )
            try:
                merged: synopses_pb2.MergeResponse = self._connection.call(
                    self._connection.stubs.synopses.Merge, request
                )
                return merged
            except PlansChanged:  # Nothing was stored.
                self._plans = None
                if is_last:
                    raise
        raise AssertionError


def _beside(epoch: int, sequence: int, part: Part) -> bytes:
    return f"{epoch} {sequence} {part.first_row}".encode()


def _read_beside(beside: bytes) -> tuple[int, int, int]:
    """Epoch, sequence and first row; earlier versions wrote no first row."""
    epoch, sequence, first_row = (*map(int, beside.split()), 0)[:3]
    return epoch, sequence, first_row


def summaries_of(plans: Plans, batches: Iterable[pa.RecordBatch]) -> bytes:
    """What batches come to, as bytes that the server merges."""
    from shedder.engine.remote_summaries.summary_builder import Summariser

    builder = Summariser(plans, secrets.randbits(61))  # No two builders keep the same ranks.
    for batch in batches:
        builder.add(batch)
    return builder.summaries().to_bytes()
