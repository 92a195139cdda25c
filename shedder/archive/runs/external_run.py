"""A run's file that was written elsewhere: read in full before it is believed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shedder.archive.encoding.parquet_encoding import basics_of
from shedder.archive.encoding.run_writer import PIECES, unpacked
from shedder.archive.files.file_system import Files
from shedder.archive.layouts.blocks import Block, Wanted, read_blocks
from shedder.archive.layouts.run_footer import file_metadata, run_file
from shedder.archive.metadata.catalog_entries import Footer, Run, StreamEntry
from shedder.archive.runs.run_format import file_crc
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Eager, Hybrid, Layout, Plain
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import BadBatch, CorruptData, SchemaMismatch, StorageFailed
from shedder.streams.batches import arrow_schema, check_rows
from synopses.samples.random_partition import block_sizes, deal


@dataclass(frozen=True, slots=True)
class SentFile:
    """What the writer says of a run's file: its positions, its size, and its CRC-32C."""

    first_position: int
    end_position: int
    size_bytes: int
    crc: int


def laid_elsewhere(layout: Layout) -> Layout:
    """The layout in which runs are written elsewhere: copies are the service's own business."""
    return Plain() if isinstance(layout, Eager) else layout


def examined(
    files: Files, path: Path, stream: StreamEntry, sent: SentFile, *, may_be_purged: bool = False
) -> Run:
    """The run that a file is, by its own bytes.

    Every checksum in it is verified, columns and types are the stream's, no value is one that the
    stream does not take, times are as the statistics say that blocks are pruned by, and of a dealt
    run each row lies in the block that the stream's seed has dealt it to.

    Args:
      files: the file system. path: of the file.
      stream: with the layout in which the file was written.
      sent: what its writer says.
      may_be_purged: some of the positions may have no row.

    Raises:
      BadBatch: it is damaged, or not what was said. SchemaMismatch, BadTimestamp: of its rows.
      StorageFailed: it cannot be read.
    """
    name = run_file(stream.id, sent.first_position, sent.end_position)
    _check_whole(files, path, name, sent)
    try:
        metadata = pq.read_metadata(path)
        columns = pq.read_schema(path)
        run = _described(files, path, stream, sent, metadata, may_be_purged=may_be_purged)
        _check_columns(columns, stream.schema, has_positions=run.has_positions)
        _check_statistics(metadata, columns.names.index(stream.schema.time_column), name)
        return _read(files, path, stream, run, metadata)
    except (CorruptData, pa.ArrowException, KeyError, ValueError) as error:
        raise BadBatch(f"run {name}: {str(error).partition(chr(10))[0][:300]}") from None


def _check_whole(files: Files, path: Path, name: str, sent: SentFile) -> None:
    try:
        size, crc = file_crc(files, path)
    except OSError as error:
        raise StorageFailed(f"cannot read {path}: {error}") from error
    if (size, crc) != (sent.size_bytes, sent.crc):
        raise BadBatch(
            f"run {name} came as {size} bytes with checksum {crc:#010x}, "
            f"it was written as {sent.size_bytes} with {sent.crc:#010x}"
        )


def _described(
    files: Files,
    path: Path,
    stream: StreamEntry,
    sent: SentFile,
    metadata: pq.FileMetaData,
    *,
    may_be_purged: bool,
) -> Run:
    """What the file's metadata say, compared with what they should; no row is read yet."""
    layout, rows = stream.schema.layout, metadata.num_rows
    purged = sent.end_position - sent.first_position - rows
    if purged < 0 or not rows or (purged and not may_be_purged):
        raise ValueError(f"{rows} rows at {rows + purged} positions")
    groups = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    blocks, halvings = 1, 0
    if isinstance(layout, Hybrid):
        halvings = layout.halvings_of(rows)
        sizes = block_sizes(rows, layout.blocks_of(rows), halvings)
        blocks = sizes.size
        if groups != sizes.tolist():
            raise ValueError(f"blocks of {groups[:5]} rows ..., not {sizes.tolist()[:5]} ...")
    said = {key.decode(): value.decode() for key, value in (metadata.metadata or {}).items()}
    stretch = (sent.first_position, sent.end_position)
    for key, value in file_metadata(stream, stretch, blocks=blocks).items():
        if said.get(key) != value:
            raise ValueError(f"{key} is {said.get(key)!r}, not {value!r}")
    offset = int(unpacked(said[PIECES].encode())["size"].sum())
    file = files.open(path)
    try:
        if not 0 < offset < file.size:
            raise ValueError(f"a footer at byte {offset} of {file.size}")
        footer = Footer(offset, google_crc32c.value(file.read(offset, file.size - offset)))
    finally:
        file.close()
    return Run(
        stream_id=stream.id,
        first_position=sent.first_position,
        end_position=sent.end_position,
        file=run_file(stream.id, *stretch),
        size_bytes=sent.size_bytes,
        crc=sent.crc,
        low_us=0,
        high_us=0,
        layout=layout,
        basics={},
        blocks=blocks,
        footer=footer,
        purged=purged,
        halvings=halvings,
    )


def _check_columns(columns: pa.Schema, schema: StreamSchema, *, has_positions: bool) -> None:
    expected = arrow_schema(schema)
    names = [*expected.names, POSITION] if has_positions else expected.names
    if columns.names != names:
        raise SchemaMismatch(schema.name, f"its columns are {columns.names}, not {names}")
    for field in expected:
        found = columns.field(field.name).type
        if found != field.type:
            raise SchemaMismatch(schema.name, f"column {field.name!r} is {found}, not {field.type}")


def _check_statistics(metadata: pq.FileMetaData, time_column: int, name: str) -> None:
    for group in range(metadata.num_row_groups):
        found = metadata.row_group(group).column(time_column).statistics
        if found is None or not found.has_min_max:
            raise BadBatch(f"run {name}: row group {group} does not say which times it has")


def _read(
    files: Files, path: Path, stream: StreamEntry, run: Run, metadata: pq.FileMetaData
) -> Run:
    """The run with the basics of its rows, which are all read."""
    schema = stream.schema
    names = arrow_schema(schema).names
    wanted = Wanted(schema.time_column, (*names, POSITION))
    blocks = list(read_blocks(files, path, run, range(run.blocks), wanted))
    for block in blocks:
        block.table.validate(full=True)
    whole = pa.concat_tables([block.table for block in blocks])
    _check_positions(whole[POSITION].to_numpy(), run)
    if run.is_dealt:
        dealt = deal(schema.seed, run.first_position, run.block_sizes)
        positions = np.sort(whole[POSITION].to_numpy())
        for block in blocks:
            _check_dealt(block, dealt, positions, schema.time_column)
    table = whole.select(names)
    for batch in table.to_batches():
        check_rows(batch, schema)
    basics = basics_of(table)
    times = basics[schema.time_column]
    assert isinstance(times.low, int)
    assert isinstance(times.high, int)
    _check_times(table[schema.time_column], metadata, schema.time_column)
    return replace(run, basics=basics, low_us=times.low, high_us=times.high)


def _check_times(column: pa.ChunkedArray[Any], metadata: pq.FileMetaData, name: str) -> None:
    """Check that each row group has the event times that its statistics say."""
    times, first = column.cast(pa.int64()).to_numpy(), 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        of = times[first : first + group.num_rows]
        first += group.num_rows
        at = next(i for i in range(group.num_columns) if group.column(i).path_in_schema == name)
        said = group.column(at).statistics
        assert said is not None
        if (of.min(), of.max()) != (said.min_raw, said.max_raw):
            raise ValueError(f"row group {number} has other times than its statistics say")


def _check_positions(positions: NDArray[np.int64], run: Run) -> None:
    """Check that the rows have the positions of the run, once each; of a plain run, in order."""
    if not run.is_dealt and (np.diff(positions) < 1).any():
        raise ValueError("its positions are out of order")
    is_inside = run.first_position <= positions.min() and positions.max() < run.end_position
    if not is_inside or np.unique(positions).size != positions.size:
        raise ValueError("it has positions that are not the run's, once each")


def _check_dealt(
    block: Block,
    dealt: NDArray[np.uint16],
    positions: NDArray[np.int64],
    time_column: str,
) -> None:
    """Check that a block holds the rows that were dealt to it, by time.

    dealt: the block of each row, by rank of its position. positions: of all rows, in order.
    """
    places = np.searchsorted(positions, block.table[POSITION].to_numpy())
    if (dealt[places] != block.number).any():
        raise ValueError(f"block {block.number} has rows that the stream's seed deals elsewhere")
    times = block.table[time_column].cast(pa.int64()).to_numpy()
    if (times[1:] < times[:-1]).any():
        raise ValueError(f"block {block.number} is not in order of time")
