"""The database's words over the wire, blocking."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

import pyarrow as pa

from shedder.archive.tasks.progress import Progress
from shedder.client.audit import AuditCalls
from shedder.client.backfill import BackfillCalls
from shedder.client.buffered_producer import SpillingProducer
from shedder.client.connection import Connection
from shedder.client.failures import deadline_s
from shedder.client.outbox import check_whole, epoch_after
from shedder.client.producer import Producer
from shedder.client.progress_watch import PROGRESS_PERIOD_S, Watched
from shedder.client.standing import RemoteQuery
from shedder.client.summaries import SummaryCalls
from shedder.client.target import Target
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import BadSetting, InternalError
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Ledger, Params, Receipt
from shedder.streams.batches import BatchLimits
from shedder.streams.push_parts import WHOLE, parts_of
from shedder.v1 import control_pb2, ingest_pb2, query_pb2
from shedder.wire import tables
from shedder.wire.answers import answer_from_wire
from shedder.wire.ingest import ledger_from_wire, schema_from_wire
from shedder.wire.parameters import parameters_to_wire


class Client(AuditCalls, BackfillCalls, SummaryCalls):
    """A database on a server. Make it with `shedder.connect`. Safe from any thread."""

    def __init__(self, target: Target, *, timeout_s: float, patience_s: float) -> None:
        super().__init__(Connection(target), patience_s)
        try:
            self._connection.check(timeout_s)
        except BaseException:
            self._connection.close()
            raise

    def execute(
        self,
        sql: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
        watch: Callable[[Progress], None] | None = None,
    ) -> Answer:
        """Run one statement; a query is answered once, other statements with their status.

        Args:
          sql: the statement.
          params: values for its parameters.
          timeout_s: how long it may take.
          watch: is told of each long piece of work at the server when it begins, and may cancel
            it; how far it is comes ten times a second.

        Raises:
          BadQuery: the text is wrong; the message shows where.
          DeadlineExceeded: not done within `timeout_s`. Cancelled.
        """
        request = query_pb2.ExecuteRequest(
            sql=sql,
            parameters=parameters_to_wire(params),
            timeout_s=timeout_s,
            progress_period_s=None if watch is None else PROGRESS_PERIOD_S,
        )
        call = self._connection.open(self._connection.query.Execute, request, deadline_s(timeout_s))
        response = None
        try:
            with Watched(watch, call.cancel) as watched:
                while (news := self._connection.read(call)) is not None:
                    if news.HasField("progress"):
                        watched.told(news.progress)
                    else:
                        response = news
        except BaseException:
            call.cancel()  # After Ctrl-C the server need not go on, either.
            raise
        if response is None:
            raise InternalError("the server ended the call before its answer")
        return answer_from_wire(response.answer)

    def push(
        self,
        stream: str,
        data: Any,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
    ) -> Receipt:
        """Append rows and return when they are durable. Lost connections are tried again.

        Args:
          stream: the stream's name.
          data: pyarrow Table or RecordBatch(es), a pandas or polars frame, a mapping of columns.
          producer: a stable name makes retries idempotent over restarts of this process, too.
          epoch: the producer's incarnation; a higher one takes over.
          sequence: the number of this push, however many rows it has; None goes on from the last
            one.

        Returns:
          The receipt of the whole push; rows 0 when there were none.

        Raises:
          SchemaMismatch, BadTimestamp: the rows are not what the stream takes; batches before
            the one that does not fit are durable. Under the same number, the rest can be pushed.
          SequenceReused: the number has other rows. SequenceGap: a push before it is missing.
          Overloaded, Unreachable: also after having tried again for a while.
        """
        with self._names.name(producer) as name:
            given_epoch = epoch if producer else None
            described = self._describe(stream, name)
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
                receipt = self._append(stream, name, own_epoch, number, first)
                next(parts, None)  # Raises what ended the data early.
                return receipt
            with self.producer(stream, name, epoch=given_epoch) as opened:
                return opened.push_parts(chain([(place, first)], parts), sequence)

    @overload
    def producer(
        self,
        stream: str,
        name: str,
        *,
        epoch: int | None = None,
        spill: None = None,
        thinning: str = "1",
    ) -> Producer: ...
    @overload
    def producer(
        self,
        stream: str,
        name: str,
        *,
        epoch: int | None = None,
        spill: str | Path,
        helps: bool = False,
        thinning: str = "1",
    ) -> SpillingProducer: ...
    def producer(
        self,
        stream: str,
        name: str,
        *,
        epoch: int | None = None,
        spill: str | Path | None = None,
        helps: bool = False,
        thinning: str = "1",
    ) -> Producer | SpillingProducer:
        """A producer that keeps batches in flight and goes on where it stopped.

        Args:
          stream: to append to.
          name: the producer's; stable over restarts.
          epoch: its incarnation; None goes on in the newest one.
          spill: a directory of this machine; what the server cannot take now waits there, and
            pushes do not wait. None: they wait, as long as the client's patience lasts.
          helps: while the server asks for help, send what batches come to, built here, and their
            rows later, from the spill; it needs one.
          thinning: while the server asks for help, the share of the rows, "1/8", that is read of
            what is summarised, where the server does not read less itself; the others follow with
            them. Of a producer that does not help: that is sent. The others are lost then: how
            many there were is counted as dropped, and answers allow for whatever they were.

        Raises:
          BadSetting: it is to help, and has no spill; or there is no such share.
          StaleEpoch: a newer incarnation has written.
          DirectoryLocked, CorruptData, FailedPrecondition, StorageFailed: of the spill.
        """
        patience_s = self._patience_s
        if spill is None:
            if helps:
                raise BadSetting("helps=True needs spill=DIR: rows wait there until they follow")
            return Producer(
                self._connection,
                stream,
                name,
                epoch=epoch,
                patience_s=patience_s,
                thinning=thinning,
            )
        return SpillingProducer(
            self._connection,
            stream,
            name,
            epoch=epoch,
            patience_s=patience_s,
            spill=Path(spill),
            helps=helps,
            thinning=thinning,
        )

    def heartbeat(self, stream: str, watermark_us: int) -> None:
        """Promise that no tuple with an event time below watermark_us will follow."""
        request = ingest_pb2.HeartbeatRequest(stream=stream, watermark_us=watermark_us)
        self._patiently(self._connection.ingest.Heartbeat, request)

    def register(self, name: str, sql: str, params: Params | None = None) -> RemoteQuery:
        """Make a query standing; one of the same name and text is returned as it is."""
        request = query_pb2.RegisterRequest(
            name=name, sql=sql, parameters=parameters_to_wire(params)
        )
        response = self._connection.call(self._connection.query.Register, request)
        return RemoteQuery(self._connection, response.query)

    def query(self, name: str) -> RemoteQuery:
        """A standing query by name."""
        request = query_pb2.DescribeRequest(name=name)
        response = self._connection.call(self._connection.query.Describe, request)
        return RemoteQuery(self._connection, response.query)

    def schema(self, stream: str) -> StreamSchema:
        """A stream's definition; its seed stays with the server."""
        return schema_from_wire(self._describe(stream, ""))

    def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """(epoch, sequence) of the last durable push of a producer; None: it has none.

        Of a push, all batches must be durable: the sequence is -1 before the first such push.
        """
        described = self._describe(stream, producer)
        if not described.HasField("last"):
            return None
        return described.last.epoch, described.last.sequence

    def ledger(self, stream: str) -> Ledger:
        """Where every tuple of the stream went."""
        request = ingest_pb2.GetLedgerRequest(stream=stream)
        return ledger_from_wire(self._connection.call(self._connection.ingest.GetLedger, request))

    def seal(self, stream: str) -> None:
        """Write the stream's tail into a run, so that other readers of the archive see it."""
        request = control_pb2.SetRequest(entity="stream", name=stream, key="seal", value="")
        self._patiently(self._connection.control.Set, request)

    def control(self, entity: str = "", name: str = "") -> pa.Table:
        """The control table: entity, name, key, value; all rows where a word is empty."""
        request = control_pb2.GetRequest(entity=entity, name=name)
        response = self._connection.call(self._connection.control.Get, request)
        return tables.from_bytes(response.table)

    def set_control(self, entity: str, name: str, key: str, value: str) -> None:
        """Turn one knob of one entity."""
        request = control_pb2.SetRequest(entity=entity, name=name, key=key, value=value)
        self._connection.call(self._connection.control.Set, request)

    def close(self) -> None:
        """End all calls."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
