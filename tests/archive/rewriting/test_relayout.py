"""Rewritten runs: no reader loses a tuple or reads one twice, whatever fails."""

import dataclasses
import threading
from contextlib import suppress

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.files.file_system import OsFiles
from shedder.archive.layouts.readable_part import part_of
from shedder.archive.operations.verify import check
from shedder.cql.statements.archive_layout import Eager, Hybrid, Lazy, Plain, layout_text
from shedder.errors import Cancelled, CorruptData, DiskFull, StorageFailed
from tests.archive.full_catalog import CatalogPages
from tests.archive.power import PowerFailed, PowerFiles, moments
from tests.archive.schemas import SCHEMA, batch
from tests.archive.worlds import (
    cancelled_after,
    content,
    ingest,
    known,
    names,
    opened,
    positions,
    recover,
)
from tests.scale import scaled
from tests.seeds import seed

LAYOUTS = [Plain(), Hybrid(4, 3), Hybrid(2, 3), Eager((0.5,)), Eager((0.25, 0.75)), Lazy()]
ENOSPC = 28


def rewrite(store: Store) -> int:
    return sum(store.layouts.rewrite(run) for run in store.layouts.unlike(1))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(LAYOUTS)), ids=map(layout_text, LAYOUTS))
@pytest.mark.parametrize("turn", range(scaled(1, len(LAYOUTS) - 1)))
def test_any_layout_becomes_any_other(tmp_path, number, turn):
    """A per-change run takes each layout once as the old one and once as the new one."""
    further = 1 + (seed("layouts") + turn) % (len(LAYOUTS) - 1)
    old, new = LAYOUTS[number], LAYOUTS[(number + further) % len(LAYOUTS)]
    store = opened(tmp_path, old, 30, 1, 40)
    before = content(store)
    store.set_layout(1, new)
    assert [run.first_position for run in store.layouts.unlike(1)] == [0, 30, 31]
    assert rewrite(store) == 3
    assert content(store) == before
    ingest(store, 71, 5)
    store.cut(1)
    assert store.layouts.unlike(1) == []
    assert positions(store) == list(range(76))
    assert {run.layout for run in store.runs(1)} == {new}
    if isinstance(new, Hybrid):
        assert [run.blocks for run in store.runs(1)] == [new.blocks_of(n) for n in (30, 1, 40, 5)]
    if isinstance(new, Eager):
        found = [tuple(copy.reduction for copy in run.copies) for run in store.runs(1)]
        assert found == [new.reductions] * 4
    assert names(tmp_path) == known(store)
    store.close()
    report = check(tmp_path)
    assert (report.damages, report.notes) == ([], [])
    again = recover(tmp_path)
    assert again.streams()[0].schema.layout == new
    assert positions(again) == list(range(76))
    again.close()


def test_there_and_back_again_is_the_same(tmp_path):
    store = opened(tmp_path, Plain(), 200)
    before = content(store)
    for layout in (Hybrid(4, 3), Eager((0.5,)), Hybrid(7, 1), Plain()):
        store.set_layout(1, layout)
        assert rewrite(store) == 1
        assert content(store) == before
    assert names(tmp_path) == known(store)
    store.close()


def test_who_reads_an_old_run_goes_on_reading_it(tmp_path):
    store = opened(tmp_path, Plain(), 100)
    snapshot = store.snapshot(1)
    (old,) = snapshot.files.verified(snapshot.runs)
    scan = store.scan(1)
    store.set_layout(1, Hybrid(4, 3))
    assert rewrite(store) == 1
    assert old.exists()
    assert [rows.num_rows for _, rows in scan] == [100]
    assert part_of(snapshot.runs[0], 0.5).blocks == (0,)
    snapshot.release()
    del scan
    assert not old.exists()
    assert names(tmp_path) == known(store)
    store.close()


@pytest.mark.slow
def test_reading_and_writing_go_on_beside_a_rewrite(tmp_path):
    store = opened(tmp_path, Plain(), *[200] * 5)
    done, read_once = threading.Event(), threading.Event()
    seen = []

    def read() -> None:
        while not done.is_set():
            seen.append(positions(store))
            read_once.set()

    reader = threading.Thread(target=read)
    reader.start()
    for layout in (Hybrid(4, 3), Lazy(), Hybrid(3, 1), Eager((0.5,))):
        read_once.clear()
        store.set_layout(1, layout)
        ingest(store, store.end_position(1), 100)
        store.cut(1)
        rewrite(store)
        read_once.wait()
    done.set()
    reader.join()
    for found in seen:
        assert found == list(range(len(found)))
    assert positions(store) == list(range(1400))
    assert names(tmp_path) == known(store)
    store.close()


@pytest.mark.slow
def test_a_rewrite_that_is_called_off_leaves_nothing(tmp_path):
    store = opened(tmp_path, Hybrid(4, 3), 50)
    store.set_layout(1, Eager((0.2, 0.6)))
    before = names(tmp_path)
    for steps in range(1_000):
        try:
            assert store.layouts.rewrite(store.runs(1)[0], cancelled_after(steps))
            break
        except Cancelled:
            assert names(tmp_path) == before == known(store)
            assert list((tmp_path / "tmp").iterdir()) == []
    assert steps > 3
    assert positions(store) == list(range(50))
    assert names(tmp_path) == known(store)
    store.close()


def test_a_layout_that_changed_meanwhile_wins(tmp_path):
    store = opened(tmp_path, Plain(), 50)
    store.set_layout(1, Hybrid(4, 3))
    (run,) = store.layouts.unlike(1)
    changed = []

    def on_progress() -> None:
        if not changed:
            changed.append(store.set_layout(1, Eager((0.5,))))

    assert not store.layouts.rewrite(run, on_progress)
    assert store.runs(1) == [run]
    assert names(tmp_path) == known(store)
    assert rewrite(store) == 1
    store.close()


def test_a_stream_that_is_dropped_meanwhile_stays_dropped(tmp_path):
    store = opened(tmp_path, Plain(), 50)
    store.set_layout(1, Hybrid(4, 3))
    (run,) = store.layouts.unlike(1)
    dropped = []

    def on_progress() -> None:
        if not dropped:
            dropped.append(store.drop_stream(1))

    assert not store.layouts.rewrite(run, on_progress)
    assert not store.layouts.rewrite(run)
    assert not store.layouts.vacuum(run)
    assert names(tmp_path) == set()
    store.close()
    assert check(tmp_path).ok


def test_a_damaged_run_is_not_rewritten(tmp_path):
    store = opened(tmp_path, Plain(), 50, 50)
    store.set_layout(1, Hybrid(4, 3))
    bad, _ = store.layouts.unlike(1)
    path = tmp_path / "runs" / bad.file
    store.close()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    store = recover(tmp_path)
    with pytest.raises(CorruptData, match="positions 0 to 50"):
        store.layouts.rewrite(store.runs(1)[0])
    store.quarantine.add(store.runs(1)[0], "rot")
    assert [run.first_position for run in store.layouts.unlike(1)] == [50]
    assert rewrite(store) == 1
    store.close()


class Work:
    """Batches, runs, every layout in turn, marks and vacuum, as one thread would do it."""

    LAYOUTS = (Hybrid(3, 1), Lazy(), Eager((0.5,)), Plain())

    def __init__(self) -> None:
        self.acknowledged = 0
        self.sent = 0

    def work(self, store: Store) -> None:
        if not store.streams():
            store.create_stream(dataclasses.replace(SCHEMA, layout=Plain()))
        for layout in self.LAYOUTS:
            self.sent = store.end_position(1) + 8
            ingest(store, store.end_position(1), 8)
            self.acknowledged = self.sent
            store.cut(1)
            store.set_layout(1, layout)
            rewrite(store)
            for reduction in (0.4, 0.7):
                with store.snapshot(1) as snapshot:
                    noted = [(part_of(run, reduction), reduction) for run in snapshot.runs]
                store.layouts.note_scans(noted)
                for run in store.layouts.waste(1):
                    store.layouts.vacuum(run)


def reopened(directory, files: PowerFiles) -> Store:
    store = Store.open(directory, files=files)
    from shedder.archive.log.records import Batch, RecordType
    from shedder.streams.batches import decode

    for record in store.log.read(store.log.first_sequence):
        if record.kind == RecordType.BATCH:
            header = Batch.from_bytes(record.header)
            rows = decode(record.body, SCHEMA)
            store.add(1, header.first_position, rows, sequence=record.sequence)
    return store


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_power_loss_at_every_call_of_a_rewrite_loses_nothing(tmp_path):
    for power_at in moments(26, "power fails in a rewrite"):
        root = tmp_path / f"{power_at}"
        root.mkdir()
        files = PowerFiles(root, power_at=power_at)
        work = Work()
        try:
            work.work(reopened(root, files))
            break
        except PowerFailed:
            pass
        target = tmp_path / f"{power_at}-dark"
        files.crash_into(target, seed("crash of a rewrite", power_at))
        if (target / "FORMAT").exists():
            assert check(target).damages == []
        store = reopened(target, PowerFiles(target))
        assert store.recovery.missing == ()
        if store.streams():
            found = positions(store)
            assert work.acknowledged <= len(found) <= max(work.sent, work.acknowledged)
            assert names(target) == known(store) if (target / "runs" / "1").exists() else True
        work.work(store)  # and life goes on
        store.close()
        report = check(target)
        assert (report.damages, report.notes) == ([], [])
    assert power_at > 200


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_full_disk_at_every_call_of_a_rewrite_leaves_all_as_it_was(tmp_path):
    last = 0
    for fail_at in moments(13, "a rewrite's disk is full", first=60):
        root = tmp_path / f"{fail_at}"
        root.mkdir()
        files = PowerFiles(root, fail_at=fail_at, error=ENOSPC)
        store = reopened(root, files)
        work = Work()
        try:
            work.work(store)
        except (DiskFull, StorageFailed):
            assert positions(store) == list(range(store.end_position(1)))
            last = fail_at
        else:
            if files.failed is None:
                with suppress(DiskFull, StorageFailed):  # The call may be one of the close itself.
                    store.close()
                break
        for run in store.layouts.unlike(1):
            store.layouts.rewrite(run)
        for run in store.layouts.waste(1):
            store.layouts.vacuum(run)
        assert positions(store) == list(range(store.end_position(1)))
        assert store.layouts.unlike(1) == []
        store.close()
        assert check(root).damages == []
    assert last > 160


@pytest.mark.slow
def test_a_full_disk_under_the_catalog_leaves_the_old_runs(tmp_path, monkeypatch):
    pages = CatalogPages(monkeypatch)
    store = opened(tmp_path, Plain(), *[100] * 6)
    store.set_layout(1, Eager(tuple(n / 16 for n in range(16))))
    pages.leave(0)
    with pytest.raises(DiskFull):
        rewrite(store)
    assert 0 < len(store.layouts.unlike(1)) <= 6
    assert names(tmp_path) == known(store)
    assert positions(store) == list(range(600))
    pages.leave(100_000)
    rewrite(store)
    assert store.layouts.unlike(1) == []
    assert names(tmp_path) == known(store)
    store.close()
    assert check(tmp_path).ok


def test_the_batch_of_the_tests_has_what_a_rewrite_must_keep():
    """Nulls, NaN, texts: what a comparison of contents would miss if they were not there."""
    columns = batch(0, 1000).to_pydict()
    assert None in columns["site"]
    assert any(value is not None and value != value for value in columns["value"])


def test_a_file_that_was_closed_writes_into_no_other(tmp_path):
    """Arrow may write a footer when a writer is collected: its descriptor is another file's."""
    files = PowerFiles(tmp_path)
    closed = OsFiles().create(tmp_path / "closed")
    closed.close()
    other = files.create(tmp_path / "other")
    with pytest.raises(OSError, match="Bad file descriptor"):
        closed.write([b"footer"])
    other.close()
    assert (tmp_path / "other").read_bytes() == b""
