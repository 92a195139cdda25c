"""Streams through Spark: summaries built on executors, or tuples forwarded, exactly once.

`summarise` builds, on the executors, the panes that the service would have built of the same
tuples, merges them in a tree, and sends each in one call. `forward` pushes the tuples
themselves. Both go on after a kill of driver, executors or service: a micro-batch has a number,
which Spark's checkpoint and the service's log both keep.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from shedder.client.client import Client
from shedder.engine.remote_summaries.summary_builder import Plans
from shedder.engine.remote_summaries.wire_format import Summaries
from shedder.errors import (
    BatchTooLarge,
    FailedPrecondition,
    PlansChanged,
    SequenceGap,
    ShedderError,
)
from shedder.logging_defaults import be_quiet
from spark_ingest.batch_journal import Begun, Way, begin, noted
from spark_ingest.executors import (
    BUILT,
    PUSHED,
    ExecutorContext,
    Service,
    builder,
    check_columns,
    check_names,
    sender,
)
from spark_ingest.files import ParquetFiles
from spark_ingest.rejected_rows import Aside
from spark_ingest.row_order import in_order, is_shuffled
from spark_ingest.runtime.executor_errors import unwrapped
from spark_ingest.runtime.spark_session import (
    check_classic,
    check_spark,
    cut_alike,
    cut_as_before,
    files_min,
    pushed_rows,
    summarised_rows,
    without_pandas,
)
from spark_ingest.sources import check_readers
from spark_ingest.tree_merge import gathered

ONCE: Mapping[str, Any] = MappingProxyType({"availableNow": True})
_NOTHING = Summaries(0, 0, 0, ()).to_bytes()
_AGAIN_MAX = 10  # Times that a micro-batch is built again, because queries came or went meanwhile.

_AS_IT_WAS = (
    "start it as it was: the same options of the source, and for files "
    "spark.sql.files.minPartitionNum={} or as many cores as there were"
)

_log = structlog.get_logger("spark_ingest.pipeline")


@dataclass(frozen=True, slots=True)
class Done:
    """One micro-batch. rows: tuples that the service took; poison: kept aside.

    sent_bytes: of summaries, to the service; 0 where tuples went. duplicate: the service had it.
    """

    batch: int
    rows: int
    poison: int
    sent_bytes: int
    seconds: float
    duplicate: bool = False


@dataclass(slots=True)
class Running:
    """A pipeline at work. done: its micro-batches so far, in this process."""

    query: StreamingQuery
    done: list[Done]
    _sink: _StreamSink

    def wait(self, timeout_s: int | None = None) -> bool:
        """Wait for its end; False: it still runs.

        Raises:
          ShedderError: what it stopped for. StreamingQueryException: what Spark stopped it for.
        """
        try:
            ended = self.query.awaitTermination(timeout_s)
        except StreamingQueryException:
            self._sink.cut_again.close()
            if self._sink.failure is not None:
                raise self._sink.failure from None
            raise
        if ended is False:
            return False
        self._sink.cut_again.close()
        return True

    def stop(self) -> None:
        """End after the present micro-batch, or in it; it is done again at the next start."""
        self.query.stop()
        self._sink.cut_again.close()


def summarise(
    frame: DataFrame | ParquetFiles,
    service: Service,
    stream: str,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] = ONCE,
    name: str = "spark",
) -> Running:
    """Send what the tuples of a streaming frame come to, micro-batch by micro-batch.

    The frame's partitions may hold tuples in any order: a pane is late only when the watermark
    had passed it before the micro-batch. Neither sample nor archive of the service gets the tuples.

    Args:
      frame: with the stream's columns, by name; of any streaming source. Parquet files are read
        several times faster as `files.parquet_files`.
      service: where the stream is. stream: its name.
      checkpoint: Spark's checkpoint directory; another one begins anew.
      trigger: of DataStreamWriter.trigger; by default all that is there now.
      name: the producer's, beside which stands the checkpoint's own id.

    Raises:
      SchemaMismatch: the frame's columns are not the stream's. UnknownStream, Unreachable.
      SilentNulls: it reads text and would not say what it cannot read.
      UnsupportedSpark: the session is of a Spark that is too old, or of Spark Connect.
    """
    work = _Work(Way.SUMMARISE, _summarised, summarised_rows)
    return _started(frame, service, stream, checkpoint, trigger, name, work)


def forward(
    frame: DataFrame | ParquetFiles,
    service: Service,
    stream: str,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] = ONCE,
    name: str = "spark",
) -> Running:
    """Push the tuples of a streaming frame from the executors.

    Partitions push at the same time, so the stream's LATENESS must span the event times of a
    micro-batch, else tuples come too late for their panes (the ledger counts them). The source
    must give a micro-batch's rows in the same order when it is read again (files, Kafka; not rate),
    and in as many partitions: one that comes in another number after it was begun is refused
    (FailedPrecondition, from `wait`). What a shuffle of the frame has mixed is put in order first.

    Args, Raises: as `summarise`.
    """
    work = _Work(Way.FORWARD, _forwarded, pushed_rows)
    return _started(frame, service, stream, checkpoint, trigger, name, work)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is done with a micro-batch, and of how many rows its batches are, by its columns."""

    way: Way
    do: Callable[[_StreamSink, Client, DataFrame, ExecutorContext], Done]
    rows: Callable[[StructType], int]

    @property
    def in_parts(self) -> bool:
        """Return whether the service may have some partitions' rows and lack others'.

        Then each try must have the same partitions, and cut them alike.
        """
        return self.way is Way.FORWARD


@dataclass(slots=True)
class _StreamSink:
    """What foreachBatch does, on the driver.

    session: in which the source is read; Spark hands over micro-batches in a copy of it.
    cut_again: what the session is told until the first of them is done.
    """

    service: Service
    stream: str
    name: str
    work: _Work
    checkpoint: str
    files: bool
    session: SparkSession
    done: list[Done]
    cut_again: ExitStack = field(default_factory=ExitStack)
    producer: str = ""
    failure: ShedderError | None = None
    ready: threading.Event = field(default_factory=threading.Event)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.ready.wait()
        try:
            session = frame.sparkSession
            cut = cut_alike(session, self.work.rows(frame.schema))
            with self.service.connect() as client, without_pandas(), cut, unwrapped():
                self._do(client, frame, batch)
        except ShedderError as error:
            self.failure = error
            raise
        finally:
            self.cut_again.close()

    def whole(self, client: Client, batch: int) -> bool:
        """Return whether the service has all of a micro-batch that Spark had not noted as done.

        Raises:
          SequenceGap: it lacks one before it.
          FailedPrecondition: this checkpoint has not begun what the service has.
        """
        last = client.last_sequence(self.stream, self.producer)
        known = -1 if last is None else last[1]
        if known < batch - 1:
            raise SequenceGap(self.producer, known + 1, batch)
        begun = noted(self.checkpoint)  # Before anything is sent.
        if known > batch or (known == batch and (begun is None or begun.batch != batch)):
            raise FailedPrecondition(
                f"micro-batch {batch} comes, and the service has those up to {known} of "
                f"{self.producer!r}, which this checkpoint never began: it is older than the "
                "service's directory, and what comes now would be taken for what the service has; "
                "put the checkpoint back that was in use, or, if it is gone, begin with another "
                "one and a source of only what the service lacks"
            )
        return known >= batch

    def _try(self, client: Client, frame: DataFrame, batch: int) -> Done:
        began = time.monotonic()
        if (last := noted(self.checkpoint)) is not None:
            last.check_owner(self.stream, self.producer)
        if self.whole(client, batch):
            return Done(batch, 0, 0, 0, time.monotonic() - began, duplicate=True)
        text = client.plans(self.stream)
        plans = Plans.from_json(text)
        partitions = frame.rdd.getNumPartitions()
        fresh = Begun(
            batch,
            partitions,
            newest_us=time.time_ns() // 1_000 + plans.future_us_max,
            files_min=files_min(self.session),
            limits=plans.limits,
            way=self.work.way,
            stream=self.stream,
            producer=self.producer,
        )
        begun = begin(self.checkpoint, fresh)
        begun.check_way(self.work.way)
        if self.work.in_parts:
            begun.check(partitions, _AS_IT_WAS.format(begun.files_min))
            begun.check_limits(plans.limits)
        aside = Aside(f"{self.checkpoint}/poison")
        aside.clear(batch)
        part = ExecutorContext(text, begun, aside, self.files)
        done = self.work.do(self, client, frame, part)
        return replace(done, seconds=time.monotonic() - began)

    def _do(self, client: Client, frame: DataFrame, batch: int) -> None:
        for attempt in range(_AGAIN_MAX):
            try:
                done = self._try(client, frame, batch)
            except PlansChanged as change:
                _log.info("built_again", batch=batch, attempt=attempt, because=str(change))
                continue
            except SequenceGap as gap:
                raise FailedPrecondition(
                    f"micro-batch {batch} comes, and the service lacks some before it ({gap}): its "
                    "directory is older than this checkpoint; put back the checkpoint of the time "
                    "of that directory, or begin with another one and a source of only what is "
                    "missing, because another checkpoint sends again all that its source has"
                ) from gap
            self.done.append(done)
            _log.debug("micro_batch", batch=batch, rows=done.rows, poison=done.poison)
            return
        raise PlansChanged(f"micro-batch {batch} was built {_AGAIN_MAX} times for other queries")


def _summarised(sink: _StreamSink, client: Client, frame: DataFrame, part: ExecutorContext) -> Done:
    parts = max(1, frame.rdd.getNumPartitions())
    built = frame.mapInArrow(builder(part, parts), BUILT)
    made = gathered(built, parts, part.plans)
    size_bytes = len(made.data)
    check_size(part, size_bytes)
    receipt = client.merge(sink.stream, made.data, producer=sink.producer, sequence=part.batch)
    return Done(part.batch, receipt.rows, made.poison, size_bytes, 0.0, receipt.duplicate)


def _forwarded(sink: _StreamSink, client: Client, frame: DataFrame, part: ExecutorContext) -> Done:
    send = sender(part, sink.service, sink.stream, sink.producer)
    if is_shuffled(frame):
        frame = frame.sortWithinPartitions(*in_order(Plans.from_json(part.plans).schema))
    try:
        with unwrapped():
            sent = frame.mapInArrow(send, PUSHED).collect()
    except SequenceGap as gap:  # Each partition began at 0.
        raise FailedPrecondition(
            f"{gap}: the service came back with an older directory meanwhile; start this again as "
            "it was, and what is missing is sent again"
        ) from gap
    rows, poison = sum(row.rows for row in sent), sum(row.poison for row in sent)
    # Executors have producers of their own; that of the micro-batches says that all have ended. A
    # partition that has ended pushes nothing any more, by which it would be noticed that the
    # service lost it, restored from a backup: so what it has is compared when this is merged.
    client.merge(
        sink.stream,
        _NOTHING,
        producer=sink.producer,
        sequence=part.batch,
        after={row.producer: (row.epoch, row.next - 1) for row in sent if row.next},
    )
    return Done(part.batch, rows, poison, 0, 0.0)


def check_size(part: ExecutorContext, size_bytes: int) -> None:
    """Refuse what the service would not take, in words that help here.

    Raises:
      BatchTooLarge: what all panes of the micro-batch take, the limit, and the ways out.
    """
    limit = Plans.from_json(part.plans).merge_bytes_max
    if size_bytes > limit:
        raise BatchTooLarge(
            f"what micro-batch {part.batch} comes to has {size_bytes:,} bytes; the service takes "
            f"{limit:,} at a time (its ingest_queue_bytes). Spark has noted which tuples are in "
            "it, so start the service with a larger ingest_queue_bytes, or drop queries with many "
            "groups or short slides, and then this pipeline again; or, if this is the first "
            "micro-batch, begin with another checkpoint and less at a time (maxFilesPerTrigger)"
        )


def _started(
    frame: DataFrame | ParquetFiles,
    service: Service,
    stream: str,
    checkpoint: str,
    trigger: Mapping[str, Any],
    name: str,
    work: _Work,
) -> Running:
    be_quiet()
    files = isinstance(frame, ParquetFiles)
    rows = frame.names if isinstance(frame, ParquetFiles) else frame
    check_spark(rows.sparkSession.version)
    check_classic(rows)
    with service.connect() as client:
        plans = Plans.from_json(client.plans(stream))
    columns = _columns(frame)
    if columns is not None:
        check_columns(columns, plans)
        if not files:
            check_names(columns, plans)
    check_readers(rows)
    sink = _StreamSink(service, stream, name, work, checkpoint, files, rows.sparkSession, [])
    if work.in_parts and (last := noted(checkpoint)) is not None:
        sink.cut_again.enter_context(cut_as_before(rows.sparkSession, last.files_min))
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    try:
        query = writer.trigger(**trigger).start()
    except BaseException:
        sink.cut_again.close()
        raise
    # The checkpoint's id, which a restart keeps: another checkpoint is another producer.
    sink.producer = f"{name}@{query.id}"
    sink.ready.set()
    return Running(query, sink.done, sink)


def _columns(frame: DataFrame | ParquetFiles) -> pa.Schema | None:
    if isinstance(frame, ParquetFiles):
        return frame.columns
    return to_arrow_schema(frame.schema, timezone="UTC")
