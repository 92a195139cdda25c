"""A part of a backfill: rows of the past as runs of the archive and panes of queries, and sent."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.catalog.backfill_table import Summarised
from shedder.archive.files.file_system import OsFiles
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.runs.external_run import SentFile
from shedder.archive.runs.run_format import write_run
from shedder.archive.store.retention_partitions import compartment_us, rows_within
from shedder.cql.statements.archive_layout import layout_from_text
from shedder.engine.rebuild.backfill import BackfillState
from shedder.engine.remote_summaries.summary_builder import Plans, QueryPlan, Summariser, bound
from shedder.engine.remote_summaries.wire_format import PaneSummary, Summaries
from shedder.errors import BatchTooLarge, FailedPrecondition
from shedder.streams.batch_conversion import conform
from shedder.streams.windows import PaneGrid

CHUNK_BYTES = 4 << 20
_TRIES = 5  # Of sending a part: a server that starts again has forgotten what was half sent.


class Receiver(Protocol):
    """Target of a backfill part: a client, or the backfills of an engine."""

    def write_backfill(
        self, stream: str, name: str, part: int, attempt: str, file: int, offset: int, data: bytes
    ) -> None:
        """Append bytes to a file of a part."""

    def finish_backfill_part(
        self,
        stream: str,
        name: str,
        part: int,
        attempt: str,
        *,
        rows: int,
        poison: int,
        sent: Sequence[SentFile],
        queries: dict[str, Summarised],
        summaries: bytes,
    ) -> None:
        """Note that a part is done."""


def send_part(
    receiver: Receiver,
    state: BackfillState,
    name: str,
    part: int,
    rows: pa.Table,
    *,
    poison: int = 0,
    watermark_us: int | None,
    runs: bool = True,
) -> None:
    """Write a part's rows as runs, build panes of them, and send both.

    Args:
      receiver: the service. state: of the backfill. name: its.
      part: the part's number.
      rows: that the stream takes, in any order.
      poison: how many rows were left out.
      watermark_us: of the stream when it adopts this; windows before it need no panes.
      runs: send them; else panes alone, of a part whose runs were sent before.

    Raises:
      BatchTooLarge: its panes are. BadBatch, SchemaMismatch, BadTimestamp: they are refused.
      DiskFull, StorageFailed: here or there. Unreachable, Overloaded: tried for a while.
    """
    plans = Plans.from_json(state.plans)
    times = rows[plans.schema.time_column].cast(pa.int64()).to_numpy()
    rows = rows.take(np.argsort(times, kind="stable")).combine_chunks()
    queries = {
        q.name: Summarised(q.text, needed_from(plans, q, watermark_us)) for q in plans.queries
    }
    position = state.first_position + part * state.part_positions
    summaries = summarised(plans, rows, queries, position).to_bytes()
    if len(summaries) > plans.limits.bytes_max:
        raise BatchTooLarge(
            f"the panes of part {part} take {len(summaries):,} bytes; a message may have "
            f"{plans.limits.bytes_max:,}: make more parts of fewer rows"
        )
    with TemporaryDirectory(prefix="shedder-part-") as scratch:
        written = list(_written(Path(scratch), state, plans, part, rows)) if runs else []
        for last in range(_TRIES - 1, -1, -1):
            attempt = secrets.token_hex(8)
            try:
                for number, run in enumerate(written):
                    path = Path(scratch) / "runs" / run.file
                    _send(receiver, plans.schema.name, name, part, attempt, number, path)
                receiver.finish_backfill_part(
                    plans.schema.name,
                    name,
                    part,
                    attempt,
                    rows=rows.num_rows,
                    poison=poison,
                    sent=[
                        SentFile(run.first_position, run.end_position, run.size_bytes, run.crc)
                        for run in written
                    ],
                    queries=queries,
                    summaries=summaries,
                )
            except FailedPrecondition:
                if not last:
                    raise
            else:
                return


def needed_from(plans: Plans, query: QueryPlan, watermark_us: int | None) -> int | None:
    """The event time from which a query's present and future windows need tuples; None: all."""
    grid = PaneGrid.of(bound(plans.schema, query).window)
    first = grid.first_needed(watermark_us)
    return None if first is None or grid.width_us is None else first * grid.width_us


def summarised(
    plans: Plans, rows: pa.Table, queries: dict[str, Summarised], position: int
) -> Summaries:
    """The panes of each query, of rows in order of time, from where it needs them.

    position: of the first row, as in its run.
    """
    column = rows[plans.schema.time_column].cast(pa.int64()).to_numpy()
    panes: list[PaneSummary] = []
    for query in plans.queries:
        from_us = queries[query.name].from_us
        first = 0 if from_us is None else int(np.searchsorted(column, from_us))
        made = Summariser(replace(plans, queries=(query,)), position + first)
        for batch in conform(rows.slice(first), plans.schema, limits=plans.limits):
            made.add(batch)
        panes += made.summaries().panes
    ends = (int(column[0]), int(column[-1])) if column.size else (0, 0)
    return Summaries(rows.num_rows, *ends, tuple(panes))


def _written(
    scratch: Path, state: BackfillState, plans: Plans, part: int, rows: pa.Table
) -> Iterator[Run]:
    """Runs below a directory, as the service would have written them of rows in this order."""
    (scratch / "tmp").mkdir()
    layout = layout_from_text(state.layout)
    entry = StreamEntry(state.stream_id, replace(plans.schema, seed=state.seed, layout=layout))
    first = state.first_position + part * state.part_positions
    times = rows[plans.schema.time_column].cast(pa.int64()).to_numpy()
    at = 0
    while at < rows.num_rows:
        count = _rows_of_run(times[at:], state.run_rows, compartment_us(plans.schema.retain_us))
        batches = rows.slice(at, count).to_batches()
        yield write_run(OsFiles(), scratch, entry, first + at, batches)
        at += count


def _rows_of_run(times_us: NDArray[np.int64], run_rows: int, width_us: int | None) -> int:
    """Return the number of first rows that a run takes, with a small rest."""
    rows = len(times_us)
    if width_us is not None:
        rows = rows_within([times_us], width_us)
    return rows if rows <= run_rows * 3 // 2 else run_rows


def _send(
    receiver: Receiver, stream: str, name: str, part: int, attempt: str, number: int, path: Path
) -> None:
    with path.open("rb") as file:
        offset = 0
        while data := file.read(CHUNK_BYTES):
            receiver.write_backfill(stream, name, part, attempt, number, offset, data)
            offset += len(data)
