"""The exact worker against answers worked out by hand, and its limits."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shedder.archive.exact import ExactWorker
from shedder.errors import BudgetExceeded, CorruptData, DeadlineExceeded, InternalError, Unavailable

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("key", pa.int64()), ("value", pa.float64())])
FOREVER = "SELECT count(*) FROM range(100000) a, range(100000) b, range(1000) c"


def rows(*keys: int) -> pa.RecordBatch:
    columns = {"ts": list(keys), "key": list(keys), "value": [key / 2 for key in keys]}
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    worker = ExactWorker(
        tmp_path_factory.mktemp("worker") / "exact",
        memory_bytes=96 << 20,
        threads=1,
        temp_bytes_max=1 << 20,
        result_bytes_max=1 << 20,
    )
    yield worker
    worker.close()


def run_file(directory: Path, batch: pa.RecordBatch, name: str = "0-2.parquet") -> Path:
    path = directory / name
    pq.write_table(pa.Table.from_batches([batch]), path)
    return path


def test_runs_and_tail_are_one_relation(worker, tmp_path):
    file = run_file(tmp_path, rows(1, 2))
    sql = "SELECT count(*) AS a0, sum(value) AS a1 FROM stream"
    table = worker.query(sql, [file], [rows(3), rows(4)], SCHEMA)
    assert table.to_pylist() == [{"a0": 4, "a1": 5.0}]


def test_a_stream_without_runs_or_rows_still_answers(worker):
    table = worker.query("SELECT count(*) AS a0 FROM stream", [], [], SCHEMA)
    assert table.to_pylist() == [{"a0": 0}]


def test_a_directory_named_like_a_partition_adds_no_column(worker, tmp_path):
    directory = tmp_path / "key=99"
    directory.mkdir()
    file = run_file(directory, rows(1), "it's.parquet")
    table = worker.query("SELECT key FROM stream", [file], [], SCHEMA)
    assert table.to_pylist() == [{"key": 1}]


def test_a_file_that_is_not_of_the_query_cannot_be_read(worker, tmp_path):
    allowed, other = run_file(tmp_path, rows(1)), run_file(tmp_path, rows(2), "other.parquet")
    for sql in (f"SELECT * FROM read_parquet('{other}')", "SELECT * FROM read_text('/etc/passwd')"):
        with pytest.raises(InternalError, match=r"Permission"):
            worker.query(sql, [allowed], [], SCHEMA)


def test_the_limits_cannot_be_changed_by_a_query(worker):
    with pytest.raises((InternalError, CorruptData)):
        worker.query("SET memory_limit = '10GB'", [], [], SCHEMA)


def test_a_query_past_its_deadline_is_killed_and_the_next_one_answered(worker):
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"0\.3 s"):
        worker.query(FOREVER, [], [], SCHEMA, timeout_s=0.3)
    assert time.monotonic() - began < 5
    assert worker.query("SELECT 1 AS a0 FROM stream", [], [rows(1)], SCHEMA).num_rows == 1


def test_more_memory_than_the_budget_is_refused_and_the_next_one_answered(worker):
    with pytest.raises(BudgetExceeded):
        worker.query("SELECT list(range) FROM range(50000000)", [], [], SCHEMA)
    with pytest.raises(BudgetExceeded, match="result"):
        worker.query("SELECT range FROM range(1000000)", [], [], SCHEMA)
    assert worker.query("SELECT 1 AS a0 FROM stream", [], [rows(1)], SCHEMA).num_rows == 1


def test_a_damaged_run_is_reported_as_corrupt(worker, tmp_path):
    file = tmp_path / "0-1.parquet"
    file.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(CorruptData, match=r"0-1\.parquet"):
        worker.query("SELECT * FROM stream", [file], [], SCHEMA)


def test_a_closed_worker_says_so(tmp_path):
    worker = ExactWorker(tmp_path / "exact")
    worker.start()
    worker.close()
    with pytest.raises(Unavailable):
        worker.query("SELECT 1", [], [], SCHEMA)
