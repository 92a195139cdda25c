"""All operations of a client, apart from the connection that performs them."""

from __future__ import annotations

from typing import Final

from shedder.client.audit_operations import AuditOperations
from shedder.client.backfill_operations import BackfillOperations
from shedder.client.identifiers import OwnNames
from shedder.client.stream_operations import StreamOperations
from shedder.client.summary_operations import SummaryOperations


class Operations:
    """The operations of one client, by subject. Safe from any thread."""

    def __init__(self, *, patience_s: float) -> None:
        """patience_s: time for which a repeatable operation is tried again: see `connect`."""
        names = OwnNames()
        self.streams: Final = StreamOperations(names, patience_s=patience_s)
        self.summaries: Final = SummaryOperations(self.streams, names, patience_s=patience_s)
        self.backfill: Final = BackfillOperations(patience_s=patience_s)
        self.audit: Final = AuditOperations(patience_s=patience_s)
