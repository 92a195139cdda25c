"""Hybrid, OSCAR's RandomizeThenSort: tuples dealt at random into blocks, each sorted by time.

Any k of the R blocks are a simple random sample without replacement of the run
(synopses/samples/random_partition.py has the argument), so k/R of the bytes give k/R of the tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shedder.archive.encoding.run_writer import RunPlace, WrittenFile
from shedder.archive.layouts.plain import SCAN_ROWS
from shedder.archive.layouts.random_partition import dealt
from shedder.archive.layouts.row_source import Rows
from shedder.archive.layouts.run_footer import basics_beside, described, file_metadata, run_file
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.tasks.interruptible_call import aside
from shedder.archive.tasks.progress import ProgressCallback
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Hybrid
from shedder.errors import CorruptData
from synopses.samples.random_partition import block_sizes, undealt


class HybridLayout:
    """A row group per block; each row has its position, so that the run can be merged back."""

    def insert(
        self,
        place: RunPlace,
        stream: StreamEntry,
        rows: Rows,
        previous: Run | None = None,  # noqa: ARG002
    ) -> Run:
        """Write a closed stretch, see ArchiveLayout."""
        schema = stream.schema
        assert isinstance(schema.layout, Hybrid)
        count = rows.table.num_rows
        blocks, halvings = schema.layout.blocks_of(count), schema.layout.halvings_of(count)
        sizes = block_sizes(count, blocks, halvings)
        table = aside(
            lambda: dealt(rows, schema.time_column, seed=schema.seed, sizes=sizes),
            place.on_progress,
        )
        with basics_beside(
            table.drop_columns([POSITION])
        ) as basics:  # Dealing has both cores for itself.
            written = self._write(place, stream, rows, table, sizes)
            found = aside(basics, place.on_progress)
        run = described(stream, rows, written, found, blocks=sizes.size)
        return replace(run, halvings=halvings)

    def _write(
        self,
        place: RunPlace,
        stream: StreamEntry,
        rows: Rows,
        table: pa.Table,
        sizes: NDArray[np.int64],
    ) -> WrittenFile:
        """Write the dealt rows, a row group per block."""
        begins = [0, *accumulate(sizes.tolist())]
        groups = (table.slice(at, size) for at, size in zip(begins, sizes.tolist(), strict=False))
        stretch = (rows.first_position, rows.end_position)
        metadata = file_metadata(stream, stretch, blocks=sizes.size)
        # Of a random block, other ranges are the run's, and would double what one block costs.
        ranges = (stream.schema.time_column, POSITION)
        return place.write(run_file(stream.id, *stretch), table, metadata, groups, ranges)

    def scan(
        self, path: Path, run: Run, columns: Sequence[str] | None, on_progress: ProgressCallback
    ) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        """The rows merged back, see ArchiveLayout. It holds the wanted columns of the whole run.

        A run in memory is about as large as the tail that it once was, which has its own limit.
        """
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                positions = _read(file, [POSITION], on_progress)[POSITION].to_numpy()
                order = aside(lambda: _order(positions, run, path), on_progress)
                wanted = file.schema_arrow.names if columns is None else columns
                names = [name for name in wanted if name != POSITION]
                table = _read(file, names or [POSITION], on_progress)
        except (OSError, pa.ArrowException) as error:
            raise CorruptData(f"cannot read {path}: {error}") from error
        table = table.replace_schema_metadata(None)
        table = aside(table.combine_chunks, on_progress)
        for at in range(0, run.rows, SCAN_ROWS):
            on_progress()
            rows = order[at : at + SCAN_ROWS]
            (batch,) = table.take(rows).combine_chunks().to_batches()
            yield positions[rows], batch.select(names)


def _read(file: pq.ParquetFile, columns: Sequence[str], on_progress: ProgressCallback) -> pa.Table:
    """Columns of all blocks."""
    parts = []
    for block in range(file.num_row_groups):
        on_progress()
        parts.append(file.read_row_group(block, columns=list(columns), use_threads=False))
    return pa.concat_tables(parts)


def _order(positions: NDArray[np.int64], run: Run, path: Path) -> NDArray[np.int64]:
    """The place in the file of each row of the run, in order of position. Shape [rows].

    Raises:
      CorruptData: the positions are not those of the run, each once.
    """
    order = undealt(positions, run.first_position, run.stretch)
    if order is None or order.size != run.rows:
        raise CorruptData(
            f"{path} does not hold {run.rows} positions of {run.first_position} to "
            f"{run.end_position} (excluded) once each"
        )
    return order
