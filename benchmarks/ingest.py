"""Durable ingest through gRPC with eight standing aggregates."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import shedder
from benchmarks.measure import Report
from benchmarks.workloads.served import ServedProcess, server
from benchmarks.workloads.trades import BATCH_ROWS, CREATE, QUERIES, TUPLE_BYTES, batches

TUPLES = 40 * 1_000_000 // BATCH_ROWS * BATCH_ROWS


def run() -> Report:
    """Shedder with and without queries, chDB with views, Spark Structured Streaming."""
    rates = {
        "Shedder, eight standing aggregates, durable": _shedder(QUERIES),
        "Shedder, no query": _shedder({}),
        "the same transport that only decodes, validates and fsyncs": _bare(),
        "chDB, AggregatingMergeTree views, in process, INSERT of Arrow": _chdb(),
        "Spark Structured Streaming local[2], files, in process": _spark(),
    }
    base = rates["Shedder, eight standing aggregates, durable"]
    rows = [
        [name, f"{rate / 1e6:.2f} M", f"{rate * TUPLE_BYTES / 1e6:.0f} MB/s", f"{base / rate:.2f}×"]
        for name, rate in rates.items()
    ]
    return Report(
        claim="Claim: at least 2 million durable 24-byte tuples a second on two cores, while "
        "count, sum, average, maximum, distinct, quantile, top-k and a group-by of 1,000 groups "
        "are kept over two windows; the client is a process of its own on the same cores.",
        columns=["contender", "tuples/s", "bytes/s", "Shedder's rate over this"],
        rows=rows,
        notes=[
            (
                f"{TUPLES:,} tuples in batches of {BATCH_ROWS:,}; wall time from the first batch "
                "to the last acknowledgement, and for Shedder until all are applied."
            ),
            (
                "Shedder without a query still keeps the live sample, writes Parquet runs and "
                "checkpoints; the bare transport does none of it "
                "(benchmarks/workloads/bare.py). The "
                "writing of runs lags behind: what ingest sustains is in the section on Invoke."
            ),
            (
                "chDB and Spark run inside the client's process without a wire and without "
                "acknowledgement per batch; chDB's disk writes are not fsynced."
            ),
            (
                f"chDB gets the first {TUPLES // 2:,} of them and Spark the first {TUPLES // 4:,}, "
                "in blocks of a million. chDB's views keep the same aggregates per pane; Spark "
                "keeps six of them over one of the two windows, and neither top-k nor the group-by."
            ),
        ],
    )


def _shedder(queries: dict[str, str]) -> float:
    with server() as running:
        with shedder.connect(running.address, insecure=True) as client:
            client.execute(CREATE)
            for name, text in queries.items():
                client.register(name, text)
            _produce(running, BATCH_ROWS * 8, seed=2)  # warm
        return _produce(running, TUPLES, seed=1)


def _bare() -> float:
    with server(bare=True) as running:
        _produce(running, BATCH_ROWS * 8, seed=2)  # warm
        return _produce(running, TUPLES, seed=1)


def _produce(running: ServedProcess, tuples: int, seed: int) -> float:
    """Tuples a second, from a client process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.workloads.produce",
        running.address,
        str(tuples),
        str(seed),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _chdb() -> float:
    from chdb import session

    with tempfile.TemporaryDirectory() as folder:
        database = session.Session(folder)
        database.query("CREATE DATABASE bench ENGINE = Atomic")
        database.query(
            "CREATE TABLE bench.trades (ts DateTime64(6), key Int64, value Float64) "
            "ENGINE = MergeTree ORDER BY ts"
        )
        for statement in _CHDB_VIEWS:
            database.query(statement)
        names = []
        for number, table in enumerate(_tables(TUPLES // 2)):
            name = f"{folder}/part{number}.arrow"
            with pa.OSFile(name, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            names.append((name, table.num_rows))
        began = time.perf_counter()
        for name, _ in names:
            database.query(f"INSERT INTO bench.trades SELECT * FROM file('{name}', Arrow)")
        elapsed = time.perf_counter() - began
        database.close()
        return sum(rows for _, rows in names) / elapsed


_CHDB_VIEWS = (
    """
    CREATE MATERIALIZED VIEW bench.totals ENGINE = AggregatingMergeTree ORDER BY pane AS
    SELECT toStartOfInterval(ts, INTERVAL 1 second) AS pane, countState() AS n,
           sumState(value) AS total, avgState(value) AS mean, maxState(value) AS top,
           uniqCombined64State(key) AS keys
    FROM bench.trades GROUP BY pane
    """,
    """
    CREATE MATERIALIZED VIEW bench.tail ENGINE = AggregatingMergeTree ORDER BY pane AS
    SELECT toStartOfInterval(ts, INTERVAL 5 second) AS pane,
           quantileDDState(0.004, 0.99)(value) AS p99, topKState(20)(key) AS busiest
    FROM bench.trades GROUP BY pane
    """,
    """
    CREATE MATERIALIZED VIEW bench.groups ENGINE = AggregatingMergeTree ORDER BY (pane, shard) AS
    SELECT toStartOfInterval(ts, INTERVAL 1 second) AS pane, key % 1000 AS shard,
           sumState(value) AS total
    FROM bench.trades GROUP BY pane, shard
    """,
)


def _tables(tuples: int) -> list[pa.Table]:
    """A million rows each: what suits engines that like large blocks."""
    whole = pa.Table.from_batches(list(batches(tuples)))
    return [whole.slice(first, 1 << 20) for first in range(0, whole.num_rows, 1 << 20)]


def _spark() -> float:
    from pyspark.sql import functions as f

    from spark_ingest.runtime.spark_session import spark_session

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in"
        source.mkdir()
        tuples = TUPLES // 4
        for number, table in enumerate(_tables(tuples)):
            pq.write_table(table, source / f"{number}.parquet", compression="zstd")
        with spark_session() as spark:
            rows = spark.read.parquet(str(source))
            stream = spark.readStream.schema(rows.schema).parquet(str(source))
            timed = stream.withColumn("ts", f.col("ts").cast("timestamp"))
            windows = timed.withWatermark("ts", "100 milliseconds")
            totals = windows.groupBy(f.window("ts", "10 seconds", "1 second")).agg(
                f.count("*"),
                f.sum("value"),
                f.avg("value"),
                f.max("value"),
                f.expr("hll_sketch_agg(key)"),
                f.expr("kll_sketch_agg_double(value)"),
            )
            began = time.perf_counter()
            query = (
                totals.writeStream.format("noop")
                .option("checkpointLocation", f"{folder}/checkpoint")
                .outputMode("update")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            return tuples / (time.perf_counter() - began)
