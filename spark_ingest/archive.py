"""An archive as a DataFrame: the time range prunes runs and blocks, a reduction leaves blocks out.

Executors read the blocks with Shedder's own reader and check them against the checksums of the
catalog. Of a run in blocks (hybrid), any k blocks are a simple random sample. Of a run with sampled
copies (eager, lazy), the coarsest copy that is fine enough is read. Of other runs, rows are sampled
by the hash of their positions. The column SHARE holds the share of each row's run that was read:
weigh sums and counts by 1 / SHARE.

A run is a Spark task. The server of the directory may rewrite a run at any time, in another layout
or without deleted rows, and remove its file. The rows are then in the run with the same positions,
and the task reads that run from its beginning. An open file can be read to its end, so a task has
all of its rows from one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.files.file_system import OsFiles
from shedder.archive.layouts.blocks import Block, Wanted, read_blocks
from shedder.archive.layouts.copies import places_of
from shedder.archive.layouts.readable_part import part_of
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.metadata.deleted_positions import Deleted
from shedder.cql.sql.exact_query import POSITION
from shedder.errors import BadReduction, CorruptData, OutOfRange, UnknownColumn, UnknownStream
from shedder.streams.batches import arrow_schema
from spark_ingest.runtime.spark_session import check_spark, without_pandas
from synopses.kernels.hashing import chosen_keys, position_start

SHARE = "__share"
_ROWS_MAX = 65_536  # of a batch on its way to Spark


@dataclass(frozen=True, slots=True)
class _Source:
    """Of what the tasks read. deleted: by first position. reduction: of each run.

    seed: of the choice. stream_seed: of the stream, which tuples' places in copies come of.
    """

    directory: Path
    stream: str
    runs: tuple[Run, ...]
    deleted: dict[int, Deleted]
    wanted: Wanted
    reduction: float
    seed: int
    stream_seed: int

    @property
    def share(self) -> float:
        """Of the tuples that are read."""
        return 1 - self.reduction


def read_archive(
    spark: SparkSession,
    directory: Path,
    stream: str,
    *,
    columns: Sequence[str] | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    reduction: float = 0.0,
    seed: int = 0,
) -> DataFrame:
    """What is in the runs of a stream now, without rows that were deleted.

    The directory must be where executors can read it. A server may be serving it; what is in its
    log and not in a run yet is not there (`db.seal(stream)` before). Rows that are deleted after
    this call are not there either, if they are gone from their run by the time it is read.

    Args:
      spark: the session. directory: of the data. stream: its name.
      columns: of the stream; None: all.
      start, end: event times [start, end); without a zone they are UTC.
      reduction: the share that is left unread, in [0, 1).
      seed: of the choice of blocks and rows; what is in a run's copies was chosen when these were
        written.

    Returns:
      The columns, POSITION, and SHARE: of the row's run, the share that was read.

    Raises:
      UnknownStream, UnknownColumn. BadReduction: it is outside of [0, 1).
      CorruptData, StorageFailed: from an action, if a file is damaged or cannot be read.
      OutOfRange: from an action, if a run has left what the stream retains, or was dropped.
      UnsupportedSpark: the session is of a Spark that is too old.
    """
    check_spark(spark.version)
    if not 0 <= reduction < 1:
        raise BadReduction(f"reduction is {reduction}; it must be in [0, 1)")
    entry, found, deleted = _of_catalog(directory, stream)
    wanted_fields = arrow_schema(entry.schema)
    names = list(columns) if columns is not None else wanted_fields.names
    for name in names:
        if name not in wanted_fields.names:
            raise UnknownColumn(name, wanted_fields.names)
    start_us, end_us = _us(start), _us(end)
    wanted = Wanted(entry.schema.time_column, (*names, POSITION), start_us, end_us)
    runs = tuple(run for run in found if run.overlaps(start_us, end_us))
    source = _Source(directory, stream, runs, deleted, wanted, reduction, seed, entry.schema.seed)
    fields = [wanted_fields.field(name) for name in names]
    out = pa.schema([*fields, pa.field(POSITION, pa.int64()), pa.field(SHARE, pa.float64())])
    frame = spark.createDataFrame([(at,) for at in range(len(runs))], "task long")
    frame = frame.repartition(max(1, len(runs)), "task")
    with without_pandas():
        reader = _reader(source, out)
        return frame.mapInArrow(reader, from_arrow_schema(out, prefer_timestamp_ntz=False))


def _of_catalog(
    directory: Path, stream: str
) -> tuple[StreamEntry, tuple[Run, ...], dict[int, Deleted]]:
    """A stream, its runs, and by first position what is deleted of them.

    Marks are read before runs: what is purged in between is marked, and not there any more.
    """
    catalog = Catalog.open(directory / "catalog.sqlite", read_only=True)
    try:
        known = {entry.schema.name: entry for entry in catalog.streams()}
        if stream not in known:
            raise UnknownStream(stream, list(known))
        entry = known[stream]
        deleted = {
            first: mark
            for (of, first), mark in catalog.annotations.deleted().items()
            if of == entry.id
        }
        return entry, tuple(catalog.runs(entry.id)), deleted
    finally:
        catalog.close()


def _reader(
    source: _Source, out: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy().tolist():
                yield from _rows(source, source.runs[number], out)

    return read


def _rows(source: _Source, planned: Run, out: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a run, from its file or from that of the run that has its place by now."""
    run: Run | None = planned
    deleted = source.deleted.get(planned.first_position)
    begun = False
    while run is not None:
        try:
            for batch in _of_run(source, run, deleted, out):
                begun = True
                yield batch
        except CorruptData:
            now, deleted = _in_its_place(source, run)
            if begun or now == run:
                raise
            run = now
        else:
            return


def _in_its_place(source: _Source, run: Run) -> tuple[Run | None, Deleted | None]:
    """The run that has the positions of another now; None: they have no rows any more.

    Raises:
      OutOfRange: the stream does not have these positions any more.
    """
    catalog = Catalog.open(source.directory / "catalog.sqlite", read_only=True)
    try:
        key = (run.stream_id, run.first_position)
        deleted = catalog.annotations.deleted().get(key)
        runs = {each.first_position: each for each in catalog.runs(run.stream_id)}
        emptied = (*key, run.end_position) in catalog.annotations.emptied()
    finally:
        catalog.close()
    now = runs.get(run.first_position)
    if now is None and not emptied:
        raise OutOfRange(
            f"{source.stream} does not have positions {run.first_position:,} to "
            f"{run.end_position:,} (excluded) any more: since the frame was made, they were "
            "dropped, or have become older than what the stream retains; make the frame again, "
            "with a start that leaves time for reading"
        )
    return now, deleted


def _of_run(
    source: _Source, run: Run, deleted: Deleted | None, out: pa.Schema
) -> Iterator[pa.RecordBatch]:
    numbers, share = _part_of(run, source)
    for block in _blocks(source, run, numbers):
        positions = block.table[POSITION].to_numpy()
        kept = _kept(source, run, positions)
        if deleted is not None:
            kept &= ~deleted.mask(run)[positions - run.first_position]
        table = block.table.filter(pa.array(kept))
        shares = pa.array(np.full(len(table), share))
        table = table.append_column(pa.field(SHARE, pa.float64()), shares)
        yield from table.cast(out).to_batches(max_chunksize=_ROWS_MAX)


def _blocks(source: _Source, run: Run, numbers: list[int]) -> Iterable[Block]:
    """Blocks of a run's file; where a copy has all rows that are wanted, that as one block.

    If the copy is damaged, or no longer there, the run's own file has the same rows.
    """
    files, root = OsFiles(), source.directory / "runs"
    copy = part_of(run, source.reduction).copy
    if copy is not None:
        try:
            return list(read_blocks(files, root / copy.file, run.of_copy(copy), [0], source.wanted))
        except CorruptData:
            pass
    return read_blocks(files, root / run.file, run, numbers, source.wanted)


def _part_of(run: Run, source: _Source) -> tuple[list[int], float]:
    """Blocks of a run, and which share of its rows are in them, or sampled of them.

    Blocks are equal, and any of them are a simple random sample; the last one may lie in parts.
    """
    if run.blocks == 1:
        return [0], source.share
    equal = run.blocks - len(run.small_blocks)
    blocks = [[number] for number in range(equal)]
    if equal < run.blocks:
        blocks.append(list(range(equal, run.blocks)))
    taken = max(1, round(source.share * len(blocks)))
    rng = np.random.default_rng((source.seed, run.first_position % 2**64))
    chosen = np.sort(rng.choice(len(blocks), taken, replace=False)).tolist()
    numbers = [number for at in chosen for number in blocks[at]]
    return numbers, int(run.block_sizes[numbers].sum()) / run.rows


def _kept(source: _Source, run: Run, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the rows to keep: all of a run in blocks, else a sample of the run.

    Where there are copies it is by the places that these are made by.
    """
    if run.blocks > 1 or not source.reduction:
        return np.ones(len(positions), np.bool_)
    if run.copies:
        return places_of(source.stream_seed, positions) >= source.reduction
    return _sampled(positions, source.share, source.seed)


def _sampled(positions: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """Bernoulli by position: the same rows for the same seed."""
    return chosen_keys(position_start(seed, 0), positions) < np.uint64(share * 2.0**64)


def _us(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
