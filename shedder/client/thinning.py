"""Thinning at the source: a random part of a batch goes, and what is known of the rest with it."""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow as pa

from shedder.cql.text.sampling_fractions import level_of
from shedder.streams.dropped_counts import Dropped


class SourceThinning:
    """Which rows of a producer's batches are sent. For one thread.

    Chance alone decides, by no number that the rows or the server have: what is kept is independent
    of the values, and of what the server keeps of it in turn.
    """

    def __init__(self, share: str) -> None:
        """share: of the rows that are sent: "1", "1/2", "1/4" …

        Raises:
          BadSetting: it is none.
        """
        self._level = level_of(share)
        self._rng = np.random.default_rng(secrets.randbits(128))

    def divide(
        self, batch: pa.RecordBatch, time_column: str
    ) -> tuple[pa.RecordBatch, Dropped | None]:
        """The rows that are sent, and what is to be known of the others; None: all are."""
        if not self._level or not batch.num_rows:
            return batch, None
        kept = self._rng.random(batch.num_rows) < 2.0**-self._level
        if kept.all():
            return batch, None
        left_out = Dropped.of(batch.filter(pa.array(~kept)), time_column)
        return batch.filter(pa.array(kept)), left_out
