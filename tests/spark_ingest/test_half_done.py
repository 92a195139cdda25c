"""A micro-batch that was begun is ended in the same way, and its rows come in the same order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from shedder.errors import FailedPrecondition
from spark_ingest.pipeline import Running, forward, summarise
from spark_ingest.row_order import is_shuffled
from tests.server_process import ServerProcess
from tests.spark_ingest.worlds import dying_once, emptied, files, service, stream_of, table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 25_000  # Of a file: three batches.


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[ServerProcess]:  # The JVM first: it forks.
    process = ServerProcess(tmp_path_factory.mktemp("server") / "data")
    yield process
    process.stop()


@pytest.fixture
def server(shared: ServerProcess) -> Iterator[ServerProcess]:
    """The shared server, with a stream created anew."""
    with shared.connect() as client:
        client.execute(
            "CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT, g VARCHAR, x DOUBLE) "
            "TIMESTAMP BY ts LATENESS INTERVAL '0' SECOND"
        )
        client.register("q", "SELECT COUNT(*) AS n FROM s")
    yield shared
    with shared.connect() as client:
        emptied(client)


def test_nobody_else_ends_what_forward_has_begun(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    frame = stream_of(spark, files(tmp_path / "source", [table(0, ROWS)]))
    there, checkpoint = service(server), str(tmp_path / "c")
    half = dying_once(frame, tmp_path / "killed", 15_000)
    with pytest.raises(StreamingQueryException):
        forward(half, there, "s", checkpoint=checkpoint).wait()
    with server.connect() as client:
        assert 0 < client.ledger("s").applied < ROWS
        with pytest.raises(FailedPrecondition, match="begun by forward and comes by summarise now"):
            summarise(frame, there, "s", checkpoint=checkpoint).wait()
        with pytest.raises(FailedPrecondition, match=r"as producer 'spark@.* this is 'other@"):
            forward(frame, there, "s", checkpoint=checkpoint, name="other").wait()
        assert client.ledger("s").applied < ROWS
        forward(frame, there, "s", checkpoint=checkpoint).wait()
        assert client.ledger("s").applied == ROWS
        files(tmp_path / "more", [table(1, 3_000)])
        (tmp_path / "more/000.parquet").rename(tmp_path / "source/001.parquet")
        with pytest.raises(FailedPrecondition, match=r"as producer 'spark@.* this is 'other@"):
            summarise(frame, there, "s", checkpoint=checkpoint, name="other").wait()
        summarise(frame, there, "s", checkpoint=checkpoint).wait()
        assert client.ledger("s").applied == ROWS + 3_000


def test_what_a_shuffle_has_mixed_is_forwarded_in_order_of_time(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    source = files(tmp_path / "source", [table(1, ROWS), table(0, ROWS)])
    frame = stream_of(spark, source).repartition(1)
    forward(frame, service(server), "s", checkpoint=str(tmp_path / "c")).wait()
    with server.connect() as client:
        ledger = client.ledger("s")
        assert (ledger.applied, ledger.late) == (2 * ROWS, 0)


def test_a_shuffle_is_seen_wherever_it_is(spark: SparkSession) -> None:
    rows = spark.range(100).withColumn("k", sf.col("id") % 3)
    for narrow in (rows, rows.where("k > 1"), rows.union(rows), rows.coalesce(1)):
        assert not is_shuffled(narrow)
    mixed = rows.repartition(2, "k")
    for wide in (mixed, rows.union(mixed).where("k > 1"), rows.groupBy("k").count()):
        assert is_shuffled(wide)


@pytest.mark.parametrize("run", [forward, summarise])
def test_a_checkpoint_that_is_older_than_the_service_is_refused(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, run: Callable[..., Running]
) -> None:
    """Else what it brings counts as a duplicate of what the service has, and is lost."""
    source, checkpoint = tmp_path / "source", tmp_path / "c"

    def more(number: int) -> None:
        files(tmp_path / f"more{number}", [table(number, 1_000)])
        (tmp_path / f"more{number}/000.parquet").rename(source / f"{number:03}.parquet")

    frame, there = stream_of(spark, files(source, [table(0, 1_000)])), service(server)
    run(frame, there, "s", checkpoint=str(checkpoint)).wait()
    shutil.copytree(checkpoint, tmp_path / "backup")
    more(1)
    run(frame, there, "s", checkpoint=str(checkpoint)).wait()
    shutil.rmtree(checkpoint)
    (tmp_path / "backup").rename(checkpoint)
    more(2)
    with pytest.raises(FailedPrecondition, match="this checkpoint never began: it is older"):
        run(frame, there, "s", checkpoint=str(checkpoint)).wait()
    with server.connect() as client:
        assert client.ledger("s").applied == 2_000
