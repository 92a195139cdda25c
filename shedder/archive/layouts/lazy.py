"""Lazy, OSCAR's OnReadModify: plain on arrival; queries and the vacuum make the reduced copy."""

from __future__ import annotations

from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.layouts.eager import with_copies
from shedder.archive.layouts.plain import PlainLayout
from shedder.archive.layouts.row_source import Rows
from shedder.archive.metadata.catalog_entries import Run, StreamEntry


class LazyLayout(PlainLayout):
    """Plain; and where the run before has a copy, one at its reduction, as the paper says."""

    def insert(
        self,
        place: RunPlace,
        stream: StreamEntry,
        rows: Rows,
        previous: Run | None = None,
    ) -> Run:
        """Write a closed stretch, see ArchiveLayout."""
        copies = () if previous is None else previous.copies
        reductions = [copy.reduction for copy in copies]
        return with_copies(place, stream, rows, reductions)
