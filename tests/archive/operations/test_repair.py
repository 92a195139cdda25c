"""Repair: what runs and log hold is there again, what was in the catalog alone is named as lost."""

import shutil
from errno import ENOSPC
from pathlib import Path

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.files.durable_marks import FILE_NAME
from shedder.archive.files.file_system import OsFiles
from shedder.archive.files.repair_record import REPAIRED, read_repairs
from shedder.archive.operations.repair import repair
from shedder.archive.operations.verify import check
from shedder.cql.statements.archive_layout import Eager, Hybrid, Plain
from shedder.errors import CorruptData, DirectoryLocked, DiskFull
from tests.archive.recovery.worlds import ROWS, files_below, flip_frame, frames, killed
from tests.archive.worlds import content, delete, opened, positions, purge, recover


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    return killed(tmp_path_factory.mktemp("killed"))


@pytest.fixture
def data(tmp_path, template) -> Path:
    return shutil.copytree(template, tmp_path / "data")


def test_a_whole_directory_is_left_as_it_is(data):
    before = files_below(data)
    repaired = repair(data)
    assert repaired.done == repaired.lost == []
    assert files_below(data) == before


@pytest.mark.slow
def test_a_repaired_directory_has_all_tuples_of_the_streams_that_its_catalog_knows(
    tmp_path, template
):
    count = frames(template / "catalog.sqlite-wal")
    rebuilt = refused = 0
    for number in range(1, count, 3):
        data = shutil.copytree(template, tmp_path / f"{number}")
        flip_frame(data / "catalog.sqlite-wal", number)
        with pytest.raises(CorruptData):
            Store.open(data)
        runs = set(files_below(data / "runs").values())
        try:
            repaired = repair(data)
        except CorruptData:
            refused += 1
            assert set(files_below(data / "runs").values()) == runs
            continue
        assert any("commits" in lost for lost in repaired.lost)
        assert set(files_below(data).values()) >= runs
        if any("stream 1:" in lost for lost in repaired.lost):
            Store.open(data).close()
            continue
        store = recover(data)
        assert positions(store) == list(range(ROWS))
        rebuilt += 1
        store.close()
    assert rebuilt > 2
    assert refused > 0


@pytest.mark.parametrize("layout", [Plain(), Eager((0.5,))])
def test_runs_of_other_layouts_are_listed_again(tmp_path, layout):
    store = opened(tmp_path / "data", layout, 20, 30)
    expected = content(store)
    for run in store.runs(1):
        store.catalog.drop_run(run)
    store.catalog.write_checkpoint(store.log.next_sequence, {})
    store.close()
    (tmp_path / "data" / FILE_NAME).unlink()
    repaired = repair(tmp_path / "data")
    assert sum("is listed again" in done for done in repaired.done) == 2
    store = recover(tmp_path / "data")
    assert content(store) == expected
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("layout", [Plain(), Hybrid(4, 3)])
@pytest.mark.parametrize("is_deleted_before", [False, True])
def test_purged_runs_are_listed_again_without_the_purged_rows(tmp_path, layout, is_deleted_before):
    """The file before the purge is gone, so the purged one is all that there is."""
    store = opened(tmp_path / "served", layout, 60, 20)
    if is_deleted_before:
        delete(store, lambda position: position % 4 == 1)
    kept = frames(tmp_path / "served" / "catalog.sqlite-wal")
    delete(store, lambda position: position % 3 == 0 and position < 60)
    purge(store)
    expected = content(store)
    data = shutil.copytree(tmp_path / "served", tmp_path / "data")
    store.close()
    flip_frame(data / "catalog.sqlite-wal", kept)
    before = set(files_below(data / "runs"))
    repaired = repair(data)
    assert sum("is listed again" in done for done in repaired.done) == (1 + is_deleted_before)
    assert set(files_below(data / "runs")) == before
    again = recover(data)
    assert content(again) == expected
    again.close()
    assert check(data).damages == []


@pytest.mark.parametrize("layouts", [(Plain(), Hybrid(4, 3)), (Hybrid(4, 3), Plain())])
def test_rows_of_a_rewritten_run_that_is_listed_again_stay_deleted(tmp_path, layouts):
    store = opened(tmp_path / "served", layouts[0], 60)
    delete(store, lambda position: position % 4 == 1)
    kept, expected = frames(tmp_path / "served" / "catalog.sqlite-wal"), content(store)
    store.set_layout(1, layouts[1])
    assert store.layouts.rewrite(store.layouts.unlike(1)[0])
    data = shutil.copytree(tmp_path / "served", tmp_path / "data")
    store.close()
    flip_frame(data / "catalog.sqlite-wal", kept)
    assert sum("is listed again" in done for done in repair(data).done) == 1
    again = recover(data)
    assert content(again) == expected
    again.close()


def test_a_damaged_run_is_kept_and_named(data):
    flip_frame(data / "catalog.sqlite-wal", frames(data / "catalog.sqlite-wal") - 15)
    newest = max((data / "runs" / "1").iterdir())
    rotten = bytearray(newest.read_bytes())
    rotten[len(rotten) // 3] ^= 1
    newest.write_bytes(rotten)
    repaired = repair(data)
    assert any(newest.name in lost for lost in repaired.lost)
    assert bytes(rotten) in files_below(data / "quarantine").values()
    recover(data).close()


class NoRoomForRecords(OsFiles):
    """The real file system, on which the record of a repair has no space."""

    def create(self, path):
        if path.name == REPAIRED:
            raise OSError(ENOSPC, "No space left on device", str(path))
        return super().create(path)


def test_a_repair_whose_record_cannot_be_written_is_still_to_be_done(data):
    """The answers would claim bounds otherwise, although deleted rows may be there again."""
    flip_frame(data / "catalog.sqlite-wal", frames(data / "catalog.sqlite-wal") - 15)
    with pytest.raises(DiskFull):
        repair(data, NoRoomForRecords())
    with pytest.raises(CorruptData, match="generation"):
        Store.open(data)
    lost = repair(data).lost
    assert lost
    assert [record.lost for record in read_repairs(data)] == [tuple(lost)]
    store = recover(data)
    assert positions(store) == list(range(ROWS))
    store.close()


def test_a_missing_format_is_written_again(data):
    (data / "FORMAT").unlink()
    repaired = repair(data)
    assert repaired.lost == []
    assert any("FORMAT" in done for done in repaired.done)
    assert (data / "FORMAT").read_text() == "shedder archive 1\n"
    store = recover(data)
    assert positions(store) == list(range(ROWS))
    store.close()
    assert check(data).ok


def test_what_is_no_data_directory_is_not_made_one(tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(CorruptData, match="no FORMAT and no catalog"):
        repair(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_that_is_served_is_not_repaired(data):
    store = recover(data)
    with pytest.raises(DirectoryLocked):
        repair(data)
    store.close()
