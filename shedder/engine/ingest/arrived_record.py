"""A batch or summaries between the intake of a stream and its panes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from shedder.archive.log.records import Batch, Built
from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.engine.remote_summaries.validation import ValidatedSummaries
from shedder.streams.dropped_counts import Dropped


@dataclass(slots=True, eq=False)
class PendingRecord:
    """A batch, or what was built of tuples elsewhere, on its way from the log to the panes.

    dropped: what was dropped at the door, or left out, of the batch that this is the rest of.
    accepted: the door's own count of rows, replays aside, when this one was durable; the ledger
    compares it with what was applied.
    newest_us: the newest event time that is believed; None: there is none.
    """

    header: Batch | Built
    content: pa.RecordBatch | ValidatedSummaries
    accepted: int = 0
    dropped: Dropped | None = None
    tenant: str = DEFAULT_TENANT
    newest_us: int | None = None

    def number(self, accepted: int) -> None:
        """Note the rows accepted up to this record, which is durable now."""
        self.accepted = accepted

    def believe(self, newest_us: int | None) -> None:
        """Note the newest event time that is believed."""
        self.newest_us = newest_us
