"""Reading a stream in order of position: the runs of a snapshot, then its tail."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.layouts.plain import SCAN_ROWS
from shedder.archive.runs.run_format import missing_text, read_run
from shedder.archive.store.snapshot import Snapshot
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.errors import CorruptData

Live = NDArray[np.bool_] | None
"""Which rows of a batch are not deleted, bool [rows]; None: all."""


def scan_snapshot(
    snapshot: Snapshot,
    columns: Sequence[str] | None,
    from_position: int,
    on_progress: ProgressCallback = no_progress,
) -> Iterator[tuple[int, pa.RecordBatch, Live]]:
    """See Store.scan_live."""
    for run in snapshot.missing:
        if run.end_position > from_position:
            raise CorruptData(f"{missing_text(run)} are in quarantine and cannot be read")
    for run in snapshot.runs:
        if run.end_position > from_position:
            deleted = snapshot.deleted.get(run.first_position)
            live = None if deleted is None else ~deleted.mask(run)
            (path,) = snapshot.files.verified((run,), lambda _: on_progress())
            for positions, batch in read_run(path, run, columns, on_progress):
                if not batch.num_rows:
                    continue
                part = None if live is None else live[positions - run.first_position]
                for first, rows, held in _without_gaps(positions, batch, part):
                    yield from _after(from_position, first, rows, held)
    for first, batch in zip(snapshot.tail_positions, snapshot.tail, strict=True):
        wanted = batch if columns is None else batch.select(list(columns))
        for offset in range(0, batch.num_rows, SCAN_ROWS):
            rows = wanted.slice(offset, SCAN_ROWS)
            yield from _after(from_position, first + offset, rows, None)


def stretches(live: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The stretches of true, half open, in order."""
    edges = np.flatnonzero(np.diff(live.astype(np.int8), prepend=0, append=0))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def _without_gaps(
    positions: NDArray[np.int64], batch: pa.RecordBatch, live: Live
) -> Iterator[tuple[int, pa.RecordBatch, Live]]:
    """Rows at positions that follow each other: where some were purged, rows that are not live.

    So a purged run is told of in no more rows than it had before.
    """
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 == positions.size:
        yield first, batch, live
        return
    cuts = np.flatnonzero(np.diff((positions - first) // SCAN_ROWS)) + 1
    for begin, end in itertools.pairwise([0, *cuts.tolist(), positions.size]):
        part = positions[begin:end] - positions[begin]
        held = np.zeros(int(part[-1]) + 1, np.bool_)
        held[part] = True if live is None else live[begin:end]
        fill = np.searchsorted(part, np.arange(held.size), "right") - 1
        yield int(positions[begin]), batch.slice(begin, end - begin).take(fill), held


def _after(
    position: int, first: int, batch: pa.RecordBatch, live: Live
) -> Iterator[tuple[int, pa.RecordBatch, Live]]:
    """What of a batch, whose first row is at `first`, is at or after a position; maybe nothing."""
    skipped = max(0, position - first)
    if skipped < batch.num_rows:
        rest = None if live is None else live[skipped:]
        yield first + skipped, batch.slice(skipped), None if rest is None or rest.all() else rest
