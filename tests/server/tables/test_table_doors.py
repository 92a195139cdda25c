"""Tables here and over gRPC: the same statements and pushes, the same errors."""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.statements.table_schema import TableSchema
from shedder.errors import KeyExists, RateExceeded, SchemaMismatch, UnknownStream, UnknownTable
from shedder.v1 import ingest_pb2
from tests.server.worlds import connect_async

CREATE = "CREATE TABLE t (k BIGINT, s VARCHAR, x DOUBLE, PRIMARY KEY (s, k))"


@pytest.mark.slow
def test_a_table_is_made_changed_read_shown_and_dropped(database):
    database.execute(CREATE)
    database.execute("INSERT INTO t VALUES (1, 'a', 2), (2, 'b', NULL)")
    database.execute("UPDATE t SET x = k * 10 WHERE x IS NULL")
    database.execute("DELETE FROM t WHERE s = ?", ["a"])
    with pytest.raises(KeyExists, match="key s = 'b', k = 2 is there"):
        database.execute("INSERT INTO t VALUES (2, 'b', 0)")
    assert database.execute("SELECT * FROM t").rows() == [{"k": 2, "s": "b", "x": 20.0}]
    shown = database.execute("SHOW TABLES").table.to_pylist()
    assert [(row["table"], row["rows"], row["version"]) for row in shown] == [("t", 1, 3)]
    assert database.execute("DESCRIBE t").table["key_place"].to_pylist() == [2, 1, None]
    found = database.relation("t")
    assert isinstance(found, TableSchema)
    assert (found.name, found.key) == ("t", ("s", "k"))
    assert [column.nullable for column in found.columns] == [False, False, True]
    assert database.relation("trades") == database.schema("trades")
    database.execute("DROP TABLE t")
    with pytest.raises(UnknownTable):
        database.execute("UPDATE t SET x = 1")
    with pytest.raises(UnknownStream):
        database.relation("t")


@pytest.mark.slow
def test_a_standing_query_follows_the_changes_of_a_table(database):
    database.execute(CREATE)
    database.execute("INSERT INTO t VALUES (1, 'a', 2)")
    query = database.register("q", "SELECT s, COUNT(*) AS rows FROM t GROUP BY s")
    changes = query.subscribe()
    database.execute("INSERT INTO t VALUES (2, 'a', 3)")
    assert query.answer().rows() == [{"s": "a", "rows": 2}]
    found = [(row["s"], row["rows"], row["_sign"]) for row in next(changes).table.to_pylist()]
    assert sorted(found) == [("a", 1, -1), ("a", 2, 1)]
    database.execute("DROP QUERY q")
    database.execute("DROP TABLE t")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1, 150_000])
def test_a_push_puts_every_row_and_a_repeated_push_changes_nothing(database, engine, rows):
    database.execute(CREATE)
    data = pa.table(
        {"x": np.arange(rows) / 2, "s": pa.array(["a"] * rows, pa.string()), "k": np.arange(rows)}
    )
    for _ in range(2):
        receipt = database.push("t", data)
        assert (receipt.stream, receipt.rows) == ("t", rows)
        found = engine.core.tables["t"].rows.table().sort_by("k").select(data.column_names)
        assert found.combine_chunks().equals(data.cast(found.schema).combine_chunks())


@pytest.mark.slow
def test_a_push_that_does_not_fit_puts_nothing(database, engine):
    database.execute(CREATE)
    with pytest.raises(SchemaMismatch, match="nulls in 's', which is NOT NULL"):
        database.push("t", {"k": [1], "s": pa.array([None], pa.string())})
    with pytest.raises(SchemaMismatch, match="'k'"):
        database.push("t", {"k": ["x"], "s": ["a"]})
    assert engine.core.tables["t"].version == 0


@pytest.mark.slow
def test_a_push_of_a_tenant_is_held_to_its_rate(database, engine):
    database.execute(CREATE)
    engine.quotas.set_quota("default", "rows_per_s", "1000")
    database.push("t", {"k": np.arange(3_000), "s": ["a"] * 3_000})  # It may be paid off later.
    with (
        pytest.raises(RateExceeded, match="1,000 rows/s"),
        engine.table_pushes.admitted("t", 50, 1),
    ):
        pass


@pytest.mark.slow
def test_calls_of_streams_and_of_older_clients_are_refused(client, connection):
    client.execute(CREATE)
    described = ingest_pb2.DescribeStreamRequest(stream="t")
    with pytest.raises(UnknownStream, match="'t' is a table"):
        connection.call(connection.stubs.ingest.DescribeStream, described)
    for call in (
        lambda: client.schema("t"),
        lambda: client.ledger("t"),
        lambda: client.heartbeat("t", 1),
        lambda: client.producer("t", "p"),
    ):
        with pytest.raises(UnknownStream, match="'t' is a table"):
            call()


@pytest.mark.slow
def test_an_asynchronous_client_pushes_into_a_table(client, address, engine):
    client.execute(CREATE)

    async def work():
        async with await connect_async(address) as database:
            assert isinstance(await database.relation("t"), TableSchema)
            return await database.push("t", {"k": [1, 1], "s": ["a", "a"], "x": [1.0, 2.0]})

    assert asyncio.run(work()).rows == 2
    assert engine.core.tables["t"].rows.table()["x"].to_pylist() == [2.0]
