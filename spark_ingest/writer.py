"""A DataFrame into a stream: as tuples that arrive now, each once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from shedder.engine.summarise import Plans
from shedder.streams.batches import arrow_schema
from spark_ingest.begun import Begun, begin
from spark_ingest.executors import BUILT, Part, Service, check_columns, sender
from spark_ingest.poison import Aside, taken
from spark_ingest.session import PUSHED_ROWS, check_spark, cut_alike, without_pandas
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

    A call that failed may be made again: what a producer of this name has pushed is acknowledged
    and not stored twice, as long as the frame has the same rows in as many partitions.

    Args:
      frame: with the stream's columns, by name. service: where the stream is. stream: its name.
      name: of the producers, one for each partition; another one pushes everything again.
      aside: the directory where rows go that the stream cannot take, below job=write.STREAM.NAME;
        there stands, too, how the call was begun.
      partitions: that push at the same time; LATENESS must then span what lies between them.

    Raises:
      SchemaMismatch: the frame's columns are not the stream's. UnknownStream, Unreachable.
      SilentNulls: it reads text and would not say what it cannot read.
      FailedPrecondition: a call with this name was begun with other `partitions`.
      UnsupportedSpark: the session is of a Spark that is too old.
    """
    check_spark(frame.sparkSession.version)
    began = time.monotonic()
    with service.connect() as client, without_pandas():
        text = client.plans(stream)
        plans = Plans.from_json(text)
        columns = to_arrow_schema(frame.schema, timezone="UTC")
        check_columns(columns, plans)
        check_readers(frame)
        names = arrow_schema(plans.schema).names
        # All columns decide the order, so that rows of equal times come in the same one again.
        order = [plans.schema.time_column, *(n for n in names if n != plans.schema.time_column)]
        rows = frame.select(*taken(columns, plans.schema))
        if partitions is None:
            ordered = rows.coalesce(1).sortWithinPartitions(*order)
        else:
            ordered = rows.repartition(partitions, *order).sortWithinPartitions(*order)
        kept, parts = (
            Aside.of(aside, "write", stream, name),
            1 if partitions is None else partitions,
        )
        fresh = Begun(0, parts, time.time_ns() // 1_000 + plans.future_us_max)
        begun = begin(kept.directory, fresh)
        begun.check(parts, f"call with partitions={begun.partitions}, or with another name")
        kept.clear(0)
        send = sender(Part(text, 0, kept, begun.newest_us), service, stream, name)
        with cut_alike(frame.sparkSession, PUSHED_ROWS):
            sent = ordered.mapInArrow(send, BUILT).collect()
    return Written(
        sum(row.rows for row in sent),
        sum(row.poison for row in sent),
        time.monotonic() - began,
    )
