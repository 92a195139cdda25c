"""Exact queries over several relations, and results that are read batch by batch."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shedder.archive.exact.client import ExactWorker
from shedder.archive.exact.relation import ExactRelation, Without
from shedder.archive.exact.worker import BATCH_ROWS, ResultLimits
from shedder.archive.tasks.progress import Progress
from shedder.errors import (
    BudgetExceeded,
    Cancelled,
    DeadlineExceeded,
    InternalError,
)
from tests.archive.child_processes import exact_worker_process, exact_worker_processes

LEFT = pa.schema([("id", pa.int64()), ("name", pa.string())])
RIGHT = pa.schema([("id", pa.int64()), ("price", pa.float64())])
NO_LIMIT = ResultLimits()
ENDLESS = "SELECT range AS n FROM range(100000000000)"


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


def read(
    worker: ExactWorker,
    sql: str,
    limits: ResultLimits = NO_LIMIT,
    *,
    after_first: Callable[[], object] = lambda: None,
    timeout_s: float | None = None,
    progress: Progress | None = None,
) -> tuple[list[int], str]:
    """The column n of a result, and what cut it; `after_first` runs after its first batch."""
    with worker.reading(sql, [], limits, timeout_s=timeout_s, progress=progress) as result:
        rows: list[int] = []
        for batch in result:
            if not rows:
                after_first()
            rows += batch["n"].to_pylist()
    return rows, result.cut


def is_ready(worker: ExactWorker) -> bool:
    """Return whether the worker answers the next query."""
    return read(worker, "SELECT 1 AS n") == ([1], "")


def file_of(directory: Path, schema: pa.Schema, name: str, *columns: list[object]) -> Path:
    path = directory / name
    pq.write_table(pa.table(list(columns), schema=schema), path)
    return path


def batch_of(schema: pa.Schema, *columns: list[object]) -> pa.RecordBatch:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def two_streams(directory: Path) -> tuple[ExactRelation, ExactRelation]:
    """Two relations with files, dealt files, tails and a deleted row each."""
    of_left = file_of(directory, LEFT, f"{0:020}-l.parquet", [1, 2, 3], ["a", "b", "c"])
    dealt_schema = pa.schema([*RIGHT, ("__position", pa.int64())])
    of_right = file_of(
        directory, dealt_schema, "dealt.parquet", [3, 2, 2], [3.0, 2.0, 2.5], [2, 1, 0]
    )
    left = ExactRelation(
        "r0",
        LEFT,
        files=[of_left],
        tail=[batch_of(LEFT, [4], ["d"])],
        without=Without([of_left], np.array([0])),
    )
    right = ExactRelation(
        "r1",
        RIGHT,
        dealt=[of_right],
        tail=[batch_of(RIGHT, [4, 1], [4.0, 1.0])],
        tail_positions=[3],
        without=Without([of_right], np.array([1])),
    )
    return left, right


def test_several_relations_are_read_in_one_query(worker, tmp_path):
    sql = "SELECT name, price, __position AS p FROM r0 JOIN r1 USING (id) ORDER BY p"
    found = worker.query(sql, two_streams(tmp_path))
    assert found.to_pydict() == {"name": ["b", "c", "d"], "price": [2.5, 3.0, 4.0], "p": [0, 2, 3]}


def test_a_relation_has_the_tail_of_another_one(worker, tmp_path):
    left, right = two_streams(tmp_path)
    narrow = pa.schema([RIGHT.field("price")])
    other = ExactRelation("r2", narrow, tail_positions=(), tail_of="r1")
    found = worker.query("SELECT price, __position AS p FROM r2 ORDER BY p", [left, right, other])
    assert found.to_pydict() == {"price": [4.0, 1.0], "p": [3, 4]}


def numbered(rows: int) -> list[pa.RecordBatch]:
    """Batches of 65,536 rows of 16 bytes, of which 8 do not compress."""
    random = np.random.default_rng(1)
    return [
        pa.record_batch([pa.array(ids), pa.array(random.random(len(ids)))], schema=RIGHT)
        for ids in np.array_split(np.arange(rows), rows >> 16)
    ]


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    [line] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) << 10


@pytest.mark.slow
@pytest.mark.parametrize("joined", [False, True])
def test_rows_in_no_file_are_held_inside_the_memory_limit(tmp_path, joined):
    """They take 96 MiB here, beside 32 MiB of memory and 128 MiB of spill space."""
    worker = ExactWorker(
        tmp_path / "exact", memory_bytes=32 << 20, threads=1, temp_bytes_max=128 << 20
    )
    large = ExactRelation("large", RIGHT, tail=numbered(3 << 21))
    small = ExactRelation("small", RIGHT, tail=numbered(1 << 16))
    sql = "SELECT count(*) AS n, max(id) AS most, count(DISTINCT id % 10) AS d FROM large"
    others = exact_worker_processes()
    worker.query("SELECT 1 AS n", [small, replace(small, name="other")])
    [pid] = set(exact_worker_processes()).difference(others)
    before = peak_bytes(pid)
    found = worker.query(sql, [large, small] if joined else [large])
    assert peak_bytes(pid) - before < 64 << 20
    worker.close()
    assert found.to_pylist() == [{"n": 3 << 21, "most": (3 << 21) - 1, "d": 10}]


@pytest.mark.slow
def test_rows_in_no_file_that_do_not_fit_are_refused_and_the_next_query_is_answered(tmp_path):
    worker = ExactWorker(
        tmp_path / "exact", memory_bytes=16 << 20, threads=1, temp_bytes_max=1 << 20
    )
    large = ExactRelation("large", RIGHT, tail=numbered(1 << 21))
    small = ExactRelation("small", RIGHT, tail=numbered(1 << 16))
    for relations in ([large], [large, small], [small, large, replace(small, name="other")]):
        with pytest.raises(BudgetExceeded, match=r"rows of the log .* do not fit"):
            worker.query("SELECT 1 AS n", relations)
        assert is_ready(worker)
    worker.close()


@pytest.mark.slow
def test_long_texts_in_no_file_that_do_not_fit_are_refused_by_name(tmp_path):
    """DuckDB finds that there is no memory for them when it commits them."""
    worker = ExactWorker(tmp_path / "exact", memory_bytes=16 << 20, threads=1)
    text = batch_of(LEFT, [1], ["x" * (8 << 20)])
    with pytest.raises(BudgetExceeded, match=r"rows of the log .* do not fit"):
        worker.query("SELECT count(*) AS n FROM r0", [ExactRelation("r0", LEFT, tail=[text] * 4)])
    assert is_ready(worker)
    worker.close()


def test_a_filter_for_null_is_kept_where_a_join_becomes_an_anti_join(worker):
    """DuckDB 2.0.0 loses it over a registered Arrow table."""
    left = ExactRelation("r0", LEFT, tail=[batch_of(LEFT, [1, 2], ["a", "b"])])
    right = ExactRelation("r1", RIGHT, tail=[batch_of(RIGHT, [1], [1.0])])
    sql = """SELECT name FROM r0 LEFT JOIN (SELECT id AS other FROM r1) AS r
        ON id = other AND other IS NULL WHERE other IS NULL ORDER BY name"""
    assert worker.query(sql, [left, right])["name"].to_pylist() == ["a", "b"]


def test_a_relation_cannot_read_files_that_no_relation_names(worker, tmp_path):
    left, right = two_streams(tmp_path)
    for sql in (
        f"SELECT * FROM read_parquet('{left.files[0]}')",
        f"SELECT * FROM r1 JOIN read_parquet('{tmp_path}/*') USING (id)",
    ):
        with pytest.raises(InternalError, match="Permission"):
            worker.query(sql, [right])


def test_a_result_comes_before_the_query_is_done(worker):
    with worker.reading(ENDLESS, [], NO_LIMIT) as result:
        batches = iter(result)
        firsts = [next(batches)["n"][0].as_py() for _ in range(3)]
        assert result.schema.names == ["n"]
        assert not result.is_over
    assert firsts == [0, BATCH_ROWS, 2 * BATCH_ROWS]
    assert is_ready(worker)


@pytest.mark.parametrize("rows_max", [0, 1, BATCH_ROWS, BATCH_ROWS + 1, 3 * BATCH_ROWS - 1])
def test_a_result_is_cut_at_the_row_limit(worker, rows_max):
    found = read(worker, ENDLESS, ResultLimits(rows_max=rows_max))
    assert found == (list(range(rows_max)), "rows")


@pytest.mark.parametrize("rows", [0, 1, 2 * BATCH_ROWS])
def test_a_result_that_just_fits_is_not_cut(worker, rows):
    sql = f"SELECT range AS n FROM range({rows})"
    found = read(worker, sql, ResultLimits(rows_max=rows, bytes_max=8 * rows + rows // 8 + 1))
    assert found == (list(range(rows)), "")


@pytest.mark.parametrize("bytes_max", [0, 7, 8, 80_000, 800_008])
def test_a_result_is_cut_at_the_byte_limit(worker, bytes_max):
    rows, cut = read(worker, ENDLESS, ResultLimits(bytes_max=bytes_max))
    assert cut == "bytes"
    assert rows == list(range(len(rows)))
    assert bytes_max // 9 <= len(rows) <= bytes_max // 8  # A value has 8 bytes, and a valid bit.


@pytest.mark.parametrize("at", [0, 3 * BATCH_ROWS])
def test_an_error_of_a_query_is_raised_and_its_process_is_kept(worker, at):
    assert is_ready(worker)
    pid = exact_worker_process()
    sql = f"SELECT CASE WHEN range < {at} THEN range ELSE error('no') END AS n FROM range(99999)"
    with pytest.raises(InternalError, match="no"):
        read(worker, sql)
    assert is_ready(worker)
    assert exact_worker_process() == pid


def test_a_cancelled_result_ends_between_two_batches(worker):
    progress = Progress("the rows", "tuples")
    with pytest.raises(Cancelled, match="the rows"):
        read(worker, ENDLESS, progress=progress, after_first=progress.cancel)
    assert is_ready(worker)


def test_a_result_that_is_not_read_in_time_misses_its_deadline(worker):
    with pytest.raises(DeadlineExceeded, match=r"0\.2 s"):
        read(worker, ENDLESS, timeout_s=0.2)
    assert is_ready(worker)


def test_a_process_killed_while_its_result_is_read_is_reported_and_replaced(worker):
    with pytest.raises(BudgetExceeded, match="killed by the system"):
        read(worker, ENDLESS, after_first=lambda: os.kill(exact_worker_process(), signal.SIGKILL))
    assert is_ready(worker)


def test_an_error_of_the_reader_is_its_own_and_ends_the_query(worker):
    def full() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk"):
        read(worker, ENDLESS, after_first=full)
    assert is_ready(worker)
