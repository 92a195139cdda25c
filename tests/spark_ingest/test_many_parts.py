"""Micro-batches of many partitions and of more bytes than a message has: still one, and once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from shedder.client.client import Client
from spark_ingest.pipeline import forward, summarise
from spark_ingest.tree_merge import FANOUT
from tests.scale import in_turn, scaled
from tests.server_process import ServerProcess
from tests.spark_ingest.worlds import (
    ROWS,
    SECOND,
    STREAMS,
    answers,
    emptied,
    files,
    made,
    meanwhile,
    service,
    stream_of,
    table,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MESSAGE = 100_000  # bytes
MANY = (
    "SELECT g, COUNT(DISTINCT k) AS d, QUANTILE(x, 0.5) AS q, TOP(k, 10) AS t FROM {} "
    "[RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY g"
)
LATE = 30  # A table whose times lie so many windows later.


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[ServerProcess]:  # The JVM first: it forks.
    home = tmp_path_factory.mktemp("server")
    process = ServerProcess(home / "data", batch_bytes_max=str(MESSAGE))
    yield process
    process.stop()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """With the three streams, anew."""
    with server.connect() as connected:
        made(connected, *STREAMS)
        yield connected
        emptied(connected)


def test_more_partitions_than_a_task_merges_come_to_what_the_tuples_come_to(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    tables = [table(number) for number in range(6)]
    frame = stream_of(spark, files(tmp_path / "source", tables), per_batch=6).repartition(
        2 * FANOUT
    )
    for stream in ("built", "pushed"):
        client.register(f"many_{stream}", MANY.format(stream))
    running = summarise(frame, service(server), "built", checkpoint=str(tmp_path / "c"))
    running.wait()
    [done] = running.done
    assert done.rows == 6 * ROWS
    assert done.sent_bytes > MESSAGE  # In several messages.
    client.push("pushed", pa.concat_tables(tables))
    ledger = client.ledger("built")
    assert (ledger.accepted, ledger.applied, ledger.late) == (6 * ROWS, 6 * ROWS, 0)
    assert {query.read for query in ledger.queries} == {6 * ROWS}
    assert answers(client, "built") == answers(client, "pushed")
    many = [client.query(f"many_{stream}").answer().rows() for stream in ("built", "pushed")]
    assert sorted(many[0], key=str) == sorted(many[1], key=str)
    (tmp_path / "c/commits/0").unlink()  # The driver dies before Spark has noted it.
    (tmp_path / "c/commits/.0.crc").unlink(missing_ok=True)
    again = summarise(frame, service(server), "built", checkpoint=str(tmp_path / "c"))
    again.wait()
    assert [each.duplicate for each in again.done] == [True]
    assert client.ledger("built").applied == 6 * ROWS


def test_a_level_that_changes_in_mid_run_is_what_executors_thin_at_from_the_next_micro_batch_on(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    source = files(tmp_path / "source", [table(number) for number in range(3)])
    frame = meanwhile(
        stream_of(spark, source, per_batch=1),
        tmp_path / "changed",
        server.address,
        lambda other: other.execute("ALTER QUERY all_built SET THINNING 1/4"),
    )
    running = summarise(frame, service(server), "built", checkpoint=str(tmp_path / "c"))
    running.wait()
    assert (tmp_path / "changed").exists()
    assert [done.rows for done in running.done] == [ROWS] * 3
    ledger = client.ledger("built")
    found = {query.query: query for query in ledger.queries}
    assert (found["by_g_built"].read, found["by_g_built"].thinned) == (3 * ROWS, 0)
    thinned = found["all_built"].thinned
    assert found["all_built"].read == 3 * ROWS - thinned
    # Of the first micro-batch none, of the others three in four, as chance has it.
    assert thinned == pytest.approx(0.75 * 2 * ROWS, abs=5 * (0.1875 * 2 * ROWS) ** 0.5)


def test_late_tuples_are_as_late_as_if_somebody_had_pushed_them(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    first, second = table(LATE), [table(0), table(LATE + 1)]  # Of the second ones, half is late.
    source = files(tmp_path / "source", [first])
    for stream, way in (("built", summarise), ("sent", forward)):
        frame = stream_of(spark, source, per_batch=1)
        way(frame, service(server), stream, checkpoint=str(tmp_path / stream)).wait()
    client.push("pushed", first)
    for stream in STREAMS:
        client.heartbeat(stream, 10 * LATE * SECOND)
    source = files(tmp_path / "more", second)
    for stream, way in (("built", summarise), ("sent", forward)):
        frame = stream_of(spark, source)
        checkpoint = str(tmp_path / f"{stream}_more")
        way(frame, service(server), stream, checkpoint=checkpoint).wait()
    for each in second:
        client.push("pushed", each)
    ledgers = {stream: client.ledger(stream) for stream in STREAMS}
    counts = {}
    for stream, ledger in ledgers.items():
        assert (ledger.accepted, ledger.applied) == (3 * ROWS, 3 * ROWS)
        counts[stream] = {
            query.query.removesuffix(f"_{stream}"): (query.read, query.thinned, query.late)
            for query in ledger.queries
        }
        client.heartbeat(stream, 10 * (LATE + 3) * SECOND)
    assert counts["pushed"] == {"all": (2 * ROWS, 0, ROWS), "by_g": (3 * ROWS, 0, 0)}
    assert counts["built"] == counts["sent"] == counts["pushed"]
    right = answers(client, "pushed")
    assert answers(client, "built") == right
    assert answers(client, "sent") == right


CLUSTER = """
import os, re, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
from spark_ingest.executors import Service
from spark_ingest.runtime.java_runtime import JavaChoice, find_java
from spark_ingest.pipeline import forward, summarise
from spark_ingest.runtime.spark_session import DAEMON, without_pandas

address, source, home, *streams = sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:]

def parent(of):
    return int(Path(f"/proc/{of}/stat").read_text().rpartition(")")[2].split()[1])

def once(marker):
    def rows(batches):
        for batch in batches:
            yield batch
            if not marker.exists():
                executor = parent(os.getppid())  # Above the daemon that forks workers.
                marker.write_text(Path(f"/proc/{executor}/cmdline").read_text())
                os.kill(executor, signal.SIGKILL)
    return rows

os.environ["JAVA_HOME"] = str(find_java(JavaChoice.from_environment()).shim(home / "java"))
os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", False)
builder = builder.config("spark.local.dir", str(home / "local"))
builder = builder.config("spark.sql.shuffle.partitions", 2)
builder = builder.config("spark.sql.warehouse.dir", str(home / "warehouse"))
for side in ("driver", "executor"):
    brief = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    builder = builder.config(f"spark.{side}.extraJavaOptions", brief)
builder = builder.config("spark.python.daemon.module", DAEMON)
builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
with without_pandas():
    spark = builder.getOrCreate()
    for stream in streams:
        way = {"built": summarise, "sent": forward}[stream]
        schema = "ts timestamp, k bigint, g string, x double"
        frame = spark.readStream.schema(schema).parquet(source)
        frame = frame.mapInArrow(once(home / f"killed_{stream}"), frame.schema)
        service = Service(address, {"insecure": True})
        way(frame, service, stream, checkpoint=str(home / stream)).wait()
    spark.stop()
"""


@in_turn("kills of a JVM", 2, of=3)
@pytest.mark.timeout(300)
def test_an_executor_that_is_killed_in_mid_batch_costs_nothing_but_time(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """On a cluster of two, the JVM is killed: Spark repeats its tasks on another executor.

    A per-change run only forwards: the service already has some forwarded tuples when a task is
    repeated, but no summarised ones.
    """
    streams = scaled(("sent",), ("built", "sent"))
    tables = [table(number, 15_000) for number in range(2)]  # Two batches each.
    source = files(tmp_path / "source", tables)
    command = [sys.executable, "-c", CLUSTER, server.address, source, str(tmp_path), *streams]
    here = {"PYTHONPATH": os.pathsep.join(sys.path), "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=280, env=os.environ | here
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    client.push("pushed", pa.concat_tables(tables))
    right = answers(client, "pushed")
    for stream in streams:
        assert "CoarseGrainedExecutorBackend" in (tmp_path / f"killed_{stream}").read_text()
        ledger = client.ledger(stream)
        assert ledger.applied == 30_000
        assert {query.read for query in ledger.queries} == {30_000}
        assert answers(client, stream) == right
