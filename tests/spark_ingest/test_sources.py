"""Text, sockets and clocks through Spark: read as what they are; nothing becomes NULL unseen."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from spark_ingest.backfill import backfill
from spark_ingest.pipeline import Running, forward, summarise
from spark_ingest.rejected_rows import CORRUPT
from spark_ingest.sources import SilentNulls, check_readers, columns_of
from spark_ingest.writer import write_stream
from tests.server_process import ServerProcess
from tests.spark_ingest.worlds import ROWS, answers, made, service, table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

UNREAD = "the source cannot read this"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[ServerProcess]:  # The JVM first: it forks.
    process = ServerProcess(tmp_path_factory.mktemp("server") / "data")
    yield process
    process.stop()


def text_of(rows: pa.Table, kind: str, file: Path, bad: str) -> None:
    """Rows as text, and a line that is none."""
    if kind == "csv":
        pc.write_csv(rows, file, pc.WriteOptions(include_header=False, quoting_style="needed"))
        lines = file.read_text()
    else:
        lines = "".join(json.dumps(row, default=str) + "\n" for row in rows.to_pylist())
    file.write_text(lines + bad + "\n")


@pytest.mark.parametrize(
    ("kind", "way", "bad"),
    [
        ("csv", summarise, "2026-01-01 00:00:00,many,a,1.5"),
        ("json", forward, '{"ts": "2026-01-01", "k": "many"}'),
    ],
)
def test_a_directory_of_text_comes_to_what_its_tuples_come_to_and_the_rest_is_poison(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, kind: str, way: Any, bad: str
) -> None:
    (tmp_path / kind).mkdir()
    for number in range(2):
        text_of(table(number), kind, tmp_path / kind / f"{number}.{kind}", bad)
    with server.connect() as client:
        made(client, kind, f"{kind}_pushed")
        client.push(f"{kind}_pushed", pa.concat_tables([table(n) for n in range(2)]))
        reader = spark.readStream.format(kind).schema(columns_of(service(server), kind))
        checkpoint = str(tmp_path / "c")
        frame = reader.load(str(tmp_path / kind))
        running = way(frame, service(server), kind, checkpoint=checkpoint)
        assert running.wait()
        assert sum(done.rows for done in running.done) == 2 * ROWS
        kept = pq.read_table(f"{checkpoint}/poison").to_pylist()
        assert [(row[CORRUPT], row["__reason"]) for row in kept] == [
            (bad, f"{CORRUPT}: {UNREAD}")
        ] * 2
        assert answers(client, kind) == answers(client, f"{kind}_pushed")


def test_readers_that_would_make_null_of_what_they_cannot_read_are_refused(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with server.connect() as client:
        made(client, "refused")
    there, own = service(server), "ts timestamp, k bigint, g string, x double"
    (tmp_path / "text").mkdir()
    for kind in ("csv", "json"):
        plain = spark.readStream.schema(own).format(kind)
        with pytest.raises(SilentNulls, match=rf"{kind} reader makes NULL .* `_corrupt_record STR"):
            summarise(plain.load(str(tmp_path)), there, "refused", checkpoint=str(tmp_path / "c"))
        dropping = plain.option("mode", "dropMalformed").load(str(tmp_path))
        with pytest.raises(SilentNulls, match=f"{kind} reader leaves out rows"):
            forward(dropping, there, "refused", checkpoint=str(tmp_path / "c"))
        still = spark.read.schema(own).format(kind)
        with pytest.raises(SilentNulls):
            write_stream(still.load(str(tmp_path)), there, "refused", name="w", aside=str(tmp_path))
        with pytest.raises(SilentNulls):
            backfill(still.load(str(tmp_path)), there, "refused", name="b")
        check_readers(still.option("mode", "FAILFAST").load(str(tmp_path)))
        renamed = spark.read.schema(f"{own}, unread string").format(kind)
        check_readers(renamed.option("columnNameOfCorruptRecord", "unread").load(str(tmp_path)))
    check_readers(spark.read.schema(own).parquet(str(tmp_path / "text")))
    check_readers(spark.range(3).toDF("k"))
    check_readers(spark.createDataFrame([(1,)], "k int").cache())
    check_readers(spark.read.text(str(tmp_path / "text")))


def test_what_a_reader_of_text_cannot_read_is_neither_written_nor_backfilled_as_null(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    file, bad = tmp_path / "rows.csv", "1999-01-01 00:00:00,,,nothing"
    text_of(table(0, 50), "csv", file, bad)
    there = service(server)
    with server.connect() as client:
        made(client, "written", "filled")
        frame = spark.read.schema(columns_of(there, "written")).csv(str(file))
        aside = [str(tmp_path / way) for way in ("w", "b")]
        written = write_stream(frame, there, "written", name="w", aside=aside[0])
        assert (written.rows, written.poison) == (50, 1)
        assert backfill(frame, there, "filled", name="b", aside=aside[1]).poison == 1
        assert client.ledger("written").accepted == 50
        (count,) = client.execute("SELECT COUNT(*) AS n FROM filled").rows()
        assert count["n"] == 50
    for directory in aside:
        assert pq.read_table(directory)[CORRUPT].to_pylist() == [bad]


def until(running: Running, rows: int) -> None:
    """Wait until so many rows have gone, and stop."""
    while sum(done.rows + done.poison for done in running.done) < rows:
        assert not running.wait(timeout_s=1)
    running.stop()


def test_lines_of_a_socket_are_read_by_from_csv_and_what_it_cannot_read_is_kept(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    lines = [f"2026-01-01 00:00:{second:02},{second},a,0.5" for second in range(40)]
    lines.insert(7, "2026-01-01 00:00:00,seven,a,0.5")

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall("".join(line + "\n" for line in lines).encode())
            connection.recv(1)  # Until Spark hangs up.

    with server.connect() as client, socket.create_server(("127.0.0.1", 0)) as listening:
        made(client, "lines")
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        source = spark.readStream.format("socket").option("host", "127.0.0.1")
        given = source.option("port", listening.getsockname()[1]).load()
        fields = columns_of(service(server), "lines").fields
        columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in fields)
        frame = given.select(sf.from_csv("value", columns).alias("row")).select("row.*")
        running = summarise(
            frame,
            service(server),
            "lines",
            checkpoint=str(tmp_path / "c"),
            trigger={"processingTime": "0 seconds"},
        )
        until(running, len(lines))
        thread.join()
        assert client.ledger("lines").applied == 40
    kept = pq.read_table(tmp_path / "c/poison").to_pylist()
    assert [(row[CORRUPT], row["__reason"]) for row in kept] == [(lines[7], f"{CORRUPT}: {UNREAD}")]


@pytest.mark.parametrize("source", ["rate", "rate-micro-batch"])
def test_a_clock_is_a_source(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, source: str
) -> None:
    stream = source.replace("-", "_")
    options: dict[str, Any] = {"rate": {"rowsPerSecond": 500}}.get(
        source, {"rowsPerBatch": 500, "startTimestamp": 1_000, "advanceMillisPerBatch": 1_000}
    )
    with server.connect() as client:
        made(client, stream)
        given = spark.readStream.format(source).options(**options).load()
        frame = given.selectExpr(
            "timestamp AS ts", "value AS k", "'a' AS g", "CAST(value % 7 AS DOUBLE) AS x"
        )
        trigger = {"processingTime": "0 seconds"}
        checkpoint = str(tmp_path / "c")
        running = summarise(frame, service(server), stream, checkpoint=checkpoint, trigger=trigger)
        until(running, 1_000)
        rows = client.ledger(stream).applied
        assert rows >= 1_000
        [group] = client.query(f"by_g_{stream}").answer().rows()
        # Numbers from 0 on, each once.
        assert group["n"] == sum(value % 7 > 1 for value in range(rows))
        assert group["h"] == max(value for value in range(rows) if value % 7 > 1)
