"""Replaced files of runs are removed outside the store's lock, once the marks are durable."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from errno import EIO

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.files.durable_marks import FILE_NAME
from shedder.archive.files.file_system import OsFiles
from shedder.cql.binding.parse import parse
from shedder.cql.statements.archive_layout import Hybrid, Plain
from tests.archive.schemas import SCHEMA, batch
from tests.archive.worlds import delete, ingest, known, names, opened, positions, purge

ROLLUP = "SELECT COUNT(*), SUM(serial) FROM readings [RANGE 1 SECOND SLIDE 1 SECOND]"
WAIT_S = 30


class SlowMarks(OsFiles):
    """The real file system, on which a sync of the marks waits while `gate` is closed.

    syncing: set when such a sync has begun. syncs: their number. is_bad: they fail.
    """

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.syncing = threading.Event()
        self.syncs = 0
        self.is_bad = False

    def append(self, path):
        file = super().append(path)
        return _SlowFile(self, file) if path.name == FILE_NAME else file


class _SlowFile:
    def __init__(self, files, file):
        self._files, self._file = files, file
        self.overwrite, self.close = file.overwrite, file.close

    def sync(self):
        self._files.syncs += 1
        self._files.syncing.set()
        assert self._files.gate.wait(WAIT_S)
        if self._files.is_bad:
            raise OSError(EIO, "a bad disk")
        self._file.sync()


def drop_stream(store):
    store.drop_stream(1)


def retain_nothing(store):
    assert store.retention.apply(1, 1 << 60) == 40


def set_aside(store):
    assert store.quarantine.add(store.runs(1)[0], "damaged")


def relay(store):
    store.set_layout(1, Hybrid(4, 3))
    assert store.layouts.rewrite(store.layouts.unlike(1)[0])


def purge_rows(store):
    delete(store, lambda position: position < 5)
    assert purge(store) == 5


def drop_rollup(store):
    store.rollups.drop(store.rollups.entries(1)[0][0])


def drop_rolled(store):
    (run,) = store.runs(1)
    assert store.rollups.drop_rolled(run, run.rolled[0])


def roll_up_again(store):
    delete(store, lambda position: position < 5)
    assert store.rollups.roll_up(*store.rollups.due(1)[0])


CHANGES = [
    drop_stream,
    retain_nothing,
    set_aside,
    relay,
    purge_rows,
    drop_rollup,
    drop_rolled,
    roll_up_again,
]


def rolled(directory, files):
    """Return a store with a stream of one run with one rollup, and a second stream."""
    opened(directory, Plain()).close()
    store = Store.open(directory, files=files)
    store.create_stream(replace(SCHEMA, name="other"))
    store.rollups.add(1, "counts", parse(ROLLUP))
    ingest(store, 0, 40)
    store.cut(1)
    return store


def expected_names(store):
    """Return the files that should be below `runs/1`: those of readable runs."""
    if all(entry.id != 1 for entry in store.streams()):
        return set()
    return known(store) - {run.file for run, _ in store.quarantine.runs(1)}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_slow_sync_of_the_marks_keeps_neither_ingest_nor_readers_waiting(tmp_path, change):
    files = SlowMarks()
    store = rolled(tmp_path, files)
    before = names(tmp_path)
    files.gate.clear()
    files.syncing.clear()

    def go_on():
        store.add(2, 0, batch(0, 10), sequence=99)
        store.snapshot(2).release()

    with ThreadPoolExecutor(2) as pool:
        try:
            changing = pool.submit(change, store)
            assert files.syncing.wait(WAIT_S)
            pool.submit(go_on).result(WAIT_S)
            assert before <= names(tmp_path)  # Only durable marks let a replaced file go.
        finally:
            files.gate.set()
        changing.result(WAIT_S)
    assert names(tmp_path) == expected_names(store)
    store.close()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_after_a_failed_sync_the_next_removal_takes_what_was_left(tmp_path, change):
    files = SlowMarks()
    store = rolled(tmp_path, files)
    before = names(tmp_path)
    files.is_bad = True
    change(store)
    assert before <= names(tmp_path)
    files.is_bad = False
    store.drop_stream(2)  # It has no file of its own.
    assert names(tmp_path) == expected_names(store)
    store.close()


def test_a_released_reader_and_an_ended_backup_sync_nothing(tmp_path):
    files = SlowMarks()
    store = rolled(tmp_path, files)
    (run,) = store.runs(1)
    snapshot = store.snapshot(1)
    with store.kept():
        relay(store)
        snapshot.release()
        before = files.syncs
        assert run.file in names(tmp_path)
    assert (files.syncs, names(tmp_path)) == (before, known(store))
    snapshot = store.snapshot(1)
    purge_rows(store)
    before = files.syncs
    snapshot.release()
    assert (files.syncs, names(tmp_path)) == (before, known(store))
    store.close()


def test_a_file_that_was_put_back_while_its_removal_waited_stays(tmp_path):
    files = SlowMarks()
    store = rolled(tmp_path, files)
    (run,) = store.runs(1)
    files.is_bad = True
    assert store.quarantine.add(run, "damaged")
    store.quarantine.take_back(run)
    assert store.quarantine.release(run)
    files.is_bad = False
    store.drop_stream(2)
    assert names(tmp_path) == known(store)
    assert positions(store) == list(range(40))
    store.close()
