"""The blocking client: the operations of the embedded engine, sent to a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import pyarrow as pa

from shedder.archive.tasks.progress import Progress
from shedder.client import statement_operations
from shedder.client.buffered_producer import SpillingProducer
from shedder.client.connection import Connection
from shedder.client.drivers import perform
from shedder.client.operations import Operations
from shedder.client.producer import Producer
from shedder.client.standing import RemoteQuery
from shedder.client.target import ServerTarget
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.table_schema import RelationSchema
from shedder.engine.remote_summaries.wire_format import NO_PRODUCERS
from shedder.errors import BadSetting
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.answer_batches import AnswerBatches
from shedder.queries.answers.database_api import Ledger, Params, Receipt

if TYPE_CHECKING:
    from shedder.archive.catalog.backfill_table import Summarised
    from shedder.archive.runs.external_run import SentFile
    from shedder.engine.audit.external_audit import AuditReport, AuditTicket
    from shedder.engine.rebuild.backfill import Adopted, BackfillState


class Client:
    """A database on a server. Make it with `shedder.connect`. Safe from any thread."""

    def __init__(self, target: ServerTarget, *, timeout_s: float, patience_s: float) -> None:
        self._connection = Connection(target)
        self._perform = partial(perform, self._connection)
        self._patience_s = patience_s
        self._operations = Operations(patience_s=patience_s)
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
          watch: called with the `Progress` of each long piece of work at the server when the work
            begins; it may cancel the work. The progress advances ten times a second.

        Raises:
          BadQuery: the text is wrong; the message shows where.
          DeadlineExceeded: not done within `timeout_s`.
          Cancelled: `watch` has cancelled the work.
        """
        return self._perform(statement_operations.execute(sql, params, timeout_s, watch))

    def execute_batches(
        self,
        sql: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
        watch: Callable[[Progress], None] | None = None,
    ) -> AnswerBatches:
        """Run one statement; rows of streams come batch by batch, while the server reads them.

        Args, Raises: as `execute`; errors of the reading come between two batches.
        """
        execution = statement_operations.Execution(sql, params, timeout_s, watch)
        self._perform(execution.begin())
        first = self._perform(execution.next_rows())

        def rows() -> Iterator[pa.RecordBatch]:
            part = first
            while part is not None:
                yield from part.to_batches()
                part = self._perform(execution.next_rows())
            yield from execution.rest.to_batches()

        schema = (execution.rest if first is None else first).schema
        return AnswerBatches(schema, rows(), execution.without_rows, execution.cancel)

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
        return self._perform(self._operations.streams.push(stream, data, producer, epoch, sequence))

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
          spill: a directory of this machine; batches that the server cannot take now wait there,
            and pushes do not wait. None: pushes wait, as long as the client's patience lasts.
          helps: while the server asks for help, send summaries that are built here, and their
            rows later, from the spill.
          thinning: a share of the rows, "1/8", while the server asks for help. If the producer
            helps, its summaries read this share, or the server's if that is smaller; all rows
            follow. Otherwise the producer sends this share. The other rows are lost: the server
            counts them as dropped, and intervals allow for all values that they can have had.

        Raises:
          BadSetting: `helps` without `spill`; or there is no such share.
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
        self._perform(self._operations.streams.heartbeat(stream, watermark_us))

    def register(
        self,
        name: str,
        sql: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
    ) -> RemoteQuery:
        """As `Database.register`."""
        described = self._perform(statement_operations.register(name, sql, params, timeout_s))
        return RemoteQuery(self._connection, described)

    def query(self, name: str) -> RemoteQuery:
        """A standing query by name."""
        described = self._perform(statement_operations.describe_query(name))
        return RemoteQuery(self._connection, described.query)

    def schema(self, stream: str) -> StreamSchema:
        """A stream's definition; its seed stays with the server."""
        return self._perform(self._operations.streams.schema(stream))

    def relation(self, name: str) -> RelationSchema:
        """The definition of a stream or table."""
        return self._perform(self._operations.streams.relation(name))

    def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """(epoch, sequence) of the last durable push of a producer; None: it has none.

        Of a push, all batches must be durable: the sequence is -1 before the first such push.
        """
        return self._perform(self._operations.streams.last_sequence(stream, producer))

    def ledger(self, stream: str) -> Ledger:
        """Return where every tuple of the stream went."""
        return self._perform(self._operations.streams.ledger(stream))

    def seal(self, stream: str) -> None:
        """Write the stream's tail into a run, so that other readers of the archive see it."""
        self._perform(self._operations.streams.seal(stream))

    def control(self, entity: str = "", name: str = "") -> pa.Table:
        """The control table: entity, name, key, value; an empty argument matches all rows."""
        return self._perform(statement_operations.control(entity, name))

    def set_control(self, entity: str, name: str, key: str, value: str) -> None:
        """Set one value of the control table."""
        self._perform(statement_operations.set_control(entity, name, key, value))

    # --- summaries instead of rows --------------------------------------------------------------

    def plans(self, stream: str) -> str:
        """Return the description from which a client builds the stream's summaries."""
        return self._perform(self._operations.summaries.plans(stream))

    def merge(
        self,
        stream: str,
        summaries: bytes,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
        tuples_follow: bool = False,
        after: Mapping[str, tuple[int, int]] = NO_PRODUCERS,
    ) -> Receipt:
        """Merge summaries into the stream's standing queries; returns when answers know them.

        Lost connections are tried again. Summaries too large for one message are sent in several,
        and count when all of them have come.

        Args:
          stream: the stream's name.
          summaries: as `Summariser` of engine.remote_summaries.summary_builder builds them.
          producer, epoch, sequence: as for `push`, which shares the numbers.
          tuples_follow: `follow` will bring the tuples for the archive.
          after: epoch and last number of other producers, by name, that this follows.

        Raises:
          PlansChanged, BadBatch, BatchTooLarge, BadTimestamp: no summary is kept.
          FailedPrecondition: no summary is kept, because the service lacks some of `after`.
          Overloaded, Unreachable: also after having tried again for a while.
        """
        return self._perform(
            self._operations.summaries.merge(
                stream,
                summaries,
                producer=producer,
                epoch=epoch,
                sequence=sequence,
                tuples_follow=tuples_follow,
                after=after,
            )
        )

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
        """Send summaries of rows instead of the rows: standing queries know all rows at once.

        The summaries are built here, and the server only merges them. One-time queries and the
        archive know the rows once the rows have followed; without `tuples_follow` they never do.
        If the summaries were thinned, the server then repairs its panes with all rows.

        Args:
          stream, producer, epoch, sequence: as for `push`; all rows are one number.
          data: as for `push`. tuples_follow: `follow` will bring these rows.
          thinning: the share of the rows that summaries read, "1/8", or the server's share if
            that is smaller. The number of all rows is sent, too.

        Raises:
          BadSetting: there is no such share.
          SchemaMismatch, BadTimestamp, BatchTooLarge: no row is kept.
          PlansChanged: queries were registered or dropped during both tries.
          Overloaded, Unreachable: also after having tried again for a while.
        """
        return self._perform(
            self._operations.summaries.summarise(
                stream,
                data,
                producer=producer,
                epoch=epoch,
                sequence=sequence,
                tuples_follow=tuples_follow,
                thinning=thinning,
            )
        )

    def follow(
        self, stream: str, data: Any, *, producer: str, epoch: int = 0, sequence: int | None = None
    ) -> Receipt:
        """Append rows whose summaries came before, for the archive; no query reads them again.

        Args:
          stream, data: as for `push`. producer: of the summaries; its rows follow under a name
            made of it, with numbers of their own. epoch, sequence: as for `push`, of that name.

        Raises:
          BadBatch: more rows than this producer has sent summaries of with `tuples_follow`.
          SchemaMismatch, BadTimestamp, Overloaded, Unreachable: as for `push`.
        """
        return self._perform(
            self._operations.summaries.follow(
                stream, data, producer=producer, epoch=epoch, sequence=sequence
            )
        )

    # --- backfills ------------------------------------------------------------------------------

    def begin_backfill(
        self, stream: str, name: str, plan: str = "", parts: int = 0
    ) -> BackfillState:
        """Begin a backfill, or (without parts) return its state."""
        return self._perform(self._operations.backfill.begin_backfill(stream, name, plan, parts))

    def write_backfill(
        self, stream: str, name: str, part: int, attempt: str, file: int, offset: int, data: bytes
    ) -> None:
        """Append bytes to a file of a part; bytes that are there already stay as they are."""
        self._perform(
            self._operations.backfill.write_backfill(
                stream, name, part, attempt, file, offset, data
            )
        )

    def finish_backfill_part(
        self,
        stream: str,
        name: str,
        part: int,
        attempt: str,
        *,
        rows: int,
        poison: int,
        sent: Sequence[SentFile],
        queries: Mapping[str, Summarised],
        summaries: bytes,
    ) -> None:
        """Let the service read all bytes of a part, and note that the part is done."""
        self._perform(
            self._operations.backfill.finish_backfill_part(
                stream,
                name,
                part,
                attempt,
                rows=rows,
                poison=poison,
                sent=sent,
                queries=queries,
                summaries=summaries,
            )
        )

    def adopt_backfill(
        self, stream: str, name: str, *, rows: int, overlap: bool = False
    ) -> Adopted:
        """Make all parts of a backfill part of the stream, once."""
        return self._perform(
            self._operations.backfill.adopt_backfill(stream, name, rows=rows, overlap=overlap)
        )

    def abandon_backfill(self, stream: str, name: str) -> None:
        """Forget a backfill that was not adopted."""
        self._perform(self._operations.backfill.abandon_backfill(stream, name))

    # --- audits of answers, from outside of the server -------------------------------------------

    def lend_answers(
        self, stream: str, *, answers: int, without_archive: bool = False
    ) -> list[AuditTicket]:
        """Return the newest answers of a stream's standing queries, to be computed exactly."""
        return self._perform(
            self._operations.audit.lend_answers(stream, answers, without_archive=without_archive)
        )

    def report_audit(self, id: str, found: AuditReport) -> str:  # noqa: A002  (as on the wire)
        """Report the verdict on a lent answer.

        Returns:
          Why the query is not certified now; "" if it is.

        Raises:
          FailedPrecondition: the answer is not lent now, or some of its tuples are deleted; also
            when the report was stored, but its response was lost.
        """
        return self._perform(self._operations.audit.report_audit(id, found))

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
