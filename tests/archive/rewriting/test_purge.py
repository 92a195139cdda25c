"""Deleted rows are taken out of runs: what is left stays as it was, whatever fails."""

import itertools
from contextlib import suppress

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shedder.archive.archive_store import Store
from shedder.archive.files.file_system import OsFiles
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.layouts.readable_part import part_of
from shedder.archive.operations.verify import check
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Eager, Hybrid, Lazy, Plain, layout_text
from shedder.errors import Cancelled, CorruptData, DiskFull, StorageFailed
from tests.archive.power import PowerFailed, PowerFiles
from tests.archive.worlds import (
    cancelled_after,
    content,
    delete,
    ingest,
    known,
    names,
    opened,
    part_blocks,
    positions,
    purge,
    recover,
)

LAYOUTS = [Plain(), Hybrid(4, 3), Eager((0.25, 0.75)), Lazy()]
ENOSPC = 28


def test_a_stream_that_is_dropped_while_rows_of_it_are_looked_for_has_no_marks(tmp_path):
    store = opened(tmp_path, Plain(), 30)
    (run,) = store.runs(1)

    def find():
        store.drop_stream(1)
        return [(run, np.ones(run.stretch, bool))]

    assert store.deletions.delete(1, "DELETE", 7, find) == 0
    store.close()
    again = Store.open(tmp_path)
    assert again.streams() == again.catalog.annotations.deletions() == []
    assert again.catalog.annotations.deleted() == {}
    again.close()


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=layout_text)
def test_what_is_left_is_what_was_left(tmp_path, layout):
    store = opened(tmp_path, layout, 30, 1, 40)
    assert delete(store, lambda p: p % 3 == 1) == 24
    before = content(store)
    assert (purge(store), store.purger.marked(1), store.catalog.annotations.deleted()) == (
        24,
        [],
        {},
    )
    assert content(store) == before
    assert [(r.first_position, r.end_position, r.rows) for r in store.runs(1)] == [
        (0, 30, 20),
        (30, 31, 1),
        (31, 71, 26),
    ]
    for run in store.runs(1):
        assert pq.read_metadata(tmp_path / "runs" / run.file).num_rows == run.rows
    ingest(store, 71, 5)
    store.cut(1)
    left = [p for p in range(76) if p % 3 != 1 or p > 70]
    assert positions(store) == left
    assert names(tmp_path) == known(store)
    store.close()
    report = check(tmp_path)
    assert (report.damages, report.notes) == ([], [])
    again = recover(tmp_path)
    assert positions(again) == left
    assert again.end_position(1) == 76
    again.close()


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(LAYOUTS, 2)), ids=layout_text)
def test_a_purged_run_is_laid_out_anew_and_purged_again(tmp_path, old, new):
    store = opened(tmp_path, old, 40)
    delete(store, lambda p: p < 4)
    purge(store)
    store.set_layout(1, new)
    assert sum(store.layouts.rewrite(run) for run in store.layouts.unlike(1)) == 1
    assert positions(store) == list(range(4, 40))
    assert delete(store, lambda p: p % 2 == 0) == 18  # Not the two that were purged.
    assert purge(store) == 18
    assert positions(store) == list(range(5, 40, 2))
    (run,) = store.runs(1)
    assert (run.rows, run.stretch, run.layout) == (18, 40, new)
    store.close()
    assert check(tmp_path).ok


@pytest.mark.parametrize("layout", LAYOUTS, ids=layout_text)
def test_parts_and_copies_hold_no_purged_row(tmp_path, layout):
    store = opened(tmp_path, layout, 200)
    delete(store, lambda p: p < 100)
    if isinstance(layout, Lazy):
        store.layouts.note_scans([(part_of(store.runs(1)[0], 0.5), 0.5)])
        assert store.layouts.vacuum(store.layouts.waste(1)[0])
    purge(store)
    wanted = Wanted("ts", ("serial", POSITION))
    with store.snapshot(1) as snapshot:
        (run,) = snapshot.runs
        assert len(run.copies) == {Eager: 2, Lazy: 1}.get(type(layout), 0)
        for reduction in (0.0, 0.5, 0.9):
            part = part_of(run, reduction)
            found = [b.table for b in part_blocks(snapshot, part, wanted)]
            serials = np.concatenate([table["serial"].to_numpy() for table in found])
            assert serials.min() >= 100
            places = np.concatenate([table[POSITION].to_numpy() for table in found])
            assert (places == serials).all()
            assert part.copy is None or part.copy.rows == serials.size
    store.close()


def test_a_run_of_nothing_is_dropped_and_its_positions_are_not_given_again(tmp_path):
    store = opened(tmp_path, Hybrid(2, 3), 30, 20)
    delete(store, lambda p: p >= 30)
    assert purge(store) == 20
    assert [run.end_position for run in store.runs(1)] == [30]
    assert store.end_position(1) == 50
    store.close()
    assert check(tmp_path).ok
    store = recover(tmp_path)  # The log still has them.
    assert (store.end_position(1), positions(store)) == (50, list(range(30)))
    delete(store, lambda _: True)
    purge(store)
    assert (store.runs(1), positions(store), store.end_position(1)) == ([], [], 50)
    ingest(store, 50, 5)
    store.cut(1)
    assert positions(store) == [50, 51, 52, 53, 54]
    assert names(tmp_path) == known(store)
    store.close()
    assert check(tmp_path).ok


def test_who_reads_goes_on_with_the_old_file(tmp_path):
    store = opened(tmp_path, Hybrid(4, 3), 40)
    delete(store, lambda p: p % 2 == 0)
    with store.snapshot(1) as snapshot:
        (old,) = snapshot.runs
        assert purge(store) == 20
        assert len(names(tmp_path)) == 2
        blocks = snapshot.read_blocks(old, range(old.blocks), Wanted("ts", ("serial",)))
        assert sum(block.table.num_rows for block in blocks) == 20
    assert names(tmp_path) == known(store)
    store.close()


def test_what_is_deleted_meanwhile_stays_marked(tmp_path):
    store = opened(tmp_path, Plain(), 40)
    delete(store, lambda p: p < 10)
    later = [15]

    def on_progress() -> None:
        if later:
            below = later.pop()
            delete(store, lambda p: p < below)

    assert store.purger.purge(store.runs(1)[0], on_progress) == 10
    assert positions(store) == list(range(15, 40))
    assert (store.runs(1)[0].rows, store.catalog.annotations.deleted()[1, 0].rows) == (30, 5)
    store.close()
    again = recover(tmp_path)
    assert positions(again) == list(range(15, 40))
    assert purge(again) == 5
    again.close()


def test_a_run_whose_name_was_given_again_is_neither_indexed_nor_rewritten(tmp_path):
    """A thread that lists runs may reach a run long after another file has got its name."""
    store = opened(tmp_path, Plain(), 40)
    (before,) = store.runs(1)
    store.set_layout(1, Hybrid(4, 3))
    store.layouts.rewrite(before)
    delete(store, lambda p: p < 10)
    purge(store)
    (after,) = store.runs(1)
    assert (after.file, after.crc) != (before.file, before.crc)
    assert after.file == before.file
    store.indexes.create(1, "serial")
    store.indexes.build(before, "serial")
    assert store.indexes.unindexed(1) == [(after, "serial")]
    store.set_layout(1, Plain())
    assert not store.layouts.rewrite(before)
    assert store.layouts.unlike(1) == [after]
    assert names(tmp_path) == known(store)
    store.close()


def test_only_runs_with_enough_deleted_rows_are_named(tmp_path):
    store = opened(tmp_path, Plain(), 10, 10, 10)
    delete(store, lambda p: p in (0, 11, 12, 13))
    assert [run.first_position for run in store.purger.marked(1)] == [0, 10]
    assert [run.first_position for run in store.purger.marked(1, 0.3)] == [10]
    assert store.purger.purge(store.runs(1)[2]) == 0
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=layout_text)
def test_a_purge_that_is_called_off_at_any_look_leaves_everything_as_it_was(tmp_path, layout):
    store = opened(tmp_path, layout, 40)
    delete(store, lambda p: p < 10)
    before, files = store.runs(1), names(tmp_path)
    for steps in range(1_000):
        try:
            assert store.purger.purge(before[0], cancelled_after(steps)) == 10
            break
        except Cancelled:
            assert (store.runs(1), names(tmp_path)) == (before, files)
            assert list((tmp_path / "tmp").iterdir()) == []
    assert steps > 5
    assert positions(store) == list(range(10, 40))
    store.close()


def test_a_damaged_run_is_not_purged(tmp_path):
    store = opened(tmp_path, Plain(), 40)
    delete(store, lambda p: p < 10)
    store.close()
    store = recover(tmp_path)
    path = tmp_path / "runs" / store.runs(1)[0].file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptData):
        purge(store)
    store.close()


def swept(tmp_path):
    """A purge of two runs, one of which it empties, at one of whose calls something happens."""
    directory = tmp_path / "data"
    store = opened(directory, Hybrid(3, 3), 12, 6)
    delete(store, lambda p: p % 2 == 0 or p >= 12)
    store.close()
    files = PowerFiles(directory)
    store = Store.open(directory, files=files)
    return directory, store, files


@pytest.mark.slow
@pytest.mark.parametrize(("error", "start"), [(ENOSPC, 0), (5, 1)])
def test_any_call_that_fails_leaves_it_as_it_was_and_it_can_be_done_again(tmp_path, error, start):
    left = [1, 3, 5, 7, 9, 11]
    for index in itertools.count(start, 2):
        directory, store, files = swept(tmp_path / str(index))
        files.fail_in(index, error)
        try:
            purge(store)
        except (DiskFull, StorageFailed):
            pass
        except CorruptData:  # A read that failed.
            assert error == 5
        assert positions(store) == left
        files.heal()  # So that closing the log does not fail; other tests do that.
        purge(store)
        assert store.purger.marked(1) == []
        assert positions(store) == left
        store.close()
        again = Store.open(directory, files=OsFiles())
        assert again.recovery.missing == ()
        assert positions(again) == left
        again.close()
        assert check(directory).damages == []
        if files.failed is None:
            break
    assert index > 5


@pytest.mark.slow
def test_power_that_fails_at_any_call_leaves_each_run_purged_or_not(tmp_path):
    left = [1, 3, 5, 7, 9, 11]
    for index in itertools.count():
        _, store, files = swept(tmp_path / str(index))
        files.power_in(index)
        try:
            purge(store)
        except PowerFailed:
            failed = True
        else:
            failed = False
        crashed = tmp_path / f"crashed-{index}"
        files.crash_into(crashed, index)
        store.catalog.close()
        again = recover(crashed)
        assert again.recovery.missing == ()
        assert positions(again) == left
        purge(again)
        assert names(crashed) == known(again)
        again.close()
        assert check(crashed).ok
        with suppress(PowerFailed):
            store.close()  # The log cannot be written without power; this releases the lock.
        if not failed:
            break
    assert index > 5


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    layout=st.sampled_from(LAYOUTS),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("delete"), st.integers(0, 60), st.integers(1, 7)),
            st.tuples(st.just("purge"), st.just(0), st.just(0)),
        ),
        max_size=5,
    ),
)
def test_whatever_is_deleted_and_purged_the_rest_is_there(tmp_path_factory, layout, steps):
    store = opened(tmp_path_factory.mktemp("purge"), layout, 30, 31)
    left = set(range(61))
    for word, first, step in steps:
        if word == "delete":
            chosen = set(range(first, 61, step))
            assert delete(store, chosen.__contains__) == len(left & chosen)
            left -= chosen
        else:
            purge(store)
            assert sum(run.rows for run in store.runs(1)) == len(left)
        assert positions(store) == sorted(left)
    store.close()
