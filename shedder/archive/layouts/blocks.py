"""Reading some of a run's blocks: any k of R are a simple random sample of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shedder.archive.files.file_system import Files
from shedder.archive.layouts.checksummed_file import CheckedFile, Footers
from shedder.archive.layouts.file_handle_cache import OpenFiles, opened
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.sql.exact_query import POSITION

_TOGETHER_ROWS = 32_768  # Rows that one call reads, between two checks for cancellation.
_COUNT = "count"  # A table without columns forgets how many rows it has when it is concatenated.


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One of a run's blocks as it was read.

    number: from 0. rows: tuples in the block, whatever was asked for. table: those of them that are
    in the wanted stretch of time, the wanted columns. bytes_read: from the file for this block; the
    first one of a call counts the file's metadata, too.
    """

    run: Run
    number: int
    rows: int
    table: pa.Table
    bytes_read: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader wants of blocks: columns (POSITION may be one), event times [start, end)."""

    time_column: str
    columns: tuple[str, ...]
    start_us: int | None = None
    end_us: int | None = None

    @property
    def is_whole(self) -> bool:
        """Return whether columns are wanted, of all rows."""
        return bool(self.columns) and self.start_us is None and self.end_us is None

    @property
    def read(self) -> frozenset[str]:
        """The columns that are read: event times, too, where they decide."""
        is_cut = self.start_us is not None or self.end_us is not None
        return frozenset((*self.columns, *[self.time_column] * is_cut))


def read_blocks(
    files: Files,
    path: Path,
    run: Run,
    numbers: Sequence[int],
    wanted: Wanted,
    footers: Footers | None = None,
    on_progress: ProgressCallback = no_progress,
    kept: OpenFiles | None = None,
) -> Iterator[Block]:
    """Yield some of a run's blocks, in the order of numbers.

    A run in order of position has one block, number 0. Row groups without event times in the
    wanted range are not read, and neither are columns that are not wanted.

    Args:
      files: the file system.
      path: path of the run's file. If the run's footer is known, the file need not be verified.
      run: the run's catalog entry.
      numbers: numbers of blocks, in [0, run.blocks).
      wanted: columns and event times to read.
      footers: footers that are known already.
      on_progress: called before each row group; what it raises ends the reading.
      kept: open files, which stay open if their blocks are random parts.

    Raises:
      CorruptData: the file is missing, or what was read of it fails its checksum.
      StorageFailed: it cannot be read.
    """
    assert all(0 <= number < run.blocks for number in numbers), (run.blocks, numbers)
    if not numbers:
        return
    with opened(files, path, run, footers, kept if run.is_dealt else None) as (parquet, checked):
        if run.is_dealt and checked.footer is not None:
            checked.expect(checked.footer.stretches(numbers, wanted.read))
            if wanted.is_whole:
                yield from _whole_blocks(parquet, checked, run, numbers, wanted, on_progress)
                return
        schema = _schema(parquet, checked)
        groups = range(parquet.num_row_groups)
        for number in numbers:
            parts = [
                _rows(parquet, schema, run, group, wanted, on_progress)
                for group in ((number,) if run.is_dealt else groups)
            ]
            rows = sum(tuples for tuples, _ in parts)
            tables = [part for _, part in parts] or [_nothing(schema, wanted)]
            table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
            bytes_read = checked.take_bytes_read()
            yield Block(run, number, rows, table.select(wanted.columns), bytes_read)


def _whole_blocks(
    parquet: pq.ParquetFile,
    checked: CheckedFile,
    run: Run,
    numbers: Sequence[int],
    wanted: Wanted,
    on_progress: ProgressCallback,
) -> Iterator[Block]:
    """Blocks of a dealt run without a look at their times; small ones are read in one call."""
    sizes, names = run.block_sizes, list(wanted.columns)
    for some in _together(numbers, sizes):
        on_progress()
        table = parquet.read_row_groups(some, columns=names, use_threads=False)
        table = table.select(names).replace_schema_metadata(None)
        at = 0
        for number in some:
            size = int(sizes[number])
            yield Block(run, number, size, table.slice(at, size), checked.take_bytes_read())
            at += size
        assert at == table.num_rows, (run.file, some)


def _together(numbers: Sequence[int], sizes: NDArray[np.int64]) -> Iterator[list[int]]:
    """Blocks in this order, and in one list as long as they have few rows together."""
    some: list[int] = []
    rows = 0
    for number in numbers:
        if some and rows + sizes[number] > _TOGETHER_ROWS:
            yield some
            some, rows = [], 0
        some.append(number)
        rows += int(sizes[number])
    if some:
        yield some


def read_groups(
    files: Files, path: Path, run: Run, groups: Sequence[int] | None, wanted: Wanted
) -> Iterator[pa.Table]:
    """Some row groups of a run, in any layout: what of them is wanted.

    Args:
      files: the file system.
      path: of the run's file; it need not have been verified if the run knows its footer.
      run: what it is.
      groups: numbers of row groups; None: all, in order. A group is read when its table is taken.
      wanted: what of them.

    Raises:
      CorruptData: the file is missing, or what was read of it fails its checksum.
      StorageFailed: it cannot be read.
    """
    if groups is not None and not groups:
        return
    with opened(files, path, run) as (parquet, checked):
        schema = _schema(parquet, checked)
        for group in range(parquet.num_row_groups) if groups is None else groups:
            yield _rows(parquet, schema, run, group, wanted, no_progress)[1]


def _rows(
    parquet: pq.ParquetFile,
    schema: pa.Schema,
    run: Run,
    group: int,
    wanted: Wanted,
    on_progress: ProgressCallback,
) -> tuple[int, pa.Table]:
    """Return how many rows a row group has, and those of them that are wanted."""
    on_progress()
    its = parquet.metadata.row_group(group)
    low_us, high_us = _times(its, schema.names.index(wanted.time_column))
    start_us = low_us if wanted.start_us is None else max(low_us, wanted.start_us)
    end_us = high_us + 1 if wanted.end_us is None else min(high_us + 1, wanted.end_us)
    outside = start_us >= end_us
    cut = (start_us, end_us) != (low_us, high_us + 1)
    stored = POSITION in schema.names
    names = [name for name in wanted.columns if stored or name != POSITION]
    if cut and wanted.time_column not in names:
        names.append(wanted.time_column)
    if outside:
        table = pa.schema([schema.field(name) for name in names]).empty_table()
    elif not names:
        table = pa.table({_COUNT: pa.nulls(its.num_rows)})
    else:
        table = parquet.read_row_group(group, columns=names, use_threads=False)
    table = table.replace_schema_metadata(None)
    if POSITION in wanted.columns and not stored:
        first = run.first_position + sum(
            parquet.metadata.row_group(before).num_rows for before in range(group)
        )
        positions = np.arange(first, first + table.num_rows)
        table = table.append_column(pa.field(POSITION, pa.int64(), False), pa.array(positions))
    if cut and not outside:
        times = table[wanted.time_column].cast(pa.int64()).to_numpy()
        table = table.filter(pa.array((times >= start_us) & (times < end_us)))
    return its.num_rows, table


def _schema(parquet: pq.ParquetFile, checked: CheckedFile) -> pa.Schema:
    return parquet.schema_arrow if checked.footer is None else checked.footer.schema


def _nothing(schema: pa.Schema, wanted: Wanted) -> pa.Table:
    """No rows of a file without any, which is a copy and so has all columns that may be wanted."""
    return pa.schema([schema.field(n) for n in wanted.columns]).empty_table()


def _times(group: pq.RowGroupMetaData, time_column: int) -> tuple[int, int]:
    """Smallest and largest event time of a row group; our files have them for every one."""
    statistics = group.column(time_column).statistics
    assert statistics is not None
    low, high = statistics.min_raw, statistics.max_raw
    assert isinstance(low, int)
    assert isinstance(high, int)
    return low, high
