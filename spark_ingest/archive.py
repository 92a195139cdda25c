"""An archive as a DataFrame: the time range prunes runs and blocks, a reduction leaves blocks out.

Executors read the blocks with Shedder's own reader, against the checksums of the catalog. Of a
run in blocks (hybrid), any k are a simple random sample of it; of other layouts rows are sampled by
the hash of their positions. SHARE says of each row's run which share of it was read: weigh sums and
counts by 1 / SHARE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from shedder.archive.catalog import Catalog
from shedder.archive.deletions import Deleted
from shedder.archive.entries import Run
from shedder.archive.files import OsFiles
from shedder.archive.layouts.blocks import Wanted, read_blocks
from shedder.cql.query import StreamSchema
from shedder.cql.render import POSITION
from shedder.errors import BadReduction, UnknownColumn, UnknownStream
from shedder.streams.batches import arrow_schema
from spark_ingest.session import check_spark, without_pandas
from synopses.hashing import chosen_keys, position_start

SHARE = "__share"
_ROWS_MAX = 65_536  # of a batch on its way to Spark


@dataclass(frozen=True, slots=True)
class _Task:
    """Blocks of one run. keep: of their rows, where not all; share: of the run's, in all."""

    run: Run
    blocks: tuple[int, ...]
    keep: float
    share: float
    deleted: Deleted | None


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
    """What is in the runs of a stream, without rows that were deleted.

    The directory must be where executors can read it. A server may be serving it; what is in its
    log and not in a run yet is not there (`db.seal(stream)` before).

    Args:
      spark: the session. directory: of the data. stream: its name.
      columns: of the stream; None: all.
      start, end: event times [start, end); without a zone they are UTC.
      reduction: the share that is left unread, in [0, 1).
      seed: of the choice of blocks and rows.

    Returns:
      The columns, POSITION, and SHARE: of the row's run, the share that was read.

    Raises:
      UnknownStream, UnknownColumn. BadReduction: it is outside of [0, 1).
      CorruptData, StorageFailed: from an action, if a file is damaged or gone.
      UnsupportedSpark: the session is of a Spark that is too old.
    """
    check_spark(spark.version)
    if not 0 <= reduction < 1:
        raise BadReduction(f"reduction is {reduction}; it must be in [0, 1)")
    schema, runs, deleted = _of_catalog(directory, stream)
    wanted_fields = arrow_schema(schema)
    names = list(columns) if columns is not None else wanted_fields.names
    for name in names:
        if name not in wanted_fields.names:
            raise UnknownColumn(name, wanted_fields.names)
    start_us, end_us = _us(start), _us(end)
    wanted = Wanted(schema.time_column, (*names, POSITION), start_us, end_us)
    rng = np.random.default_rng(seed)
    tasks = [
        task
        for run in runs
        if run.overlaps(start_us, end_us)
        for task in _tasks(run, deleted.get(run.first_position), reduction, rng)
    ]
    fields = [wanted_fields.field(name) for name in names]
    out = pa.schema([*fields, pa.field(POSITION, pa.int64()), pa.field(SHARE, pa.float64())])
    frame = spark.createDataFrame([(at,) for at in range(len(tasks))], "task long")
    frame = frame.repartition(max(1, len(tasks)), "task")
    reader = _reader(tasks, directory / "runs", wanted, out, seed)
    with without_pandas():
        return frame.mapInArrow(reader, from_arrow_schema(out, prefer_timestamp_ntz=False))


def _of_catalog(directory: Path, stream: str) -> tuple[StreamSchema, list[Run], dict[int, Deleted]]:
    catalog = Catalog.open(directory / "catalog.sqlite", read_only=True)
    try:
        known = {entry.schema.name: entry for entry in catalog.streams()}
        if stream not in known:
            raise UnknownStream(stream, list(known))
        entry = known[stream]
        deleted = {first: mark for (of, first), mark in catalog.deleted().items() if of == entry.id}
        return entry.schema, list(catalog.runs(entry.id)), deleted
    finally:
        catalog.close()


def _tasks(
    run: Run, deleted: Deleted | None, reduction: float, rng: np.random.Generator
) -> Iterator[_Task]:
    """A run's blocks, one task each; rows are sampled where there is but one block.

    Blocks are equal, and any of them are a simple random sample; the last one may lie in parts.
    """
    if run.blocks > 1:
        equal = run.blocks - len(run.small_blocks)
        blocks: list[tuple[int, ...]] = [(number,) for number in range(equal)]
        if equal < run.blocks:
            blocks.append(tuple(range(equal, run.blocks)))
        taken = max(1, round((1 - reduction) * len(blocks)))
        chosen = [blocks[at] for at in np.sort(rng.choice(len(blocks), taken, replace=False))]
        rows = sum(int(run.block_sizes[list(numbers)].sum()) for numbers in chosen)
        for numbers in chosen:
            yield _Task(run, numbers, 1.0, rows / run.rows, deleted)
    else:
        yield _Task(run, (0,), 1 - reduction, 1 - reduction, deleted)


def _reader(
    tasks: Sequence[_Task], root: Path, wanted: Wanted, out: pa.Schema, seed: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy().tolist():
                yield from _rows(tasks[number], root, wanted, out, seed)

    return read


def _rows(
    task: _Task, root: Path, wanted: Wanted, out: pa.Schema, seed: int
) -> Iterator[pa.RecordBatch]:
    path = root / task.run.file
    for block in read_blocks(OsFiles(), path, task.run, task.blocks, wanted):
        positions = block.table[POSITION].to_numpy()
        kept = np.ones(len(positions), np.bool_)
        if task.deleted is not None:
            kept &= ~task.deleted.mask(task.run)[positions - task.run.first_position]
        if task.keep < 1:
            kept &= _sampled(positions, task.keep, seed)
        table = block.table.filter(pa.array(kept))
        share = pa.array(np.full(len(table), task.share))
        table = table.append_column(pa.field(SHARE, pa.float64()), share)
        yield from table.cast(out).to_batches(max_chunksize=_ROWS_MAX)


def _sampled(positions: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """Bernoulli by position: the same rows for the same seed."""
    return chosen_keys(position_start(seed, 0), positions) < np.uint64(share * 2.0**64)


def _us(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
