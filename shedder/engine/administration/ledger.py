"""The ledger: where every tuple of a stream went."""

from __future__ import annotations

from shedder.engine.ingest.stream_intake import Intake
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.window_state.query_state import QueryState
from shedder.queries.answers.database_api import Ledger, QueryLedger


def ledger_of(stream: Stream, intake: Intake, *, backfilled: int, lost: int) -> Ledger:
    """The ledger of a live stream, as far as it has applied. On the apply thread."""
    return Ledger(
        stream=stream.schema.name,
        accepted=stream.accepted + intake.duplicate,
        applied=stream.applied,
        duplicate=intake.duplicate,
        refused_batches=intake.refused_batches,
        refused_rows=intake.refused_rows,
        late=stream.late,
        dropped=stream.drops.rows,
        summarised=stream.built,
        to_follow=stream.expected_rows.rows,
        deleted=sum(deletion.rows for deletion in stream.deletions()),
        backfilled=backfilled,
        lost=lost,
        queries=tuple(
            _query_ledger(name, standing_query.state)
            for name, standing_query in sorted(stream.queries.items())
        ),
    )


def _query_ledger(name: str, query_state: QueryState) -> QueryLedger:
    """Of the synopsis that has skipped the most."""
    thinned = max(query_state.thinned)
    return QueryLedger(name, query_state.timely - thinned, thinned, query_state.late)
