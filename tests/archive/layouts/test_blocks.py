"""Runs in blocks: any of them can be read alone, verified, counted, cut to a stretch of time."""

import dataclasses
import itertools
from contextlib import suppress
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shedder
from shedder.archive.files.file_system import OsFiles, OsReadFile
from shedder.archive.layouts.blocks import Wanted, read_blocks
from shedder.archive.layouts.checksummed_file import Footers
from shedder.archive.layouts.file_handle_cache import OpenFiles, opened
from shedder.archive.layouts.readable_part import part_of
from shedder.archive.runs.run_format import read_run, write_run
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Hybrid, Plain
from shedder.errors import CorruptData
from tests.archive.block_runs import FIRST, shuffled, stream, write
from tests.archive.schemas import ARROW, batch

ROWS = 3000


def blocks_of(path, run, numbers, *columns, start_us=None, end_us=None):
    wanted = Wanted("ts", columns, start_us, end_us)
    return list(read_blocks(OsFiles(), path, run, numbers, wanted))


def is_damaged(path, run, number) -> bool:
    try:
        blocks_of(path, run, [number], *ARROW.names, *[POSITION] * run.is_dealt)
    except CorruptData:
        return True
    return False


@pytest.fixture(scope="module", params=[Hybrid(7, 100), Hybrid(1), Plain()], ids=str)
def written(request, tmp_path_factory):
    parts = [shuffled(FIRST, 1000), shuffled(FIRST + 1000, 1), shuffled(FIRST + 1001, 1999)]
    return *write(tmp_path_factory.mktemp("run"), request.param, parts), parts


def test_a_run_reads_back_in_order_of_position(written):
    path, run, parts = written
    read = list(read_run(path, run))
    table = pa.Table.from_batches([part for _, part in read])
    assert repr(table.to_pydict()) == repr(pa.Table.from_batches(parts).to_pydict())
    assert table.schema == ARROW
    (positions, some) = next(read_run(path, run, ["value", "ts"]))
    assert (positions[0], some.schema.names) == (FIRST, ["value", "ts"])


def test_the_blocks_are_the_run(written):
    path, run, _ = written
    blocks = blocks_of(path, run, range(run.blocks), "serial", POSITION)
    assert [block.number for block in blocks] == list(range(run.blocks))
    assert all(block.rows == block.table.num_rows for block in blocks)
    assert sum(block.rows for block in blocks) == ROWS
    assert max(b.rows for b in blocks) - min(b.rows for b in blocks) <= 1
    for block in blocks:
        assert block.table.schema.names == ["serial", POSITION]
        assert block.table["serial"].to_pylist() == block.table[POSITION].to_pylist()
    found = [n for block in blocks for n in block.table["serial"].to_pylist()]
    assert sorted(found) == list(range(FIRST, FIRST + ROWS))


def test_only_what_is_asked_for_is_read(written):
    path, run, _ = written
    everything = sum(b.bytes_read for b in blocks_of(path, run, range(run.blocks), *ARROW.names))
    one = blocks_of(path, run, [run.blocks - 1], "value")
    assert [block.number for block in one] == [run.blocks - 1]
    footer = run.size_bytes - run.footer.offset
    assert footer < one[0].bytes_read < everything
    assert everything <= run.size_bytes
    assert blocks_of(path, run, [], "value") == []
    (none,) = blocks_of(path, run, [0])
    assert (none.bytes_read, none.table.num_columns) == (footer, 0)


class RecordingFile(OsReadFile):
    """A real file that notes what was read of it, and what was said to be."""

    def __init__(self, path, reads, expected):
        super().__init__(path)
        self.reads, self.expected = reads, expected

    def read(self, offset, length):
        self.reads.append((offset, length))
        return super().read(offset, length)

    def expect(self, stretches):
        self.expected.extend(stretches)
        super().expect(stretches)


class RecordingFiles(OsFiles):
    """The real file system, with notes of what was read."""

    def __init__(self):
        self.reads, self.expected, self.opened = [], [], 0

    def open(self, path):
        self.opened += 1
        return RecordingFile(path, self.reads, self.expected)


@pytest.mark.parametrize("numbers", [[0], [5, 1, 2], list(range(7))], ids=str)
@pytest.mark.parametrize(
    ("columns", "start_us"), [(ARROW.names, None), (["ts"], None), ([ARROW.names[-1]], 1_000_000)]
)
def test_the_system_is_told_what_will_be_read_and_nothing_else(
    tmp_path, numbers, columns, start_us
):
    path, run = write(tmp_path, Hybrid(7, 100), [shuffled(FIRST, ROWS)])
    files = RecordingFiles()
    wanted = Wanted("ts", tuple(columns), start_us)
    assert len(list(read_blocks(files, path, run, numbers, wanted))) == len(numbers)
    inside = [(at, size) for at, size in files.reads if at < run.footer.offset]
    advised = {at for begin, size in files.expected for at in range(begin, begin + size)}
    assert advised == {at for begin, size in inside for at in range(begin, begin + size)}
    assert all(sum(left) < right[0] for left, right in itertools.pairwise(files.expected))


def test_a_file_stays_open_for_the_next_part_until_reading_it_fails(tmp_path):
    path, run = write(tmp_path, Hybrid(7, 100), [shuffled(FIRST, ROWS)])
    files, footers, kept = RecordingFiles(), Footers(), OpenFiles(1)

    def read(number: int) -> int:
        wanted = Wanted("ts", ("serial",))
        (block,) = read_blocks(files, path, run, [number], wanted, footers, kept=kept)
        return block.bytes_read

    first = read(0)
    again = [read(number) for number in range(7)]
    assert files.opened == 1
    assert again[0] == first - (run.size_bytes - run.footer.offset)  # The footer was read once.
    with opened(files, path, run, footers, kept), opened(files, path, run, footers, kept):
        assert files.opened == 2  # Lent to one reader at a time.
    read(0)
    assert files.opened == 2
    path.write_bytes(bytes(run.size_bytes))
    with pytest.raises(CorruptData, match="checksum"):
        read(1)
    with pytest.raises(CorruptData, match="checksum"):
        read(1)
    assert files.opened == 3
    kept.forget(run.file)
    assert not any(str(path) == target for target in open_files())


def test_a_file_that_was_to_be_closed_while_it_was_lent_is_not_read_again(tmp_path):
    """Another thread found it damaged, and a good copy was put in its place."""
    path, run = write(tmp_path, Hybrid(7, 100), [shuffled(FIRST, ROWS)])
    whole, kept = path.read_bytes(), OpenFiles()
    path.write_bytes(bytes(run.footer.offset) + whole[run.footer.offset :])
    with opened(OsFiles(), path, run, kept=kept):
        kept.forget(run.file)
        path.unlink()
        path.write_bytes(whole)
    wanted = Wanted("ts", ("serial",))
    blocks = list(read_blocks(OsFiles(), path, run, range(7), wanted, kept=kept))
    assert sum(block.rows for block in blocks) == ROWS
    kept.forget()
    assert not any(str(path) in target for target in open_files())


def open_files() -> list[str]:
    """What this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(link.readlink()))
    return found


@pytest.mark.slow
def test_what_goes_is_not_kept_open_and_nothing_is_after_the_end(tmp_path):
    with shedder.open(tmp_path) as db:
        for name in "ab":
            db.execute(
                f"CREATE STREAM {name} (ts TIMESTAMP NOT NULL) TIMESTAMP BY ts "
                "ARCHIVE hybrid(blocks=4, block_rows=10)"
            )
            db.push(name, pa.table({"ts": pa.array(range(200), pa.timestamp("us"))}))
            db.seal(name)
            early = "ts < CAST(100 AS TIMESTAMP)"
            db.execute(f"SELECT COUNT(*) AS n FROM {name} WHERE {early} REDUCE BY uniform(0.5)")
        runs = [p for p in open_files() if p.startswith(str(tmp_path / "runs"))]
        assert len(runs) == 2
        db.execute("DROP STREAM a")
        runs = [p for p in open_files() if p.startswith(str(tmp_path / "runs"))]
        assert len(runs) == 1
    assert not [p for p in open_files() if p.startswith(str(tmp_path / "runs"))]


@pytest.mark.parametrize("stretch", [(None, 1_000_000), (1_500_000, 1_600_000), (10**12, None)])
def test_a_stretch_of_time_leaves_other_rows_out_and_counts_them(written, stretch):
    path, run, parts = written
    start_us, end_us = stretch
    blocks = blocks_of(path, run, range(run.blocks), "serial", start_us=start_us, end_us=end_us)
    assert sum(block.rows for block in blocks) == ROWS
    table = pa.Table.from_batches(parts).to_pydict()
    times = pa.Table.from_batches(parts)["ts"].cast(pa.int64()).to_pylist()
    expected = [
        serial
        for serial, time in zip(table["serial"], times, strict=True)
        if (start_us is None or time >= start_us) and (end_us is None or time < end_us)
    ]
    assert sorted(n for b in blocks for n in b.table["serial"].to_pylist()) == expected
    if not expected:
        assert sum(b.bytes_read for b in blocks) == run.size_bytes - run.footer.offset


@pytest.mark.slow
def test_damage_is_found_where_it_is_read_and_only_there(written):
    path, run, _ = written
    sound = path.read_bytes()
    alone = [blocks_of(path, run, [n], *ARROW.names)[0].bytes_read for n in range(run.blocks)]
    assert min(alone) > 0
    found = 0
    for offset in range(5, len(sound), 997):
        rotten = bytearray(sound)
        rotten[offset] ^= 1
        path.write_bytes(rotten)
        failed = [number for number in range(run.blocks) if is_damaged(path, run, number)]
        assert len(failed) == (run.blocks if offset >= run.footer.offset else 1)
        found += 1
    path.write_bytes(sound)
    assert found > 20


def test_a_missing_or_short_file_is_damage(tmp_path):
    path, run = write(tmp_path, Hybrid(4, 1), [batch(FIRST, 100)])
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptData, match="bytes, not"):
        blocks_of(path, run, [0], "value")
    path.unlink()
    with pytest.raises(CorruptData, match="is missing; it held positions 50 to 150"):
        blocks_of(path, run, [0], "value")


@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (2, 2), (5, 5), (9, 8)])
def test_runs_smaller_than_the_block_count_have_a_row_in_each_block(tmp_path, rows, blocks):
    path, run = write(tmp_path, Hybrid(8, 1), [batch(FIRST, rows)])
    assert run.blocks == blocks
    found = blocks_of(path, run, range(blocks), "serial")
    assert all(block.rows >= 1 for block in found)
    assert [at.tolist() for at, _ in read_run(path, run)] == [list(range(FIRST, FIRST + rows))]


def test_blocks_are_row_groups_sorted_by_time_which_others_read(tmp_path):
    path, run = write(tmp_path, Hybrid(4, 1), [shuffled(FIRST, 1000)])
    file = pq.ParquetFile(path)
    assert file.num_row_groups == run.blocks == 4
    assert file.metadata.metadata[b"shedder.layout"] == b"hybrid(blocks=4, block_rows=1)"
    assert file.metadata.metadata[b"shedder.blocks"] == b"4"
    for group in range(4):
        rows = file.read_row_group(group, columns=["ts", POSITION])
        keys = list(zip(rows["ts"].to_pylist(), rows[POSITION].to_pylist(), strict=True))
        assert keys == sorted(keys)
    sql = f"SELECT count(*), sum(serial - {POSITION}) FROM read_parquet('{path}')"
    assert duckdb.sql(sql).fetchall() == [(1000, 0)]


def test_columns_of_nothing_but_nulls_and_of_empty_text_are_dealt(tmp_path):
    content = batch(FIRST, 10)
    columns = {name: content.column(name) for name in ARROW.names}
    columns["site"] = pa.array([""] * 10)
    columns["value"] = pa.array([None] * 10, pa.float64())
    columns["ok"] = pa.array([None] * 10, pa.bool_())
    columns["serial"] = pa.array([None] * 9 + [2**63 - 1], pa.int64())
    odd = pa.record_batch(list(columns.values()), schema=ARROW)
    path, run = write(tmp_path, Hybrid(3, 1), [odd.slice(3, 4), odd.slice(0, 0), odd.slice(7)])
    ((_, read),) = read_run(path, run)
    assert read.to_pydict() == odd.slice(3).to_pydict()


def test_the_last_of_several_blocks_is_divided_down_to_few_rows(tmp_path):
    path, run = write(tmp_path, Hybrid(3, 1000), [shuffled(FIRST, 4_500)])
    sizes = [1_500, 1_500, 750, 375, 375]
    assert (run.blocks, run.halvings, run.block_sizes.tolist()) == (5, 2, sizes)
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(group).num_rows for group in range(5)] == sizes
    assert [block.rows for block in blocks_of(path, run, run.small_blocks.tolist(), "serial")] == [
        375,
        375,
        750,
    ]
    assert [at.tolist() for at, _ in read_run(path, run)] == [list(range(FIRST, FIRST + 4_500))]
    assert (part_of(run, 0.9).blocks, part_of(run, 0.9).reduction) == ((3, 4), 1 - 750 / 4_500)
    assert (part_of(run, 0.3).blocks, part_of(run, 0.3).reduction) == ((0, 1, 2, 3, 4), 0.0)
    assert (part_of(run, 1 / 3).blocks, part_of(run, 0.5).blocks) == ((0, 2, 3, 4), (0, 2, 3, 4))


@pytest.mark.parametrize("different", [1, 2, 2_000, 5_000])
def test_texts_of_which_there_are_few_are_texts_to_every_reader(tmp_path, different):
    """They are dealt as numbers into a dictionary; a file does not show it."""
    numbers = np.random.default_rng(different).integers(0, different, 6_000)
    texts = pa.array([None if n % 7 == 1 else f"site-{n}" * (n % 3) for n in numbers.tolist()])
    content = batch(FIRST, 6_000)
    at = ARROW.get_field_index("site")
    batches = [
        content.set_column(at, ARROW.field("site"), texts).slice(first, 2_500)
        for first in range(0, 6_000, 2_500)
    ]
    path, run = write(tmp_path, Hybrid(4, 100), batches)
    table = pa.Table.from_batches([part for _, part in read_run(path, run)])
    assert table["site"].combine_chunks().equals(pa.chunked_array([texts]).combine_chunks())
    assert table.schema == ARROW
    for reader in (
        pq.read_table(path),
        duckdb.sql(f"FROM read_parquet('{path}')").to_arrow_table(),
    ):
        assert reader.schema.field("site").type == pa.string()
        found = reader.sort_by(POSITION)["site"].combine_chunks()
        assert found.to_pylist() == texts.to_pylist()
    (block,) = blocks_of(path, run, [2], "site")
    assert block.table["site"].type == pa.string()


def test_a_file_that_does_not_hold_its_positions_is_damage(tmp_path):
    path, run = write(tmp_path, Hybrid(3, 1), [batch(FIRST, 10)])
    with pytest.raises(CorruptData, match="10 positions of 51 to 61"):
        list(read_run(path, dataclasses.replace(run, first_position=51, end_position=61)))


@pytest.mark.slow
def test_a_sample_of_blocks_means_what_the_run_means(tmp_path):
    """The mean over two of eight blocks, over 300 seeds, is unbiased with the SRS's variance."""
    content = shuffled(0, 800)
    serial = np.arange(800)
    means = []
    (tmp_path / "tmp").mkdir()
    for seed in range(300):
        run = write_run(OsFiles(), tmp_path, stream(Hybrid(8, 1), seed), 0, [content])
        path = tmp_path / "runs" / run.file
        found = blocks_of(path, run, [1, 5], "serial")
        means.append(np.concatenate([b.table["serial"].to_numpy() for b in found]).mean())
    deviation = np.sqrt(serial.var(ddof=1) / 200 * (1 - 200 / 800))
    assert abs(np.mean(means) - serial.mean()) < 6 * deviation / np.sqrt(300)
    assert 0.75 < np.std(means) / deviation < 1.3
