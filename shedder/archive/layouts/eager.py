"""Eager, OSCAR's OnWriteReplicate: a pristine copy and sampled ones, written on arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.layouts.copies import left, write_copy
from shedder.archive.layouts.plain import PlainLayout
from shedder.archive.layouts.row_source import Rows
from shedder.archive.metadata.catalog_entries import Copy, Run, StreamEntry
from shedder.archive.tasks.interruptible_call import aside
from shedder.cql.statements.archive_layout import Eager


class EagerLayout(PlainLayout):
    """Plain, and a copy for each of the stream's reductions; a scan takes the one that suits it."""

    def insert(
        self,
        place: RunPlace,
        stream: StreamEntry,
        rows: Rows,
        previous: Run | None = None,  # noqa: ARG002
    ) -> Run:
        """Write a closed stretch and its copies, see ArchiveLayout."""
        assert isinstance(stream.schema.layout, Eager)
        return with_copies(place, stream, rows, stream.schema.layout.reductions)


def with_copies(
    place: RunPlace,
    stream: StreamEntry,
    rows: Rows,
    reductions: Sequence[float],
) -> Run:
    """Write a closed stretch in order of position, and copies at these rising reductions.

    Raises:
      DiskFull, StorageFailed, Cancelled: nothing is in `runs/`.
    """
    stretch = (rows.first_position, rows.end_position)
    with place.all_or_nothing():
        run = PlainLayout().insert(place, stream, rows)
        if not reductions:
            return run
        copies = write_copies(place, stream, stretch, rows.numbered(), reductions)
        return replace(run, copies=copies)


def write_copies(
    place: RunPlace,
    stream: StreamEntry,
    stretch: tuple[int, int],
    rows: pa.Table,
    reductions: Sequence[float],
) -> tuple[Copy, ...]:
    """Write copies of rows with positions at rising reductions, each out of the one before it.

    Raises:
      DiskFull, StorageFailed, Cancelled: nothing is in `runs/`.
    """
    copies = []
    with place.all_or_nothing():
        for reduction in reductions:
            rows = aside(partial(left, rows, stream.schema.seed, reduction), place.on_progress)
            copies.append(write_copy(place, stream, stretch, rows, reduction))
    return tuple(copies)
