"""A commit of the catalog whose sync fails is gone, after the end of its process as well."""

import pytest

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.operations.verify import check
from tests.archive.children import commit_and_die, commit_much, drop_and_cut
from tests.archive.syscalls import needs_strace, run
from tests.archive.worlds import positions, recover


def found_after(directory, index, failing):
    """Return what the process printed, and the checkpoint that the next process finds."""
    directory.mkdir()
    printed, injected = run(directory, "fdatasync", "error=EIO", index, commit_and_die, failing)
    catalog = Catalog.open(directory / "catalog.sqlite")
    found = catalog.checkpoint_sequence()
    assert catalog.problems() == []
    catalog.close()
    return printed, found, injected


@pytest.mark.slow
@needs_strace
def test_a_commit_whose_sync_failed_is_not_found_by_the_next_process(tmp_path):
    """SQLite leaves its frames in the write-ahead log, and the next process would replay them."""
    failed, index, injected = 0, 1, True
    while injected:
        printed, found, injected = found_after(tmp_path / f"{index}", index, 1)
        acknowledged = [int(word) for word in printed if word.isdigit()]
        assert found == max(acknowledged, default=0)
        failed += "failed" in printed
        index += 1
    assert failed >= 5


@pytest.mark.slow
@needs_strace
def test_a_commit_that_could_not_be_written_over_is_said_to_be_unknown(tmp_path):
    unknown = 0
    for index in range(7, 12):
        printed, found, injected = found_after(tmp_path / f"{index}", index, 2)
        assert injected
        if "unknown" in printed:
            assert found - len(printed[:-1]) in (0, 1)
            unknown += 1
    assert unknown >= 3


@pytest.mark.slow
@needs_strace
def test_a_commit_without_memory_for_the_index_of_its_log_is_not_found(tmp_path):
    """SQLite maps more of that index after the sync, once there are more than 4,062 frames."""
    directory = tmp_path / "data"
    directory.mkdir()
    index = directory / "catalog.sqlite-shm"
    said, injected = run(directory, "mmap", "error=ENOMEM", 2, commit_much, path=index)
    assert (said, injected) == (["failed"], True)
    catalog = Catalog.open(directory / "catalog.sqlite")
    assert catalog.checkpoint_sequence() == 0
    assert catalog.problems() == []
    catalog.close()


@pytest.mark.slow
@needs_strace
def test_a_drop_of_unknown_outcome_has_not_happened_once_the_next_commit_succeeds(tmp_path):
    directory = tmp_path / "data"
    directory.mkdir()
    log = directory / "catalog.sqlite-wal"
    printed, injected = run(directory, "fdatasync", "error=EIO", 5, drop_and_cut, 2, path=log)
    assert (printed, injected) == (["created", "unknown", "cut"], True)
    store = recover(directory)
    assert positions(store) == list(range(40))
    assert [run.first_position for run in store.runs(1)] == [0, 20]
    store.close()
    assert check(directory).damages == []
