"""Rows of files in order of event time: spooled to disk, and sorted there when they are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shedder.cli.files.temporary_files import exhausted, written_in

_FETCHED_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class SortLimits:
    """What a sort may use.

    memory_bytes: of DuckDB; more rows are sorted on disk. threads: of DuckDB.
    batch_rows, batch_bytes: of a batch that comes out, at most and about.
    """

    memory_bytes: int = 512 << 20
    threads: int = 2
    batch_rows: int = 65_536
    batch_bytes: int = 4 << 20


DEFAULT_SORT_LIMITS = SortLimits()


class Spool:
    """The rows of one file, kept in a Parquet file of their own until all files were read.

    rows, size_bytes: that were added. first_us, last_us: least and greatest event time.
    disorder_us: how much a row is earlier than one before it, at most; 0: they are in order.
    """

    def __init__(self, path: Path, schema: pa.Schema, time_column: str, first_row: int) -> None:
        """Begin an empty spool.

        path: of its file, made here. schema: of the rows. time_column: the event time.
        first_row: number of the first row among those of all files; it orders equal times.

        Raises:
          ResourceExhausted: the disk is full; so do `add` and `close`.
        """
        self.path = path
        self.schema = schema
        self.rows = 0
        self.size_bytes = 0
        self.first_us = np.iinfo(np.int64).max
        self.last_us = np.iinfo(np.int64).min
        self.disorder_us = 0
        self._time_column = time_column
        self._first_row = first_row
        with written_in(path.parent):
            self._writer = pq.ParquetWriter(path, _spooled(schema), compression="lz4")

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows of the schema, at least one."""
        times = np.asarray(batch.column(self._time_column).cast(pa.int64()))
        before = np.maximum.accumulate(np.concatenate(([self.last_us], times[:-1])))
        late = times < before
        if late.any():
            self.disorder_us = max(self.disorder_us, int((before[late] - times[late]).max()))
        self.first_us = min(self.first_us, int(times.min()))
        self.last_us = max(self.last_us, int(times.max()))
        start = self._first_row + self.rows
        numbers = pa.array(np.arange(start, start + batch.num_rows))
        columns = [*batch.columns, numbers]
        rows = pa.RecordBatch.from_arrays(columns, schema=_spooled(self.schema))
        with written_in(self.path.parent):
            self._writer.write_batch(rows)
        self.rows += batch.num_rows
        self.size_bytes += batch.nbytes

    def close(self) -> None:
        """End the file; it can be read from now on."""
        with written_in(self.path.parent):
            self._writer.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in the order in which they were added."""
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(_FETCHED_ROWS):
                yield pa.RecordBatch.from_arrays(batch.columns[:-1], schema=self.schema)


def together(spools: Sequence[Spool]) -> list[list[Spool]]:
    """Group the spools that have rows: those whose times overlap belong to one group.

    Returns:
      groups in order of event time; within a group, spools in the order given.
    """
    groups: list[list[Spool]] = []
    last_us = 0
    for spool in sorted((each for each in spools if each.rows), key=lambda each: each.first_us):
        if groups and spool.first_us < last_us:
            groups[-1].append(spool)
        else:
            groups.append([spool])
            last_us = spool.last_us
        last_us = max(last_us, spool.last_us)
    return [sorted(group, key=spools.index) for group in groups]


def in_order(
    group: Sequence[Spool], time_column: str, limits: SortLimits = DEFAULT_SORT_LIMITS
) -> Iterator[pa.RecordBatch]:
    """The rows of a group by event time; rows of one time in the order given.

    Batches depend on the rows alone, so that a repeated load has the same ones.
    """
    if len(group) == 1 and not group[0].disorder_us:
        yield from cut(group[0].batches(), _batch_rows(group, limits))
        return
    yield from cut(_sorted(group, time_column, limits), _batch_rows(group, limits))


def as_given(
    group: Sequence[Spool], limits: SortLimits = DEFAULT_SORT_LIMITS
) -> Iterator[pa.RecordBatch]:
    """The rows of a group in the order given, in batches as of `in_order`."""
    batches = (batch for spool in group for batch in spool.batches())
    yield from cut(batches, _batch_rows(group, limits))


def _sorted(
    group: Sequence[Spool], time_column: str, limits: SortLimits
) -> Iterator[pa.RecordBatch]:
    import duckdb  # Other commands load the command line without it.

    schema = group[0].schema
    columns = ", ".join(_spooled(schema).names[:-1])
    time = columns.split(", ")[schema.get_field_index(time_column)]
    files = ", ".join("'" + str(spool.path).replace("'", "''") + "'" for spool in group)
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{limits.memory_bytes // 1024}KiB",
        "threads": limits.threads,
        "temp_directory": str(group[0].path.with_suffix(".sort")),
    }
    try:
        with closing(duckdb.connect(config=config)) as database:
            result = database.sql(
                f"SELECT {columns} FROM read_parquet([{files}]) ORDER BY {time}, row"  # noqa: S608
            )
            for batch in result.to_arrow_reader(_FETCHED_ROWS):
                arrays = [
                    column.cast(field.type)
                    for column, field in zip(batch.columns, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    except duckdb.Error as error:  # The statement is valid: memory or disk has run out.
        problem = str(error).partition("\n")[0]
        raise exhausted("rows cannot be sorted", group[0].path.parent, problem) from error


def _spooled(schema: pa.Schema) -> pa.Schema:
    """The columns under names that DuckDB takes as they are, and the rows' numbers."""
    fields = [pa.field(f"c{at}", field.type) for at, field in enumerate(schema)]
    return pa.schema([*fields, pa.field("row", pa.int64())])


def cut(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of exactly `rows`; the last one may have fewer."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        at = 0
        while count + batch.num_rows - at >= rows:
            waiting.append(batch.slice(at, rows - count))
            at += rows - count
            yield _joined(waiting)
            waiting, count = [], 0
        if at < batch.num_rows:
            waiting.append(batch.slice(at))
            count += batch.num_rows - at
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _batch_rows(group: Sequence[Spool], limits: SortLimits) -> int:
    """A power of two, so that bytes of null columns, which may differ, change nothing."""
    rows = sum(spool.rows for spool in group)
    size_bytes = max(sum(spool.size_bytes for spool in group), 1)
    wanted = max(min(limits.batch_bytes * rows // size_bytes, limits.batch_rows), 1)
    return int(1 << (wanted.bit_length() - 1))
