"""A catalog or a log that is older than it was is refused or told of, and nothing is deleted."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.catalog.catalog import Catalog
from shedder.archive.catalog.checksummed_tables import generation_of
from shedder.archive.files.directory_copy import INCOMPLETE
from shedder.archive.files.durable_marks import FILE_NAME, Marks, read_marks
from shedder.archive.operations.verify import check
from shedder.errors import BadSetting, CorruptData
from tests.archive.recovery.worlds import ROWS, files_below, flip_frame, frames, killed
from tests.archive.schemas import SCHEMA
from tests.archive.worlds import ingest, positions, recover


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    return killed(tmp_path_factory.mktemp("killed"))


@pytest.fixture
def data(tmp_path, template) -> Path:
    return shutil.copytree(template, tmp_path / "data")


def runs_of(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "runs" / "1").iterdir())


def test_a_directory_as_a_kill_leaves_it_opens_whole(data):
    before = runs_of(data)
    store = recover(data)
    assert positions(store) == list(range(ROWS))
    assert store.recovery.orphans == store.recovery.unknown == ()
    store.close()
    assert runs_of(data) == before
    assert check(data).ok


@pytest.mark.slow
def test_a_flipped_bit_in_any_frame_of_the_catalogs_log_is_refused(tmp_path, template):
    """SQLite replays the frames before it, and says nothing."""
    count = frames(template / "catalog.sqlite-wal")
    assert count > 20
    for number in range(count):
        data = shutil.copytree(template, tmp_path / f"{number}")
        flip_frame(data / "catalog.sqlite-wal", number)
        before = files_below(data)
        with pytest.raises(CorruptData, match=r"catalog\.sqlite(-wal)?.* (commits|missing)"):
            Store.open(data)
        assert files_below(data) == before
        assert any("commits" in damage or "empty" in damage for damage in check(data).damages)


@pytest.mark.parametrize("size", [None, 0, 31, 40_000])
def test_a_write_ahead_log_that_is_missing_or_cut_off_is_refused(data, size):
    wal = data / "catalog.sqlite-wal"
    if size is None:
        wal.unlink()
    else:
        wal.write_bytes(wal.read_bytes()[:size])
    before = files_below(data)
    with pytest.raises(CorruptData, match=r"catalog\.sqlite"):
        Store.open(data)
    assert files_below(data) == before


def test_an_older_catalog_in_the_place_of_the_newest_is_refused(data):
    recover(data).close()
    old = (data / "catalog.sqlite").read_bytes()
    store = recover(data)
    store.cut(1)
    store.close()
    (data / "catalog.sqlite").write_bytes(old)
    before = files_below(data)
    with pytest.raises(CorruptData, match="commits are missing"):
        Store.open(data)
    assert files_below(data) == before


def test_a_catalog_that_is_empty_is_not_made_anew_without_marks(data):
    for name in (FILE_NAME, "catalog.sqlite-wal"):
        (data / name).unlink()
    runs = runs_of(data)
    with pytest.raises(CorruptData, match="is empty, though"):
        Store.open(data)
    assert runs_of(data) == runs


@pytest.mark.slow
def test_without_marks_runs_and_log_prove_that_the_catalog_is_older(tmp_path, template):
    """As in a directory of a version that wrote none."""
    count = frames(template / "catalog.sqlite-wal")
    refused = 0
    for number in range(0, count, 2):
        data = shutil.copytree(template, tmp_path / f"{number}")
        (data / FILE_NAME).unlink()
        flip_frame(data / "catalog.sqlite-wal", number)
        contents = set(files_below(data / "runs").values())
        for _ in range(2):  # Refused for good, not only once.
            try:
                store = recover(data)
            except CorruptData:
                refused += 1
                continue
            assert positions(store) == list(range(ROWS))
            store.close()
        left = set(files_below(data / "runs").values()) | set(
            files_below(data / "quarantine").values()
        )
        assert left >= contents
    assert refused > count / 2


def test_a_reader_beside_a_server_refuses_an_older_catalog_too(data):
    path = data / "catalog.sqlite"
    before = Catalog.open(path, read_only=True)
    assert len(before.runs()) == 5
    before.close()
    wal = data / "catalog.sqlite-wal"
    flip_frame(wal, frames(wal) - 1)
    with pytest.raises(CorruptData, match="commits are missing"):
        Catalog.open(path, read_only=True)
    wal.unlink()
    with pytest.raises(CorruptData, match="is empty, though"):
        Catalog.open(path, read_only=True)


def test_a_directory_of_a_version_without_marks_gets_them(data):
    (data / FILE_NAME).unlink()
    recover(data).close()
    marks = read_marks(data)
    assert marks.is_whole
    assert marks.sequence > 0
    assert marks.format_version == 1
    assert check(data).notes == []


def test_a_log_that_is_cut_off_is_told(data):
    """At the end of a record, as after a write that was never acknowledged."""
    path = sorted((data / "log").glob("*.log"))[-1]
    path.write_bytes(path.read_bytes()[:64])
    (damage,) = check(data).damages
    assert str(path) in damage
    store = recover(data)
    (lost,) = store.recovery.log.damages
    assert lost.path == path
    store.close()


def test_a_log_without_its_first_segment_is_told(tmp_path):
    store = Store.open(tmp_path, log_segment_bytes=2_000)
    store.create_stream(SCHEMA)
    for first in range(0, 40, 10):
        ingest(store, first, 10)
    store.close()
    path = min((tmp_path / "log").glob("*.log"))
    path.unlink()
    assert any("records from 0 up to" in damage for damage in check(tmp_path).damages)
    again = recover(tmp_path)
    assert again.recovery.log.damages[0].first_sequence == 0
    again.close()


def test_a_log_that_is_gone_is_told(data):
    durable = read_marks(data).sequence
    for path in (data / "log").glob("*.log"):
        path.unlink()
    assert any(f"up to {durable} (excluded) are lost" in it for it in check(data).damages)
    again = recover(data)
    (damage,) = again.recovery.log.damages
    assert damage.end_sequence == durable
    assert again.log.next_sequence == durable
    again.close()


def test_a_missing_format_is_not_taken_for_a_new_directory(data):
    for name in ("FORMAT", FILE_NAME):
        (data / name).unlink()
        with pytest.raises(CorruptData, match="FORMAT is missing"):
            Store.open(data)


def test_a_lower_format_is_refused(data):
    store = Store.open(data)
    store.allow(7)
    store.close()
    (data / "FORMAT").write_text("shedder archive 5\n")
    with pytest.raises(CorruptData, match=r"FORMAT holds 'shedder archive 5', it has held .* 7'"):
        Store.open(data)
    assert any("FORMAT" in damage for damage in check(data).damages)


@pytest.mark.parametrize("text", ["shedder archive 0\n", "shedder archive 00\n"])
def test_there_is_no_format_0(data, text):
    (data / "FORMAT").write_text(text)
    with pytest.raises(CorruptData, match="FORMAT"):
        Store.open(data)


def test_a_tmp_that_is_a_link_is_refused_before_it_is_emptied(tmp_path, data):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("important")
    (data / "tmp").rmdir()
    (data / "tmp").symlink_to(tmp_path / "other")
    with pytest.raises(BadSetting, match="symbolic link"):
        Store.open(data)
    assert (tmp_path / "other" / "thesis.tex").exists()


def test_a_copy_that_was_killed_when_it_had_its_name_loses_the_mark(data):
    (data / INCOMPLETE).write_bytes(b"")
    recover(data).close()
    assert not (data / INCOMPLETE).exists()


def test_marks_that_were_refused_prove_nothing_the_next_time(data):
    (data / FILE_NAME).unlink()
    (data / "runs" / "7").mkdir()
    stray = data / "runs" / "7" / f"{0:020}-{9:020}.parquet"
    stray.write_bytes(b"of a stream that nobody knows")
    for _ in range(2):
        with pytest.raises(CorruptData, match="does not know"):
            Store.open(data)
        assert stray.exists()
        assert read_marks(data) == Marks()


def test_a_catalog_with_a_rollback_journal_is_rolled_back_and_opened(tmp_path):
    """A kill while SQLite switches a new catalog, or one of a backup, to its write-ahead log."""
    path = tmp_path / "catalog.sqlite"
    with closing(sqlite3.connect(tmp_path / "made.sqlite", isolation_level=None)) as raw:
        raw.execute("CREATE TABLE t (x)")
        raw.execute("PRAGMA cache_spill = 1")
        raw.execute("PRAGMA cache_size = 1")
        raw.execute("BEGIN")
        raw.execute("DROP TABLE t")
        for number in range(9):
            raw.execute(f"CREATE TABLE t{number} (x)")
            raw.execute(f"INSERT INTO t{number} VALUES (zeroblob(9000))")
        shutil.copy(tmp_path / "made.sqlite", path)
        shutil.copy(tmp_path / "made.sqlite-journal", tmp_path / "catalog.sqlite-journal")
    assert path.stat().st_size > 9 * 9000
    assert generation_of(path) is None  # As it was before: a database of one empty table.
    assert not (tmp_path / "catalog.sqlite-journal").exists()
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT name FROM sqlite_schema").fetchall() == [("t",)]
