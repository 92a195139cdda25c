"""The exact worker against answers worked out by hand, and its limits."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shedder.archive.exact.client import ExactWorker
from shedder.archive.exact.relation import ExactRelation
from shedder.archive.exact.worker import ResultLimits
from shedder.archive.tasks.progress import Progress
from shedder.cql.sql.exact_query import SqlDialect, exact_sql
from shedder.errors import (
    BudgetExceeded,
    Cancelled,
    CorruptData,
    DeadlineExceeded,
    DiskFull,
    InternalError,
    StorageFailed,
    Unavailable,
)
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.from_exact import evidence_from_exact
from tests.archive.child_processes import exact_worker_processes
from tests.archive.exact.full_disk import full_disk
from tests.queries import asking

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("key", pa.int64()), ("value", pa.float64())])
FOREVER_S = 3_600.0
FOREVER = "SELECT count(*) FROM range(100000) a, range(100000) b, range(1000) c"


def rows(*keys: int) -> pa.RecordBatch:
    columns = {"ts": list(keys), "key": list(keys), "value": [key / 2 for key in keys]}
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


class Watched(Progress):
    """Progress of a query; the event `requested` is set when the worker begins the query."""

    def __init__(self, what: str = "an exact answer") -> None:
        super().__init__(what, "tuples")
        self.requested = threading.Event()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        with super().calling(callback):
            self.requested.set()
            yield


class CancelledAfterReply(Progress):
    """Progress of a query that is cancelled between the reply and the query's end."""

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        with super().calling(callback):
            yield
            self.cancel()


@contextmanager
def occupied(worker: ExactWorker) -> Iterator[tuple[Watched, Future[pa.Table]]]:
    """Keep the worker busy with an endless query until the block cancels that query."""
    progress = Watched("the first")
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(worker.query, FOREVER, [], timeout_s=FOREVER_S, progress=progress)
        pending.add_done_callback(lambda _: progress.requested.set())
        progress.requested.wait()
        try:
            yield progress, pending
        finally:
            progress.cancel()
        with pytest.raises(Cancelled, match="the first"):
            pending.result()


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


def stream(
    files: Sequence[Path] = (), *tail: pa.RecordBatch, positions: Sequence[int] | None = None
) -> ExactRelation:
    return ExactRelation("stream", SCHEMA, files, tail=tail, tail_positions=positions)


@pytest.mark.slow
def test_runs_and_tail_are_one_relation(worker, tmp_path):
    file = run_file(tmp_path, rows(1, 2))
    sql = "SELECT count(*) AS a0, sum(value) AS a1 FROM stream"
    table = worker.query(sql, [stream([file], rows(3), rows(4))])
    assert table.to_pylist() == [{"a0": 4, "a1": 5.0}]


def test_rows_are_numbered_by_the_names_of_files_and_by_the_tail(worker, tmp_path):
    names = [f"{first:020}-x.parquet" for first in (0, 7)]
    files = [
        run_file(tmp_path, rows(*keys), name)
        for keys, name in zip([(5, 3), (4,)], names, strict=True)
    ]
    sql = "SELECT list(struct_pack(p := __position, k := key) ORDER BY __position) AS a FROM stream"
    table = worker.query(sql, [stream(files, rows(9, 8), rows(2), positions=[8, 12])])
    found = [(item["p"], item["k"]) for item in table.to_pylist()[0]["a"]]
    assert found == [(0, 5), (1, 3), (7, 4), (8, 9), (9, 8), (12, 2)]
    table = worker.query(sql, [stream([], rows(9), positions=[3])])
    assert table.to_pylist() == [{"a": [{"p": 3, "k": 9}]}]


def test_a_stream_without_runs_or_rows_still_answers(worker):
    table = worker.query("SELECT count(*) AS a0 FROM stream", [stream()])
    assert table.to_pylist() == [{"a0": 0}]


def test_a_directory_named_like_a_partition_adds_no_column(worker, tmp_path):
    directory = tmp_path / "key=99"
    directory.mkdir()
    file = run_file(directory, rows(1), "it's.parquet")
    table = worker.query("SELECT key FROM stream", [stream([file])])
    assert table.to_pylist() == [{"key": 1}]


def test_a_file_that_is_not_of_the_query_cannot_be_read(worker, tmp_path):
    allowed, other = run_file(tmp_path, rows(1)), run_file(tmp_path, rows(2), "other.parquet")
    for sql in (f"SELECT * FROM read_parquet('{other}')", "SELECT * FROM read_text('/etc/passwd')"):
        with pytest.raises(InternalError, match=r"Permission"):
            worker.query(sql, [stream([allowed])])


def test_a_query_reads_no_relation_and_no_file_of_the_last_one(worker, tmp_path):
    path = run_file(tmp_path, rows(1, 2))
    both = [ExactRelation(name, SCHEMA, [path], tail=[rows(3)]) for name in ("first", "second")]
    read = f"SELECT count(*) AS n FROM read_parquet('{path}'), first"
    for left in ("second", "__tail_second"):
        counted = worker.query("SELECT count(*) AS n FROM first, second", both)
        assert counted.to_pydict() == {"n": [9]}
        with pytest.raises(InternalError, match=f"{left} does not exist"):
            worker.query(f"SELECT * FROM {left}", both[:1])
    assert worker.query(read, both[:1]).to_pydict() == {"n": [6]}
    with pytest.raises(InternalError, match="Permission"):
        worker.query(read, [ExactRelation("first", SCHEMA)])


def test_the_limits_cannot_be_changed_by_a_query(worker):
    with pytest.raises((InternalError, CorruptData)):
        worker.query("SET memory_limit = '10GB'", [])


def test_each_database_of_a_process_has_all_limits(worker, tmp_path):
    """The fork server opens the first one, and queries of other files have others."""
    files = [run_file(tmp_path, rows(number), f"{number}-{number}.parquet") for number in (1, 2, 3)]
    names = (
        "memory_limit",
        "max_temp_directory_size",
        "threads",
        "async_threads",
        "TimeZone",
        "lock_configuration",
    )
    settings = ", ".join(f"current_setting('{name}') AS {name}" for name in names)
    found = [
        worker.query(f"SELECT {settings}, key FROM stream", [stream([file])]).to_pylist()[0]
        for file in files
    ]
    limits = dict(zip(names, ("90.0 MiB", "1.0 MiB", 1, 8, "UTC", True), strict=True))
    assert found == [limits | {"key": number} for number in (1, 2, 3)]


@pytest.mark.slow
def test_a_query_past_its_deadline_is_killed_and_the_next_one_answered(worker):
    with pytest.raises(DeadlineExceeded, match=r"0\.3 s"):
        worker.query(FOREVER, [], timeout_s=0.3)
    assert worker.query("SELECT 1 AS a0 FROM stream", [stream([], rows(1))]).num_rows == 1


@pytest.mark.parametrize("timeout_s", [1e12, float("inf")])
def test_a_deadline_beyond_what_threads_can_wait_is_none(worker, timeout_s):
    assert worker.query("SELECT 1 AS n", [], timeout_s=timeout_s)["n"].to_pylist() == [1]


@pytest.mark.slow
def test_more_memory_than_the_budget_is_refused_and_the_next_one_answered(worker):
    with pytest.raises(BudgetExceeded):
        worker.query("SELECT list(range) FROM range(50000000)", [])
    with pytest.raises(BudgetExceeded, match="failed to offload"):  # To 1 MiB of spill space.
        worker.query("SELECT * FROM range(20000000) ORDER BY hash(range) LIMIT 9000000", [])
    with pytest.raises(BudgetExceeded, match="result"):
        worker.query("SELECT range FROM range(1000000)", [])
    assert worker.query("SELECT 1 AS a0 FROM stream", [stream([], rows(1))]).num_rows == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "cut"])
def test_a_disk_that_is_full_while_a_query_spills_is_reported_as_full(tmp_path, is_cut):
    worker = ExactWorker(tmp_path / "exact", memory_bytes=32 << 20, threads=1)
    sorting = "SELECT hash(range) AS x FROM range(4000000) ORDER BY x"
    limits = ResultLimits() if is_cut else None
    with ExitStack() as stack:
        stack.callback(worker.close)
        before = set(exact_worker_processes())
        assert worker.query("SELECT 1 AS n", []).num_rows == 1  # The process has started.
        (process,) = set(exact_worker_processes()) - before
        with (
            full_disk(process=process),
            pytest.raises(DiskFull, match=r"no space.*/exact/.*free some.*exact_memory_bytes"),
            worker.reading(sorting, [], limits) as result,
        ):
            list(result)
        assert worker.query("SELECT 1 AS n", []).num_rows == 1


def test_a_directory_for_spills_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").touch()
    worker = ExactWorker(tmp_path / "file" / "exact")
    with pytest.raises(StorageFailed, match="file/exact"):
        worker.query("SELECT 1 AS n", [])
    worker.close()


def test_a_damaged_run_is_reported_as_corrupt(worker, tmp_path):
    file = tmp_path / "0-1.parquet"
    file.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(CorruptData, match=r"0-1\.parquet"):
        worker.query("SELECT * FROM stream", [stream([file])])


def test_a_closed_worker_says_so(tmp_path):
    worker = ExactWorker(tmp_path / "exact")
    worker.query("SELECT 1 AS a0", [])
    worker.close()
    with pytest.raises(Unavailable):
        worker.query("SELECT 1", [])


@pytest.mark.slow
def test_queries_of_several_threads_are_answered_one_by_one(worker):
    def ask(key: int) -> int:
        table = worker.query("SELECT max(key) AS a0 FROM stream", [stream([], rows(key))])
        return table["a0"][0].as_py()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(20))) == list(range(20))


@pytest.mark.slow
def test_a_query_that_waits_too_long_for_its_turn_misses_its_deadline(worker):
    with occupied(worker), pytest.raises(DeadlineExceeded, match="others"):
        worker.query("SELECT 1 AS a0", [], timeout_s=0.05)


@pytest.mark.slow
def test_a_worker_killed_from_outside_is_replaced(tmp_path):
    worker, before = ExactWorker(tmp_path / "exact"), set(exact_worker_processes())
    worker.query("SELECT 1 AS a0", [])
    (process,) = set(exact_worker_processes()) - before
    os.kill(process, signal.SIGKILL)
    assert ended(process)
    assert worker.query("SELECT 1 AS a0", []).num_rows == 1
    worker.close()


def test_the_process_does_not_load_numpy(worker):
    assert worker.query("SELECT 1 AS n FROM stream", [stream([], rows(1))]).num_rows == 1
    [process] = exact_worker_processes()
    maps = Path(f"/proc/{process}/maps").read_text()
    assert "/duckdb/" in maps or "/_duckdb" in maps
    assert "/numpy/" not in maps


@pytest.mark.slow
def test_the_process_ends_with_its_parent_also_during_a_query(tmp_path):
    script = f"""
import os, threading, pathlib
from tests.archive.child_processes import exact_worker_process
from shedder.archive.exact.client import ExactWorker
worker = ExactWorker(pathlib.Path({str(tmp_path / "exact")!r}), threads=1)
worker.query("SELECT 1", [])
print(exact_worker_process(), flush=True)
threading.Timer(0.3, lambda: os._exit(0)).start()
worker.query({FOREVER!r}, [])
"""
    found = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    assert ended(int(found.stdout))


def ended(process_id: int) -> bool:
    """Wait for a process that is no child of this one; return whether it ended within a minute."""
    try:
        process = os.pidfd_open(process_id)
    except ProcessLookupError:
        return True
    readable, _, _ = select.select([process], [], [], 60)  # Readable when the process has ended.
    os.close(process)
    return bool(readable)


@pytest.mark.parametrize(
    "text",
    [
        "COUNT(*) AS n, SUM(bytes) AS s, MEDIAN(client) AS m, TOP(domain, 2) AS t FROM requests",
        "domain, COUNT(DISTINCT client) AS c FROM requests WHERE ok GROUP BY domain ORDER BY c",
    ],
)
def test_a_bound_query_is_answered_over_runs_and_tail(worker, tmp_path, text):
    query, data = asking.ask(text), asking.rows(2000)
    file = run_file(tmp_path, data.slice(0, 1200))
    sql = exact_sql(query, "stream", SqlDialect.DUCKDB, 100, 1900)
    tail = [data.slice(1200, 500), data.slice(1700)]
    table = worker.query(sql, [ExactRelation("stream", asking.ARROW, [file], tail=tail)])
    expected = asking.exact_rows(query, data, 100, 1900)
    answers = [finish(query, evidence_from_exact(query, each)) for each in (table, expected)]
    first, second = (sorted(map(str, answer.rows())) for answer in answers)
    assert first == second


@pytest.mark.slow
def test_a_query_that_is_called_off_is_killed_and_the_next_one_answered(worker):
    with occupied(worker) as (progress, _):
        progress.cancel()
    assert worker.query("SELECT 1 AS a0 FROM stream", [stream([], rows(1))]).num_rows == 1


@pytest.mark.slow
def test_a_query_cancelled_just_after_its_reply_leaves_the_next_one_a_process(worker):
    for _ in range(5):
        progress = CancelledAfterReply("an answer", "tuples")
        count = worker.query("SELECT 1 AS n", [], progress=progress)
        assert count["n"].to_pylist() == [1]
        assert worker.query("SELECT 2 AS n", [])["n"].to_pylist() == [2]


def test_a_query_that_cannot_be_asked_keeps_nobody_waiting(worker):
    with pytest.raises(ValueError, match="zip"):
        worker.query("SELECT 1 AS n", [stream([], rows(1), positions=[0, 1])])
    assert worker.query("SELECT 2 AS n", [], timeout_s=FOREVER_S)["n"].to_pylist() == [2]


def test_a_query_that_is_called_off_before_its_turn_does_not_wait_for_it(worker):
    second = Progress("the second", "tuples")
    with occupied(worker) as (_, first), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(worker.query, "SELECT 1", [], progress=second)
        second.cancel()
        with pytest.raises(Cancelled, match="the second"):
            waiting.result()
        assert not first.done()
