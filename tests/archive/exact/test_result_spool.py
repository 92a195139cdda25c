"""Spools of results: order, memory, room on disk, errors, and readers that leave."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from shedder.archive.exact.result_spool import ResultSpool, SpoolSpace
from shedder.errors import BudgetExceeded, Cancelled, DeadlineExceeded, DiskFull, StorageFailed
from tests.archive.exact.full_disk import full_disk

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def opened(tmp_path):
    """Make spools, and close them."""
    with ExitStack() as stack:

        def open_spool(
            space: SpoolSpace, memory_bytes_max: int = 1 << 20, directory: Path = tmp_path
        ) -> ResultSpool:
            spool = ResultSpool(directory, space, memory_bytes_max=memory_bytes_max)
            stack.callback(spool.close)
            return spool

        yield open_spool


def batch(first: int, rows: int = 100) -> pa.RecordBatch:
    numbers = list(range(first, first + rows))
    return pa.record_batch([pa.array(numbers), pa.array(map(str, numbers))], schema=SCHEMA)


def numbers(spool: ResultSpool) -> list[int]:
    return [n for each in spool for n in each["n"].to_pylist()]


@pytest.mark.parametrize("memory_bytes_max", [0, 3_000, 1 << 20])
def test_rows_are_read_in_the_order_in_which_they_were_written(opened, tmp_path, memory_bytes_max):
    space = SpoolSpace(1 << 20)
    spool = opened(space, memory_bytes_max)
    spool.begin(SCHEMA)
    for first in range(0, 1_000, 100):
        spool.put(batch(first))
    assert (space.held > 0) == (memory_bytes_max < 1 << 20)
    spool.end()
    assert spool.schema == SCHEMA
    assert numbers(spool) == list(range(1_000))
    spool.close()
    assert space.held == 0
    assert list(tmp_path.iterdir()) == []


def test_a_result_without_rows_has_a_schema(opened):
    spool = opened(SpoolSpace(0))
    spool.begin(SCHEMA)
    spool.end()
    assert spool.schema == SCHEMA
    assert numbers(spool) == []


def test_a_reader_waits_for_rows_that_come_later(opened):
    spool, taken = opened(SpoolSpace(1 << 20)), threading.Event()

    def read() -> list[int]:
        found: list[int] = []
        assert spool.schema == SCHEMA
        for each in spool:
            found += each["n"].to_pylist()
            taken.set()
        return found

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        spool.begin(SCHEMA)
        spool.put(batch(0))
        taken.wait()
        spool.put(batch(100))
        spool.end()
        assert reading.result() == list(range(200))


def test_an_error_comes_behind_the_rows_before_it(opened):
    spool = opened(SpoolSpace(1 << 20))
    spool.begin(SCHEMA)
    spool.put(batch(0))
    spool.end(DeadlineExceeded("late"))
    batches = iter(spool)
    assert next(batches).equals(batch(0))
    with pytest.raises(DeadlineExceeded, match="late"):
        next(batches)


def test_an_error_before_the_first_row_is_raised_by_the_schema(opened):
    spool = opened(SpoolSpace(1 << 20))
    spool.end(DeadlineExceeded("late"))
    with pytest.raises(DeadlineExceeded, match="late"):
        _ = spool.schema


def test_spools_together_hold_no_more_than_their_room_on_disk(opened):
    space = SpoolSpace(5_000)
    spools = [opened(space, 0) for _ in range(2)]
    spools[0].begin(SCHEMA)
    spools[0].put(batch(0, 300))
    with pytest.raises(BudgetExceeded, match="limit is 5,000"):
        spools[1].put(batch(0, 300))
    spools[0].close()
    spools[1].put(batch(0, 300))


def test_a_reader_that_leaves_ends_the_writing(opened):
    space = SpoolSpace(1 << 20)
    spool = opened(space, 0)
    spool.begin(SCHEMA)
    spool.put(batch(0))
    spool.close()
    spool.close()
    with pytest.raises(Cancelled, match="gone"):
        spool.put(batch(100))
    assert space.held == 0
    assert numbers(spool) == []


def test_a_directory_that_cannot_be_written_is_reported_and_takes_no_room(opened, tmp_path):
    space = SpoolSpace(1 << 20)
    spool = opened(space, 0, tmp_path / "missing")
    spool.begin(SCHEMA)
    with pytest.raises(StorageFailed, match="missing"):
        spool.put(batch(0))
    assert space.held == 0


def test_a_full_disk_is_reported_as_full_and_takes_no_room(opened):
    space = SpoolSpace(1 << 20)
    spool = opened(space, 0)
    spool.begin(SCHEMA)
    with full_disk(100), pytest.raises(DiskFull, match="no space for a result"):
        spool.put(batch(0))
    assert space.held == 0
