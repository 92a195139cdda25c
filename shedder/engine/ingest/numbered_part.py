"""A part of a push with its number, after the check of that number and before the log."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.archive.log.records import PushEnd
from shedder.engine.ingest.producer_sequences import PushProgress
from shedder.streams.content_fingerprint import joined
from shedder.streams.push_parts import WHOLE, Part


@dataclass(frozen=True, slots=True, eq=False)
class NumberedPart:
    """A part of a push that is to be stored.

    producer: its name; "" is anonymous, and has no numbers.
    epoch, number: of the push. part: its place there. rows: of the part, as pushed.
    fingerprint: of its rows; None: not known.
    progress: of the producer before this part; None: it begins.
    stored_before: rows that came with the part and were stored before.
    """

    producer: str
    epoch: int
    number: int
    part: Part
    rows: int
    fingerprint: int | None
    progress: PushProgress | None
    stored_before: int = 0

    @property
    def push(self) -> PushEnd | None:
        """Return how far the push is with this part; None: the producer is anonymous."""
        if not self.producer:
            return None
        whole = self.fingerprint
        if self.part.first_row:
            assert self.progress is not None
            whole = joined(self.progress.fingerprint, whole)
        return PushEnd(self.part.first_row + self.rows, whole, self.part.is_last)


ANONYMOUS = NumberedPart("", 0, 0, WHOLE, 0, None, None)
