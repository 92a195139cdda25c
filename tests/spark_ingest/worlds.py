"""Servers, streams, files and frames of pipelines, for tests that run Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import shedder
from shedder.client.client import Client
from spark_ingest.executors import Service
from spark_ingest.runtime.spark_session import without_pandas
from tests.server_process import ServerProcess

SECOND = 1_000_000
FILES, ROWS = 6, 3_000
STREAMS = ("built", "sent", "pushed")
QUERIES = {
    "all": "SELECT COUNT(*) AS n, SUM(k) AS s, MIN(x) AS l, COUNT(DISTINCT k) AS d, "
    "QUANTILE(x, 0.9) AS q, TOP(k, 3) AS t FROM {} [RANGE 20 SECONDS SLIDE 10 SECONDS]",
    "by_g": "SELECT g, COUNT(*) AS n, MAX(k) AS h, MEDIAN(x) AS m FROM {} WHERE x > 1 GROUP BY g",
}


def made(client: Client, *streams: str) -> None:
    """Create these streams, and the queries of each."""
    for stream in streams:
        client.execute(
            f"CREATE STREAM {stream} (ts TIMESTAMP NOT NULL, k BIGINT, g VARCHAR, x DOUBLE) "
            "TIMESTAMP BY ts LATENESS INTERVAL '1' MINUTE"
        )
        for name, text in QUERIES.items():
            client.register(f"{name}_{stream}", text.format(stream))


def emptied(client: Client) -> None:
    """Drop all queries and streams of a server."""
    for row in client.execute("SHOW QUERIES").rows():
        client.query(row["query"]).drop()
    for row in client.execute("SHOW STREAMS").rows():
        client.execute(f"DROP STREAM {row['stream']}")


@contextmanager
def with_streams(server: ServerProcess) -> Iterator[ServerProcess]:
    """Create the streams of a pipeline on a shared server, and drop them after one test."""
    with server.connect() as client:
        made(client, *STREAMS)
    yield server
    with server.connect() as client:
        emptied(client)


def service(server: ServerProcess) -> Service:
    return Service(server.address, {"insecure": True}, patience_s=60)


def table(file: int, rows: int = ROWS) -> pa.Table:
    """Return ten seconds of tuples."""
    rng = np.random.default_rng(file)
    times = (10 * file + rng.uniform(0, 10, rows)) * SECOND
    return pa.table(
        {
            "ts": pa.array(times.astype(np.int64), pa.timestamp("us", "UTC")),
            "k": rng.zipf(1.6, rows) % 300,
            "g": rng.choice(["a", "b", None], rows),
            "x": rng.lognormal(1, 2, rows),
        }
    )


def files(directory: Path, tables: list[pa.Table]) -> str:
    """Write each table to a Parquet file. Return the directory."""
    directory.mkdir()
    for number, each in enumerate(tables):
        pq.write_table(each, directory / f"{number:03d}.parquet")
    return str(directory)


def stream_of(spark: SparkSession, directory: str, per_batch: int = 2) -> DataFrame:
    """Return a stream of a directory's files, `per_batch` files in each micro-batch."""
    schema = "ts timestamp, k bigint, g string, x double"
    read = spark.readStream.schema(schema).option("maxFilesPerTrigger", per_batch)
    return read.parquet(directory)


def answers(client: Client, stream: str) -> dict[str, list[dict[str, Any]]]:
    """Return the answers of a stream's queries when all windows have closed."""
    client.heartbeat(stream, 10 * FILES * SECOND)
    return {
        name: sorted(client.query(f"{name}_{stream}").answer().rows(), key=str) for name in QUERIES
    }


def meanwhile(
    frame: DataFrame, marker: Path, address: str, change: Callable[[Client], object]
) -> DataFrame:
    """Return the same rows; the first worker calls `change` after its first batch.

    The worker yields no other batch before the service has done the change.
    """

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not marker.exists():
                marker.touch()
                with shedder.connect(address, insecure=True) as client:
                    change(client)

    with without_pandas():
        return frame.mapInArrow(rows, frame.schema)


def killing_once(frame: DataFrame, marker: Path, pid: int, from_us: int) -> DataFrame:
    """Return the same rows; a process is killed before the first row from this event time on."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            times = batch.column("ts").cast(pa.timestamp("us")).cast(pa.int64())
            if times[0].as_py() >= from_us and not marker.exists():
                marker.touch()
                os.kill(pid, signal.SIGKILL)
            yield batch

    with without_pandas():
        return frame.mapInArrow(rows, frame.schema)


def dying_once(frame: DataFrame, marker: Path, after: int) -> DataFrame:
    """The same rows; but the first Python worker is killed when it has handed on so many."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        handed_on = 0
        for batch in batches:
            yield batch
            handed_on += batch.num_rows
            if handed_on >= after and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    with without_pandas():
        return frame.mapInArrow(rows, frame.schema)
