"""Notes of an answer of rows: per stream, the tuples that its rows lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shedder.archive.metadata.position_gaps import lost_text
from shedder.archive.runs.run_format import missing_text
from shedder.engine.one_time_queries.damaged_run_bounds import RUNS_NAMED_MAX
from shedder.engine.one_time_queries.row_sources import RowSource


def notes_of(sources: Sequence[RowSource]) -> tuple[str, ...]:
    """The notes of all sources; a stream that is read twice has each note once."""
    return tuple(dict.fromkeys(note for source in sources for note in _notes(source)))


def _notes(source: RowSource) -> Iterator[str]:
    stream, stretch = source.schema.name, source.stretch
    missing, holes = source.missing, source.snapshot.holes
    if missing:
        rows = sum(run.rows for run in missing)
        yield f"stream {stream}: up to {rows:,} rows are missing, because their runs are damaged"
        for run in missing[:RUNS_NAMED_MAX]:
            yield f"stream {stream}: missing: {missing_text(run)}".rstrip(",")
        if len(missing) > RUNS_NAMED_MAX:
            yield f"stream {stream}: missing: {len(missing) - RUNS_NAMED_MAX:,} more runs"
    for hole in holes[:RUNS_NAMED_MAX]:
        yield f"stream {stream}: missing: {lost_text(hole)}"
    if len(holes) > RUNS_NAMED_MAX:
        yield f"stream {stream}: missing: {len(holes) - RUNS_NAMED_MAX:,} more stretches"
    if stretch.built:
        yield (
            f"stream {stream}: {stretch.built:,} tuples came as summaries, which standing queries "
            "alone know; they are not among the rows"
        )
    if stretch.dropped:
        yield (
            f"stream {stream}: {stretch.dropped:,} tuples were dropped under overload, or before "
            "they came; they are not among the rows"
        )
    if stretch.doubted:
        yield f"stream {stream}: {stretch.doubted}"
