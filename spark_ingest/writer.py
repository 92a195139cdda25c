"""A DataFrame into a stream: as tuples that arrive now, each once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from shedder.client.client import Client
from shedder.engine.remote_summaries.summary_builder import Plans
from shedder.errors import FailedPrecondition
from spark_ingest.batch_journal import Begun, Way, begin, noted
from spark_ingest.delivery_check import check_kept
from spark_ingest.executors import (
    PUSHED,
    ExecutorContext,
    Service,
    check_columns,
    check_names,
    partition_name,
    sender,
)
from spark_ingest.rejected_rows import Aside, taken
from spark_ingest.row_order import in_order
from spark_ingest.runtime.executor_errors import unwrapped
from spark_ingest.runtime.spark_session import PUSHED_ROWS, check_spark, cut_alike, without_pandas
from spark_ingest.sources import check_readers


@dataclass(frozen=True, slots=True)
class Written:
    """What was pushed. rows: that the service has; poison: kept aside."""

    rows: int
    poison: int
    seconds: float


def write_stream(
    frame: DataFrame,
    service: Service,
    stream: str,
    *,
    name: str,
    aside: str,
    partitions: int | None = None,
) -> Written:
    """Push the rows of a frame from the executors, in order of event time in each partition.

    They are tuples like any others: in the archive, the live sample and standing queries, late
    where the watermark has passed them. Partitions push at the same time, so without `partitions`
    there is one, and nothing comes too late for its pane but what the stream was past before. A
    past that the stream never had is better brought in by `spark_ingest.backfill`.

    A call that failed, or has ended, may be made again: what a producer of this name has pushed is
    acknowledged and not stored twice, as long as the frame has the same rows in as many partitions;
    other ones are refused. By which rows it has, the frame is read once more, before it is pushed.

    Args:
      frame: with the stream's columns, by name. service: where the stream is. stream: its name.
      name: of the producers, one for each partition; another one pushes everything again.
      aside: the directory where rows go that the stream cannot take, below job=write.STREAM.NAME;
        there stands, too, how the call was begun.
      partitions: that push at the same time; LATENESS must then span what lies between them.

    Raises:
      SchemaMismatch: the frame's columns are not the stream's. UnknownStream, Unreachable.
      SilentNulls: it reads text and would not say what it cannot read.
      FailedPrecondition: a call with this name was begun with other `partitions`, rows, or limits
        of a batch, or there is no note how; or the service has lost what was pushed.
      UnsupportedSpark: the session is of a Spark that is too old.
    """
    check_spark(frame.sparkSession.version)
    began = time.monotonic()
    with service.connect() as client, without_pandas():
        text = client.plans(stream)
        plans = Plans.from_json(text)
        columns = to_arrow_schema(frame.schema, timezone="UTC")
        check_columns(columns, plans)
        check_names(columns, plans)
        check_readers(frame)
        order = in_order(plans.schema)
        rows = frame.select(*taken(columns, plans.schema))
        if partitions is None:
            ordered = rows.coalesce(1).sortWithinPartitions(*order)
        else:
            ordered = rows.repartition(partitions, *order).sortWithinPartitions(*order)
        parts = 1 if partitions is None else partitions
        kept = Aside.of(aside, "write", stream, name)
        if (before := noted(kept.directory)) is None:
            _check_new(client, stream, name, parts)
        else:
            before.check(parts, f"call with partitions={before.partitions}, or with another name")
            before.check_limits(plans.limits)
        fresh = Begun(
            0,
            parts,
            newest_us=time.time_ns() // 1_000 + plans.future_us_max,
            limits=plans.limits,
            way=Way.WRITE,
            stream=stream,
            producer=name,
            rows=digest(rows),
        )
        begun = begin(kept.directory, fresh)
        begun.check_rows(fresh.rows)
        kept.clear(0)
        send = sender(ExecutorContext(text, begun, kept), service, stream, name)
        with cut_alike(frame.sparkSession, PUSHED_ROWS), unwrapped():
            sent = ordered.mapInArrow(send, PUSHED).collect()
        check_kept(client, stream, sent)
    return Written(
        sum(row.rows for row in sent),
        sum(row.poison for row in sent),
        time.monotonic() - began,
    )


def digest(rows: DataFrame) -> str:
    """What tells the rows of a frame from others, in whatever order and partitions they come.

    Their number, and the sums of both halves of a hash of 64 bits of each: as integers, which add
    up to the same in any order, and equal rows do not cancel each other out.
    """
    columns = [sf.col(name) for name in rows.columns]
    # Spark leaves NULL out of a hash, wherever it stands.
    mixed = sf.xxhash64(*columns, *(column.isNull() for column in columns))
    high, low = sf.shiftright(mixed, 32), sf.shiftright(sf.shiftleft(mixed, 32), 32)
    [found] = rows.agg(sf.count(sf.lit(1)), sf.sum(high), sf.sum(low)).collect()
    return ":".join(str(value or 0) for value in found)


def _check_new(client: Client, stream: str, name: str, partitions: int) -> None:
    """Refuse a name that the service knows although `aside` has no note of it."""
    for partition in range(partitions):
        producer = partition_name(name, partition)
        if client.last_sequence(stream, producer) is not None:
            raise FailedPrecondition(
                f"stream {stream!r} has tuples of {producer!r} already, and `aside` has no note of "
                f"which: give it the `aside` that {name!r} was begun with, or another name"
            )
