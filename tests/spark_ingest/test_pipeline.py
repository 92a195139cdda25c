"""Streams through Spark: what was built on executors is what the tuples come to, exactly once."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from shedder.errors import FailedPrecondition, SchemaMismatch, UnknownQuery, UnknownStream
from shedder.streams.batches import ROWS_PER_BATCH
from spark_ingest.pipeline import forward, summarise
from spark_ingest.runtime.spark_session import having
from tests.scale import in_turn, scaled
from tests.seeds import seed
from tests.server_process import ServerProcess
from tests.spark_ingest.worlds import (
    FILES,
    QUERIES,
    ROWS,
    SECOND,
    STREAMS,
    answers,
    dying_once,
    files,
    killing_once,
    made,
    meanwhile,
    service,
    stream_of,
    table,
    with_streams,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES_OF_OUTAGE = scaled(3, FILES)  # Micro-batches of the test that kills the service.
WAYS = [("built", summarise), ("sent", forward)]


def drawn_ways(place: int) -> list[Any]:
    """Return the ways in which a test runs. Per change, neighbours by their place differ."""
    return scaled([WAYS[(seed("ways") + place) % len(WAYS)]], WAYS)


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


@pytest.fixture
def own_server(tmp_path: Path, spark: SparkSession) -> Iterator[ServerProcess]:
    """A server with the three streams, which the test may stop."""
    process = ServerProcess(tmp_path / "data")
    with process.connect() as client:
        made(client, *STREAMS)
    yield process
    process.stop()


def test_both_ways_come_to_what_the_tuples_come_to(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    source = files(tmp_path / "source", [table(n) for n in range(FILES)])
    frame = stream_of(spark, source)
    built = summarise(frame, service(server), "built", checkpoint=str(tmp_path / "c1"))
    assert built.wait()
    sent = forward(frame, service(server), "sent", checkpoint=str(tmp_path / "c2"))
    assert sent.wait()
    with server.connect() as client:
        client.push("pushed", pa.concat_tables([table(n) for n in range(FILES)]))
        for stream in STREAMS:
            ledger = client.ledger(stream)
            assert (ledger.accepted, ledger.applied) == (FILES * ROWS, FILES * ROWS)
            assert all(query.read == FILES * ROWS for query in ledger.queries)
        right = answers(client, "pushed")
        assert answers(client, "built") == right
        assert answers(client, "sent") == right
    assert [done.rows for done in built.done] == [2 * ROWS] * 3
    assert sum(done.rows for done in sent.done) == FILES * ROWS
    assert all(done.sent_bytes > 0 for done in built.done)


@pytest.mark.parametrize(("stream", "way"), drawn_ways(0))
def test_a_pipeline_goes_on_where_it_stopped_and_does_nothing_twice(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, stream: str, way: Any
) -> None:
    source = files(tmp_path / "source", [table(n) for n in range(2)])
    checkpoint = str(tmp_path / "c")
    way(stream_of(spark, source), service(server), stream, checkpoint=checkpoint).wait()
    # The driver dies before Spark notes that the micro-batch is done: it is done again.
    (tmp_path / "c/commits/0").unlink()
    (tmp_path / "c/commits/.0.crc").unlink(missing_ok=True)
    for number in range(2, 4):
        pq.write_table(table(number), f"{source}/{number:03d}.parquet")
    again = way(stream_of(spark, source), service(server), stream, checkpoint=checkpoint)
    again.wait()
    assert [done.duplicate for done in again.done] == [True, False]
    with server.connect() as client:
        assert client.ledger(stream).applied == 4 * ROWS


def test_an_older_directory_of_the_service_is_refused(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    source = files(tmp_path / "source", [table(n) for n in range(2)])
    checkpoint = str(tmp_path / "c")
    frame = stream_of(spark, source, per_batch=1)
    summarise(frame, service(server), "built", checkpoint=checkpoint).wait()
    with server.connect() as client:  # As if a backup of before had been restored.
        for name in QUERIES:
            client.query(f"{name}_built").drop()
        client.execute("DROP STREAM built")
        client.execute(
            "CREATE STREAM built (ts TIMESTAMP NOT NULL, k BIGINT, g VARCHAR, x DOUBLE) "
            "TIMESTAMP BY ts"
        )
    pq.write_table(table(2), f"{source}/002.parquet")
    running = summarise(frame, service(server), "built", checkpoint=checkpoint)
    with pytest.raises(FailedPrecondition, match="its directory is older"):
        running.wait()


@pytest.mark.parametrize(("stream", "way"), drawn_ways(1))
def test_a_service_that_comes_back_with_a_backup_is_refused_and_takes_nothing(
    spark: SparkSession, own_server: ServerProcess, tmp_path: Path, stream: str, way: Any
) -> None:
    source = files(tmp_path / "source", [table(0, 300)])
    frame, checkpoint = stream_of(spark, source, per_batch=1), str(tmp_path / "c")
    own_server.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    own_server.start_again()
    way(frame, service(own_server), stream, checkpoint=checkpoint).wait()
    own_server.stop()
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "backup", tmp_path / "data")
    own_server.start_again()
    pq.write_table(table(1, 300), f"{source}/001.parquet")
    running = way(frame, service(own_server), stream, checkpoint=checkpoint)
    with pytest.raises(FailedPrecondition, match="its directory is older than this checkpoint"):
        running.wait()
    with own_server.connect() as client:
        assert client.ledger(stream).accepted == 0


def test_poison_is_counted_and_kept_with_its_reason(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    bad = pa.table(
        {
            "ts": pa.array([None, 5, 253_402_300_799_000_000], pa.timestamp("us", "UTC")),
            "k": [1, 2, 3],
            "g": ["a", "b", "c"],
            "x": [1.0, 2.0, 3.0],
        }
    )
    source = files(tmp_path / "source", [table(0), bad])
    for stream, way in (("built", summarise), ("sent", forward)):
        checkpoint = tmp_path / stream
        running = way(stream_of(spark, source), service(server), stream, checkpoint=str(checkpoint))
        running.wait()
        assert sum(done.poison for done in running.done) == 2
        kept = pq.read_table(checkpoint / "poison").to_pylist()
        assert {row["k"]: row["__reason"] for row in kept} == {
            1: "ts: is null",
            3: "ts: is too far in the future",
        }
        with server.connect() as client:
            assert client.ledger(stream).applied == ROWS + 1


def test_a_query_that_comes_between_micro_batches_is_fed_from_then_on(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    source = files(tmp_path / "source", [table(0)])
    checkpoint = str(tmp_path / "c")
    summarise(stream_of(spark, source), service(server), "built", checkpoint=checkpoint).wait()
    with server.connect() as client:
        client.register("later", "SELECT COUNT(*) AS n FROM built")
        client.query("by_g_built").drop()
        client.execute("ALTER QUERY all_built SET THINNING 1/4")
    pq.write_table(table(1), f"{source}/001.parquet")
    summarise(stream_of(spark, source), service(server), "built", checkpoint=checkpoint).wait()
    with server.connect() as client:
        assert client.query("later").answer().rows()[0]["n"] == ROWS
        found = {query.query: query for query in client.ledger("built").queries}
        assert found["all_built"].read + found["all_built"].thinned == 2 * ROWS
        assert 0.6 * ROWS < found["all_built"].thinned < 0.9 * ROWS


def test_a_query_that_is_dropped_in_mid_batch_costs_the_others_nothing(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    source = files(tmp_path / "source", [table(0)])
    frame = meanwhile(
        stream_of(spark, source),
        tmp_path / "dropped",
        server.address,
        lambda client: client.query("by_g_built").drop(),
    )
    running = summarise(frame, service(server), "built", checkpoint=str(tmp_path / "c"))
    running.wait()
    assert (tmp_path / "dropped").exists()
    assert [(done.rows, done.duplicate) for done in running.done] == [(ROWS, False)]
    with server.connect() as client:
        [left] = client.ledger("built").queries
        assert (left.query, left.read) == ("all_built", ROWS)
        with pytest.raises(UnknownQuery):
            client.query("by_g_built")


LATER = "SELECT g, COUNT(*) AS n, SUM(k) AS s FROM {} GROUP BY g"


@pytest.mark.parametrize(
    ("stream", "way", "known"),
    # What is built is built again for the new query, too; of what is pushed it gets what comes.
    [("built", summarise, {2 * ROWS}), ("sent", forward, range(ROWS, 2 * ROWS + 1))],
)
def test_a_query_that_is_registered_in_mid_batch_costs_the_others_nothing(
    spark: SparkSession,
    server: ServerProcess,
    tmp_path: Path,
    stream: str,
    way: Any,
    known: Container[int],
) -> None:
    source = files(tmp_path / "source", [table(n) for n in range(2)])
    frame = meanwhile(
        stream_of(spark, source, per_batch=1),
        tmp_path / "registered",
        server.address,
        lambda client: client.register("later", LATER.format(stream)),
    )
    running = way(frame, service(server), stream, checkpoint=str(tmp_path / "c"))
    running.wait()
    assert (tmp_path / "registered").exists()
    assert [(done.rows, done.duplicate) for done in running.done] == [(ROWS, False)] * 2
    with server.connect() as client:
        ledger = client.ledger(stream)
        assert (ledger.accepted, ledger.applied, ledger.duplicate) == (2 * ROWS, 2 * ROWS, 0)
        read = {query.query: query.read for query in ledger.queries}
        later = read.pop("later")
        assert later in known
        assert set(read.values()) == {2 * ROWS}
        client.push("pushed", pa.concat_tables([table(n) for n in range(2)]))
        assert answers(client, stream) == answers(client, "pushed")
        groups = client.query("later").answer().rows()
        assert sum(row["n"] for row in groups) == later
        if later == 2 * ROWS:
            [at_once] = [client.execute(LATER.format("pushed"))]
            assert sorted(groups, key=str) == sorted(at_once.rows(), key=str)


def called(address: str) -> None:
    """Wait until a client connects to the address, and close that connection."""
    host, port = address.rsplit(":", 1)
    with socket.create_server((host, int(port))) as listening:
        listening.settimeout(60)
        listening.accept()[0].close()


@pytest.mark.parametrize(("stream", "way"), drawn_ways(2))
def test_the_service_may_be_away_for_a_while(
    spark: SparkSession, own_server: ServerProcess, tmp_path: Path, stream: str, way: Any
) -> None:
    """The service is killed in the second micro-batch."""
    tables = [table(n) for n in range(FILES_OF_OUTAGE)]
    source = files(tmp_path / "source", tables)
    frame = killing_once(
        stream_of(spark, source, per_batch=1), tmp_path / "killed", own_server.pid, 10 * SECOND
    )
    running = way(frame, service(own_server), stream, checkpoint=str(tmp_path / "c"))
    assert own_server.wait() == -signal.SIGKILL
    called(own_server.address)  # The pipeline goes on as soon as there is a service.
    own_server.start_again()
    assert running.wait()
    assert [done.rows for done in running.done] == [ROWS] * FILES_OF_OUTAGE
    with own_server.connect() as client:
        ledger = client.ledger(stream)
        assert ledger.applied == FILES_OF_OUTAGE * ROWS
        assert all(query.read == FILES_OF_OUTAGE * ROWS for query in ledger.queries)
        client.push("pushed", pa.concat_tables(tables))
        assert answers(client, stream) == answers(client, "pushed")


def test_columns_that_do_not_fit_are_named_with_both_types(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    source = files(tmp_path / "source", [table(0)])
    frame = stream_of(spark, source)
    wrong = frame.withColumn("k", frame["k"].cast("string"))
    with pytest.raises(SchemaMismatch, match=r"'k' is string, .*BIGINT"):
        summarise(wrong, service(server), "built", checkpoint=str(tmp_path / "c"))
    with pytest.raises(SchemaMismatch, match="'x' is missing"):
        summarise(frame.drop("x"), service(server), "built", checkpoint=str(tmp_path / "c"))
    with pytest.raises(UnknownStream):
        summarise(frame, service(server), "nowhere", checkpoint=str(tmp_path / "c"))


@pytest.mark.parametrize(("stream", "way"), drawn_ways(3))
def test_a_worker_that_is_killed_in_mid_batch_costs_nothing_but_time(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, stream: str, way: Any
) -> None:
    rows = ROWS_PER_BATCH + 5_000  # Dead between its first batch and its second.
    source = files(tmp_path / "source", [table(n, rows) for n in range(2)])
    frame = dying_once(stream_of(spark, source), tmp_path / "killed", ROWS_PER_BATCH + 1_000)
    arrow = "spark.sql.execution.arrow"
    with (
        having(spark, f"{arrow}.maxRecordsPerBatch", 3_000),
        having(spark, f"{arrow}.maxBytesPerBatch", 50_000),
        pytest.raises(StreamingQueryException),  # local[2] tries a task once.
    ):
        way(frame, service(server), stream, checkpoint=str(tmp_path / "c")).wait()
    with (
        having(spark, f"{arrow}.maxRecordsPerBatch", 7_000),
        having(spark, f"{arrow}.maxBytesPerBatch", 90_000),
    ):
        way(frame, service(server), stream, checkpoint=str(tmp_path / "c")).wait()
    with server.connect() as client:
        client.push("pushed", pa.concat_tables([table(n, rows) for n in range(2)]))
        ledger = client.ledger(stream)
        assert ledger.applied == 2 * rows
        assert all(query.read == 2 * rows for query in ledger.queries)
        assert answers(client, stream) == answers(client, "pushed")


DRIVER = """
import os, signal, sys
from pathlib import Path
from spark_ingest.executors import Service
from spark_ingest.pipeline import forward, summarise
from spark_ingest.runtime.spark_session import SparkSettings, spark_session

address, source, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])
driver, ways = os.getpid(), {"built": summarise, "sent": forward}
def until_both(stream):
    def rows(batches):
        for number, batch in enumerate(batches):
            yield batch
            if number == 1:
                (home / f"{stream}_is_there").touch()
                while not all((home / f"{each}_is_there").exists() for each in ways):
                    os.sched_yield()
                os.kill(driver, signal.SIGKILL)
    return rows

with spark_session(SparkSettings(cores=2, heap_mb=1024, brief=True)) as spark:
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", 1)  # As if it had one core.
    schema = "ts timestamp, k bigint, g string, x double"
    for stream, way in ways.items():
        frame = spark.readStream.schema(schema).parquet(source)
        frame = frame.mapInArrow(until_both(stream), frame.schema)
        there = Service(address, {"insecure": True})
        running = way(frame, there, stream, checkpoint=str(home / stream))
    running.wait()
"""


@in_turn("kills of a JVM", 0, of=3)
def test_a_driver_that_is_killed_in_mid_batch_costs_nothing_but_time(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    """Both ways are killed between the second batch and the third."""
    rows = 2 * ROWS_PER_BATCH + 5_000
    source = files(tmp_path / "source", [table(0, rows)])
    command = [sys.executable, "-c", DRIVER, server.address, source, str(tmp_path)]
    ended = subprocess.run(command, check=False, capture_output=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]
    for stream, way in (("built", summarise), ("sent", forward)):
        assert (tmp_path / stream / "offsets/0").exists()
        assert not (tmp_path / stream / "commits/0").exists()
        goes_on(spark, server, tmp_path / stream, source, way)
    with server.connect() as client:
        client.push("pushed", table(0, rows))
        for stream in ("built", "sent"):
            ledger = client.ledger(stream)
            assert ledger.applied == rows
            assert all(query.read == rows for query in ledger.queries)
            assert answers(client, stream) == answers(client, "pushed")


def goes_on(
    spark: SparkSession, server: ServerProcess, checkpoint: Path, source: str, way: Any
) -> None:
    """Continue on two cores a run begun on one; the number of partitions stays the same."""
    minimum = "spark.sql.files.minPartitionNum"

    def again(**options: Any) -> None:
        frame, there = stream_of(spark, source), service(server)
        way(frame, there, checkpoint.name, checkpoint=str(checkpoint), **options).wait()

    with having(spark, "spark.sql.files.openCostInBytes", 1):  # Small files are cut, too.
        if way is forward:
            refused = r"begun in 1 partition\(s\) and comes in 2 now.*minPartitionNum=1 "
            with having(spark, minimum, 2), pytest.raises(FailedPrecondition, match=refused):
                again()
        with pytest.raises(Exception, match="nonsense"):
            again(trigger={"processingTime": "nonsense"})
        assert spark.conf.get(minimum, None) is None  # It began by what the checkpoint says.
        again()
    assert spark.conf.get(minimum, None) is None
