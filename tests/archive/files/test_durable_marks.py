"""Durable marks: never ahead of what is durable, and read back from either copy."""

import shutil
from collections import Counter
from errno import EIO

import pytest

from shedder.archive.files.durable_marks import DurableMarks, Marks, read_marks, write_marks
from shedder.archive.files.file_system import OsFiles
from shedder.archive.log.log import Log
from tests.archive.power import PowerFiles

MARKS = Marks(generation=7, sequence=1 << 40, format_version=10)


def test_any_flipped_bit_leaves_the_marks_as_they_are():
    data = MARKS.to_bytes()
    assert len(data) == 192
    for bit in range(8 * len(data)):
        rotten = bytearray(data)
        rotten[bit // 8] ^= 1 << bit % 8
        assert Marks.from_bytes(bytes(rotten)) == MARKS


@pytest.mark.parametrize("size", [0, 1, 31, 63])
def test_marks_that_are_cut_off_are_not_known(size):
    assert Marks.from_bytes(MARKS.to_bytes()[:size]).generation == (7 if size > 31 else 0)
    assert not Marks.from_bytes(MARKS.to_bytes()[:31]).is_whole


def test_marks_rise_and_come_back(tmp_path):
    (tmp_path / "tmp").mkdir()
    write_marks(OsFiles(), tmp_path, MARKS)
    marks = DurableMarks.open(OsFiles(), tmp_path)
    assert marks.found == MARKS
    marks.note_generation(9)
    marks.note_generation(8)
    marks.note_sequence(3)
    assert marks.sync()
    marks.close()
    assert read_marks(tmp_path) == Marks(9, MARKS.sequence, 10)


def test_marks_of_a_directory_without_any_are_written_when_it_is_accepted(tmp_path):
    (tmp_path / "tmp").mkdir()
    marks = DurableMarks.open(OsFiles(), tmp_path)
    marks.note_generation(4)
    assert read_marks(tmp_path) == Marks()
    marks.accept()
    marks.note_sequence(5)
    marks.close()
    assert read_marks(tmp_path) == Marks(generation=4, sequence=5)


def test_marks_are_durable_as_soon_as_their_directory_is_accepted(tmp_path):
    (tmp_path / "tmp").mkdir()
    files = PowerFiles(tmp_path)
    marks = DurableMarks.open(files, tmp_path)
    marks.note_generation(4)
    marks.accept()
    assert durable(files, tmp_path) == Marks(generation=4)
    marks.close()


def test_a_mark_that_cannot_be_written_or_synced_is_an_older_one(tmp_path):
    (tmp_path / "tmp").mkdir()
    files = PowerFiles(tmp_path)
    write_marks(files, tmp_path, MARKS)
    marks = DurableMarks.open(files, tmp_path)
    files.fail_next("overwrite", EIO)
    marks.note_generation(8)
    assert read_marks(tmp_path) == MARKS
    marks.note_generation(9)
    files.fail_next("sync", EIO)
    assert not marks.sync()
    assert marks.sync()
    assert read_marks(tmp_path).generation == 9
    marks.close()


def durable(files, tmp_path):
    """Return the marks that a power loss leaves behind."""
    target = tmp_path.with_name(f"{tmp_path.name}_after")
    files.crash_into(target, seed=1)
    found = read_marks(target)
    shutil.rmtree(target)
    return found


def test_a_sync_that_succeeds_after_one_that_failed_makes_the_marks_durable(tmp_path):
    """A failed fsync leaves its pages clean: the next one alone would write nothing."""
    (tmp_path / "tmp").mkdir()
    files = PowerFiles(tmp_path)
    write_marks(files, tmp_path, MARKS)
    marks = DurableMarks.open(files, tmp_path)
    marks.note_generation(8)
    marks.note_sequence(MARKS.sequence + 1)
    for failing in ("sync", "sync", "overwrite"):
        files.fail_next(failing)
        assert not marks.sync()
    marks.note_sequence(MARKS.sequence + 2)
    assert marks.sync()
    assert durable(files, tmp_path) == Marks(8, MARKS.sequence + 2, 10)
    marks.close()


def test_a_sync_writes_a_mark_that_could_not_be_written(tmp_path):
    (tmp_path / "tmp").mkdir()
    files = PowerFiles(tmp_path)
    write_marks(files, tmp_path, MARKS)
    marks = DurableMarks.open(files, tmp_path)
    files.fail_next("overwrite")
    marks.note_generation(8)
    assert marks.sync()
    assert durable(files, tmp_path) == Marks(8, MARKS.sequence, 10)
    marks.close()


def test_marks_that_are_not_accepted_are_not_written_after_a_failed_sync(tmp_path):
    (tmp_path / "tmp").mkdir()
    files = PowerFiles(tmp_path)
    marks = DurableMarks.open(files, tmp_path)
    marks.note_generation(4)
    files.fail_next("sync")
    marks.sync()
    assert marks.sync()
    assert durable(files, tmp_path) == Marks()
    files.fail_next("overwrite")
    with pytest.raises(OSError, match="Input/output error"):
        marks.accept()
    assert marks.sync()
    assert durable(files, tmp_path) == Marks(generation=4)
    marks.close()


class CountedFiles(PowerFiles):
    """Counts calls by kind."""

    def __init__(self, root):
        self.kinds = Counter()
        super().__init__(root)

    def step(self, kind):
        self.kinds[kind] += 1
        return super().step(kind)


def test_marks_cost_the_log_one_small_write_and_no_sync(tmp_path):
    (tmp_path / "tmp").mkdir()
    write_marks(OsFiles(), tmp_path, MARKS)
    files = CountedFiles(tmp_path)
    marks = DurableMarks.open(files, tmp_path)
    log = Log.open(tmp_path / "log", files=files, marks=marks)
    files.kinds.clear()
    for _ in range(5):
        log.append(1, [b"header", b"body"])
        log.sync()
    assert files.kinds == {"write": 5, "sync": 5, "overwrite": 5}
    assert read_marks(tmp_path).sequence == log.durable_sequence == MARKS.sequence + 5
    log.close()
    marks.close()
