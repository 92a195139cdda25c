"""Stores for tests of the archive: ingest, recovery, reads of all positions, deletes and purges."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.archive_store import Store
from shedder.archive.layouts.blocks import Block, Wanted
from shedder.archive.layouts.readable_part import ReadablePart
from shedder.archive.log.records import Batch, RecordType
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.runs.run_format import read_run
from shedder.archive.store.snapshot import Snapshot
from shedder.archive.tasks.progress import Progress
from shedder.cql.statements.archive_layout import Layout
from shedder.streams.batches import encode
from tests.archive.schemas import SCHEMA, batch


def part_blocks(snapshot: Snapshot, part: ReadablePart, wanted: Wanted) -> list[Block]:
    """Read a part of a run as REDUCE BY does: blocks of the run, or shells up to a copy."""
    if part.copy is None:
        return list(snapshot.read_blocks(part.run, part.blocks, wanted))
    shells = range(len(part.run.copies) - part.run.copies.index(part.copy))
    return list(snapshot.read_shells(part.run, shells, wanted, SCHEMA.seed))


def checkpoint(store: Store, sequence: int, parts: Mapping[str, bytes]) -> None:
    """Replace the checkpoint, and drop the segments of the log that nothing needs any more."""
    store.catalog.write_checkpoint(sequence, parts)
    store.trim_log()


def ingest(store: Store, first: int, rows: int) -> int:
    """Add a batch as the engine does: log, sync, tail. Return the record's sequence."""
    header = Batch(1, "p", 0, first, first, rows, 0)
    content = batch(first, rows)
    sequence = store.log.append(RecordType.BATCH, [header.to_bytes(), encode(content)])
    store.log.sync()
    store.add(1, first, content, sequence=sequence)
    return sequence


def recover(directory: Path) -> Store:
    """Open a directory again and read its log as the engine does."""
    store = Store.open(directory)
    for record in store.log.read(store.log.first_sequence):
        if record.kind == RecordType.BATCH:
            header = Batch.from_bytes(record.header)
            (content,) = pa.ipc.open_stream(record.body)
            store.add(header.stream, header.first_position, content, sequence=record.sequence)
    return store


def positions(store: Store, *args: Any) -> list[int]:
    """Return the serials of all rows, and check that each equals the row's position."""
    found: list[int] = []
    for first, rows in store.scan(1, *args):
        assert rows.num_rows <= 65_536
        assert rows["serial"].to_pylist() == list(range(first, first + rows.num_rows))
        found += rows["serial"].to_pylist()
    return found


def opened(directory: Path, layout: Layout, *sizes: int) -> Store:
    """Return a store with one stream of a layout and one run of each size."""
    store = Store.open(directory)
    store.create_stream(dataclasses.replace(SCHEMA, layout=layout))
    for size in sizes:
        ingest(store, store.end_position(1), size)
        store.cut(1)
    return store


def content(store: Store) -> str:
    """Return all rows as text, in which NaN equals NaN."""
    return repr(pa.Table.from_batches([rows for _, rows in store.scan(1)]).to_pydict())


def names(directory: Path) -> set[str]:
    """Return the files below `runs/1`."""
    return {f"1/{path.name}" for path in (directory / "runs" / "1").iterdir()}


def known(store: Store) -> set[str]:
    """Return the files that the runs of stream 1 name."""
    return {name for run in store.runs(1) for name in run.files}


def cancelled_after(steps: int) -> Callable[[], None]:
    """Return a callback for the steps of a rewrite or purge, which cancels after some steps."""
    progress = Progress("rewrite", "rows")
    left = iter(range(steps))

    def on_progress() -> None:
        if next(left, None) is None:
            progress.cancel()
        progress.advance()

    return on_progress


def delete(store: Store, gone: Callable[[int], bool]) -> int:
    """Mark the rows whose positions satisfy a predicate as deleted. Return their number."""

    def find() -> Iterator[tuple[Run, NDArray[np.bool_]]]:
        for run in store.runs(1):
            mask = np.zeros(run.stretch, bool)
            for places, _ in read_run(store.directory / "runs" / run.file, run, []):
                mask[places - run.first_position] = [gone(place) for place in places.tolist()]
            if mask.any():
                yield run, mask

    return store.deletions.delete(1, "DELETE", 7, lambda: list(find()))


def purge(store: Store) -> int:
    """Write all runs with deleted rows anew without these rows. Return the number of rows."""
    return sum(store.purger.purge(run) for run in store.purger.marked(1))
