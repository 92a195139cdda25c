"""Small blocks stay in memory: read once, told as often, and gone with their files."""

from dataclasses import replace

import pytest

from shedder.archive.files.file_system import OsFiles, OsReadFile
from shedder.archive.layouts.block_coalescing import SMALL_ROWS, SmallBlocks
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.runs.run_file_cache import AHEAD_ROWS, RunFiles
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Hybrid
from shedder.errors import CorruptData
from tests.archive.block_runs import shuffled, write
from tests.archive.schemas import ARROW

WANTED = Wanted("ts", ("serial", "ts"))


class CountingFile(OsReadFile):
    def __init__(self, path, reads):
        super().__init__(path)
        self.reads = reads

    def read(self, offset, length):
        self.reads.append((offset, length))
        return super().read(offset, length)


class CountingFiles(OsFiles):
    def __init__(self):
        self.reads = []

    def open(self, path):
        return CountingFile(path, self.reads)


@pytest.fixture
def run(tmp_path):
    return write(tmp_path, Hybrid(7, 100), [shuffled(50, 3_000)])[1]


@pytest.fixture
def disk():
    return CountingFiles()


@pytest.fixture
def files(disk, tmp_path):
    return RunFiles(disk, tmp_path, verify=True)


def read(files, run, numbers, wanted=WANTED):
    blocks = list(files.read_blocks(run, numbers, wanted))
    assert [block.number for block in blocks] == list(numbers)
    return blocks


def test_they_are_read_once_and_cost_the_same_bytes_each_time(disk, files, run):
    numbers = [5, 1, 2]
    first = read(files, run, numbers)
    count = len(disk.reads)
    again = read(files, run, numbers)
    assert len(disk.reads) == count
    assert [b.table for b in again] == [b.table for b in first]
    assert [b.rows for b in again] == [b.rows for b in first]
    footer = run.size_bytes - run.footer.offset
    assert sum(b.bytes_read for b in again) == sum(b.bytes_read for b in first) - footer
    assert read(files, run, numbers[::-1]) == again[::-1]


@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        ([5, 3], WANTED),
        ([5], Wanted("ts", ("serial",))),
        ([5], Wanted("ts", ("ts", "serial"))),
        ([5], Wanted("ts", ("serial", "ts"), 1_000_000, 2_000_000)),
    ],
    ids=str,
)
def test_what_was_not_read_before_is_read(disk, files, run, tmp_path, numbers, wanted):
    read(files, run, [5])
    count = len(disk.reads)
    tables = [block.table for block in read(files, run, numbers, wanted)]
    assert len(disk.reads) > count
    fresh = RunFiles(OsFiles(), tmp_path, verify=True)
    assert tables == [block.table for block in read(fresh, run, numbers, wanted)]


def test_large_ones_and_those_beside_them_are_read_each_time(disk, files, tmp_path):
    rows = 7 * (SMALL_ROWS + 1)
    run = write(tmp_path, Hybrid(7, 100), [shuffled(50, rows)])[1]
    assert int(run.block_sizes[0]) > SMALL_ROWS
    read(files, run, [0])
    count = len(disk.reads)
    read(files, run, [0])
    assert len(disk.reads) > count


@pytest.mark.parametrize("how", ["distrusted", "removed", "set aside"])
def test_who_lets_go_of_a_file_lets_go_of_them(files, run, tmp_path, how):
    read(files, run, [5])
    path = tmp_path / "runs" / run.file
    path.write_bytes(bytes(run.size_bytes))
    assert read(files, run, [5])  # They were verified when they were read.
    match how:
        case "distrusted":
            files.distrust(run)
        case "removed":
            files.retire([run.file])
            files.remove_retired()
        case "set aside":
            (tmp_path / "quarantine").mkdir()
            assert files.set_aside(run)
    with pytest.raises(CorruptData):
        read(files, run, [5])


def test_a_run_that_was_written_anew_under_its_name_is_another_one(files, run, tmp_path):
    read(files, run, [5])
    changed = shuffled(50, 3_000)
    changed = changed.set_column(
        ARROW.names.index("serial"), ARROW.field("serial"), changed["serial"][::-1]
    )
    files.retire([run.file])
    files.remove_retired()
    _, other = write(tmp_path, Hybrid(7, 100), [changed])
    assert (other.file, other.crc != run.crc) == (run.file, True)
    [block] = read(files, other, [5])
    fresh = RunFiles(OsFiles(), tmp_path, verify=True)
    assert block.table == read(fresh, other, [5])[0].table
    [again] = read(files, other, [5])
    assert again.table == block.table


def test_those_of_the_run_that_was_not_used_for_the_longest_time_go_first(tmp_path):
    _, run = write(tmp_path, Hybrid(7, 100), [shuffled(50, 3_000)])
    [read_block] = read(RunFiles(OsFiles(), tmp_path, verify=True), run, [0])
    runs = [replace(run, file=f"3/{at}.parquet") for at in range(3)]
    blocks = [replace(read_block, run=run) for run in runs]
    size = blocks[0].table.nbytes + 1_024
    small = SmallBlocks(2 * size + size // 2)
    for at in (0, 1):
        assert list(small.keeping(WANTED, iter([blocks[at]]), lambda _: 7)) == [blocks[at]]
    [found] = small.find(runs[0], [0], WANTED, lambda _: 7) or []
    assert (found.table, found.bytes_read) == (blocks[0].table, 7)
    list(small.keeping(WANTED, iter([blocks[2]]), lambda _: 7))
    assert [small.find(run, [0], WANTED, lambda _: 7) is not None for run in runs] == [
        True,
        False,
        True,
    ]
    tiny = SmallBlocks(size // 2)
    list(tiny.keeping(WANTED, iter(blocks), lambda _: 7))
    assert tiny.find(runs[2], [0], WANTED, lambda _: 7) is None


def test_the_smallest_blocks_of_a_run_that_was_opened_ahead_need_no_read(disk, files, tmp_path):
    run = write(tmp_path, Hybrid(7, 100), [shuffled(50, 30_000)])[1]
    files.open_ahead(run)
    count = len(disk.reads)
    numbers, sizes = run.small_blocks.tolist(), run.block_sizes
    ahead = [n for at, n in enumerate(numbers) if sizes[numbers[: at + 1]].sum() <= AHEAD_ROWS]
    assert len(ahead) >= 2
    fresh = RunFiles(OsFiles(), tmp_path, verify=True)
    for columns in (("serial",), ("sensor", "ts"), (POSITION, "site", "serial")):
        wanted = Wanted("ts", columns)
        found, expected = read(files, run, ahead, wanted), read(fresh, run, ahead, wanted)
        assert [b.table for b in found] == [b.table for b in expected]
        again = read(fresh, run, ahead, wanted)
        assert [b.bytes_read for b in found] == [b.bytes_read for b in again]
    assert len(disk.reads) == count
    read(files, run, [numbers[len(ahead)]], Wanted("ts", ("serial",)))
    assert len(disk.reads) > count


def test_a_damaged_run_is_opened_ahead_without_a_word_and_found_by_who_asks(files, run, tmp_path):
    path = tmp_path / "runs" / run.file
    path.write_bytes(bytes(run.size_bytes))
    files.open_ahead(run)
    with pytest.raises(CorruptData):
        read(files, run, [5])


def test_what_is_held_whole_counts_and_goes(tmp_path):
    _, run = write(tmp_path, Hybrid(7, 100), [shuffled(50, 3_000)])
    [block] = read(RunFiles(OsFiles(), tmp_path, verify=True), run, [0])
    small = SmallBlocks(block.table.nbytes // 2)
    small.hold_whole(block)
    assert small.find(run, [0], WANTED, lambda _: 7) is None
    small = SmallBlocks()
    small.hold_whole(block)
    [found] = small.find(run, [0], Wanted("ts", ("ts",)), lambda _: 7) or []
    assert (found.table, found.bytes_read) == (block.table.select(["ts"]), 7)
    assert small.find(replace(run, crc=run.crc ^ 1), [0], WANTED, lambda _: 7) is None
    small.forget(run.file)
    assert small.find(run, [0], WANTED, lambda _: 7) is None
