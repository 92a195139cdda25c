"""Comparison of a repeated push with the push that a buffered producer has taken."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from shedder.engine.ingest.producer_sequences import Content
from shedder.errors import SequenceReused
from shedder.streams.content_fingerprint import fingerprint, joined
from shedder.streams.push_parts import Part


class Taken:
    """Compares the rows of one repeated push with the rows that were taken."""

    def __init__(
        self, producer: str, sequence: int, content: Callable[[int], Content | None]
    ) -> None:
        """content: returns the content taken under a number; None: not known."""
        self._producer = producer
        self._sequence = sequence
        self._content = content(sequence)
        self._fingerprint: int | None = 0

    def compare(self, batch: pa.RecordBatch, part: Part) -> None:
        """Compare the next repeated batch.

        Raises:
          SequenceReused: the push has other rows.
        """
        known = self._content
        if known is None:
            return
        end_row = part.first_row + batch.num_rows
        if end_row > known.rows or (part.is_last and end_row < known.rows):
            raise SequenceReused(self._producer, self._sequence, known.rows, end_row)
        if known.fingerprint is None:
            return
        self._fingerprint = joined(self._fingerprint, fingerprint(batch, part.first_row))
        if end_row == known.rows and self._fingerprint != known.fingerprint:
            raise SequenceReused.other_content(self._producer, self._sequence, end_row)
