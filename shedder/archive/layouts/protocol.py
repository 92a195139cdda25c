"""Protocol of layouts: write a closed range of positions as a run's files, and read it back.

How much of a run a scan may leave unread is the business of readable_part.py: what it needs to
know, the files themselves say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.layouts.row_source import Rows
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.tasks.progress import ProgressCallback


class ArchiveLayout(Protocol):
    """One way to lay out a run. Its two calls are stateless; any thread may make them."""

    def insert(
        self,
        place: RunPlace,
        stream: StreamEntry,
        rows: Rows,
        previous: Run | None = None,
    ) -> Run:
        """Write a closed stretch of a stream durably; the catalog has to be told afterwards.

        Args:
          place: where.
          stream: whose stretch it is.
          rows: that are written.
          previous: the run before it, if there is one.

        Raises:
          DiskFull, StorageFailed, Cancelled: nothing is in `runs/`.
        """

    def scan(
        self, path: Path, run: Run, columns: Sequence[str] | None, on_progress: ProgressCallback
    ) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        """All rows of a run in order of position, in batches of at most 65,536.

        Args:
          path: of the run's file, which must have been verified.
          run: what it is.
          columns: those that are wanted, all when None.
          on_progress: called between reads; what it raises ends the scan.

        Yields:
          positions, int64 [rows] and rising, and the rows.

        Raises:
          CorruptData: it is no Parquet file, or a page fails its checksum, or rows are missing.
        """
