"""DELETE: rows of the archive are found once and marked; readers skip marked rows."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.runs.run_format import missing_text, read_run
from shedder.archive.store.snapshot import Snapshot
from shedder.archive.tasks.progress import Progress
from shedder.cql.binding.insert_checks import bind_rows
from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.statements.statement import Delete
from shedder.engine.one_time_queries.executor import check_retained
from shedder.engine.runtime.background_tasks import Watch
from shedder.engine.services import Services
from shedder.errors import CorruptData, Draining, InternalError
from shedder.queries.answers.answer import Answer
from shedder.streams.frame import Frame
from shedder.streams.windows import span_of


def delete(
    services: Services, statement: Delete, timeout_s: float | None, watch: Watch | None
) -> Answer:
    """Delete what is durable now and what the statement says; the answer comes when that is.

    Raises:
      UnknownStream, UnknownColumn, TypeMismatch, BadQuery, BeforeRetention; StreamInUse: row
      queries read the stream; DiskFull, StorageFailed; CorruptData: a run that may hold such rows
      cannot be read, and is in quarantine; Cancelled, DeadlineExceeded: and then nothing is
      deleted.
    """
    core = services.core
    stream = core.stream(statement.select.stream)
    core.check_unread(stream, "DELETE cannot take back the rows that they have made")
    query = bind_rows(statement.select, stream.schema)
    span = span_of(query.window, None)
    check_retained(core, stream, span)
    progress = Progress(f"delete of {stream.schema.name}", "rows")
    time_column = stream.schema.time_column
    columns = sorted({time_column, *query.columns})

    def found_in(run: Run, snapshot: Snapshot) -> NDArray[np.bool_]:
        mask = np.zeros(run.stretch, np.bool_)
        (path,) = snapshot.files.verified((run,), lambda _: progress.advance())
        for positions, batch in read_run(path, run, columns, progress.advance):
            rows = span.holds(Frame(batch, time_column).times_us)
            if query.where is not None:
                rows &= true_rows(evaluate(query.where, batch))
            mask[positions - run.first_position] = rows
            progress.advance(batch.num_rows)
        return mask

    def find() -> list[tuple[Run, NDArray[np.bool_]]]:
        # Afterwards all that is durable is in runs.
        services.cutter.seal(stream.schema.name, progress.advance)
        with core.store.snapshot(stream.id, span.start_us, span.end_us) as snapshot:
            if snapshot.missing:
                raise CorruptData(f"{missing_text(snapshot.missing[0])} are in quarantine")
            progress.expect(sum(run.rows for run in snapshot.runs))
            found = []
            for run in snapshot.runs:
                with core.store.quarantine.watched(run):
                    mask = found_in(run, snapshot)
                if mask.any():
                    found.append((run, mask))
            return found

    with services.tasks.running(progress, timeout_s=timeout_s, watch=watch):
        rows = core.store.deletions.delete(
            stream.id, statement.text, core.clock_us(), find, on_progress=progress.advance
        )
    if rows:
        with suppress(InternalError, Draining):  # Halted, or closed: what is deleted stays so.
            core.executor.call(stream.note_deleted).result()
    services.repair.wake()  # Rebuild panes of standing queries without the rows,
    services.relayouts.wake(stream.schema.name)  # ... and rollups.
    return Answer.status(f"{rows:,} rows deleted from {stream.schema.name}")
