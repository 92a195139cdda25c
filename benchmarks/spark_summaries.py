"""Summaries built on Spark's executors, beside Spark's own approximate functions."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import shedder
from benchmarks.measure import Report
from benchmarks.trades import QUERIES
from shedder.engine.engine import Engine
from shedder.engine.summaries import Summaries
from shedder.engine.summarise import Plans, Summariser, built_of
from shedder.streams.conform import conform
from spark_ingest.executors import BUILT, Part, builder, merger
from spark_ingest.poison import Aside
from spark_ingest.session import SparkSettings, spark_session, without_pandas

TUPLES = int(os.environ.get("BENCH_SPARK_TUPLES", "6000000"))
SHARES = (0.25, 1.0)  # Of the tuples, in the same stretch of time, to see how much is sent of them.
SECONDS = 60  # of event time, however many tuples
FILES = 12
PARTITIONS = 200  # simulated, of one micro-batch
CREATE = (
    "CREATE STREAM trades (ts TIMESTAMP NOT NULL, key BIGINT, value DOUBLE) TIMESTAMP BY ts "
    "LATENESS INTERVAL '1' MINUTE"
)
FUNCTIONS = ("approx_count_distinct(key)", "approx_percentile(value, 0.99)")


def run() -> Report:
    """Tuples a second on one and two cores; bytes to the driver; the merge at the service."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        _write(home / "source")
        with shedder.open(home / "data") as db:
            assert isinstance(db, Engine)
            db.execute(CREATE)
            for query, text in QUERIES.items():
                db.register(query, text)
            plans = db.plans("trades")
            (merge_ms, cpu_ms), merged = _merge(db, Plans.from_json(plans))
        rows = []
        for cores in (1, 2):
            with spark_session(SparkSettings(cores=cores)) as spark, without_pandas():
                frame = spark.read.parquet(str(home / "source"))
                ours = _rate(lambda f=frame: _built(f, plans, home))  # type: ignore[misc]
                theirs = _rate(lambda f=frame: f.selectExpr(*FUNCTIONS).collect())  # type: ignore[misc]
                rows.append([_cores(cores), "all synopses of the queries", _m(ours), "1.00×"])
                rows.append(
                    [_cores(cores), ", ".join(FUNCTIONS), _m(theirs), f"{ours / theirs:.2f}×"]
                )
                if cores == 2:
                    sent = [(share, _sent(frame, plans, home, share)) for share in SHARES]
    few, many = (
        f"{size / 1e6:.2f} MB of {share * TUPLES / 1e6:.2g} M tuples" for share, size in sent
    )
    return Report(
        claim="Not slower per core than Spark's own functions for two of the aggregates, while "
        f"all synopses of {len(QUERIES)} queries are built; what is sent does not grow with the "
        f"tuples; merging {PARTITIONS} partitions costs the service less than 10 ms.",
        columns=["cores", "what", "tuples/s", "ours over this"],
        rows=rows,
        notes=[
            f"{TUPLES:,} tuples of {SECONDS} s in {FILES} Parquet files: two numbers and a time.",
            f"To the driver, for one micro-batch: {few}, {many}; of the same panes and groups.",
            (
                f"{PARTITIONS} partitions' summaries come to one in a tree on the executors; "
                f"checking, logging and merging it takes the service {merge_ms:.1f} ms, "
                f"{cpu_ms:.1f} ms of CPU ({merged / 1e6:.2f} MB)."
            ),
        ],
    )


def _write(directory: Path) -> None:
    directory.mkdir()
    rng = np.random.default_rng(1)
    each = TUPLES // FILES
    for number in range(FILES):
        times = np.arange(number * each, (number + 1) * each) * (SECONDS * 1_000_000 // TUPLES)
        table = {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "key": rng.zipf(1.3, each) % 100_000,
            "value": rng.lognormal(1, 1, each),
        }
        pq.write_table(pa.table(table), directory / f"{number}.parquet")


def _built(frame: DataFrame, plans: str, home: Path) -> list[object]:
    part = Part(plans, 0, Aside(str(home / "poison")))
    built = frame.mapInArrow(builder(part), BUILT)
    return built.coalesce(1).mapInArrow(merger(plans), BUILT).collect()  # type: ignore[return-value]


def _sent(frame: DataFrame, plans: str, home: Path, share: float) -> int:
    part = frame if share == 1 else frame.sample(share, seed=1)
    (row,) = _built(part, plans, home)
    return len(row.data)  # type: ignore[attr-defined]


def _rate(work: Callable[[], object]) -> float:
    work()  # Workers start and compile.
    times = []
    for _ in range(2):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return TUPLES / min(times)


def _merge(db: Engine, plans: Plans) -> tuple[tuple[float, float], int]:
    """Milliseconds of the service for what 200 partitions came to, of CPU, too; and its bytes."""
    rng = np.random.default_rng(2)
    made: list[Summaries] = []
    for number in range(PARTITIONS):
        builder_of = Summariser(plans, number << 40)
        rows = {
            "ts": pa.array(rng.integers(0, 10_000_000, 5_000), pa.timestamp("us")),
            "key": rng.zipf(1.3, 5_000) % 100_000,
            "value": rng.lognormal(1, 1, 5_000),
        }
        for batch in conform(pa.table(rows), plans.schema):
            builder_of.add(batch)
        made.append(builder_of.summaries())
    data = built_of(made, plans).to_bytes()
    times = []
    for sequence in range(5):
        began, spent = time.perf_counter(), time.process_time()
        db.merge("trades", data, producer="spark", sequence=sequence)
        times.append((time.perf_counter() - began, time.process_time() - spent))
    wall_s, cpu_s = min(times)
    return (wall_s * 1e3, cpu_s * 1e3), len(data)


def _cores(count: int) -> str:
    return f"local[{count}]"


def _m(rate: float) -> str:
    return f"{rate / 1e6:.2f} M"
