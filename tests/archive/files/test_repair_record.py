"""The record of repairs comes back whole, or covers everything."""

import pytest

from shedder.archive.files.file_system import OsFiles
from shedder.archive.files.repair_record import REPAIRED, RecordedRepair, add_repair, read_repairs

FIRST = RecordedRepair(1_000, 3, ("commits 4 to 5 of the catalog",))
SECOND = RecordedRepair(2_000, 7, ("commit 9 of the catalog", "stream 7: its definition"))


def test_repairs_come_back_newest_first(tmp_path):
    assert read_repairs(tmp_path) == ()
    add_repair(OsFiles(), tmp_path, FIRST)
    add_repair(OsFiles(), tmp_path, SECOND)
    assert read_repairs(tmp_path) == (SECOND, FIRST)
    assert [FIRST.covers(stream) for stream in (1, 3, 4)] == [True, True, False]


def test_any_flipped_bit_and_any_cut_leaves_a_record_or_covers_everything(tmp_path):
    add_repair(OsFiles(), tmp_path, FIRST)
    whole = (tmp_path / REPAIRED).read_bytes()
    rotten = [whole[:size] for size in range(len(whole) - 1)]
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        rotten.append(bytes(data))
    for data in rotten:
        (tmp_path / REPAIRED).write_bytes(data)
        found = read_repairs(tmp_path)
        assert FIRST in found or any(repair.covers(1 << 40) for repair in found), data
        assert all(repair.lost for repair in found)


@pytest.mark.parametrize("repairs", [(FIRST, SECOND), (SECOND, FIRST)])
def test_a_record_that_lost_its_end_covers_all_repairs(tmp_path, repairs):
    """Between two lines, no checksum tells of the end. A clock may go backwards."""
    for repair in repairs:
        add_repair(OsFiles(), tmp_path, repair)
    whole = (tmp_path / REPAIRED).read_bytes()
    for size in range(len(whole)):
        (tmp_path / REPAIRED).write_bytes(whole[:size])
        newest, *_ = read_repairs(tmp_path)
        assert newest.covers(7)
        assert newest.repaired_us in (None, 2_000)
