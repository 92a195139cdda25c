"""NEXMark through gRPC, beside Spark Structured Streaming"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import shedder
from benchmarks.measure import Report
from benchmarks.nexmark.events import CREATE, Auctions
from benchmarks.nexmark.queries import QUERIES
from benchmarks.workloads.served import server
from spark_ingest.runtime.spark_session import SparkSettings, spark_session

EVENTS = int(os.environ.get("BENCH_NEXMARK_EVENTS", "1000000"))
STEP = 50_000  # Events of one push to each stream, and of one micro-batch of Spark.
LATER_S = 60  # Event time that ends the last window.
CORES = 2
MEMORY_BYTES = 8 << 30

Steps = Sequence[Mapping[str, pa.RecordBatch]]

NOTES = (
    f"{EVENTS:,} events in {EVENTS // STEP} steps, from the first push to the last row.",
    "Shedder: `shedder serve` on loopback, one client that pushes and then reads all rows.",
    f"Spark: local[{CORES}], a micro-batch of Parquet files for each step, into a count; warm.",
    "Both made the same number of rows. Shedder also archives each event durably.",
    "q4 and q5 are not measured.",
)


def run() -> Report:
    """Measure each query with both, one after the other."""
    steps = [Auctions().events(first, STEP) for first in range(0, EVENTS, STEP)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = _written(Path(folder) / "all", steps)
        few = _written(Path(folder) / "few", steps[:2])
        with spark_session(SparkSettings(CORES, heap_mb=4096)) as session:
            for name, frame in FRAMES.items():
                _spark(session, few, frame, Path(folder) / f"{name} warm")
                spark_s, spark_rows = _spark(session, files, frame, Path(folder) / name)
                own_s, own_rows = _own(QUERIES[name].cql, steps)
                assert own_rows == spark_rows, (name, own_rows, spark_rows)
                rates = [f"{EVENTS / each / 1e3:,.0f}" for each in (own_s, spark_s)]
                rows.append((name, f"{own_rows:,}", *rates, f"{spark_s / own_s:.1f}"))
    return Report(
        "Thousands of events per second, end to end.",
        ("query", "rows", "Shedder", f"Spark local[{CORES}]", "ratio"),
        rows,
        NOTES,
    )


def _own(text: str, steps: Steps) -> tuple[float, int]:
    """Return the seconds until the last row is read, and the number of rows."""
    with (
        server(
            memory_bytes=MEMORY_BYTES,
            row_query_bytes_max=MEMORY_BYTES >> 3,
            row_output_bytes_max=512 << 20,
        ) as served,
        shedder.connect(served.address, insecure=True) as client,
    ):
        for statement in CREATE.values():
            client.execute(statement)
        query = client.register("q", text)
        begin = query.answer().resume
        began = time.perf_counter()
        for step in steps:
            for stream, batch in step.items():
                client.push(stream, pa.Table.from_batches([batch]))
        for stream in CREATE:
            client.heartbeat(stream, Auctions().time_us(EVENTS) + LATER_S * 1_000_000)
        end, read = query.answer().resume, 0
        assert end != begin
        for answer in query.subscribe(after=begin):
            read += answer.table.num_rows
            if answer.resume == end:
                break
        return time.perf_counter() - began, read


def _written(folder: Path, steps: Steps) -> dict[str, Path]:
    """Write each stream as Parquet files, and return its folder."""
    made = {stream: folder / stream for stream in CREATE}
    for stream, path in made.items():
        path.mkdir(parents=True)
        for at, step in enumerate(steps):
            table = pa.Table.from_batches([step[stream]])
            utc = table["ts"].cast(pa.timestamp("us", "UTC"))  # A watermark of Spark needs a zone.
            pq.write_table(table.set_column(0, "ts", utc), path / f"{at:04}.parquet")
    return made


def _spark(
    session: SparkSession,
    files: dict[str, Path],
    frame: Callable[[dict[str, DataFrame]], DataFrame],
    scratch: Path,
) -> tuple[float, int]:
    """Return the seconds that a streaming query takes for all files, and its number of rows."""
    streams = {
        name: session.readStream.schema(session.read.parquet(str(path)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(path))
        .withWatermark("ts", "0 seconds")
        for name, path in files.items()
    }
    counted: list[int] = []

    def count(rows: DataFrame, _: int) -> None:
        counted.append(rows.count())

    began = time.perf_counter()
    query = (
        frame(streams)
        .writeStream.foreachBatch(count)
        .option("checkpointLocation", str(scratch))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - began, sum(counted)


def _q3(of: dict[str, DataFrame]) -> DataFrame:
    auctions = of["auction"].where("category = 10")
    persons = of["person"].where("state IN ('OR', 'ID', 'CA')").withColumnRenamed("id", "person")
    joined = auctions.join(persons, auctions["seller"] == persons["person"])
    return joined.select("name", "city", "state", "id")


def _q8(of: dict[str, DataFrame]) -> DataFrame:
    persons = of["person"].select("id", "name", f.window("ts", "10 seconds").alias("opened"))
    auctions = of["auction"].select("seller", f.window("ts", "10 seconds").alias("sold"))
    same = (persons["id"] == auctions["seller"]) & (persons["opened"] == auctions["sold"])
    return persons.join(auctions, same).select("id", "name", "opened").dropDuplicates()


def _q20(of: dict[str, DataFrame]) -> DataFrame:
    auctions = of["auction"].where("category = 10").drop("ts")
    bids = of["bid"].drop("ts")
    joined = bids.join(auctions, bids["auction"] == auctions["id"])
    columns = ("auction", "bidder", "price", "channel", "item", "seller", "category")
    return joined.select(*columns)


FRAMES = {"q3": _q3, "q8": _q8, "q20": _q20}

if __name__ == "__main__":
    print(run().markdown())
