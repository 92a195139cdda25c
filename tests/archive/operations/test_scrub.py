"""Rot is found while the store runs, set aside, and never left out of an account."""

import shutil
from dataclasses import replace
from itertools import count

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.operations.scrub import scrub
from shedder.archive.operations.verify import check
from shedder.archive.tasks.progress import Progress
from shedder.errors import Cancelled, CorruptData
from tests.archive.schemas import SCHEMA, batch
from tests.archive.worlds import ingest, positions, recover


def filled(directory) -> Store:
    store = Store.open(directory)
    store.create_stream(SCHEMA)
    for first in range(0, 60, 20):
        ingest(store, first, 20)
        store.cut(1)
    ingest(store, 60, 20)
    return store


@pytest.fixture
def store(tmp_path):
    store = filled(tmp_path / "data")
    yield store
    store.close()


def rot(store: Store, number: int) -> None:
    """Flip a bit of a run's file."""
    path = store.directory / "runs" / store.runs(1)[number].file
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 8
    path.write_bytes(data)


def test_a_sound_store_stays_as_it_is(store):
    progress = Progress("scrub", "bytes")
    found = scrub(store, progress=progress)
    assert (found.runs, found.damaged, found.released) == (3, [], [])
    assert found.read_bytes == progress.total == progress.done
    assert positions(store) == list(range(80))


def test_a_good_copy_that_was_put_back_while_a_backup_kept_all_files_stays(store):
    """The bad one was to go when the backup ends; what then had its name went in its place."""
    path = store.directory / "runs" / store.runs(1)[1].file
    good = path.read_bytes()
    with store.kept():
        rot(store, 1)
        assert len(scrub(store).damaged) == 1
        path.unlink()
        path.write_bytes(good)
        assert len(scrub(store).released) == 1
    assert path.exists()
    assert scrub(store).damaged == []
    assert positions(store) == list(range(80))


def test_a_rotten_run_is_set_aside_and_what_is_missing_is_said(store):
    rot(store, 1)
    second = store.runs(1)[1]
    found = scrub(store)
    assert [run for run, _ in found.damaged] == [second]
    assert "checksum" in found.damaged[0][1]
    snapshot = store.snapshot(1)
    assert snapshot.missing == (second,)
    assert [run.first_position for run in snapshot.runs] == [0, 40]
    assert store.snapshot(1, 0, 20_000).missing == ()  # Another stretch is whole.
    with pytest.raises(CorruptData, match=r"20 tuples, positions 20 to 40 .* quarantine"):
        positions(store)
    assert [n for first, rows in store.scan(1, from_position=40) for n in rows["serial"]]
    snapshot.release()
    assert not (store.directory / "runs" / second.file).exists()
    assert (store.directory / "quarantine" / second.file.replace("/", "-")).exists()
    assert scrub(store).damaged == []  # It is known already.


def test_quarantine_outlives_a_restart_and_the_check_reports_it(tmp_path):
    store = filled(tmp_path / "data")
    rot(store, 0)
    scrub(store)
    store.close()
    report = check(tmp_path / "data")
    assert not report.ok
    assert any("in quarantine" in run for run in report.aside)
    again = recover(tmp_path / "data")
    assert [run.first_position for run, _ in again.quarantine.runs(1)] == [0]
    assert again.recovery.missing == again.recovery.orphans == ()
    again.close()


def test_a_missing_file_is_damage_too(store):
    run = store.runs(1)[2]
    (store.directory / "runs" / run.file).unlink()
    assert [found for found, _ in scrub(store).damaged] == [run]


def test_a_file_that_is_put_back_whole_is_read_again(store):
    run = store.runs(1)[1]
    path = store.directory / "runs" / run.file
    shutil.copy(path, store.directory.parent / "backup.parquet")
    rot(store, 1)
    scrub(store)
    shutil.copy(store.directory.parent / "backup.parquet", path)
    assert scrub(store).released == [run]
    assert positions(store) == list(range(80))
    assert store.quarantine.runs(1) == []


def test_retention_and_drop_take_quarantined_runs_with_them(store):
    rot(store, 0)
    scrub(store)
    assert store.retention.apply(1, 20_000) == 20
    assert store.quarantine.runs(1) == store.catalog.annotations.quarantined() == []
    rot(store, 0)
    scrub(store)
    store.drop_stream(1)
    assert store.catalog.annotations.quarantined() == []


def test_a_scrub_keeps_to_its_rate_and_ends_when_called_off(store):
    """A clock that stands still: the second read is due far in the future, until the cancel."""

    class Waited(Progress):
        __slots__ = ()

        def wait(self, seconds: float) -> None:
            waits.append(seconds)
            self.cancel()

    waits: list[float] = []
    progress = Waited("scrub", "bytes")
    with pytest.raises(Cancelled, match="scrub was cancelled"):
        scrub(store, progress=progress, bytes_per_second=1.0, clock=lambda: 0.0)
    assert waits == [store.runs(1)[0].size_bytes]


def test_streams_that_are_dropped_meanwhile_end_no_scrub(store):
    for name in ("second", "third"):
        stream = store.create_stream(replace(SCHEMA, name=name)).id
        store.add(stream, 0, batch(0, 20), sequence=store.log.next_sequence)
        store.cut(stream)
    looks = count()

    def clock() -> float:
        if next(looks) == 1:  # The first bytes have been read.
            store.drop_stream(2)
            store.drop_stream(3)
        return 0.0

    found = scrub(store, bytes_per_second=1e18, clock=clock)
    assert (found.runs, found.damaged, found.unread) == (3, [], [])
