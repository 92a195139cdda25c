"""Footer of a run: its file name, its file metadata and its catalog entry, for every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa

from shedder.archive.encoding.parquet_encoding import basics_of
from shedder.archive.encoding.run_writer import WrittenFile
from shedder.archive.layouts.row_source import Rows
from shedder.archive.metadata.catalog_entries import Run, RunBasics, StreamEntry
from shedder.cql.statements.archive_layout import layout_text

FORMAT = "2"


def run_file(
    stream_id: int, first_position: int, end_position: int, reduction: float | None = None
) -> str:
    """A run's path below `runs/`, or that of a copy at a reduction."""
    copy = "" if reduction is None else f"-r{reduction!r}"
    return f"{stream_id}/{first_position:020d}-{end_position:020d}{copy}.parquet"


def rolled_file(stream_id: int, first_position: int, end_position: int, rollup_id: int) -> str:
    """The path below `runs/` of a run's partial aggregates."""
    return f"{stream_id}/{first_position:020d}-{end_position:020d}-w{rollup_id}.parquet"


def file_metadata(stream: StreamEntry, stretch: tuple[int, int], *, blocks: int) -> dict[str, str]:
    """What a file says of itself that is of the positions [stretch[0], stretch[1])."""
    return {
        "shedder.format": FORMAT,
        "shedder.stream": stream.schema.name,
        "shedder.stream_id": str(stream.id),
        "shedder.first_position": str(stretch[0]),
        "shedder.end_position": str(stretch[1]),
        "shedder.layout": layout_text(stream.schema.layout),
        "shedder.blocks": str(blocks),
        "shedder.seed": str(stream.schema.seed),
    }


@contextmanager
def basics_beside(table: pa.Table) -> Iterator[Callable[[], dict[str, RunBasics]]]:
    """Compute the basics of a table on another core while the block writes it.

    The block calls the yielded function for the result. If the block fails, the result is dropped.
    """
    beside = ThreadPoolExecutor(1, thread_name_prefix="shedder-basics")
    try:
        yield beside.submit(basics_of, table).result
    finally:
        beside.shutdown(wait=False, cancel_futures=True)


def described(
    stream: StreamEntry,
    rows: Rows,
    written: WrittenFile,
    basics: dict[str, RunBasics],
    *,
    blocks: int,
) -> Run:
    """The run that was written."""
    times = basics[stream.schema.time_column]
    assert isinstance(times.low, int)
    assert isinstance(times.high, int)
    return Run(
        stream_id=stream.id,
        first_position=rows.first_position,
        end_position=rows.end_position,
        file=written.name,
        size_bytes=written.size_bytes,
        crc=written.crc,
        low_us=times.low,
        high_us=times.high,
        layout=stream.schema.layout,
        basics=basics,
        blocks=blocks,
        footer=written.footer,
        purged=rows.purged,
    )
