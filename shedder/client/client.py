"""The database's words over the wire, blocking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

import pyarrow as pa

from shedder.archive.progress import Progress
from shedder.client.audit import AuditCalls
from shedder.client.backfill import BackfillCalls
from shedder.client.connection import Connection
from shedder.client.failures import Patience, deadline_s, patiently
from shedder.client.helping import append_request, summaries_of
from shedder.client.names import OwnNames
from shedder.client.outbox import epoch_after
from shedder.client.producer import Producer
from shedder.client.spilling import SpillingProducer
from shedder.client.standing import RemoteQuery
from shedder.client.target import Target
from shedder.client.watched import PROGRESS_PERIOD_S, Watched
from shedder.cql.query import StreamSchema
from shedder.cql.shares import level_of
from shedder.engine.merge import AT_LEAST_BYTES, NOBODY
from shedder.engine.owed import rows_name
from shedder.engine.summarise import Plans
from shedder.errors import BadSetting, InternalError, PlansChanged
from shedder.queries.answer import Answer
from shedder.queries.database import Ledger, Params, Receipt
from shedder.streams.batches import ROWS_PER_BATCH, BatchLimits
from shedder.streams.conform import conform
from shedder.v1 import control_pb2, ingest_pb2, query_pb2, synopses_pb2
from shedder.wire import tables
from shedder.wire.answers import answer_from_wire
from shedder.wire.ingest import ledger_from_wire, receipt_from_wire, schema_from_wire
from shedder.wire.parameters import parameters_to_wire
from shedder.wire.summaries import merge_in_parts


class Client(AuditCalls, BackfillCalls):
    """A database on a server. Make it with `shedder.connect`. Safe from any thread."""

    def __init__(self, target: Target, *, timeout_s: float, patience_s: float) -> None:
        self._connection = Connection(target)
        self._patience_s = patience_s
        self._names = OwnNames()
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
          sequence: the number of the (first) batch; None goes on from the last one.

        Returns:
          The receipt of the last batch; rows 0 when there was none.

        Raises:
          SchemaMismatch, BadTimestamp: the rows are not what the stream takes; batches before
            the one that does not fit are durable.
          Overloaded, Unreachable: also after having tried again for a while.
        """
        with self._names.name(producer) as name:
            described = self._describe(stream, name)
            limits = BatchLimits(described.batch_rows_max, described.batch_bytes_max)
            rows_max = min(ROWS_PER_BATCH, limits.rows_max)
            schema = schema_from_wire(described)
            batches = conform(data, schema, rows_max=rows_max, limits=limits)
            first = list(islice(batches, 2))
            if not first:
                return Receipt(stream, 0, 0)
            if len(first) == 1:
                if sequence is None:
                    _, sequence = epoch_after(described, name, epoch)
                return self._append(stream, name, epoch, sequence, first[0])
            with self.producer(stream, name, epoch=epoch) as opened:
                return _push_all(opened, chain(first, batches), sequence)

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
        """(epoch, sequence) of the last durable batch of a producer; None: it has none."""
        described = self._describe(stream, producer)
        if not described.HasField("last"):
            return None
        return described.last.epoch, described.last.sequence

    def ledger(self, stream: str) -> Ledger:
        """Where every tuple of the stream went."""
        request = ingest_pb2.GetLedgerRequest(stream=stream)
        return ledger_from_wire(self._connection.call(self._connection.ingest.GetLedger, request))

    def plans(self, stream: str) -> str:
        """What somebody elsewhere must know to build the stream's summaries."""
        request = synopses_pb2.GetPlansRequest(stream=stream)
        plans: str = self._patiently(self._connection.synopses.GetPlans, request).plans
        return plans

    def merge(
        self,
        stream: str,
        summaries: bytes,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
        tuples_follow: bool = False,
        after: Mapping[str, tuple[int, int]] = NOBODY,
    ) -> Receipt:
        """Merge summaries into the stream's standing queries; returns when answers know them.

        Lost connections are tried again. What is too large for one message goes in several, and
        counts when all of them have come.

        Args:
          stream: the stream's name. summaries: as engine.summarise.Summariser builds them.
          producer, epoch, sequence: as for `push`, which shares the numbers.
          tuples_follow: `follow` will bring the tuples for the archive.
          after: epoch and last number of other producers, by name, that this follows.

        Raises:
          PlansChanged, BadBatch, BatchTooLarge, BadTimestamp: nothing of them is kept.
          FailedPrecondition: the same; the service lacks some of `after`.
          Overloaded, Unreachable: also after having tried again for a while.
        """
        with self._names.name(producer) as name:
            in_parts = False
            if sequence is None or len(summaries) > AT_LEAST_BYTES:
                described = self._describe(stream, name)
                in_parts = len(summaries) > max(described.batch_bytes_max, AT_LEAST_BYTES)
                if sequence is None:
                    _, sequence = epoch_after(described, name, epoch)
            request = synopses_pb2.MergeRequest(
                stream=stream,
                producer=ingest_pb2.Producer(name=name, epoch=epoch),
                sequence=sequence,
                tuples_follow=tuples_follow,
                after=[
                    synopses_pb2.Reached(
                        producer=ingest_pb2.Producer(name=other, epoch=reached), sequence=last
                    )
                    for other, (reached, last) in after.items()
                ],
            )
            if not in_parts:
                request.summaries = summaries
                merged = self._patiently(self._connection.synopses.Merge, request)
                return receipt_from_wire(merged.receipt)

            def sent() -> Any:
                parts = merge_in_parts(request, summaries, described.batch_bytes_max)
                return self._connection.call(self._connection.synopses.MergeInParts, parts)

            merged = patiently(sent, Patience(self._patience_s))
            return receipt_from_wire(merged.receipt)

    def summarise(
        self,
        stream: str,
        data: Any,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
        tuples_follow: bool = False,
        thinning: str = "1",
    ) -> Receipt:
        """Send what rows come to instead of the rows: standing queries know all of them at once.

        The work is done here, and the server only merges. One-time queries and the archive know
        the rows once they have followed; without `tuples_follow` they never do. What was thinned
        here is read in full once they have, when the server repairs its panes.

        Args:
          stream, producer, epoch, sequence: as for `push`; all rows are one number.
          data: as for `push`. tuples_follow: `follow` will bring these rows.
          thinning: the share of the rows that is read, "1/8", where the server does not read less
            itself; how many there were travels along.

        Raises:
          BadSetting: there is no such share.
          SchemaMismatch, BadTimestamp, BatchTooLarge: nothing of them is kept.
          PlansChanged: queries came and went all the while.
          Overloaded, Unreachable: also after having tried again for a while.
        """
        level = level_of(thinning)
        plans = Plans.from_json(self.plans(stream))
        rows_max = min(ROWS_PER_BATCH, plans.limits.rows_max)
        batches = list(conform(data, plans.schema, rows_max=rows_max, limits=plans.limits))

        def send(plans: Plans) -> Receipt:
            return self.merge(
                stream,
                summaries_of(plans.thinned(level), batches),
                producer=producer,
                epoch=epoch,
                sequence=sequence,
                tuples_follow=tuples_follow,
            )

        try:
            return send(plans)
        except PlansChanged:  # Nothing was stored.
            return send(Plans.from_json(self.plans(stream)))

    def follow(
        self, stream: str, data: Any, *, producer: str, epoch: int = 0, sequence: int | None = None
    ) -> Receipt:
        """Append rows whose summaries came before, for the archive; no query reads them again.

        Args:
          stream, data: as for `push`. producer: of the summaries; its rows follow under a name
            made of it, with numbers of their own. epoch, sequence: as for `push`, of that name.

        Raises:
          BadBatch: no summaries of this producer's have come of so many rows that were to follow.
          SchemaMismatch, BadTimestamp, Overloaded, Unreachable: as for `push`.
        """
        name = rows_name(producer)
        described = self._describe(stream, name)
        if sequence is None:
            _, sequence = epoch_after(described, name, epoch)
        limits = BatchLimits(described.batch_rows_max, described.batch_bytes_max)
        rows_max = min(ROWS_PER_BATCH, limits.rows_max)
        receipt = Receipt(stream, 0, 0)
        batches = conform(data, schema_from_wire(described), rows_max=rows_max, limits=limits)
        for number, batch in enumerate(batches, sequence):
            receipt = self._append(stream, name, epoch, number, batch, summarised=True)
        return receipt

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

    def _append(
        self,
        stream: str,
        producer: str,
        epoch: int,
        sequence: int,
        batch: pa.RecordBatch,
        *,
        summarised: bool = False,
    ) -> Receipt:
        request = append_request(stream, producer, epoch, sequence, batch, summarised=summarised)
        return receipt_from_wire(self._patiently(self._connection.ingest.Append, request).receipt)

    def _describe(self, stream: str, producer: str) -> ingest_pb2.DescribeStreamResponse:
        request = ingest_pb2.DescribeStreamRequest(stream=stream, producer=producer)
        described: ingest_pb2.DescribeStreamResponse = self._patiently(
            self._connection.ingest.DescribeStream, request
        )
        return described

    def _patiently(self, method: Any, request: Any) -> Any:
        """A call that may be repeated without harm."""
        return patiently(lambda: self._connection.call(method, request), Patience(self._patience_s))


def _push_all(
    producer: Producer, batches: Iterator[pa.RecordBatch], sequence: int | None
) -> Receipt:
    """All batches, and the last one's receipt; after a bad one, those before it are durable."""
    try:
        for number, batch in enumerate(batches):
            producer.push(batch, sequence=None if sequence is None else sequence + number)
    finally:
        receipt = producer.flush()
    return receipt
