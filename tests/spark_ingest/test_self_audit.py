"""Spark computes live answers again: a query that misses too often loses its certification."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from shedder.cli.exit_codes import ExitCode
from shedder.client.client import Client
from shedder.errors import Unreachable
from spark_ingest.cli import audit_rounds
from spark_ingest.self_audit import audit_round
from tests.server_process import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECOND = 1_000_000
ROWS = 4_000
CREATE = (
    "CREATE STREAM {} (ts TIMESTAMP NOT NULL, x DOUBLE, k BIGINT, g VARCHAR) TIMESTAMP BY ts "
    "LATENESS INTERVAL '10' SECOND"
)
QUERY = (
    "SELECT g, COUNT(*) AS n, SUM(x) AS total, COUNT(DISTINCT k) AS keys, MAX(x) AS most, "
    "QUANTILE(x, 0.9) AS p90, TOP(k, 3) AS top, FREQUENT(k, 0.05) AS heavy, LAST(x) AS latest "
    "FROM {} [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY g{}"
)


def window(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    times = np.sort(rng.integers(0, 10 * SECOND, ROWS)) + number * 10 * SECOND
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "x": rng.normal(0, 1, ROWS),
            "k": rng.zipf(1.4, ROWS) % 500,
            "g": rng.choice(["a", "b", "c"], ROWS, p=[0.7, 0.2, 0.1]),
        }
    )


@pytest.fixture
def server(tmp_path: Path, spark: SparkSession) -> Iterator[ServerProcess]:  # The JVM first.
    process = ServerProcess(tmp_path / "data", audit="off")
    yield process
    process.stop()


def push_until(client: Client, stream: str, end_s: int) -> None:
    """Twenty seconds of tuples, and the promise that closes their window."""
    for number in (end_s // 10 - 2, end_s // 10 - 1):
        client.push(stream, window(number))
    client.heartbeat(stream, end_s * SECOND)
    client.ledger(stream)  # Waits until the promise has been applied.


def metrics(client: Client, query: str) -> dict[str, str]:
    rows = client.control("query", query).to_pylist()
    return {row["key"]: row["value"] for row in rows}


def test_live_answers_are_computed_again_from_the_archive_and_lose_what_they_do_not_hold(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with server.connect() as client:
        client.execute(CREATE.format("r"))
        client.register("whole", QUERY.format("r", ""))
        client.register("thinned", QUERY.format("r", " CONFIDENCE 99.9999 PERCENT THINNING 1/4"))
        push_until(client, "r", 20)
        found = audit_round(spark, client, "r", tmp_path / "data")
        assert {each.query for each in found.looked} == {"whole", "thinned"}
        assert all(each.values > 30 and not each.lost for each in found.looked), found.looked
        assert found.passes <= 4
        assert audit_round(spark, client, "r", tmp_path / "data").looked == ()
        assert client.query("whole").answer().certified is True
        assert float(metrics(client, "thinned")["audited_coverage"]) > 0.9

        # Behind the service's back, the archive gets another truth.
        push_until(client, "r", 40)
        client.seal("r")
        newest = max((tmp_path / "data/runs").rglob("*.parquet"))
        table = pq.read_table(newest)
        at = table.schema.get_field_index("x")
        grown = pa.array(table["x"].to_numpy() + 0.001)
        pq.write_table(table.set_column(at, table.schema.field("x"), grown), newest)
        audit_round(spark, client, "r", tmp_path / "data")
        answer = client.query("whole").answer()
        assert answer.certified is False
        assert any("was said to be" in note for note in answer.notes)
        assert metrics(client, "whole")["certified"] == "0"


def test_a_query_that_holds_again_is_certified_again(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `shedder accuracy --every` goes about it, round by round."""
    data = tmp_path / "data"
    # Few values outside of 70 % intervals are soon no chance: three looks give it back.
    text = "SELECT g, COUNT(*) AS n, SUM(x) AS total FROM r [RANGE 20 SECONDS SLIDE 10 SECONDS] "
    with server.connect() as client:
        client.execute(CREATE.format("r"))
        query = client.register("q", text + "GROUP BY g WITHIN 1 PERCENT CONFIDENCE 70 PERCENT")
        push_until(client, "r", 20)
        assert audit_rounds(spark, client, "r", data, every_s=1, rounds=1) == ExitCode.FINE
        assert capsys.readouterr().out == "q: 0 of 6 values missed; certified\n"

        push_until(client, "r", 40)  # Behind the service's back, the archive gets another truth.
        client.seal("r")
        newest = max((data / "runs").rglob("*.parquet"))
        table = pq.read_table(newest)
        at = table.schema.get_field_index("x")
        grown = pa.array(table["x"].to_numpy() + 0.001)
        pq.write_table(table.set_column(at, table.schema.field("x"), grown), newest)
        assert audit_rounds(spark, client, "r", data, every_s=1, rounds=1) == ExitCode.PRECISION
        output = capsys.readouterr().out
        assert output.startswith("q: 3 of 6 values missed; not certified: ")
        assert query.answer().certified is False

        states = []
        for end_s in (60, 80, 100):
            push_until(client, "r", end_s)
            status = audit_rounds(spark, client, "r", data, every_s=1, rounds=1)
            states.append((status, query.answer().certified))
        assert states[0] == (ExitCode.PRECISION, False)
        assert states[-1] == (ExitCode.FINE, True)
        assert metrics(client, "q")["certification_losses"] == "1"
        assert not any("not certified" in note for note in query.answer().notes)


def test_rounds_go_on_when_the_service_is_back(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with server.connect(patience_s=1) as client:
        client.execute(CREATE.format("r"))
        client.register("q", QUERY.format("r", ""))
        push_until(client, "r", 20)
        server.stop()
        with pytest.raises(Unreachable):
            audit_rounds(spark, client, "r", data, every_s=1, rounds=1)

        def back(_seconds: float) -> None:
            server.start_again()
            until_connected(client)

        assert audit_rounds(spark, client, "r", data, 1, 2, back) == ExitCode.FINE
        output = capsys.readouterr()
        assert output.out.startswith("q: 0 of ")
        assert "the next one will see" in output.err
        assert client.query("q").answer().certified is True


def until_connected(client: Client) -> None:
    """Wait until the client has reached its server again."""
    while True:
        with suppress(Unreachable):
            client.ledger("r")
            return


def test_places_of_certain_rows_are_one_value_more(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    """Groups that come before all others by counts of 14,000, 4,000 and 2,000 tuples."""
    text = (
        "SELECT g, COUNT(*) AS total FROM r [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY g "
        "ORDER BY total DESC LIMIT 2 CONFIDENCE 99.9999 PERCENT THINNING 1/4"
    )
    with server.connect() as client:
        client.execute(CREATE.format("r"))
        query = client.register("q", text)
        push_until(client, "r", 20)
        answer = query.answer()
        assert [row["certain"] for row in answer.rows()] == [True, True]
        [looked] = audit_round(spark, client, "r", tmp_path / "data").looked
        assert (looked.values, looked.missed, looked.lost) == (3, 0, "")
        assert query.answer().certified is True

        # Behind the service's back, the group of the first place gets another name.
        push_until(client, "r", 40)
        client.seal("r")
        newest = max((tmp_path / "data/runs").rglob("*.parquet"))
        table = pq.read_table(newest)
        at = table.schema.get_field_index("g")
        names = ["c" if name == "a" else "d" for name in table["g"].to_pylist()]
        pq.write_table(table.set_column(at, table.schema.field("g"), pa.array(names)), newest)
        [looked] = audit_round(spark, client, "r", tmp_path / "data").looked
        assert (looked.values, looked.missed) == (3, 3)


def test_what_was_summarised_is_audited_by_the_tuples_themselves(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    tuples = pa.concat_tables([window(number) for number in range(2)])
    poison = tuples.slice(0, 5).set_column(0, "ts", pa.nulls(5, pa.timestamp("us", "UTC")))
    with server.connect() as client:
        client.execute(CREATE.format("s"))
        client.register("whole", QUERY.format("s", ""))
        client.summarise("s", tuples)
        client.heartbeat("s", 20 * SECOND)
        client.ledger("s")  # Waits until the promise has been applied.
        assert audit_round(spark, client, "s", tmp_path / "data").looked == ()
        frame = spark.createDataFrame(pa.concat_tables([tuples, poison]))
        [looked] = audit_round(spark, client, "s", frame).looked
        assert (looked.missed, looked.lost) == (0, "")
        assert looked.values > 20
        assert client.query("whole").answer().certified is True
