"""The archive as Spark sees it, and exact answers from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.metadata.deleted_positions import Deleted
from shedder.cql.sql.exact_query import POSITION, SqlDialect, exact_sql
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.errors import FailedPrecondition, OutOfRange, UnknownStream
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.from_exact import evidence_from_exact
from shedder.streams.windows import span_of
from spark_ingest.cases import quoted
from spark_ingest.runtime.spark_session import check_spark, having

_WHILE_READING: Mapping[str, int | str] = {
    # By itself, Spark has one core read all files that are below 4 MiB; evaluating the facts takes
    # far longer than reading.
    "spark.sql.files.openCostInBytes": 1 << 16,
    "spark.sql.session.timeZone": "UTC",
    # Else a text or a name with ${x} in it is another one, and so is a text with a backslash.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
}
_T = TypeVar("_T")
_DIGITS = 20  # of the first position, with which a run's file name begins


@dataclass(frozen=True, slots=True)
class SealedStream:
    """A stream as far as it is in runs. The caller seals the tail first (`db.seal(stream)`).

    deleted: of each run that has any, the positions of its deleted rows.
    """

    schema: StreamSchema
    directory: Path
    runs: tuple[Run, ...]
    deleted: tuple[NDArray[np.int64], ...] = ()

    @property
    def files(self) -> list[Path]:
        """The Parquet files, in order of position."""
        return [self.directory / "runs" / run.file for run in self.runs]

    @property
    def rows(self) -> int:
        """Tuples in the runs."""
        return sum(run.rows for run in self.runs)

    @property
    def end_position(self) -> int:
        """Positions below this one are in the runs."""
        return max((run.end_position for run in self.runs), default=0)

    @property
    def start_us(self) -> int:
        """The smallest event time; at least one run."""
        return min(run.low_us for run in self.runs)

    @property
    def end_us(self) -> int:
        """Just after the largest event time; at least one run."""
        return max(run.high_us for run in self.runs) + 1


def _positions(
    runs: tuple[Run, ...], marks: Mapping[tuple[int, int], Deleted]
) -> Iterator[NDArray[np.int64]]:
    for run in runs:
        mark = marks.get((run.stream_id, run.first_position))
        if mark is not None and mark.rows:
            yield mark.positions(run)


def sealed_stream(directory: Path, name: str) -> SealedStream:
    """One stream of a data directory.

    Raises:
      UnknownStream: it is not there. FailedPrecondition: nothing of it is in a run yet, or any
        more. StorageFailed, CorruptData, NewerFormat: there is no catalog that can be read.
    """
    stream = _stream(directory, name)
    if not stream.runs:
        raise FailedPrecondition(
            f"stream {name!r} has no tuples in its archive: push some and seal it, or, if it had "
            "some, they were deleted or have become older than what it retains"
        )
    return stream


def _stream(directory: Path, name: str) -> SealedStream:
    """As it is now, also without runs; read only, a server may be serving the directory."""
    catalog = Catalog.open(directory / "catalog.sqlite", read_only=True)
    try:
        known = {entry.schema.name: entry for entry in catalog.streams()}
        if name not in known:
            raise UnknownStream(name, list(known))
        # Marks first: a row that is purged in between is marked, and gone.
        marks = catalog.annotations.deleted()
        runs = tuple(catalog.runs(known[name].id))
        return SealedStream(known[name].schema, directory, runs, tuple(_positions(runs, marks)))
    finally:
        catalog.close()


def sample_rows(stream: SealedStream, rows_max: int = 50_000) -> pa.Table:
    """Rows to describe the data with: the first row group of every run, up to rows_max in all."""
    share = max(rows_max // len(stream.runs), 1)
    names = [column.name for column in stream.schema.columns]
    parts = [next(pq.ParquetFile(file).iter_batches(share, columns=names)) for file in stream.files]
    return pa.Table.from_batches(parts)


@contextmanager
def relation(
    spark: SparkSession,
    stream: SealedStream,
    start_us: int | None = None,
    end_us: int | None = None,
) -> Iterator[str]:
    """The name of a temporary view: the stream's columns and POSITION.

    Of runs without event times in [start_us, end_us) there is nothing in it; None is open.
    Rows that were deleted are not there. Where rows lie in blocks, POSITION is a column of the
    file; of others, the file's name says the first position, and a row's place in the file the
    rest. While the view is there, the session's zone is UTC, in which streams have their times, and
    texts and names in its statements are what they say.
    """
    name = f"sealed_{stream.schema.name}"
    place = (
        sf.substring(sf.col("_metadata.file_name"), 1, _DIGITS).cast("bigint")
        + sf.col("_metadata.row_index")
    ).alias(POSITION)
    columns = [sf.col(quoted(column.name)) for column in stream.schema.columns]
    root = stream.directory / "runs"
    runs = [run for run in stream.runs if run.overlaps(start_us, end_us)] or stream.runs[:1]
    frames = [
        spark.read.parquet(*files).select(*columns, position)
        for stored, position in ((False, place), (True, sf.col(POSITION)))
        if (files := [str(root / run.file) for run in runs if run.has_positions is stored])
    ]
    whole = reduce(DataFrame.unionAll, frames)
    if stream.deleted:
        gone = pa.table({POSITION: pa.array(np.concatenate(stream.deleted))})
        whole = whole.join(sf.broadcast(spark.createDataFrame(gone)), POSITION, "left_anti")
    whole.createOrReplaceTempView(quoted(name))
    try:
        with ExitStack() as stack:
            for setting, value in _WHILE_READING.items():
                stack.enter_context(having(spark, setting, value))
            yield name
    finally:
        spark.catalog.dropTempView(name)


def stretch_of(answers: Iterable[Answer]) -> tuple[int | None, int | None]:
    """The stretch of event time that the windows of all of these are in; None is open."""
    spans = [(answer.start_us, answer.end_us) for answer in answers]
    starts = [start for start, _ in spans if start is not None]
    ends = [end for _, end in spans if end is not None]
    return (
        min(starts) if starts and len(starts) == len(spans) else None,
        max(ends) if ends and len(ends) == len(spans) else None,
    )


def reading(stream: SealedStream, work: Callable[[SealedStream], _T]) -> _T:
    """Return work(stream); repeat the work if a run was rewritten while it was read.

    The server of the directory may rewrite runs in another layout, or without deleted rows. It
    removes the old files, and their names may be used again. The rows are then in the runs with
    the same positions.

    Raises:
      OutOfRange: a run is gone, and none has its place.
    """
    while True:
        found, failed = None, None
        try:
            found = work(stream)
        except Exception as error:
            failed = error
        now = _stream(stream.directory, stream.schema.name)
        said = {run.file: run.crc for run in now.runs}
        mistaken = any(said.get(run.file, run.crc) != run.crc for run in stream.runs)
        if failed is None and not mistaken:
            assert found is not None
            return found
        gone = {r.first_position for r in stream.runs} - {r.first_position for r in now.runs}
        if gone:
            raise OutOfRange(
                f"{stream.schema.name} does not have all tuples any more that were to be read: the "
                f"run from position {min(gone):,} was dropped meanwhile, or has become older than "
                "what the stream retains"
            ) from failed
        if failed is not None and all(run.file in said for run in stream.runs) and not mistaken:
            raise failed
        stream = now


def exact(spark: SparkSession, stream: SealedStream, query: BoundQuery, answer: Answer) -> pa.Table:
    """The exact answer to a query as of an answer's window and position.

    Returns:
      One row per group: g0, g1, ... and a0, a1, ... in the order of query.groups and
      query.aggregates.

    Raises:
      FailedPrecondition: the answer knows tuples that are in no run yet.
    """
    check_position(stream, answer.position)

    def found(sealed: SealedStream) -> pa.Table:
        stretch = answer.start_us, answer.end_us
        with relation(spark, sealed, *stretch) as name, as_of(spark, name, sealed, answer) as cut:
            sql = exact_sql(query, cut, SqlDialect.SPARK, *stretch)
            return spark.sql(sql).toArrow()

    return reading(stream, found)


def exact_answer(
    spark: SparkSession,
    stream: SealedStream,
    query: BoundQuery,
    *,
    watermark_us: int | None,
    position: int | None = None,
) -> Answer:
    """The whole exact answer, by Spark: outputs, HAVING, ORDER BY and LIMIT included.

    Args:
      spark: the session.
      stream: with its tail sealed.
      query: any that binds; it is answered as one that is asked once.
      watermark_us: a sliding window is the last one that this has passed. None: none is.
      position: tuples below it count; all that are in runs when None.

    Raises:
      FailedPrecondition: the runs end before the position.
      UnsupportedSpark: the session is of a Spark that is too old.
    """
    check_spark(spark.version)
    span = span_of(query.window, watermark_us)
    end = stream.end_position if position is None else position
    passed = span.end_us is None or (watermark_us is not None and watermark_us >= span.end_us)
    moment: dict[str, Any] = {
        "start_us": span.start_us,
        "end_us": span.end_us,
        "watermark_us": watermark_us,
        "complete": passed,
        "position": end,
    }
    table = exact(spark, stream, query, Answer(pa.table({}), **moment))
    return finish(query, evidence_from_exact(query, table, **moment, sources=("spark",)))


def check_position(stream: SealedStream, position: int) -> None:
    """Refuse an answer that knows more than the runs: tuples at or above their end.

    Raises:
      FailedPrecondition: seal the stream and read the catalog again.
    """
    if position > stream.end_position:
        raise FailedPrecondition(
            f"the answer holds positions below {position:,} and the runs of "
            f"{stream.schema.name!r} end at {stream.end_position:,}; seal the stream first"
        )


@contextmanager
def as_of(spark: SparkSession, name: str, stream: SealedStream, answer: Answer) -> Iterator[str]:
    """A view of the tuples below the answer's position; the relation itself when that is all."""
    if answer.position == stream.end_position:
        yield name
        return
    cut = f"{name}_below_{answer.position}"
    frame: Any = spark.table(quoted(name)).where(sf.col(POSITION) < answer.position)
    frame.createOrReplaceTempView(quoted(cut))
    try:
        yield cut
    finally:
        spark.catalog.dropTempView(cut)
