"""Operations on a stream: pushes, heartbeats, schema, ledger."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import pyarrow as pa

from shedder.client.append_requests import append_request
from shedder.client.append_session import AppendSession
from shedder.client.identifiers import OwnNames
from shedder.client.outbox import check_whole, epoch_after
from shedder.client.steps import Steps, call, retried_call
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.table_schema import RelationSchema
from shedder.queries.answers.database_api import Ledger, Receipt
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import BatchLimits
from shedder.streams.push_parts import WHOLE, Part, parts_of
from shedder.v1 import control_pb2, ingest_pb2
from shedder.wire.ingest import (
    ledger_from_wire,
    receipt_from_wire,
    schema_from_wire,
    table_from_wire,
)


class StreamOperations:
    """The operations of a client on streams, as steps. Safe from any thread."""

    def __init__(self, names: OwnNames, *, patience_s: float) -> None:
        """names: for pushes without a producer. patience_s: see `connect`."""
        self._names: Final = names
        self._patience_s: Final = patience_s

    def push(
        self, stream: str, data: Any, producer: str | None, epoch: int, sequence: int | None
    ) -> Steps[Receipt]:
        """Append rows, and return the receipt when they are durable: see `Client.push`."""
        with self._names.name(producer) as name:
            given_epoch = epoch if producer else None
            described = yield from self.describe(stream, name, takes_tables=True)
            if described.primary_key:
                return (yield from self._put(described, data))
            schema = schema_from_wire(described)
            limits = BatchLimits(described.batch_rows_max, described.batch_bytes_max)
            parts = parts_of(data, schema, limits, ends_at_error=sequence is None)
            place, first = next(parts)
            if not producer and not first.num_rows:
                return Receipt(stream, 0, 0)
            if sequence is None:
                check_whole(described, name, given_epoch)
            if place == WHOLE:
                own_epoch, number = epoch_after(described, name, given_epoch)
                number = number if sequence is None else sequence
                receipt = yield from self.append(stream, name, own_epoch, number, first)
                next(parts, None)  # Raises what ended the data early.
                return receipt
            session = AppendSession(stream, name, patience_s=self._patience_s)
            try:
                yield from session.begin(given_epoch)
                return (yield from session.push_parts(chain([(place, first)], parts), sequence))
            finally:
                session.disconnect()

    def append(
        self,
        stream: str,
        producer: str,
        epoch: int,
        sequence: int,
        batch: pa.RecordBatch,
        *,
        summarised: bool = False,
        part: Part = WHOLE,
    ) -> Steps[Receipt]:
        """Append one numbered batch, repeated while the server is gone or full."""
        request = append_request(
            stream, producer, epoch, sequence, batch, summarised=summarised, part=part
        )
        appended = yield from self._retried(lambda stubs: stubs.ingest.Append, request)
        return receipt_from_wire(appended.receipt)

    def _put(self, described: ingest_pb2.DescribeStreamResponse, data: Any) -> Steps[Receipt]:
        """Put rows into a table, batch by batch; a batch that is sent again has the same effect."""
        schema, receipt = table_from_wire(described), Receipt(described.stream, 0, 0)
        limits = BatchLimits(described.batch_rows_max, described.batch_bytes_max)
        for batch in conform(data, schema, limits=limits):
            put = yield from self.append(schema.name, "", 0, 0, batch)
            receipt = receipt.and_rest(put)
        return receipt

    def describe(
        self, stream: str, producer: str, *, takes_tables: bool = False
    ) -> Steps[ingest_pb2.DescribeStreamResponse]:
        """Ask for the state of a stream and of a producer of it ("": of none)."""
        request = ingest_pb2.DescribeStreamRequest(
            stream=stream, producer=producer, takes_tables=takes_tables
        )
        described: ingest_pb2.DescribeStreamResponse = yield from self._retried(
            lambda stubs: stubs.ingest.DescribeStream, request
        )
        return described

    def heartbeat(self, stream: str, watermark_us: int) -> Steps[None]:
        """Promise that no tuple with an event time below watermark_us will follow."""
        request = ingest_pb2.HeartbeatRequest(stream=stream, watermark_us=watermark_us)
        yield from self._retried(lambda stubs: stubs.ingest.Heartbeat, request)

    def schema(self, stream: str) -> Steps[StreamSchema]:
        """Return a stream's definition; its seed stays with the server."""
        return schema_from_wire((yield from self.describe(stream, "")))

    def relation(self, name: str) -> Steps[RelationSchema]:
        """Return the definition of a stream or table."""
        described = yield from self.describe(name, "", takes_tables=True)
        is_table = bool(described.primary_key)
        return table_from_wire(described) if is_table else schema_from_wire(described)

    def last_sequence(self, stream: str, producer: str) -> Steps[tuple[int, int] | None]:
        """Return epoch and sequence of a producer's last durable push: see `Client`."""
        described = yield from self.describe(stream, producer)
        if not described.HasField("last"):
            return None
        return described.last.epoch, described.last.sequence

    def ledger(self, stream: str) -> Steps[Ledger]:
        """Return where every tuple of the stream went."""
        request = ingest_pb2.GetLedgerRequest(stream=stream)
        return ledger_from_wire((yield from call(lambda stubs: stubs.ingest.GetLedger, request)))

    def seal(self, stream: str) -> Steps[None]:
        """Write the stream's tail into a run, so that other readers of the archive see it."""
        request = control_pb2.SetRequest(entity="stream", name=stream, key="seal", value="")
        yield from self._retried(lambda stubs: stubs.control.Set, request)

    def _retried(self, method: Any, request: Any) -> Steps[Any]:
        return (yield from retried_call(method, request, self._patience_s))
