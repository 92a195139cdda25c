"""The store: every tuple is in exactly one place, whatever is cut, dropped or read meanwhile."""

import errno
import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.files.data_directory import FORMAT_VERSION, DirectoryLock
from shedder.archive.files.file_system import OsFiles
from shedder.errors import (
    BadSetting,
    CorruptData,
    DirectoryLocked,
    NewerFormat,
    StreamExists,
    UnknownStream,
)
from tests.archive.schemas import PLAIN, SCHEMA, batch
from tests.archive.worlds import checkpoint, ingest, positions, recover


class WatchedFiles(OsFiles):
    """The real file system; `placed` is set when a run's file has its final name."""

    def __init__(self):
        self.placed = threading.Event()

    def rename(self, source, target):
        super().rename(source, target)
        if target.suffix == ".parquet":
            self.placed.set()


@pytest.fixture
def files():
    return WatchedFiles()


@pytest.fixture(params=[SCHEMA, PLAIN], ids=["hybrid", "plain"])
def store(tmp_path, request, files):
    store = Store.open(tmp_path / "data", files=files)
    store.create_stream(request.param)
    yield store
    store.close()


def test_tuples_are_in_runs_or_in_the_tail_and_once(store):
    ingest(store, 0, 10)
    ingest(store, 10, 5)
    assert store.tail_rows(1) == 15
    assert store.tail_bytes() > 0
    run = store.cut(1)
    assert (run.first_position, run.end_position) == (0, 15)
    assert store.cut(1) is None
    ingest(store, 15, 70_000)
    assert store.tail_rows(1) == 70_000
    assert store.end_position(1) == 70_015
    assert positions(store) == list(range(70_015))
    assert [run.end_position for run in store.runs(1)] == [15]


def test_a_restart_recovers_runs_and_tail(tmp_path):
    store = Store.open(tmp_path)
    store.create_stream(SCHEMA)
    ingest(store, 0, 10)
    store.cut(1)
    ingest(store, 10, 10)
    store.close()
    again = recover(tmp_path)
    assert again.tail_rows(1) == 10
    assert positions(again) == list(range(20))
    assert again.recovery.orphans == again.recovery.missing == ()
    again.close()


def test_the_log_keeps_what_the_tail_or_the_checkpoint_needs(tmp_path):
    store = Store.open(tmp_path, log_segment_bytes=1000)
    store.create_stream(SCHEMA)
    for first in range(0, 100, 10):
        last = ingest(store, first, 10)
    assert store.log_start() == 0
    store.cut(1)
    assert store.log_start() == 0  # no checkpoint yet
    newest = ingest(store, 100, 10)
    checkpoint(store, last + 1, {"stream/1": b"state"})
    assert store.log_start() == last + 1 == newest
    assert store.log.first_sequence > 0
    checkpoint(store, newest + 1, {"stream/1": b"state"})
    assert store.log_start() == newest  # the tail
    store.close()
    again = recover(tmp_path)
    assert positions(again) == list(range(110))
    again.close()


def test_scans_take_columns_and_leave_out_runs_of_other_times(store):
    ingest(store, 0, 10)
    store.cut(1)
    ingest(store, 10, 10)
    store.cut(1)
    assert positions(store, 10_000, None) == list(range(10, 20))
    assert positions(store, None, 10_000) == list(range(10))
    assert positions(store, 9_000, 10_000) == list(range(10))
    ((_, rows), *_) = store.scan(1, columns=["value"])
    assert rows.schema.names == ["value"]


def test_a_snapshot_stays_whole_while_the_store_changes(store):
    ingest(store, 0, 10)
    store.cut(1)
    ingest(store, 10, 10)
    snapshot = store.snapshot(1)
    store.cut(1)
    assert store.retention.apply(1, 10_000) == 10
    ingest(store, 20, 10)
    assert [run.end_position for run in snapshot.runs] == [10]
    (path,) = snapshot.files.verified(snapshot.runs)
    assert path.exists()
    assert [rows.num_rows for rows in snapshot.tail] == [10]
    assert snapshot.end_position == 20
    snapshot.release()
    assert not path.exists()
    assert positions(store) == list(range(10, 30))


@pytest.mark.slow
def test_a_forgotten_snapshot_releases_its_files(store):
    ingest(store, 0, 10)
    store.cut(1)
    snapshot = store.snapshot(1)
    (path,) = snapshot.files.verified(snapshot.runs)
    store.retention.apply(1, 10**15)
    assert path.exists()
    del snapshot
    gc.collect()
    assert not path.exists()


def test_retention_keeps_positions_and_says_from_when_all_is_there(tmp_path):
    store = Store.open(tmp_path)
    store.create_stream(SCHEMA)
    ingest(store, 0, 10)
    store.cut(1)
    assert store.retention.apply(1, 9_000) == 0
    assert store.retention.retained_from_us(1) is None
    assert store.retention.apply(1, 9_001) == 10
    assert store.retention.retained_from_us(1) == 9_001
    checkpoint(store, store.log.next_sequence, {})
    store.close()
    again = recover(tmp_path)
    assert again.end_position(1) == 10
    assert again.retention.retained_from_us(1) == 9_001
    assert positions(again) == []
    again.close()


def test_adding_and_cutting_at_once_loses_nothing(store):
    done = threading.Event()
    seen: list[int] = []

    def cut() -> None:
        while not done.is_set():
            store.cut(1)
            seen.append(sum(rows.num_rows for _, rows in store.scan(1)))

    cutter = threading.Thread(target=cut)
    cutter.start()
    for first in range(0, 2000, 20):
        ingest(store, first, 20)
    done.set()
    cutter.join()
    assert seen == sorted(seen)
    assert positions(store) == list(range(2000))


@pytest.mark.slow
def test_a_cut_that_waits_for_a_transaction_keeps_nobody_waiting(store, files):
    """A checkpoint may write for long; batches that arrive and readers go on meanwhile."""
    ingest(store, 0, 1000)

    def go_on() -> None:
        files.placed.wait()  # The run's file exists; the cut continues with the catalog.
        for first in range(1000, 2000):
            store.tail_bytes()
            store.add(1, first, batch(first, 1), sequence=first)
            assert store.snapshot(1).end_position == first + 1

    with ThreadPoolExecutor(2) as pool:
        with store.catalog.transaction():
            cutting = pool.submit(store.cut, 1)
            pool.submit(go_on).result()
            assert store.runs(1) == []
        cutting.result()
    assert [run.rows for run in store.runs(1)] == [1000]


class HeldFiles(OsFiles):
    """The real file system; a file FORMAT gets its name when `go_on` is set."""

    def __init__(self):
        self.is_held, self.go_on = threading.Event(), threading.Event()

    def rename(self, source, target):
        if target.name == "FORMAT" and not self.is_held.is_set():
            self.is_held.set()
            self.go_on.wait(60)
        super().rename(source, target)


def test_sizes_are_told_while_another_thread_writes_under_the_lock_of_the_streams(tmp_path):
    recover(tmp_path).close()
    with ThreadPoolExecutor(2) as pool:
        store = Store.open(tmp_path, files=(files := HeldFiles()))
        store.create_stream(SCHEMA)
        ingest(store, 0, 10)
        run = store.cut(1)
        ingest(store, 10, 5)
        raising = pool.submit(store.allow, FORMAT_VERSION)
        assert files.is_held.wait(60)
        try:
            assert pool.submit(store.runs_bytes, 1).result(10) == run.size_bytes
            assert pool.submit(store.tail_bytes, 1).result(10) > 0
            assert pool.submit(store.tail_rows, 1).result(10) == 5
        finally:
            files.go_on.set()
        raising.result()
        store.close()


def test_a_hole_in_the_positions_ends_a_run(store):
    ingest(store, 0, 10)
    ingest(store, 15, 5)
    first, second = store.cut(1), store.cut(1)
    assert (first.end_position, second.first_position) == (10, 15)
    assert store.cut(1) is None
    assert positions(store) == [*range(10), *range(15, 20)]


def test_rows_that_a_run_covers_are_not_added_again(store):
    ingest(store, 0, 10)
    store.cut(1)
    store.add(1, 0, batch(0, 10), sequence=0)
    assert store.tail_rows(1) == 0
    store.add(1, 5, batch(5, 10), sequence=0)
    assert store.tail_rows(1) == 5
    assert positions(store) == list(range(15))


def test_an_unknown_stream_is_named(store):
    with pytest.raises(UnknownStream, match=r"'9'; there are 1 \(readings\)"):
        store.snapshot(9)


def test_a_dropped_stream_takes_its_files_and_leaves_its_id_unused(store):
    ingest(store, 0, 10)
    store.cut(1)
    snapshot = store.snapshot(1)
    store.drop_stream(1)
    assert store.streams() == []
    (path,) = snapshot.files.verified(snapshot.runs)
    assert path.exists()
    snapshot.release()
    assert not path.exists()
    assert store.create_stream(SCHEMA).id == 2
    with pytest.raises(StreamExists):
        store.create_stream(SCHEMA)


def test_a_directory_is_served_once(store):
    with pytest.raises(DirectoryLocked, match=str(os.getpid())):
        Store.open(store.directory)


def test_a_full_disk_keeps_nobody_from_locking_a_directory(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "as if")

    monkeypatch.setattr(os, "pwrite", full)
    lock = DirectoryLock.take(tmp_path)
    with pytest.raises(DirectoryLocked, match=str(os.getpid())):  # As the kernel says.
        DirectoryLock.take(tmp_path)
    lock.release()


@pytest.mark.slow
def test_the_lock_ends_with_its_process(tmp_path):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from shedder.archive.archive_store import Store\n"
        "store = Store.open(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert killed.returncode == -9
    Store.open(tmp_path).close()


def test_a_newer_directory_is_refused_untouched(tmp_path):
    Store.open(tmp_path).close()
    (tmp_path / "FORMAT").write_text("shedder archive 999\n")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(NewerFormat, match="format 999"):
        Store.open(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_directory_with_other_things_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(BadSetting, match=r"thesis\.tex"):
        Store.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_damaged_format_file_is_noticed(tmp_path):
    Store.open(tmp_path).close()
    (tmp_path / "FORMAT").write_bytes(b"shedder brchive 1\n")
    with pytest.raises(CorruptData, match="FORMAT"):
        Store.open(tmp_path)


def test_a_missing_catalog_is_damage_and_no_run_is_deleted(tmp_path):
    store = Store.open(tmp_path)
    store.create_stream(SCHEMA)
    ingest(store, 0, 10)
    run = store.cut(1)
    store.close()
    (tmp_path / "catalog.sqlite").unlink()
    with pytest.raises(CorruptData, match=r"catalog\.sqlite is missing"):
        Store.open(tmp_path)
    assert (tmp_path / "runs" / run.file).exists()


def test_orphans_and_temporary_files_of_a_crash_are_removed(tmp_path):
    store = Store.open(tmp_path)
    store.create_stream(SCHEMA)
    ingest(store, 0, 10)
    run = store.cut(1)
    store.catalog.drop_run(run)  # as if power had failed between file and catalog
    store.close()
    (tmp_path / "tmp" / "half").write_bytes(b"x")
    again = recover(tmp_path)
    assert again.recovery.orphans == (run.file,)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert positions(again) == list(range(10))
    again.close()


def test_a_damaged_run_is_never_served(tmp_path):
    store = Store.open(tmp_path)
    store.create_stream(SCHEMA)
    ingest(store, 0, 1000)
    path = tmp_path / "runs" / store.cut(1).file
    store.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    again = Store.open(tmp_path)
    snapshot = again.snapshot(1)  # an answer that does not read the archive is not disturbed
    with pytest.raises(CorruptData, match="checksum"):
        snapshot.files.verified(snapshot.runs)
    with pytest.raises(CorruptData, match="checksum"):
        positions(again)
    snapshot.release()
    again.close()
    path.unlink()
    again = Store.open(tmp_path)
    assert [run.file for run in again.recovery.missing] == [f"1/{path.name}"]
    with pytest.raises(CorruptData, match="missing"):
        positions(again)
    again.close()
