"""NEXMark through gRPC, beside Spark Structured Streaming"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

import shedder
from benchmarks.measure import Report
from benchmarks.nexmark import flink as rival
from benchmarks.nexmark.events import CREATE, Auctions
from benchmarks.nexmark.queries import QUERIES
from benchmarks.workloads.served import server
from spark_ingest.runtime.spark_session import SparkSettings, spark_session

EVENTS = int(os.environ.get("BENCH_NEXMARK_EVENTS", "1000000"))
EVENTS_MIN = 20_000  # Fewer have no rows of some queries.
STEPS = 20  # Pushes to each stream, and micro-batches of Spark.
STEPS_COMPARED = 5  # Of the first run of both, whose rows are compared.
SPAN_US = 100_000_000  # Event time of all events, however many they are.
CORES = 2
MEMORY_BYTES = 8 << 30

Steps = Sequence[Mapping[str, pa.RecordBatch]]
Streams = Mapping[str, DataFrame]
Bag = Counter[tuple[object, ...]]

_TUMBLING = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"
_HOPPING = "[RANGE 10 SECONDS SLIDE 2 SECONDS]"
_COUNTS = f"(SELECT auction, COUNT(*) AS num FROM bid {_HOPPING} GROUP BY auction)"


_WINDOWS = (
    "q4 is in windows of ten seconds here: Spark refuses aggregates of a join of streams without "
    "them. q5 has all rows of each window, once."
)


_FLINK = (
    "Flink: a local cluster, parallelism 2, a file of CSV for each stream, rows thrown away; each "
    "query the second time in one process. The rows of the first steps were compared."
)


@dataclass(frozen=True, slots=True)
class Contest:
    """A query for both; its rows have the same columns, and come once.

    cql: of Shedder. frame: of Spark, in append mode.
    later_s: event time between the newest event and the end of the streams. Spark keeps the rows of
    a window back until events behind it have come, unless they are of a join alone.
    """

    cql: str
    frame: Callable[[Streams], DataFrame]
    later_s: int = 60


def run() -> Report:
    """Measure all queries with both."""
    return measured(EVENTS)


def measured(events: int, names: Collection[str] = (), flink: str = "") -> Report:
    """Measure each query with both, one after the other.

    names: some of CONTESTS; none: all. flink: Python with `apache-flink`; "": Flink is not run.
    """
    size = events // STEPS
    house = Auctions(event_us=SPAN_US // events)
    steps = [house.events(first, size) for first in range(0, STEPS * size, size)]
    few, rows = steps[:STEPS_COMPARED], list[list[str]]()
    of_few: dict[str, pa.Table] = {}
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        files = _written(Path(folder) / "all", steps)
        files_of_few = _written(Path(folder) / "few", few)
        with spark_session(SparkSettings(CORES, heap_mb=4096)) as session:
            for name, contest in CONTESTS.items():
                if names and name not in names:
                    continue
                print(f"{name}: first {STEPS_COMPARED} steps", file=sys.stderr, flush=True)
                scratch = Path(folder) / name
                _, right = _spark(session, files_of_few, contest, scratch / "few", collects=True)
                _, of_few[name] = _own(contest, few)
                _compare(name, _bag(of_few[name]), right)
                print(f"{name}: all {STEPS} steps", file=sys.stderr, flush=True)
                spark_s, rows_of_spark = _spark(session, files, contest, scratch / "all")
                own_s, own = _own(contest, steps)
                assert own.num_rows == rows_of_spark.total(), (name, own.num_rows, rows_of_spark)
                rates = [_rate(STEPS * size / each) for each in (own_s, spark_s)]
                rows.append([name, f"{own.num_rows:,}", *rates, f"{spark_s / own_s:.1f}"])
                seconds.append(own_s)
        if flink:
            print("Flink", file=sys.stderr, flush=True)
            times = _flink(flink, Path(folder) / "flink", few, steps, of_few)
            for row, own_s, flink_s in zip(rows, seconds, times, strict=True):
                row += [_rate(STEPS * size / flink_s), f"{flink_s / own_s:.1f}"]
    return Report(
        "Thousands of events per second, end to end.",
        (
            *("query", "rows", "Shedder", f"Spark local[{CORES}]", "ratio"),
            *(("Flink", "ratio to Flink") if flink else ()),
        ),
        rows,
        _notes(STEPS * size, flink),
    )


def _flink(
    interpreter: str, folder: Path, few: Steps, steps: Steps, of_few: Mapping[str, pa.Table]
) -> list[float]:
    """Compare the rows of a few steps, and return the seconds of each query for all steps."""
    results = {name: table.schema for name, table in of_few.items()}
    found: list[float] = []
    for part, kept in ((few, folder / "rows"), (steps, None)):
        files = {stream: folder / str(len(part)) / f"{stream}.csv" for stream in CREATE}
        schemas = {it: rival.write_csv(files[it], [step[it] for step in part]) for it in CREATE}
        last_us = _last_us(part)
        found = rival.flink_seconds(
            interpreter, files, schemas, results, last_us=last_us, folder=kept
        )
        for name, table in of_few.items():
            if kept is not None:
                _compare(name, _bag(table), _bag(rival.rows_of(kept / name, table.schema)))
    return found


def _compare(name: str, own: Bag, right: Bag) -> None:
    assert right == own, (name, list((right - own) + (own - right))[:5])


def _rate(per_second: float) -> str:
    thousands = per_second / 1e3
    return f"{thousands:,.0f}" if thousands >= 10 else f"{thousands:.2f}"


def _notes(events: int, flink: str) -> Sequence[str]:
    how = "the rows of the first {} steps were compared, and of all steps their number"
    return (
        f"{events:,} events in {STEPS} steps, from the first push to the last row.",
        "Shedder: `shedder serve` on loopback, one client that pushes and then reads all rows.",
        f"Spark: local[{CORES}], a micro-batch of Parquet files for each step, into a count; warm.",
        f"Of both, {how.format(STEPS_COMPARED)}. Shedder also archives each event durably.",
        _WINDOWS,
        _FLINK if flink else "Flink was not run: `--flink` names a Python with `apache-flink`.",
    )


def _own(contest: Contest, steps: Steps) -> tuple[float, pa.Table]:
    """Return the seconds until the last row is read, and the rows."""
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
        query = client.register("q", contest.cql)
        begin = query.answer().resume
        began = time.perf_counter()
        for step in steps:
            for stream, batch in step.items():
                client.push(stream, pa.Table.from_batches([batch]))
        for stream in CREATE:
            client.heartbeat(stream, _last_us(steps) + contest.later_s * 1_000_000)
        end, read = query.answer().resume, []
        assert end != begin
        for answer in query.subscribe(after=begin):
            read.append(answer.table)
            if answer.resume == end:
                break
        return time.perf_counter() - began, pa.concat_tables(read).drop_columns(_MARKS)


_MARKS = ["_ts", "_sign"]


def _last_us(steps: Steps) -> int:
    """Return the event time of the newest event."""
    last: int = steps[-1]["bid"]["ts"].cast(pa.int64())[-1].as_py()
    return last


def _bag(rows: pa.Table) -> Bag:
    """Rows as a bag; a mean of doubles depends on the order of its addends."""
    columns = [
        np.round(column.to_numpy(), 3).tolist()
        if pa.types.is_floating(column.type)
        else column.to_pylist()
        for column in rows.columns
    ]
    return Counter(zip(*columns, strict=True))


def _written(folder: Path, steps: Steps) -> dict[str, Path]:
    """Write each stream as Parquet files, and return its folder."""
    made = {stream: folder / stream for stream in CREATE}
    for stream, path in made.items():
        path.mkdir(parents=True)
        for at, step in enumerate(steps):
            table = pa.Table.from_batches([step[stream]])
            utc = table["ts"].cast(pa.timestamp("us", "UTC"))  # A watermark of Spark needs a zone.
            written = path / f"{at:04}.parquet"
            pq.write_table(table.set_column(0, "ts", utc), written)
            os.utime(written, (at, at))  # Spark reads files in the order of these times.
    return made


def _spark(
    session: SparkSession,
    files: dict[str, Path],
    contest: Contest,
    scratch: Path,
    *,
    collects: bool = False,
) -> tuple[float, Bag]:
    """Return the seconds that a streaming query takes for all files, and its rows.

    collects: the rows are fetched; else each is counted as an empty one.
    """
    streams = {
        name: session.readStream.schema(session.read.parquet(str(path)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(path))
        .withWatermark("ts", "0 seconds")
        for name, path in files.items()
    }
    found: Bag = Counter()

    def take(rows: DataFrame, _: int) -> None:
        if collects:
            found.update(_bag(rows.toArrow()))
        else:
            found[()] += rows.count()

    began = time.perf_counter()
    query = (
        contest.frame(streams)
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(scratch))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - began, found


def _q3(of: Streams) -> DataFrame:
    auctions = of["auction"].where("category = 10")
    persons = of["person"].where("state IN ('OR', 'ID', 'CA')").withColumnRenamed("id", "person")
    joined = auctions.join(persons, auctions["seller"] == persons["person"])
    return joined.select("name", "city", "state", "id")


def _q4(of: Streams) -> DataFrame:
    """A frame may have one time with a watermark, so the others are numbers."""
    opened, expires, bidden = (f.unix_micros(f.col(name)) for name in ("ts", "expires", "ts"))
    auctions = of["auction"].select(
        "id",
        "category",
        opened.alias("opened"),
        expires.alias("closed"),
        _window("ts").alias("sold"),
    )
    bids = of["bid"].select("auction", "price", bidden.alias("bidden"), _window("ts"))
    joined = auctions.join(
        bids,
        (auctions["id"] == bids["auction"])
        & (auctions["sold"] == bids["window"])
        & (bids["bidden"] >= auctions["opened"])
        & (bids["bidden"] <= auctions["closed"]),
    )
    final = joined.groupBy("sold", "id", "category").agg(f.max("price").alias("final"))
    return final.groupBy("sold", "category").agg(f.avg("final")).drop("sold")


def _window(column: str) -> Column:
    return f.window(column, "10 seconds")


def _q5(of: Streams) -> DataFrame:
    hopping = f.window("ts", "10 seconds", "2 seconds")
    counts = of["bid"].groupBy(hopping, "auction").agg(f.count("*").alias("num"))
    row = f.struct("num", "auction")
    windows = counts.groupBy("window").agg(
        f.max("num").alias("most"), f.collect_list(row).alias("rows")
    )
    rows = windows.select("most", f.explode("rows").alias("row"))
    return rows.where("row.num = most").select("row.auction", "row.num")


def _q8(of: Streams) -> DataFrame:
    persons = of["person"].select("id", "name", f.window("ts", "10 seconds").alias("opened"))
    auctions = of["auction"].select("seller", f.window("ts", "10 seconds").alias("sold"))
    same = (persons["id"] == auctions["seller"]) & (persons["opened"] == auctions["sold"])
    return (
        persons.join(auctions, same).select("id", "name", "opened").dropDuplicates().drop("opened")
    )


def _q20(of: Streams) -> DataFrame:
    auctions = of["auction"].where("category = 10").drop("ts")
    bids = of["bid"].drop("ts")
    joined = bids.join(auctions, bids["auction"] == auctions["id"])
    columns = ("auction", "bidder", "price", "channel", "item", "seller", "category")
    return joined.select(*columns)


CONTESTS = {
    "q3": Contest(QUERIES["q3"].cql, _q3),
    "q4": Contest(
        "SELECT RSTREAM(t.category, AVG(t.final) AS mean) FROM (SELECT a.id, a.category, "
        f"MAX(b.price) AS final FROM auction {_TUMBLING} a JOIN bid {_TUMBLING} b "
        "ON b.auction = a.id AND b.ts >= a.ts AND b.ts <= a.expires GROUP BY a.id, a.category) t "
        "GROUP BY t.category",
        _q4,
        later_s=0,
    ),
    "q5": Contest(
        f"SELECT RSTREAM(a.auction, a.num) FROM {_COUNTS} a "
        f"JOIN (SELECT MAX(num) AS most FROM {_COUNTS} c) m ON a.num = m.most",
        _q5,
        later_s=0,
    ),
    "q8": Contest(QUERIES["q8"].cql, _q8),
    "q20": Contest(QUERIES["q20"].cql, _q20),
}


def main() -> None:
    """Measure with the number of events, and the queries, that the command line names."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("events", nargs="?", type=int, default=EVENTS)
    parser.add_argument("names", nargs="*", help="of queries; none: all")
    parser.add_argument("--flink", default="", help="a Python with apache-flink")
    given = parser.parse_args()
    if given.events < EVENTS_MIN:
        sys.exit(f"{given.events} events; the least number is {EVENTS_MIN:,}")
    if unknown := set(given.names) - set(CONTESTS):
        sys.exit(f"no query {', '.join(sorted(unknown))}; there are {', '.join(CONTESTS)}")
    print(measured(given.events, given.names, given.flink).markdown())


if __name__ == "__main__":
    main()
