"""Parquet files that executors read themselves come to what their tuples come to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from shedder.errors import FailedPrecondition, SchemaMismatch
from spark_ingest.files import parquet_files
from spark_ingest.pipeline import forward, summarise
from tests.server_process import ServerProcess
from tests.spark_ingest.worlds import ROWS, STREAMS, answers, files, service, table, with_streams

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[ServerProcess]:  # The JVM first: it forks.
    process = ServerProcess(tmp_path_factory.mktemp("server") / "data")
    yield process
    process.stop()


@pytest.fixture
def server(shared: ServerProcess) -> Iterator[ServerProcess]:
    """The shared server, with the three streams created anew."""
    with with_streams(shared) as process:
        yield process


def test_files_come_to_what_their_tuples_come_to_once(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    source = files(tmp_path / "a source", [table(n) for n in range(3)])
    narrow = table(3).set_column(1, "k", table(3)["k"].cast(pa.int32()))  # Fits, and is not alike.
    bad = table(4, 2).set_column(0, "ts", pa.array([None, 5], pa.timestamp("us", "UTC")))
    for stream, way in (("built", summarise), ("sent", forward)):
        checkpoint = str(tmp_path / stream)
        read = parquet_files(spark, source, per_batch=2)
        first = way(read, service(server), stream, checkpoint=checkpoint)
        assert first.wait()
        assert [done.rows for done in first.done] == [2 * ROWS, ROWS]
        pq.write_table(narrow, f"{source}/3 more.parquet")
        pq.write_table(bad, f"{source}/4.parquet")
        again = way(parquet_files(spark, source), service(server), stream, checkpoint=checkpoint)
        assert again.wait()
        assert [(done.rows, done.poison) for done in again.done] == [(ROWS + 1, 1)]
        (tmp_path / "a source/3 more.parquet").unlink()
        (tmp_path / "a source/4.parquet").unlink()
    with server.connect() as client:
        client.push("pushed", pa.concat_tables([table(n) for n in range(4)]))
        client.push("pushed", bad.slice(1))
        for stream in STREAMS:
            assert client.ledger(stream).applied == 4 * ROWS + 1
        assert answers(client, "built") == answers(client, "pushed")
        assert answers(client, "sent") == answers(client, "pushed")


def test_a_file_that_does_not_fit_is_named(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    wrong = table(0).set_column(1, "k", table(0)["k"].cast(pa.string()))
    source = files(tmp_path / "source", [wrong])
    with pytest.raises(SchemaMismatch, match=r"'k' is string, .*BIGINT"):
        summarise(
            parquet_files(spark, source), service(server), "built", checkpoint=str(tmp_path / "c")
        )
    pq.write_table(table(0), f"{source}/000.parquet")
    read = parquet_files(spark, source)
    pq.write_table(wrong, f"{source}/001.parquet")
    running = summarise(read, service(server), "built", checkpoint=str(tmp_path / "c"))
    with pytest.raises(FailedPrecondition, match=r"001\.parquet: .*'k' is string, .*BIGINT"):
        running.wait()
    (tmp_path / "source/001.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    running = summarise(
        parquet_files(spark, source), service(server), "built", checkpoint=str(tmp_path / "c")
    )
    with pytest.raises(FailedPrecondition, match=r"001\.parquet cannot be read as Parquet"):
        running.wait()
