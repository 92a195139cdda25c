"""What is spilled is there whole, in order, once, or an error says which file is not."""

import errno

import pyarrow as pa
import pytest

from shedder.archive.files.file_system import OsFiles
from shedder.client.disk_buffer import Spill
from shedder.engine.ingest.producer_sequences import NUMBER_MAX
from shedder.errors import CorruptData, DirectoryLocked, DiskFull, StorageFailed
from shedder.streams.push_parts import WHOLE, Part
from tests.streams.streams import TRADES, trades


@pytest.fixture
def spill(tmp_path):
    spill = Spill(tmp_path, TRADES, "p")
    yield spill
    spill.close()


def filled(spill, numbers, epoch=0):
    for number in numbers:
        spill.write(trades(5, number), epoch=epoch, sequence=number)
    return spill


def read(spill):
    return [(it.sequence, spill.read(it)) for it in spill.waiting]


def again(spill):
    spill.close()
    return Spill(spill.directory.parent, TRADES, "p")


def test_what_was_written_is_read_after_a_restart_in_order(spill):
    filled(spill, range(8, 12))
    opened = again(spill)
    assert read(opened) == [(number, trades(5, number)) for number in range(8, 12)]
    assert (len(opened), opened.rows) == (4, 20)
    assert opened.size_bytes == sum(it.path.stat().st_size for it in opened.waiting)
    opened.close()


def test_what_the_server_has_is_removed(spill):
    filled(spill, range(4))
    spill.drop_before(3)
    assert [it.sequence for it in spill.waiting] == [3]
    assert len(list(spill.directory.glob("*.arrow"))) == 1


def test_any_arrow_library_reads_a_spilled_batch(spill):
    filled(spill, [7])
    (path,) = spill.directory.glob("*.arrow")
    table = pa.ipc.open_file(path).read_all()
    assert table.num_rows == 5
    assert b"trades p 0 7" in table.schema.metadata.values()


def test_one_process_at_a_time(spill):
    with pytest.raises(DirectoryLocked):
        Spill(spill.directory.parent, TRADES, "p")
    Spill(spill.directory.parent, TRADES, "another").close()


def test_names_of_producers_are_no_paths(tmp_path):
    for name in ("../p", "a/b", "a@b", ".."):
        spill = Spill(tmp_path, TRADES, name)
        assert spill.directory.parent == tmp_path
        filled(spill, [0])
        assert read(spill) == [(0, trades(5, 0))]
        spill.close()


def test_what_was_being_written_at_a_crash_was_never_there(spill):
    filled(spill, [0])
    (spill.directory / "tmp.arrow").write_bytes(b"half of a batch")
    opened = again(spill)
    assert read(filled(opened, [1]))[1] == (1, trades(5, 1))
    opened.close()


def test_a_damaged_batch_is_refused_by_name_and_kept(spill):
    filled(spill, range(2))
    path = spill.waiting[0].path
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(CorruptData, match=path.name):
            spill.read(spill.waiting[0])
    assert path.exists()
    path.write_bytes(whole)
    assert spill.read(spill.waiting[0]) == trades(5, 0)


def test_a_batch_of_somebody_else_is_refused(spill):
    filled(spill, [3])
    path = spill.waiting[0].path
    path.rename(path.with_name(path.name.replace("0000003-", "0000004-")))
    opened = again(spill)
    with pytest.raises(CorruptData, match="of another stream, producer or number"):
        opened.read(opened.waiting[0])
    opened.close()


def test_a_batch_that_is_declared_lost_is_one_without_rows(spill):
    filled(spill, range(2))
    path = spill.waiting[0].path
    path.write_bytes(b"")
    path.rename(path.with_name(path.name + ".lost"))
    opened = again(spill)
    assert [batch.num_rows for _, batch in read(opened)] == [0, 5]
    opened.close()


@pytest.mark.parametrize("epoch", [9_999_999_999, 1_764_000_000_000_000, NUMBER_MAX])
def test_batches_of_every_epoch_come_back(spill, epoch):
    """Epochs may be times in microseconds; an epoch has at most 19 digits."""
    filled(spill, range(9, 12), epoch)
    opened = again(spill)
    assert [(it.epoch, it.sequence) for it in opened.waiting] == [
        (epoch, number) for number in range(9, 12)
    ]
    assert read(opened) == [(number, trades(5, number)) for number in range(9, 12)]
    opened.drop_before(12)
    assert not list(opened.directory.glob("*.arrow"))
    opened.close()


@pytest.mark.parametrize("strange", ["notes.txt", "0000000000-3.arrow"])
def test_what_is_not_ours_is_named(spill, strange):
    (spill.directory / strange).write_text("hello")
    spill.close()
    with pytest.raises(CorruptData, match=strange):
        Spill(spill.directory.parent, TRADES, "p")


def test_a_missing_batch_is_noticed(spill):
    filled(spill, range(3))
    spill.waiting[1].path.unlink()
    spill.close()
    with pytest.raises(CorruptData, match="lacks what belongs between"):
        Spill(spill.directory.parent, TRADES, "p")


class Faulty(OsFiles):
    """The real file system, of which one call fails."""

    def __init__(self, call, error):
        self.call, self.error = call, error

    def _may_fail(self, call):
        if call == self.call:
            raise OSError(self.error, "as if")

    def create(self, path):
        self._may_fail("create")
        return super().create(path)

    def rename(self, source, target):
        self._may_fail("rename")
        super().rename(source, target)

    def unlink(self, path):
        self._may_fail("unlink")
        super().unlink(path)

    def sync_directory(self, path):
        self._may_fail("sync")
        super().sync_directory(path)


@pytest.mark.parametrize("call", ["create", "rename", "sync"])
@pytest.mark.parametrize(
    ("error", "raised"), [(errno.ENOSPC, DiskFull), (errno.EIO, StorageFailed)]
)
def test_a_disk_that_fails_keeps_nothing_and_says_so(tmp_path, call, error, raised):
    files = Faulty(None, error)
    spill = filled(Spill(tmp_path, TRADES, "p", files), [0])
    files.call = call
    with pytest.raises(raised, match=str(spill.directory)):
        filled(spill, [1])
    files.call = None
    filled(spill, [1])  # As if it had never been tried.
    assert read(again(spill)) == [(0, trades(5, 0)), (1, trades(5, 1))]


def test_what_cannot_be_removed_is_forgotten_and_goes_later(tmp_path):
    files = Faulty(None, errno.EACCES)
    spill = filled(Spill(tmp_path, TRADES, "p", files), range(4))
    files.call = "unlink"
    spill.drop_before(2)
    assert [it.sequence for it in spill.waiting] == [2, 3]
    opened = again(spill)  # No number is missing between others, so it can be opened.
    assert [it.sequence for it in opened.waiting] == [0, 1, 2, 3]
    opened.close()
    spill.drop_before(4)
    with pytest.raises(StorageFailed, match="as if"):  # It would come behind a gap.
        filled(spill, [9])
    files.call = None
    filled(spill, [9])
    assert [path.name for path in spill.directory.glob("*.arrow")] == [spill.waiting[0].path.name]


def test_batches_of_one_push_come_back_with_their_places(spill):
    parts = [Part(0, False), Part(5, False), Part(10, True)]
    for number in (3, 4):
        for part in parts:
            spill.write(trades(5, number), epoch=0, sequence=number, part=part)
    spill.write(trades(5), epoch=0, sequence=5)
    opened = again(spill)
    assert [(it.sequence, it.part) for it in opened.waiting] == [
        *((number, part) for number in (3, 4) for part in parts),
        (5, WHOLE),
    ]
    assert opened.read(opened.waiting[4]) == trades(5, 4)
    opened.drop_before(4, 5)
    assert [(it.sequence, it.first_row) for it in opened.waiting] == [(4, 5), (4, 10), (5, 0)]
    assert opened.waiting[-1].end == (0, 6, 0)
    opened.close()


def test_a_missing_batch_in_a_push_is_noticed(spill):
    for part in (Part(0, False), Part(5, False), Part(10, True)):
        spill.write(trades(5), epoch=0, sequence=3, part=part)
    spill.waiting[1].path.unlink()
    spill.close()
    with pytest.raises(CorruptData, match="lacks what belongs between"):
        Spill(spill.directory.parent, TRADES, "p")
