"""A file that its disk does not give back is as lost as a damaged one, until it does again."""

from __future__ import annotations

import errno

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.operations.scrub import scrub
from tests.archive.bad_disk import BadDisk
from tests.archive.schemas import SCHEMA
from tests.archive.worlds import ingest, positions


@pytest.fixture
def disk():
    return BadDisk()


@pytest.fixture
def store(tmp_path, disk):
    """Three runs that were written by another process."""
    with_files = Store.open(tmp_path / "data")
    with_files.create_stream(SCHEMA)
    for first in range(0, 60, 20):
        ingest(with_files, first, 20)
        with_files.cut(1)
    with_files.close()
    store = Store.open(tmp_path / "data", files=disk)
    yield store
    store.close()


def test_a_scrub_goes_on_behind_a_file_that_cannot_be_read(store, disk):
    first, second, third = store.runs(1)
    disk.bad.add(first.file.split("/")[1])
    (store.directory / "runs" / third.file).unlink()
    found = scrub(store)
    assert [run for run, _ in found.damaged] == [first, third]
    assert "cannot be read (Input/output error); it held positions 0 to 20" in found.damaged[0][1]
    assert [run for run, _ in store.quarantine.runs(1)] == [first, third]
    assert store.snapshot(1).runs == (second,)


def test_what_can_be_read_again_is_taken_back(store, disk):
    run = store.runs(1)[1]
    name = run.file.split("/")[1]
    disk.bad.add(name)
    scrub(store)
    aside = store.directory / "quarantine" / run.file.replace("/", "-")
    assert aside.exists()
    assert not (store.directory / "runs" / run.file).exists()
    assert scrub(store).released == []  # It still cannot be.
    disk.bad.clear()
    assert scrub(store).released == [run]
    assert not aside.exists()
    assert positions(store) == list(range(60))
    assert store.quarantine.runs(1) == []


def test_what_was_damaged_stays_aside(store):
    run = store.runs(1)[1]
    path = store.directory / "runs" / run.file
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    scrub(store)
    assert scrub(store).released == []
    assert (store.directory / "quarantine" / run.file.replace("/", "-")).exists()
    assert not path.exists()


def test_what_proves_no_damage_is_told_and_changes_nothing(store, disk):
    run = store.runs(1)[1]
    disk.bad.add(run.file.split("/")[1])
    disk.error = errno.EMFILE
    found = scrub(store)
    ((unread, problem),) = found.unread
    assert unread == run
    assert "Too many open files" in problem
    assert found.runs == 2
    assert found.damaged == store.quarantine.runs(1) == []
    disk.bad.clear()
    assert scrub(store).unread == []
    assert positions(store) == list(range(60))
