"""Durable marks: never ahead of what is durable, and read back from either copy."""

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
