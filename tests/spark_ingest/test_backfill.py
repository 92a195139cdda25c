"""Years of Parquet become a stream's past: exactly, once, if any process is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from shedder.errors import FailedPrecondition, SchemaMismatch
from spark_ingest.backfill import Cut, backfill
from spark_ingest.executors import Service
from spark_ingest.runtime.spark_session import having, without_pandas
from tests.scale import in_turn
from tests.server_process import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECOND = 1_000_000
FILES, ROWS = 6, 4_000
QUERIES = {
    "ever": "SELECT g, COUNT(*) AS n, SUM(k) AS s, COUNT(DISTINCT k) AS d FROM {} GROUP BY g",
    "wide": "SELECT COUNT(*) AS n, MAX(k) AS h, MEDIAN(x) AS m "
    "FROM {} [RANGE 40 SECONDS SLIDE 10 SECONDS]",
}


@pytest.fixture
def server(
    tmp_path: Path, spark: SparkSession
) -> Iterator[ServerProcess]:  # The JVM first: it forks.
    process = ServerProcess(tmp_path / "data")
    with process.connect() as client:
        for stream in ("s", "pushed"):
            client.execute(
                f"CREATE STREAM {stream} (ts TIMESTAMP NOT NULL, k BIGINT, g VARCHAR, x DOUBLE) "
                "TIMESTAMP BY ts LATENESS INTERVAL '5' SECOND "
                "ARCHIVE hybrid(blocks=8, block_rows=200)"
            )
            for name, text in QUERIES.items():
                client.register(f"{name}_{stream}", text.format(stream))
    yield process
    process.stop()


def table(file: int, rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(file)
    times = (10 * file + rng.uniform(0, 10, rows)) * SECOND
    return pa.table(
        {
            "x": rng.lognormal(1, 2, rows),
            "ts": pa.array(times.astype(np.int64), pa.timestamp("us", "UTC")),
            "k": rng.zipf(1.6, rows) % 300,
            "g": rng.choice(["a", "b", None], rows),
        }
    )


LIVE = table(2, 1)  # Event times in the middle of those of the files.


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    for number in range(FILES):
        pq.write_table(table(number), directory / f"{number:03d}.parquet")
    return directory


def service(server: ServerProcess) -> Service:
    return Service(server.address, {"insecure": True}, patience_s=60)


def truth(*places: str) -> list[tuple[Any, ...]]:
    many = ", ".join(f"'{place}'" for place in places)
    sql = "SELECT g, count(*), sum(k)::BIGINT, min(x) FROM read_parquet([{}]) GROUP BY g"
    with duckdb.connect() as connection:
        return sorted(connection.execute(sql.format(many)).fetchall(), key=str)


def answer_of(server: ServerProcess) -> list[tuple[Any, ...]]:
    sql = "SELECT g, COUNT(*) AS n, SUM(k) AS s, MIN(x) AS l FROM s GROUP BY g"
    with server.connect() as client:
        found = [(row["g"], row["n"], row["s"], row["l"]) for row in client.execute(sql).rows()]
    return sorted(found, key=str)


def answers(server: ServerProcess, stream: str) -> dict[str, Any]:
    with server.connect() as client:
        return {
            name: sorted(client.query(f"{name}_{stream}").answer().rows(), key=str)
            for name in QUERIES
        }


def test_parquet_becomes_the_past_while_the_stream_goes_on(
    spark: SparkSession, server: ServerProcess, source: Path, tmp_path: Path
) -> None:
    live = [table(FILES + 1 + number, 500) for number in range(4)]
    pq.write_table(pa.concat_tables(live), tmp_path / "live.parquet")
    bad = table(2, 3).set_column(1, "ts", pa.array([None, None, None], pa.timestamp("us", "UTC")))
    pq.write_table(bad, source / "bad.parquet")
    calls: list[tuple[int, int]] = []
    done = threading.Event()

    def push() -> None:
        with server.connect() as client, client.producer("s", "live") as out:
            for each in live:
                out.push(each)
        done.set()

    pusher = threading.Thread(target=push)
    pusher.start()
    found = backfill(
        spark.read.parquet(str(source)),
        service(server),
        "s",
        name="years",
        aside=str(tmp_path / "aside"),
        part_rows=5_000,
        on_progress=lambda rows, total: calls.append((rows, total)),
    )
    pusher.join(60)
    assert done.is_set()
    assert (found.rows, found.poison, found.duplicate) == (FILES * ROWS, 3, False)
    assert found.parts >= 5
    assert calls[-1] == (FILES * ROWS + 3, FILES * ROWS + 3)
    kept = pq.read_table(tmp_path / "aside").to_pylist()
    assert [row["__reason"] for row in kept] == ["ts: is null"] * 3
    assert answer_of(server) == truth(str(source / "0*.parquet"), str(tmp_path / "live.parquet"))
    with server.connect() as client:
        client.push("pushed", pa.concat_tables([table(n) for n in range(FILES)]))
        client.push("pushed", pa.concat_tables(live))
        ledger = client.ledger("s")
        assert (ledger.applied, ledger.backfilled) == (2_000, FILES * ROWS)
    assert answers(server, "s") == answers(server, "pushed")
    again = backfill(spark.read.parquet(str(source)), service(server), "s", name="years")
    assert (again.rows, again.parts, again.duplicate) == (FILES * ROWS, 0, True)
    server.stop(signal.SIGKILL)
    server.start_again()
    assert answer_of(server) == truth(str(source / "0*.parquet"), str(tmp_path / "live.parquet"))


@in_turn("kills of a JVM", 1, of=3)
def test_a_driver_that_is_killed_goes_on_where_it_was(
    spark: SparkSession, server: ServerProcess, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver is the command's process; the command then continues in this process.

    However late the signal comes, the killed driver adopts nothing. It was started
    without `--overlap`, and event times of the stream are among those of the files.
    """
    arguments = ["backfill", str(source), "s", "--insecure", "--connect", server.address]
    arguments += ["--name", "years", "--part-rows", "2000", "--heap-mb", "1024"]
    with server.connect() as client:
        client.push("s", LIVE)
        driver = subprocess.Popen(
            [sys.executable, "-m", "shedder.cli.main", *arguments], stderr=subprocess.PIPE
        )
        while driver.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                driver.wait(0.1)
            with suppress(FailedPrecondition):  # The backfill has not begun.
                if client.begin_backfill("s", "years").done:
                    driver.kill()
        assert driver.stderr is not None
        said = driver.stderr.read()
        driver.stderr.close()
        assert driver.returncode != 0
        assert client.begin_backfill("s", "years").done, said[-3000:]
        assert client.ledger("s").backfilled == 0
    frame = spark.read.parquet(str(source))
    with pytest.raises(FailedPrecondition, match="source has 24,001 rows; it had 24,000"):
        backfill(frame.union(frame.limit(1)), service(server), "s", name="years")
    capsys.readouterr()
    assert run([*arguments, "--overlap"]) == ExitCode.FINE
    assert "s: 24,000 rows of its past in " in capsys.readouterr().err
    pq.write_table(LIVE, source.parent / "live.parquet")
    assert answer_of(server) == truth(
        str(source / "*.parquet"), str(source.parent / "live.parquet")
    )
    assert backfill(frame, service(server), "s", name="years").duplicate


def test_one_that_was_abandoned_begins_anew_without_what_it_had_kept_aside(
    spark: SparkSession, server: ServerProcess, source: Path, tmp_path: Path
) -> None:
    left = tmp_path / "aside/job=backfill.s.years/batch=0/left.parquet"
    left.parent.mkdir(parents=True)
    pq.write_table(table(0, 1), left)
    with server.connect() as client:
        client.begin_backfill("s", "years", Cut(7, (), None, 0).to_json(), 1)
        client.abandon_backfill("s", "years")
    frame, aside = spark.read.parquet(str(source)), str(tmp_path / "aside")
    done = backfill(frame, service(server), "s", name="years", aside=aside)
    assert (done.rows, done.poison, done.duplicate) == (FILES * ROWS, 0, False)
    assert not left.exists()


def dying_once(frame: DataFrame, marker: Path) -> DataFrame:
    """The same rows; but the first Python worker is killed once it has handed a batch on."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    with without_pandas():
        return frame.mapInArrow(rows, frame.schema)


def test_an_executor_that_is_killed_costs_nothing_but_time(
    spark: SparkSession, server: ServerProcess, source: Path, tmp_path: Path
) -> None:
    frame = dying_once(spark.read.parquet(str(source)), tmp_path / "killed")
    with having(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", 500):
        with pytest.raises(Exception, match="exited unexpectedly"):  # local[2] tries a task once.
            backfill(frame, service(server), "s", name="years", part_rows=4_000)
        assert backfill(frame, service(server), "s", name="years").rows == FILES * ROWS
    assert answer_of(server) == truth(str(source / "*.parquet"))


def test_what_does_not_fit_is_refused_before_anything_runs(
    spark: SparkSession, server: ServerProcess, source: Path
) -> None:
    frame = spark.read.parquet(str(source))
    wrong = frame.withColumn("k", frame["k"].cast("string"))
    with pytest.raises(SchemaMismatch, match=r"'k' is string, .*BIGINT"):
        backfill(wrong, service(server), "s", name="years")
    nulls = frame.withColumn("ts", sf.lit(None).cast("timestamp"))
    with pytest.raises(FailedPrecondition, match="say where such rows go"):
        backfill(nulls, service(server), "s", name="nulls")
