"""The words that the embedded engine and the client over the wire both speak."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.table_schema import RelationSchema
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.answer_batches import AnswerBatches

Params = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Receipt:
    """A push is durable: the position after its last row, and what became of its rows.

    A push of one batch holds the positions [position - rows, position). Between the batches of a
    larger push may be rows of other producers.

    rows: of the whole push; of those that were stored before, too.
    duplicate: all of the push was stored before, under this producer's sequence number; nothing was
      stored again.
    dropped: tuples that were dropped at the door (ON OVERLOAD DROP): they are in no archive, and
      answers allow for them.
    late: rows that came later than the lateness of the stream allows, so standing queries may miss
      them; of the rows that were stored now.
    """

    stream: str
    position: int
    rows: int
    duplicate: bool = False
    dropped: int = 0
    late: int = 0

    def and_rest(self, rest: Receipt) -> Receipt:
        """The receipt of a push, once a further batch of it has one."""
        return Receipt(
            rest.stream,
            max(self.position, rest.position),
            self.rows + rest.rows,
            self.duplicate and rest.duplicate,
            self.dropped + rest.dropped,
            self.late + rest.late,
        )


@dataclass(frozen=True, slots=True)
class QueryLedger:
    """What became of a stream's applied tuples in one standing query: read, thinned or too late."""

    query: str
    read: int
    thinned: int
    late: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where every tuple of a stream went; accepted = applied + duplicate, always.

    accepted: rows acknowledged, replays included. duplicate: rows acknowledged again and not
    applied again. refused_*: batches that were never decoded and the rows they declared.
    late: rows that came after the watermark had passed them (they are in the archive).
    summarised: applied rows that came as summaries and are not in the archive. to_follow: of these,
    the rows that their producers will send for it; the others they have given up.
    deleted: applied rows that DELETE has taken from the archive since.
    dropped: rows dropped at the door by ON OVERLOAD DROP: acknowledged, and not among the accepted.
    backfilled: rows that were brought in as a past, beside all of those.
    lost: rows that were accepted once, and that damaged bytes of the log took from the archive.
    queries: per standing query, read + thinned + late = what was applied since it began.
    """

    stream: str
    accepted: int
    applied: int
    duplicate: int
    refused_batches: int
    refused_rows: int
    late: int
    queries: tuple[QueryLedger, ...] = ()
    deleted: int = 0
    summarised: int = 0
    to_follow: int = 0
    dropped: int = 0
    backfilled: int = 0
    lost: int = 0


@runtime_checkable
class QueryHandle(Protocol):
    """A registered query: invoked for its present answer or subscribed to."""

    @property
    def name(self) -> str:
        """The name it was registered under."""

    @property
    def text(self) -> str:
        """Its text, parameters bound."""

    @property
    def granted(self) -> Mapping[str, str]:
        """What registration granted, for humans: source, bytes, predicted error."""

    def answer(self, after: Receipt | None = None, timeout_s: float | None = None) -> Answer:
        """The present answer.

        Args:
          after: wait until the tuples of this receipt are in the answer.
          timeout_s: how long to wait at most; None waits for ever.

        Raises:
          DeadlineExceeded: the tuples were not applied in time.
          PrecisionUnavailable: the contract is FAIL and a value misses its target.
        """

    def latest(self) -> Answer | None:
        """The last answer that was computed, at once; None before the first."""

    def subscribe(self, after: str | None = None) -> Iterator[Answer]:
        """Every slide's answer from now on; a slow reader gets the latest, with `missed` set.

        Of a row query, every row, in batches. after: `resume` of an answer, whose rows were read.

        Raises:
          OutputDiscarded: rows after the token are not kept any more. BadSetting: no such token.
        """

    def explain(self) -> str:
        """Source, bytes, thinning and predicted error of every aggregate."""

    def drop(self) -> None:
        """Unregister it."""


class NamedProducer(Protocol):
    """Appends to one stream under a name; numbers its batches from 0."""

    @property
    def epoch(self) -> int:
        """Its incarnation."""

    @property
    def next_sequence(self) -> int:
        """The number that the next batch gets."""

    def push(self, data: Any, *, sequence: int | None = None) -> int:
        """Send rows as one push, under this number; the number that the next push gets."""

    def flush(self) -> Receipt:
        """Wait until all is durable; the last push's receipt."""

    def __enter__(self) -> Self:
        """Ends with the block; flushes, unless that failed."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class Database(Protocol):
    """A database of streams, in this process (`shedder.open`) or elsewhere (`shedder.connect`)."""

    def execute(
        self,
        sql: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
        watch: Callable[[Any], None] | None = None,
    ) -> Answer:
        """Run one statement; a query is answered once, other statements with their status.

        Args:
          sql: the statement.
          params: values for its parameters.
          timeout_s: how long it may take.
          watch: is told of each long piece of work (`shedder.archive.tasks.progress.Progress`) when
            it begins; it may keep it, read how far it is, and cancel it.

        Raises:
          BadQuery: the text is wrong; the message shows where.
          DeadlineExceeded: not done within `timeout_s`.
        """

    def execute_batches(
        self,
        sql: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
        watch: Callable[[Any], None] | None = None,
    ) -> AnswerBatches:
        """Run one statement; rows of streams come batch by batch, while they are read.

        Args: as `execute`.

        Raises:
          as `execute`; errors of the reading come between two batches.
        """

    def push(
        self,
        stream: str,
        data: Any,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
    ) -> Receipt:
        """Append rows and return when they are durable.

        Args:
          stream: the stream's name.
          data: pyarrow Table or RecordBatch(es), or any frame with the Arrow C stream interface.
          producer: a stable name makes retries idempotent; None is anonymous.
          epoch: the producer's incarnation; a higher one takes over.
          sequence: the number of this push, however many rows it has; None goes on from the last
            one.

        Returns:
          The receipt of the whole push.

        Raises:
          SchemaMismatch, BadTimestamp: the rows are not what the stream takes. Batches before the
            one that does not fit are stored; under the same number, the rest can be pushed again.
          SequenceReused: the number has other rows. SequenceGap: a push before it is missing.
          Overloaded: come back after `retry_after_ms`.
        """

    def producer(self, stream: str, name: str, *, epoch: int | None = None) -> NamedProducer:
        """A producer that goes on where one of its name stopped."""

    def heartbeat(self, stream: str, watermark_us: int) -> None:
        """Promise that no tuple with an event time below watermark_us will follow."""

    def register(
        self,
        name: str,
        sql: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
    ) -> QueryHandle:
        """Make a query standing; one of the same name and text is returned as it is.

        timeout_s: how long it waits for the records that came before it; None: without a limit.

        Raises:
          DeadlineExceeded: the query does not stand; the message says what it waited for.
        """

    def query(self, name: str) -> QueryHandle:
        """A standing query by name."""

    def schema(self, stream: str) -> StreamSchema:
        """A stream's definition."""

    def relation(self, name: str) -> RelationSchema:
        """The definition of a stream or table."""

    def ledger(self, stream: str) -> Ledger:
        """Return where every tuple of the stream went."""

    def plans(self, stream: str) -> str:
        """Return the plans that a producer needs to build summaries, as JSON."""

    def merge(
        self,
        stream: str,
        summaries: bytes,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
    ) -> Receipt:
        """Merge what was built of tuples elsewhere into the stream's standing queries.

        Args:
          stream: the stream's name.
          summaries: as engine.summarise.Summariser builds them.
          producer, epoch, sequence: as for `push`, which shares the numbers.

        Returns:
          The receipt, once they are durable and answers know them; they take no positions.

        Raises:
          PlansChanged: they were built for other queries; get the plans and build them again.
          BadBatch, BatchTooLarge, BadTimestamp: nothing of them is kept.
        """

    def seal(self, stream: str) -> None:
        """Write the stream's tail into a run, so that other readers of the archive see it."""

    def close(self) -> None:
        """Stop, leaving everything durable."""
