"""Backup and restore: the same tuples, or nothing; and the original does not notice."""

import errno
import os
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.files.directory_copy import INCOMPLETE
from shedder.archive.files.durable_marks import read_marks
from shedder.archive.files.file_system import OsFiles
from shedder.archive.operations.backup import backup, restore
from shedder.archive.operations.verify import check
from shedder.archive.tasks.progress import Progress
from shedder.errors import (
    BadSetting,
    Cancelled,
    CorruptData,
    DirectoryLocked,
    DiskFull,
    ShedderError,
    TargetExists,
)
from tests.archive.children import restore_until
from tests.archive.power import PowerFailed, PowerFiles
from tests.archive.schemas import SCHEMA
from tests.archive.worlds import checkpoint, ingest, positions, recover
from tests.warm_process import WarmProcess


def filled(directory: Path, files=None) -> Store:
    """Three runs, a checkpoint, a tail, and a log of many segments."""
    store = Store.open(directory, log_segment_bytes=4000, files=files)
    store.create_stream(SCHEMA)
    for first in range(0, 60, 20):
        last = ingest(store, first, 20)
        store.cut(1)
    checkpoint(store, last + 1, {"stream/1": b"state"})
    for first in range(60, 100, 4):
        ingest(store, first, 4)
    return store


@pytest.fixture
def store(tmp_path):
    store = filled(tmp_path / "data")
    yield store
    store.close()


def held(directory: Path) -> tuple[list[int], dict[str, bytes]]:
    """What a directory opens to."""
    store = recover(directory)
    found = positions(store), store.catalog.checkpoint_parts()
    assert store.recovery.missing == ()
    assert store.recovery.log.damages == ()
    store.close()
    return found


def test_a_backup_is_a_data_directory_with_the_same_tuples(store, tmp_path):
    target = tmp_path / "backup"
    made = backup(store, target)
    assert check(target).damages == check(target).notes == []
    assert held(target) == (list(range(100)), {"stream/1": b"state"})
    run = f"runs/{store.runs(1)[0].file}"
    assert (target / run).stat().st_ino == (store.directory / run).stat().st_ino
    assert made.linked_bytes > 0
    assert made.copied_bytes > 0


def test_a_backup_goes_on_by_itself_and_leaves_the_original_alone(store, tmp_path):
    backup(store, tmp_path / "backup")
    copy = recover(tmp_path / "backup")
    ingest(copy, 100, 10)
    copy.cut(1)
    copy.retention.apply(1, 40_000)
    copy.close()
    assert positions(store) == list(range(100))
    ingest(store, 100, 5)
    assert positions(store) == list(range(105))


def test_a_restored_backup_is_the_same_again(store, tmp_path):
    backup(store, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again", link=False)
    assert held(tmp_path / "again") == (list(range(100)), {"stream/1": b"state"})
    run = f"runs/{store.runs(1)[0].file}"
    assert (tmp_path / "again" / run).stat().st_ino != (store.directory / run).stat().st_ino


@pytest.mark.slow
def test_what_comes_and_goes_during_a_backup_does_not_tear_it(store, tmp_path):
    """Cuts, checkpoints, retention and new tuples all the while; a backup is one moment."""
    done = threading.Event()
    reached = [100]

    def go_on() -> None:
        while not done.is_set():
            first = reached[0]
            last = ingest(store, first, 4)
            reached[0] = first + 4
            store.cut(1)
            checkpoint(store, last + 1, {"stream/1": str(first + 4).encode()})
            store.retention.apply(1, (first - 60) * 1000)

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        for number in range(5):
            before = reached[0]
            backup(store, tmp_path / f"{number}", link=bool(number % 2))
            found, parts = held(tmp_path / f"{number}")
            assert found == list(range(found[0], found[-1] + 1))
            assert before <= found[-1] + 1 <= reached[0] + 4
            assert int(parts["stream/1"].strip(b"sta e") or 0) <= found[-1] + 1
            assert check(tmp_path / f"{number}").damages == []
    finally:
        done.set()
        writer.join()


def test_a_run_that_is_written_meanwhile_and_given_up_is_no_matter(tmp_path):
    """Its file is in runs/ before the catalog knows it, and gone when it was called off."""

    class GivenUp(OsFiles):
        is_writing = False

        def names(self, path):
            found = super().names(path)
            if self.is_writing and path.parent.name == "runs":
                return [*found, "given-up.parquet"]
            return found

    files = GivenUp()
    store = filled(tmp_path / "data", files)
    files.is_writing = True
    backup(store, tmp_path / "backup")
    assert held(tmp_path / "backup")[0] == list(range(100))
    assert check(tmp_path / "backup").notes == []
    store.close()


def test_across_file_systems_files_are_copied(tmp_path):
    class Apart(OsFiles):
        def link(self, source, target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    store = filled(tmp_path / "data", Apart())
    made = backup(store, tmp_path / "backup")
    assert made.linked_bytes == 0
    assert held(tmp_path / "backup")[0] == list(range(100))
    store.close()


def test_a_target_that_is_occupied_or_inside_is_refused(store, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("important")
    with pytest.raises(TargetExists, match="not empty"):
        backup(store, tmp_path / "full")
    with pytest.raises(BadSetting, match="inside"):
        backup(store, store.directory / "backup")
    (tmp_path / "b.partial").mkdir()
    (tmp_path / "b.partial" / "thesis.tex").write_text("important")
    with pytest.raises(BadSetting, match="in the way"):
        backup(store, tmp_path / "b")
    (tmp_path / "full.partial").mkdir()
    (tmp_path / "full.partial" / "thesis.tex").write_text("important")
    with pytest.raises(TargetExists, match="not empty"):
        backup(store, tmp_path / "full")
    for name in ("full", "full.partial", "b.partial"):  # Nothing of a stranger's is touched.
        assert (tmp_path / name / "thesis.tex").exists()
    (tmp_path / "empty").mkdir()
    backup(store, tmp_path / "empty")


def test_a_whole_backup_whose_name_is_that_of_a_leftover_stays(store, tmp_path):
    with pytest.raises(BadSetting, match=r"'mon\.partial' ends in '\.partial'"):
        backup(store, tmp_path / "mon.partial")
    backup(store, tmp_path / "other")
    (tmp_path / "other").rename(tmp_path / "mon.partial")
    expected = sorted((tmp_path / "mon.partial").rglob("*"))
    with pytest.raises(BadSetting, match=r"in the way.*no mark INCOMPLETE"):
        backup(store, tmp_path / "mon")
    assert sorted((tmp_path / "mon.partial").rglob("*")) == expected
    assert held(tmp_path / "mon.partial")[0] == list(range(100))


@pytest.mark.parametrize("empty", [True, False])
def test_a_link_in_the_place_of_a_partial_directory_is_not_followed(store, tmp_path, empty):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if not empty:
        (elsewhere / INCOMPLETE).write_bytes(b"")
        (elsewhere / "log").mkdir()
    (tmp_path / "mon.partial").symlink_to(elsewhere)
    with pytest.raises(BadSetting, match="no directory"):
        backup(store, tmp_path / "mon")
    assert len(list(elsewhere.iterdir())) == (0 if empty else 2)
    (tmp_path / "mon.partial").unlink()
    (tmp_path / "mon.partial").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadSetting, match="no directory"):
        backup(store, tmp_path / "mon")
    assert not (tmp_path / "nowhere").exists()


def test_a_leftover_with_other_things_in_it_is_left_as_it_is(store, tmp_path):
    partial = tmp_path / "mon.partial"
    partial.mkdir()
    (partial / INCOMPLETE).write_bytes(b"")
    (partial / "thesis.tex").write_text("important")
    with pytest.raises(BadSetting, match=r"it holds 'thesis\.tex'"):
        backup(store, tmp_path / "mon")
    (partial / "thesis.tex").unlink()
    (partial / INCOMPLETE).write_bytes(b"a list of what is missing")
    with pytest.raises(BadSetting, match="in the way"):
        backup(store, tmp_path / "mon")
    assert (partial / INCOMPLETE).read_bytes() == b"a list of what is missing"


@pytest.mark.parametrize("marked", [True, False])
def test_a_lock_file_of_other_origin_is_left_as_it_is(store, tmp_path, marked):
    """Whatever the file LOCK held, the directory was removed when the backup failed."""
    partial = tmp_path / "mon.partial"
    partial.mkdir()
    if marked:
        (partial / INCOMPLETE).write_bytes(b"")
    (partial / "LOCK").write_text("combination: 12-34-56")
    with pytest.raises(BadSetting, match=r"in the way.*its LOCK holds 'combination: 1'"):
        backup(store, tmp_path / "mon")
    assert (partial / "LOCK").read_text() == "combination: 12-34-56"
    (partial / "LOCK").unlink()
    (partial / "LOCK").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadSetting, match=r"in the way.*its LOCK is no file"):
        backup(store, tmp_path / "mon")
    assert (partial / "LOCK").is_symlink()


@pytest.mark.parametrize("held_pid", [None, "", "4711\n"])
def test_a_leftover_from_before_the_mark_is_taken_over(store, tmp_path, held_pid):
    (tmp_path / "mon.partial").mkdir()
    if held_pid is not None:
        (tmp_path / "mon.partial" / "LOCK").write_text(held_pid)
    backup(store, tmp_path / "mon")
    assert held(tmp_path / "mon")[0] == list(range(100))


def test_links_in_a_leftover_are_removed_and_not_followed(store, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis.tex").write_text("important")
    partial = tmp_path / "mon.partial"
    (partial / "runs").mkdir(parents=True)
    (partial / INCOMPLETE).write_bytes(b"")
    (partial / "log").symlink_to(tmp_path / "elsewhere")
    (partial / "runs" / "1").symlink_to(tmp_path / "elsewhere")
    backup(store, tmp_path / "mon")
    assert (tmp_path / "elsewhere" / "thesis.tex").exists()
    assert held(tmp_path / "mon")[0] == list(range(100))
    assert INCOMPLETE not in {path.name for path in (tmp_path / "mon").iterdir()}


def test_a_backup_knows_how_new_it_is(store, tmp_path):
    backup(store, tmp_path / "backup")
    marks = read_marks(tmp_path / "backup")
    assert marks.is_whole
    assert marks.sequence == store.log.durable_sequence
    restore(tmp_path / "backup", tmp_path / "again")
    assert read_marks(tmp_path / "again") == marks
    catalog = (tmp_path / "backup" / "catalog.sqlite").read_bytes()
    ingest(store, 100, 10)
    store.cut(1)
    backup(store, tmp_path / "later")
    (tmp_path / "later" / "catalog.sqlite").write_bytes(catalog)
    with pytest.raises(CorruptData, match="commits are missing"):
        restore(tmp_path / "later", tmp_path / "mixed")


def test_a_second_backup_to_the_same_place_is_refused_and_the_first_goes_on(store, tmp_path):
    refused = []

    class AskingAgain(Progress):
        def advance(self, amount=0):
            super().advance(amount)
            if amount and not refused:
                with pytest.raises(TargetExists, match="being filled") as found:
                    backup(store, tmp_path / "copy")
                refused.append(found.value)

    backup(store, tmp_path / "copy", progress=AskingAgain("backup", "bytes"))
    assert refused
    assert held(tmp_path / "copy")[0] == list(range(100))
    assert not (tmp_path / "copy.partial").exists()


def test_restoring_needs_a_whole_directory_that_nobody_serves(store, tmp_path):
    with pytest.raises(DirectoryLocked):
        restore(store.directory, tmp_path / "again")
    with pytest.raises(CorruptData, match="no FORMAT"):
        restore(tmp_path, tmp_path.parent / "again")
    backup(store, tmp_path / "backup", link=False)
    run = tmp_path / "backup" / "runs" / store.runs(1)[1].file
    data = bytearray(run.read_bytes())
    data[100] ^= 1
    run.write_bytes(data)
    with pytest.raises(CorruptData, match="checksum"):
        restore(tmp_path / "backup", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_what_a_power_loss_left_while_a_segment_began_is_restored_apart(tmp_path):
    """Opened, a directory goes on in the segment before the one that never was."""
    store = filled(tmp_path / "data")
    store.close()
    (store.directory / "log" / f"{store.log.next_sequence:020}.log").write_bytes(b"")
    restore(store.directory, tmp_path / "again")
    again = recover(tmp_path / "again")
    ingest(again, 100, 10)
    assert positions(again) == list(range(110))
    again.close()
    assert held(store.directory)[0] == list(range(100))


def test_a_backup_without_a_run_in_quarantine_is_restored(store, tmp_path):
    """One damaged run of thousands must not stand in the way of all others."""
    assert store.quarantine.add(store.runs(1)[1], "its checksum does not match")
    backup(store, tmp_path / "backup")
    report = check(tmp_path / "backup")
    assert not report.ok
    assert report.damages == []
    assert "in quarantine" in report.aside[0]
    restore(tmp_path / "backup", tmp_path / "again")
    again = Store.open(tmp_path / "again")
    assert [run.first_position for run, _ in again.quarantine.runs(1)] == [20]
    assert len(again.runs(1)) == 3
    again.close()


def test_a_cancelled_backup_or_restore_leaves_nothing(store, tmp_path):
    progress = Progress("backup", "bytes")
    progress.cancel()
    with pytest.raises(Cancelled, match="backup was cancelled"):
        backup(store, tmp_path / "backup", progress=progress)
    backup(store, tmp_path / "whole")
    for verify in (True, False):
        with pytest.raises(Cancelled):
            restore(tmp_path / "whole", tmp_path / "again", progress=progress, verify=verify)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "whole"]
    store.retention.apply(1, 20_000)  # Nothing is kept for a backup that is over.
    assert len(list((store.directory / "runs" / "1").iterdir())) == 2


class Steps(Progress):
    """Remembers what it was told of."""

    def advance(self, amount: int = 0) -> None:
        super().advance(amount)
        if not hasattr(self, "steps"):
            self.steps = []
        if self.what not in self.steps:
            self.steps.append(self.what)


def test_a_restore_says_which_of_its_steps_it_is_at(store, tmp_path):
    backup(store, tmp_path / "whole")
    progress = Steps("restore", "bytes")
    restore(tmp_path / "whole", tmp_path / "again", progress=progress)
    assert progress.steps == [f"verification of {tmp_path / 'whole'}", "restore"]


class CalledOff(Progress):
    """Ends at a look of a given number."""

    def __init__(self, looks: int) -> None:
        super().__init__("copy", "bytes")
        self.looks = looks

    def advance(self, amount: int = 0) -> None:
        self.looks -= 1
        if self.looks < 0:
            self.cancel()
        super().advance(amount)


@pytest.mark.slow
@pytest.mark.parametrize("link", [True, False])
def test_calling_off_a_backup_or_restore_at_any_look_leaves_nothing(store, tmp_path, link):
    backup(store, tmp_path / "whole")
    for make in (
        partial(backup, store, tmp_path / "copy", link=link),
        partial(restore, tmp_path / "whole", tmp_path / "copy", link=link),
    ):
        for looks in range(1_000):
            try:
                make(progress=CalledOff(looks))
                break
            except Cancelled:
                assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "whole"]
        assert looks > 5
        assert held(tmp_path / "copy")[0] == list(range(100))
        shutil.rmtree(tmp_path / "copy")


def test_progress_reaches_its_total(store, tmp_path):
    progress = Progress("backup", "bytes")
    backup(store, tmp_path / "backup", progress=progress)
    assert progress.done == progress.total > 0
    assert progress.share == 1


def has_files(directory: Path) -> bool:
    return any(path.is_file() for path in directory.rglob("*"))


def opens_whole_or_not_at_all(directory: Path) -> bool:
    """Whether it opens; if it does, everything is there."""
    try:
        store = recover(directory)
    except ShedderError:
        return False
    assert positions(store) == list(range(100))
    store.close()
    return True


@pytest.mark.slow
@pytest.mark.parametrize("link", [True, False])
def test_every_failing_call_is_a_clean_error_that_leaves_nothing(tmp_path, link):
    filled(tmp_path / "data").close()
    failures = 0
    for call in range(10**6):
        files = PowerFiles(tmp_path, fail_at=call, error=errno.ENOSPC)
        try:
            restore(tmp_path / "data", tmp_path / "copy", files=files, link=link, verify=False)
        except DiskFull:
            failures += 1
            left = sorted(path.name for path in tmp_path.iterdir())
            assert left in (["data"], ["copy", "data"])  # Renamed, and only the last sync failed.
            if "copy" in left:
                assert opens_whole_or_not_at_all(tmp_path / "copy")
                (tmp_path / "copy").rename(tmp_path.parent / f"{tmp_path.name}-{link}-{call}")
        else:
            break
    assert failures > 20
    assert opens_whole_or_not_at_all(tmp_path / "copy")


@pytest.mark.slow
def test_power_loss_at_any_call_leaves_no_half_backup_that_opens(tmp_path):
    world = tmp_path / "world"
    filled(world / "data").close()
    lost = 0
    for call in range(10**6):
        files = PowerFiles(world, power_at=call)
        try:
            restore(world / "data", world / "copy", files=files, verify=False)
        except PowerFailed:
            lost += 1
        else:
            break
        for seed in range(2):
            after = tmp_path / f"{call}-{seed}"
            files.crash_into(after, seed)
            for name in ("copy", "copy.partial"):
                if has_files(after / name) and not opens_whole_or_not_at_all(after / name):
                    assert name == "copy.partial"
        shutil.rmtree(world / "copy", ignore_errors=True)
    assert lost > 20
    assert opens_whole_or_not_at_all(world / "copy")


@pytest.mark.slow
def test_a_killed_restore_does_not_open_and_the_next_one_tidies_up(tmp_path):
    filled(tmp_path / "data").close()
    killed = 0
    for call in range(1, 10**6):
        with WarmProcess(restore_until, call, tmp_path / "data", tmp_path / "copy") as process:
            status = process.wait()
        if status == 0:
            break
        assert status == -9
        killed += 1
        assert not (tmp_path / "copy").exists()
        assert (tmp_path / "copy.partial" / INCOMPLETE).exists()
        with pytest.raises(BadSetting, match=INCOMPLETE):
            Store.open(tmp_path / "copy.partial")
    assert killed > 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]
    assert opens_whole_or_not_at_all(tmp_path / "copy")


@pytest.mark.slow
def test_the_log_goes_on_without_writing_into_a_backup(store, tmp_path):
    """Its closed segments are second names of the store's, which may not be written over."""
    made = backup(store, tmp_path / "copy")
    assert made.linked_bytes
    expected = held_copy(tmp_path)
    ingest(store, 100, 40)
    while store.cut(1) is not None:
        pass
    checkpoint(store, store.log.next_sequence, {"stream/1": b"later"})
    for first in range(140, 400, 4):
        ingest(store, first, 4)
    assert check(tmp_path / "copy").ok
    assert held_copy(tmp_path) == expected


def held_copy(tmp_path: Path) -> tuple[list[int], dict[str, bytes]]:
    """What the backup opens to; opened as a copy of its own, links and all."""
    restore(tmp_path / "copy", tmp_path / "again")
    found = held(tmp_path / "again")
    shutil.rmtree(tmp_path / "again")
    return found
