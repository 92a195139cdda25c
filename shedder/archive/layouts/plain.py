"""Plain: one copy, in order of position. The strawman that everything is measured against.

A purged run has the positions of its rows as a column; of others they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shedder.archive.encoding.parquet_encoding import row_group_rows
from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.layouts.row_source import Rows
from shedder.archive.layouts.run_footer import basics_beside, described, file_metadata, run_file
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.tasks.interruptible_call import aside
from shedder.archive.tasks.progress import ProgressCallback
from shedder.cql.sql.exact_query import POSITION
from shedder.errors import CorruptData

SCAN_ROWS = 65_536


class PlainLayout:
    """Rows as they came; a row's position is the run's first plus its index in the file."""

    def insert(
        self,
        place: RunPlace,
        stream: StreamEntry,
        rows: Rows,
        previous: Run | None = None,  # noqa: ARG002
    ) -> Run:
        """Write a closed stretch, see ArchiveLayout."""
        table, size = rows.table, row_group_rows(rows.table)
        groups = (table.slice(at, size) for at in range(0, table.num_rows, size))
        stretch = (rows.first_position, rows.end_position)
        metadata = file_metadata(stream, stretch, blocks=1)
        with basics_beside(rows.values) as basics:
            written = place.write(run_file(stream.id, *stretch), table, metadata, groups)
            found = aside(basics, place.on_progress)
        return described(stream, rows, written, found, blocks=1)

    def scan(
        self, path: Path, run: Run, columns: Sequence[str] | None, on_progress: ProgressCallback
    ) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        """The rows as they lie, see ArchiveLayout."""
        read, last = 0, run.first_position - 1
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                wanted = file.schema_arrow.names if columns is None else columns
                names = [name for name in wanted if name != POSITION]
                stored = [POSITION] if run.purged else []
                parts = file.iter_batches(SCAN_ROWS, columns=[*names, *stored], use_threads=False)
                for batch in parts:
                    on_progress()
                    if stored:
                        positions = batch.column(POSITION).to_numpy()
                    else:
                        first = run.first_position + read
                        positions = np.arange(first, first + batch.num_rows)
                    if (np.diff(positions, prepend=last) < 1).any():
                        raise CorruptData(f"{path} has positions out of order after {last}")
                    yield positions, batch.select(names).replace_schema_metadata(None)
                    read, last = read + batch.num_rows, int(positions[-1])
        except (OSError, pa.ArrowException) as error:
            raise CorruptData(f"cannot read {path}: {error}") from error
        if read != run.rows or last >= run.end_position:
            raise CorruptData(
                f"{path} has {read} rows up to position {last}, not {run.rows} up to "
                f"{run.end_position}"
            )
