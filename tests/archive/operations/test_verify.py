"""The offline check: it finds what is lost, says what is normal, and changes nothing."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.operations.verify import check
from shedder.errors import CorruptData, DirectoryLocked
from tests.archive.schemas import PLAIN, SCHEMA
from tests.archive.worlds import checkpoint, ingest


@pytest.fixture(scope="module", params=[SCHEMA, PLAIN], ids=["hybrid", "plain"])
def original(tmp_path_factory, request):
    directory = tmp_path_factory.mktemp("check") / "data"
    store = Store.open(directory)
    store.create_stream(request.param)
    for first in (0, 10):
        ingest(store, first, 10)
        store.cut(1)
    ingest(store, 20, 10)
    checkpoint(store, 3, {"stream/1": b"state"})
    ingest(store, 30, 10)
    store.close()
    return directory


@pytest.fixture
def data(original, tmp_path):
    return shutil.copytree(original, tmp_path / "data")


def content(directory) -> dict:
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_sound_directory_has_nothing_to_report(data):
    before = content(data)
    report = check(data)
    assert report.ok
    assert report.notes == []
    assert (report.streams, report.runs, report.run_rows, report.log_rows) == (1, 2, 20, 40)
    assert content(data) == before


def holds(path) -> list[str]:
    """All that a SQLite file says."""
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        return list(connection.iterdump())


@pytest.mark.slow
def test_any_flipped_bit_is_found(data):
    """One flip in every 512 bytes of every file that holds data."""
    for path in [p for p in sorted(data.rglob("*")) if p.suffix in {".log", ".parquet", ".sqlite"}]:
        sound = path.read_bytes()
        holds_sound = holds(path) if path.suffix == ".sqlite" else []
        missed = []
        for offset in range(100, len(sound), 512):
            rotten = bytearray(sound)
            rotten[offset] ^= 4
            path.write_bytes(rotten)
            # Free space within SQLite's pages holds nothing, or cells that were moved away.
            if check(data).ok and not (path.suffix == ".sqlite" and holds(path) == holds_sound):
                missed.append(offset)
        path.write_bytes(sound)
        assert missed == []


def test_a_missing_run_is_damage(data):
    (path, _) = sorted((data / "runs" / "1").iterdir())
    path.unlink()
    (damage,) = check(data).damages
    assert "positions 0 to 10" in damage


def test_positions_that_are_in_no_run_are_damage(data):
    store = Store.open(data)
    store.catalog.drop_run(store.runs(1)[0])
    store.close()
    report = check(data)
    assert len(report.notes) == 1  # the orphan
    (damage,) = report.damages
    assert "positions 0 to 10 (excluded) are in no run" in damage


def test_a_lost_log_is_damage(data):
    for path in (data / "log").iterdir():
        path.unlink()
    (damage,) = check(data).damages
    assert "records from 0 up to 5 (excluded) are lost" in damage  # The MARK of the close, too.


def test_a_torn_tail_and_orphans_are_notes(data):
    (log,) = (data / "log").iterdir()
    log.write_bytes(log.read_bytes() + b"torn")
    (data / "runs" / "1" / "x.parquet").write_bytes(b"")
    report = check(data)
    assert report.ok
    assert len(report.notes) == 2


def test_a_directory_that_is_served_is_not_checked(data):
    store = Store.open(data)
    with pytest.raises(DirectoryLocked):
        check(data)
    store.close()


def test_something_else_is_not_a_data_directory(tmp_path):
    with pytest.raises(CorruptData, match="no FORMAT"):
        check(tmp_path)
