"""Power loss in the whole store: runs, catalog, checkpoint and log together lose nothing."""

from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.indexes.value_index import index_name
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.log.records import Batch, RecordType
from shedder.archive.operations.verify import check
from shedder.cql.binding.parse import parse
from shedder.cql.sql.exact_query import POSITION
from shedder.errors import DiskFull, StorageFailed
from shedder.streams.batches import decode, encode
from tests.archive.full_catalog import CatalogPages
from tests.archive.power import PowerFailed, PowerFiles, moments
from tests.archive.schemas import SCHEMA, batch
from tests.archive.worlds import checkpoint
from tests.seeds import seed

ROWS = 8
ROLLUP = parse("SELECT COUNT(*), SUM(serial) FROM s [RANGE 1 SECOND SLIDE 1 SECOND]")


class Ingest:
    """An engine in one thread: batches, runs, checkpoints, retention."""

    def __init__(self) -> None:
        self.created = False
        self.sent = 0
        self.acknowledged = 0

    def work(self, store: Store) -> None:
        if not store.streams():
            store.create_stream(SCHEMA)
        self.created = True
        if not store.rollups.entries(1):
            store.rollups.add(1, "counts", ROLLUP)
        for number in range(9):
            first = store.end_position(1)
            header = Batch(1, "p", 0, number, first, ROWS, 0)
            content = batch(first, ROWS)
            self.sent = first + ROWS
            sequence = store.log.append(RecordType.BATCH, [header.to_bytes(), encode(content)])
            store.log.sync()
            self.acknowledged = first + ROWS
            store.add(1, first, content, sequence=sequence)
            if number % 3 == 2:
                store.cut(1)
            for run, rollup in store.rollups.due(1):
                store.rollups.roll_up(run, rollup)
            if number in (3, 6, 8):
                checkpoint(store, sequence + 1, {"stream/1": bytes([number])})
            if number == 7:
                store.retention.apply(1, 24_000)  # the first run


def recover(directory, files: PowerFiles) -> Store:
    store = Store.open(directory, files=files, log_segment_bytes=3000)
    for record in store.log.read(store.log.first_sequence):
        if record.kind == RecordType.BATCH:
            header = Batch.from_bytes(record.header)
            content = decode(record.body, SCHEMA)
            store.add(1, header.first_position, content, sequence=record.sequence)
    return store


def assert_nothing_lost(store: Store, ingest: Ingest) -> None:
    assert store.recovery.missing == ()
    assert store.recovery.log.damages == ()
    if not store.streams():
        assert not ingest.created
        return
    found = []
    for first, rows in store.scan(1):
        assert rows["serial"].to_pylist() == list(range(first, first + rows.num_rows))
        found += rows["serial"].to_pylist()
    end = store.end_position(1)
    assert ingest.acknowledged <= end <= max(ingest.sent, ingest.acknowledged)
    assert found == list(range(found[0] if found else end, end))
    assert end - len(found) in (0, 24)


@pytest.mark.slow
def test_power_loss_at_every_call_of_the_store_loses_nothing(tmp_path):
    for power_at in moments(14, "power fails in a store"):
        root = tmp_path / f"{power_at}"
        root.mkdir()
        files = PowerFiles(root, power_at=power_at)
        ingest = Ingest()
        try:
            ingest.work(recover(root, files))
            break
        except PowerFailed:
            pass
        target = tmp_path / f"{power_at}-dark"
        files.crash_into(target, seed("crash of a store", power_at))
        if (target / "FORMAT").exists():
            assert check(target).damages == []
        store = recover(target, PowerFiles(target))
        assert_nothing_lost(store, ingest)
        ingest.work(store)  # and life goes on
        store.close()
        assert check(target).damages == []
    assert power_at > 80


def assert_indexes_never_lie(store: Store) -> None:
    """Whatever is there of them names the row groups of each value, or is of no use."""
    for run in store.runs(1):
        with store.snapshot(1) as snapshot:
            wanted = Wanted("ts", ("serial", POSITION))
            tables = list(snapshot.read_groups(run, range(run.blocks), wanted))
        for number, table in enumerate(tables):
            for serial in table["serial"].to_pylist()[:3]:
                found = store.indexes.look_up(run, "serial", [(serial, serial)])
                assert found is None or found.tolist() == [number]


def indexed(directory: Path, *, built: bool) -> tuple[Store, PowerFiles]:
    """Two runs of a column that is to have an index."""
    files = PowerFiles(directory)
    store = recover(directory, files)
    store.create_stream(SCHEMA)
    for first in (0, 24):
        store.add(1, first, batch(first, 24), sequence=0)
        store.cut(1)
    store.indexes.create(1, "serial")
    for run, column in store.indexes.unindexed(1) if built else []:
        store.indexes.build(run, column)
    return store, files


@pytest.mark.slow
def test_power_loss_at_every_call_of_a_build_leaves_an_index_that_is_right_or_none(tmp_path):
    calls = built = 0
    while True:
        root = tmp_path / f"{calls}"
        root.mkdir()
        store, files = indexed(root, built=False)
        files.power_in(calls)
        try:
            for run, column in store.indexes.unindexed(1):
                store.indexes.build(run, column)
            break
        except PowerFailed:
            target = tmp_path / f"{calls}-dark"
            files.crash_into(target, calls)
        again = recover(target, PowerFiles(target))
        assert_indexes_never_lie(again)
        missing = again.indexes.unindexed(1)
        built += 2 - len(missing)
        for run, column in missing:
            again.indexes.build(run, column)
        assert again.indexes.unindexed(1) == []
        assert_indexes_never_lie(again)
        again.indexes.sweep(1)
        assert len([p for p in (target / "indexes").rglob("*") if p.is_file()]) == 2
        assert list((target / "tmp").iterdir()) == []
        again.close()
        calls += 1
    assert calls > 20
    assert 0 < built < 2 * calls


def index_files(directory: Path) -> set[str]:
    return {path.name for path in (directory / "indexes").rglob("*") if path.is_file()}


def drop_stream(store: Store) -> None:
    store.drop_stream(1)


def drop_index(store: Store) -> None:
    store.indexes.drop(1, "serial")


def drop_while_it_is_built(store: Store) -> None:
    run, column = store.indexes.unindexed(1)[0]
    store.indexes.build(run, column, lambda _: drop_index(store))


@pytest.mark.slow
@pytest.mark.parametrize("drop", [drop_stream, drop_index, drop_while_it_is_built])
def test_power_loss_while_an_index_is_dropped_leaves_no_file_behind(tmp_path, drop):
    calls = left = 0
    while True:
        root = tmp_path / f"{calls}"
        root.mkdir()
        store, files = indexed(root, built=drop is not drop_while_it_is_built)
        files.power_in(calls)
        try:
            drop(store)
            break
        except PowerFailed:
            target = tmp_path / f"{calls}-dark"
            files.crash_into(target, calls)
        left += any(".index is an orphan" in note for note in check(target).notes)
        again = recover(target, PowerFiles(target))
        wanted = {
            index_name(run.file, column)
            for stream in again.streams()
            for run in again.runs(stream.id)
            for column in again.indexes.columns(stream.id)
        }
        assert index_files(target) <= wanted
        again.close()
        calls += 1
    assert left > 0
    assert index_files(root) == set()


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize(("error", "raised"), [(ENOSPC, DiskFull), (EIO, StorageFailed)])
def test_an_index_that_cannot_be_written_is_none_until_it_can(tmp_path, kind, error, raised):
    store, files = indexed(tmp_path, built=False)
    (run, column), _ = store.indexes.unindexed(1)
    files.make_directory(tmp_path / "indexes" / "1")
    files.fail_next(kind, error)
    with pytest.raises(raised, match=" index "):
        store.indexes.build(run, column)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert_indexes_never_lie(store)
    for run, column in store.indexes.unindexed(1):
        store.indexes.build(run, column)
    assert store.indexes.unindexed(1) == []
    assert len(index_files(tmp_path)) == 2
    assert_indexes_never_lie(store)
    store.close()


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_run_that_cannot_be_written_leaves_the_tail_as_it_was(tmp_path, kind):
    files = PowerFiles(tmp_path)
    store = recover(tmp_path, files)
    store.create_stream(SCHEMA)
    header = Batch(1, "p", 0, 0, 0, ROWS, 0)
    content = batch(0, ROWS)
    sequence = store.log.append(RecordType.BATCH, [header.to_bytes(), encode(content)])
    store.log.sync()
    store.add(1, 0, content, sequence=sequence)
    (tmp_path / "runs" / "1").mkdir()
    files.fail_next(kind)
    with pytest.raises((StorageFailed, DiskFull), match="run 1/"):
        store.cut(1)
    assert store.tail_rows(1) == ROWS
    assert list((tmp_path / "tmp").iterdir()) == []
    run = store.cut(1)
    assert run.rows == ROWS
    assert [first for first, _ in store.scan(1)] == [0]
    store.close()
    assert check(tmp_path).ok


@pytest.mark.slow
def test_a_full_disk_under_the_catalog_leaves_the_tail_and_no_file(tmp_path, monkeypatch):
    pages = CatalogPages(monkeypatch)
    store = recover(tmp_path, PowerFiles(tmp_path))
    store.create_stream(SCHEMA)
    store.add(1, 0, batch(0, 50_000), sequence=0)
    pages.leave(4)

    def fill() -> None:
        for number in range(1000):
            store.catalog.put_pane("q", number, bytes(4000))

    def cut_on() -> None:
        for _ in range(50):
            store.cut(1)
            store.add(1, store.end_position(1), batch(store.end_position(1), 10), sequence=1)

    with pytest.raises(DiskFull, match=r"catalog\.sqlite"):
        fill()
    with pytest.raises(DiskFull):
        cut_on()
    assert store.tail_rows(1) > 0
    known = {run.file for run in store.runs(1)}
    assert {f"1/{path.name}" for path in (tmp_path / "runs" / "1").iterdir()} == known
    store.close()
