"""A DataFrame is pushed from the executors: all of it, once, in order of time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from shedder.errors import FailedPrecondition, SchemaMismatch
from spark_ingest.backfill import backfill
from spark_ingest.executors import Service
from spark_ingest.writer import digest, write_stream
from tests.server_process import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def server(
    tmp_path: Path, spark: SparkSession
) -> Iterator[ServerProcess]:  # The JVM first: it forks.
    process = ServerProcess(tmp_path / "data")
    with process.connect() as client:
        client.execute(
            "CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT, g VARCHAR) "
            "TIMESTAMP BY ts LATENESS INTERVAL '0' SECOND"
        )
    yield process
    process.stop()


def test_a_frame_is_pushed_once_and_in_order_of_time(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    times = rng.integers(0, 60_000_000, 5_000)
    rows = {"g": rng.choice(["a", None], 5_000), "k": rng.integers(0, 9, 5_000)}
    table = pa.table({**rows, "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    bad = table.slice(0, 2).set_column(2, "ts", pa.nulls(2, pa.timestamp("us", "UTC")))
    (tmp_path / "source").mkdir()
    for number, part in enumerate((table.slice(0, 2_500), table.slice(2_500), bad)):
        pq.write_table(part, tmp_path / f"source/{number}.parquet")
    frame = spark.read.parquet(str(tmp_path / "source"))
    service = Service(server.address, {"insecure": True}, patience_s=60)
    aside = str(tmp_path / "aside")
    written = write_stream(frame, service, "s", name="nightly", aside=aside)
    assert (written.rows, written.poison) == (5_000, 2)
    assert len(pq.read_table(aside)) == 2
    write_stream(frame, service, "s", name="nightly", aside=aside)  # Nothing is stored twice.
    with server.connect() as client:
        ledger = client.ledger("s")
        assert (ledger.applied, ledger.duplicate, ledger.late) == (5_000, 5_000, 0)
        (found,) = client.execute("SELECT COUNT(*) AS n, SUM(k) AS s FROM s").rows()
        assert (found["n"], found["s"]) == (5_000, int(rows["k"].sum()))
    other = frame.withColumn("k", sf.col("k") + 1)
    for rows_of, count in ((other, "5,002"), (frame.where("ts IS NOT NULL"), "5,000")):
        with pytest.raises(
            FailedPrecondition, match=rf"'nightly' was begun for 5,002 .*these are {count}, not"
        ):
            write_stream(rows_of, service, "s", name="nightly", aside=aside)
    with pytest.raises(FailedPrecondition, match="has tuples of 'nightly/0' already"):
        write_stream(other, service, "s", name="nightly", aside=str(tmp_path / "elsewhere"))
    with server.connect() as client:
        assert client.ledger("s").accepted == 10_000
    with pytest.raises(SchemaMismatch, match="'g' is missing"):
        write_stream(frame.drop("g"), service, "s", name="other", aside=aside)
    later = frame.where(sf.col("ts").isNotNull()).withColumn("ts", sf.expr("ts + INTERVAL 1 HOUR"))
    again = write_stream(later, service, "s", name="more", aside=aside, partitions=2)
    assert (again.rows, again.poison) == (5_000, 0)
    with pytest.raises(FailedPrecondition, match=r"call with partitions=2, or with another name"):
        write_stream(later, service, "s", name="more", aside=aside)
    write_stream(frame.where("ts IS NULL"), service, "s", name="third", aside=aside)
    assert len(pq.read_table(aside)) == 4  # The first call's, and these.


def test_rows_are_told_from_others_and_not_from_the_same_in_another_order(
    spark: SparkSession,
) -> None:
    rows = spark.createDataFrame([(1, None), (None, 1), (2, 2), (2, 2)], "a long, b long")
    assert digest(rows) == digest(rows.repartition(3).orderBy("b"))
    assert digest(rows.where("a = 0")) == "0:0:0"
    others = [
        rows.where("a IS NULL OR b IS NULL"),  # Equal rows do not cancel each other out.
        rows.where("a = 1").selectExpr("b AS a", "a AS b"),
        rows.where("a = 1"),
        rows.withColumn("b", sf.col("a")),
    ]
    assert len({digest(each) for each in (rows, *others)}) == 5


def test_names_that_pyspark_cannot_hand_over_are_refused(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    times = pa.array(range(0, 10_000_000, 1_000_000), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"t.s": times}), tmp_path / "dots.parquet")
    frame = spark.read.parquet(str(tmp_path / "dots.parquet"))
    there = Service(server.address, {"insecure": True}, patience_s=60)
    with server.connect() as client:
        client.execute('CREATE STREAM dots ("t.s" TIMESTAMP NOT NULL) TIMESTAMP BY "t.s"')
    for push in (
        lambda: write_stream(frame, there, "dots", name="n", aside=str(tmp_path / "aside")),
        lambda: backfill(frame, there, "dots", name="n"),
    ):
        with pytest.raises(SchemaMismatch, match=r"'t\.s' has a dot or a backtick.*parquet_files"):
            push()
