"""A directory of Parquet files as a source: Spark names the files, executors read them.

Between Spark and Python a tuple is a row first and Arrow then, and that takes longer than all of
its synopses. What is Parquet already need not go that way: Spark says which files have come, and
keeps in its checkpoint which were done; Python workers read them, column by column, as Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from shedder.errors import FailedPrecondition
from shedder.streams.batches import ROWS_PER_BATCH
from spark_ingest.runtime.remote_files import escaped, opened

_PATH = "path"
_NAMED = "*.parquet"
_LISTED = "path string, modificationTime timestamp, length long, content binary"
"""What Spark's binaryFile source has of a file; what is not selected is not read."""


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Files to read as they come.

    names: a streaming frame with a file in a row. columns: of a file that was there at first; None:
    there was none.
    """

    names: DataFrame
    columns: pa.Schema | None


def parquet_files(
    spark: SparkSession, directory: str, *, per_batch: int | None = None
) -> ParquetFiles:
    """The Parquet files of a directory and those that will come to it, for a pipeline.

    One task reads a file or several, so a file should not be of many gigabytes. Arrow opens them,
    with credentials of its own (AWS_ACCESS_KEY_ID and such).

    Args:
      spark: the session. directory: of files named *.parquet, on a file system that both know.
      per_batch: how many files a micro-batch has at most; None: all that are new.
    """
    there = listed(spark.read.format("binaryFile"), directory).head(1)
    columns = _opened(str(there[0][_PATH])).schema_arrow if there else None
    stream = spark.readStream.format("binaryFile")
    if per_batch is not None:
        stream = stream.option("maxFilesPerTrigger", per_batch)
    return ParquetFiles(listed(stream, directory), columns)


def rows_of(named: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """On an executor: the rows of the files that are named, and in which file they are.

    Raises:
      FailedPrecondition: a file cannot be read; says which.
    """
    for batch in named:
        for name in map(str, batch.column(_PATH).to_pylist()):
            file = _opened(name)
            try:
                # A task has one core, and its neighbours want the others.
                for rows in file.iter_batches(batch_size=ROWS_PER_BATCH, use_threads=False):
                    yield name, rows
            except (pa.ArrowException, OSError) as error:
                raise _unreadable(name, error) from None


def listed(reader: DataFrameReader | DataStreamReader, directory: str) -> DataFrame:
    """Only what the file system lists: no file is opened for it."""
    return reader.schema(_LISTED).option("pathGlobFilter", _NAMED).load(directory).select(_PATH)


def _opened(name: str) -> pq.ParquetFile:
    try:
        system, path = opened(escaped(name))
        # Nanoseconds, Arrow's own choice for INT96, end in the year 2262.
        return pq.ParquetFile(path, filesystem=system, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> FailedPrecondition:
    problem = str(error).partition("\n")[0][:200]
    return FailedPrecondition(f"{name} cannot be read as Parquet: {problem}")
