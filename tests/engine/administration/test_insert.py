"""INSERT: rows of queries and of constants are rows like any other, and nothing twice."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shedder.archive.tasks.progress import Progress
from shedder.engine.administration.insert import CHUNK_ROWS
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from shedder.errors import (
    BadQuery,
    BadSetting,
    BadTimestamp,
    Cancelled,
    SchemaMismatch,
    TypeMismatch,
    UnknownColumn,
    UnknownStream,
)
from shedder.queries.answers.answer import Answer
from tests.engine.world import CREATE, START_US, requests

COPY = CREATE.replace("STREAM requests", "STREAM copied")
SMALL = "CREATE STREAM small (at TIMESTAMP, caller BIGINT, size DOUBLE) TIMESTAMP BY at"


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path / "data", run_rows=3_000) as engine:
        for text in (CREATE, COPY, SMALL):
            engine.execute(text)
        yield engine


def rows_of(engine: Engine, stream: str) -> pa.Table:
    engine.core.executor.call(lambda: None).result()  # All that is durable is applied.
    stream_id = engine.core.stream(stream).id
    batches = [batch for _, batch in engine.core.store.scan(stream_id)]
    return pa.Table.from_batches(batches).combine_chunks()


def said(answer: Answer) -> str:
    return answer.table["status"][0].as_py()


def is_exact(engine: Engine, stream: str, rows: int) -> bool:
    ledger = engine.ledger(stream)
    return ledger.applied == rows and ledger.accepted == rows + ledger.duplicate


@pytest.mark.slow
def test_all_rows_are_copied_nulls_and_nans_and_all(engine):
    table = requests(10_000, 1)
    engine.push("requests", table)
    engine.seal("requests")
    engine.push("requests", table.slice(0, 500))
    assert said(engine.execute("INSERT INTO copied SELECT * FROM requests")) == (
        "10,500 rows inserted into copied"
    )
    copied, source = rows_of(engine, "copied"), rows_of(engine, "requests")
    assert str(copied.to_pylist()) == str(source.to_pylist())  # NaN is like itself as text.
    assert is_exact(engine, "copied", 10_500)


def test_expressions_conditions_and_windows_choose_what_is_inserted(engine):
    table = requests(5_000, 2)
    engine.push("requests", table)
    engine.execute(
        "INSERT INTO small (size, at, caller) SELECT hits * 2, ts, client % 10 FROM requests "
        f"[FROM CAST({START_US} AS TIMESTAMP) TO CAST({START_US + 300_000_000} AS TIMESTAMP)] "
        "WHERE ok AND hits > 50"
    )
    times = table["ts"].cast(pa.int64()).to_pylist()
    expected = [
        (time, client % 10, hits * 2.0)
        for time, client, ok, hits in zip(
            times,
            *(table[name].to_pylist() for name in ("client", "ok", "hits")),
            strict=True,
        )
        if START_US <= time < START_US + 300_000_000 and ok and hits > 50
    ]
    small = rows_of(engine, "small")
    found = zip(
        small["at"].cast(pa.int64()).to_pylist(),
        small["caller"].to_pylist(),
        small["size"].to_pylist(),
        strict=True,
    )
    assert list(found) == expected
    assert len(expected) > 500


@pytest.mark.slow
def test_answers_can_be_inserted(engine):
    engine.push("requests", requests(1_000, 3))
    engine.execute(
        "INSERT INTO small SELECT MAX(ts), client % 3 AS c, SUM(hits) * 1.0 FROM requests "
        "GROUP BY c ORDER BY c PRODUCER 'once'"
    )
    again = engine.execute(
        "INSERT INTO small SELECT MAX(ts), client % 3 AS c, SUM(hits) * 1.0 FROM requests "
        "GROUP BY c ORDER BY c PRODUCER 'once'"
    )
    assert said(again) == "0 rows inserted into small; 3 were there already"
    assert rows_of(engine, "small")["caller"].to_pylist() == [0, 1, 2]
    assert is_exact(engine, "small", 3)


def test_a_bare_null_is_inserted_into_a_column_of_any_type(engine):
    engine.push("requests", requests(100, 3))
    engine.execute("INSERT INTO small SELECT ts, NULL, NULL FROM requests")
    engine.execute("INSERT INTO small SELECT MAX(ts), NULL, NULL FROM requests")
    assert rows_of(engine, "small")["size"].null_count == 101


@pytest.mark.slow
def test_constants_are_inserted(engine):
    engine.execute(
        "INSERT INTO small VALUES (TIMESTAMP '2026-01-01', 1, 2), ('2026-01-02', NULL, -2.5)"
    )
    engine.execute("INSERT INTO small (size, at) VALUES (?, ?)", [7.5, "2026-01-03"])
    assert [tuple(row.values())[1:] for row in rows_of(engine, "small").to_pylist()] == [
        (1, 2.0),
        (None, -2.5),
        (None, 7.5),
    ]
    (row,) = engine.execute("SELECT COUNT(*) AS n, SUM(size) AS s FROM small").rows()
    assert (row["n"], row["s"]) == (3, 7.0)


def test_a_stream_inserted_into_itself_is_doubled_once(engine):
    engine.push("requests", requests(2_000, 4))
    engine.execute("INSERT INTO requests SELECT * FROM requests")
    assert is_exact(engine, "requests", 4_000)


@pytest.mark.parametrize("rows", [1_030, pytest.param(2 * CHUNK_ROWS + 30, marks=pytest.mark.slow)])
def test_a_repeated_insert_stores_nothing_twice_also_after_a_restart(tmp_path, rows):
    text = "INSERT INTO copied SELECT * FROM requests WHERE hits > 0 PRODUCER 'nightly'"
    with Engine.open(tmp_path) as engine:
        engine.execute(CREATE)
        engine.execute(COPY)
        table = requests(rows, 5)
        engine.push("requests", table)
        engine.execute(text)
        expected = table.filter(pc.greater(table["hits"], 0))
        assert_same(rows_of(engine, "copied"), expected)
        engine.push("requests", requests(1_000, 6))  # After the statement: not part of it.
        engine.execute(text)
        assert_same(rows_of(engine, "copied"), expected)
    with Engine.open(tmp_path) as engine:
        assert "0 rows" in said(engine.execute(text))
        assert_same(rows_of(engine, "copied"), expected)


def assert_same(one: pa.Table, other: pa.Table) -> None:
    """Check that two tables are equal, where NaN equals NaN."""
    assert one.drop(["bytes"]).equals(
        other.drop(["bytes"]).combine_chunks().cast(one.drop(["bytes"]).schema)
    )
    numbers = [table["bytes"].to_numpy() for table in (one, other)]
    assert np.array_equal(*numbers, equal_nan=True)
    assert one["bytes"].is_null().to_pylist() == other["bytes"].is_null().to_pylist()


class CalledOff(Environment):
    """A machine on which an insert is cancelled while the insert appends its first batch.

    progress: the progress of that insert; None: no insert is cancelled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.progress: Progress | None = None

    def watch(self, progress: Progress) -> None:
        self.progress = progress

    def now_us(self) -> int:
        if self.progress is not None and threading.current_thread() is threading.main_thread():
            self.progress.cancel()  # An append reads the clock.
        return super().now_us()


@pytest.mark.slow
def test_a_cancelled_insert_goes_on_where_it_stopped(tmp_path):
    machine = CalledOff()
    rows = 2 * CHUNK_ROWS + 30
    with Engine.open(tmp_path / "data", machine=machine) as engine:
        engine.execute(CREATE)
        engine.execute(COPY)
        table = requests(rows, 7)
        engine.push("requests", table)
        engine.seal("requests")
        text = "INSERT INTO copied SELECT * FROM requests WHERE ok PRODUCER 'p'"
        with pytest.raises(Cancelled, match="insert into copied"):
            engine.execute(text, watch=machine.watch)
        machine.progress = None
        first_chunk = table.slice(0, CHUNK_ROWS)
        assert_same(rows_of(engine, "copied"), first_chunk.filter(first_chunk["ok"]))
        engine.execute(text)
        expected = table.filter(table["ok"])
        assert_same(rows_of(engine, "copied"), expected)
        assert is_exact(engine, "copied", expected.num_rows)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("INSERT INTO nowhere VALUES (1)", UnknownStream, "nowhere"),
        ("INSERT INTO small SELECT ts, client, bytes FROM nowhere", UnknownStream, "nowhere"),
        ("INSERT INTO small (at, whom) VALUES ('2026-01-01', 1)", UnknownColumn, "whom"),
        ("INSERT INTO small (at, at) VALUES ('2026-01-01', 1)", BadQuery, "twice"),
        ("INSERT INTO small VALUES ('2026-01-01', 1)", BadQuery, "2 values for the 3 columns"),
        ("INSERT INTO small VALUES ('2026-01-01', 1, 2), (1)", BadQuery, "1 and 3"),
        ("INSERT INTO small VALUES ('yesterday', 1, 2)", TypeMismatch, "yesterday"),
        ("INSERT INTO small VALUES ('2026-01-01', 1.5, 2)", TypeMismatch, "1.5"),
        ("INSERT INTO small (caller) VALUES (1)", BadTimestamp, "null"),
        ("INSERT INTO small SELECT ts, domain, bytes FROM requests", SchemaMismatch, "caller"),
        ("INSERT INTO small SELECT * FROM requests", BadQuery, "7 values"),
        ("INSERT INTO small SELECT ts, client, bytes FROM requests LIMIT 5", BadQuery, "LIMIT"),
        (
            "INSERT INTO small SELECT ts, client, bytes FROM requests [RANGE INTERVAL '1' DAY]",
            BadQuery,
            "fixed stretch",
        ),
        ("INSERT INTO small VALUES ('2026-01-01', 1, 2) PRODUCER ''", BadSetting, "named ''"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_value(engine, text, error, says):
    engine.push("requests", requests(10, 8))
    with pytest.raises(error, match=says):
        engine.execute(text)
    assert engine.ledger("small").applied == 0
