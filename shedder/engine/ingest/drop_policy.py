"""Drop policies: the choice of a batch's tuples to drop on admission."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.statements.overload_policy import OnOverload, Policy
from shedder.streams.dropped_counts import Dropped
from synopses.histogram.log_histogram import GroupedLogBuckets

REMEMBERED = 1 << 17  # Values, of each of two generations, that DROP LEAST compares with.


class DropPolicy:
    """Chooses by chance, or by value. One per stream; used under the lock of its door.

    share: of the tuples, what is let in; 1: all of them. Set by the overload controller, by any
    thread.
    """

    def __init__(self, policy: OnOverload, time_column: str, seed: int) -> None:
        """Drop nothing yet.

        Args:
          policy, time_column: of the stream. seed: of the coins.
        """
        self.share = 1.0
        self._policy = policy
        self._time_column = time_column
        self._rng = np.random.default_rng(seed)
        self._recent = [GroupedLogBuckets(1), GroupedLogBuckets(1)]

    def let_in(self, share: float) -> None:
        """Let this share of the tuples in from now on. From any thread."""
        self.share = share

    def divide(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Dropped | None]:
        """The tuples that stay, and what is to be known of the others; None: all stay."""
        values = self._values(batch)
        share = self.share
        if share >= 1.0 or not batch.num_rows:
            return batch, None
        kept = self._chosen(batch.num_rows, values, share)
        if kept.all():
            return batch, None
        gone = batch.filter(pa.array(~kept))
        return batch.filter(pa.array(kept)), Dropped.of(gone, self._time_column)

    def _values(self, batch: pa.RecordBatch) -> NDArray[np.float64] | None:
        """What the tuples are worth; NaN where nothing is known, which is worth the least."""
        if self._policy.policy is not Policy.DROP_LEAST:
            return None
        assert self._policy.column is not None
        column: pa.Array[Any] = batch.column(self._policy.column)
        # Whole numbers beyond 2^53 are rounded: the summary could not tell them apart anyway.
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        known = values[~np.isnan(values)]
        if int(self._recent[1].counts[0]) + len(known) > REMEMBERED:
            self._recent = [self._recent[1], GroupedLogBuckets(1)]
        self._recent[1].update(None, known)
        return values

    def _chosen(
        self, rows: int, values: NDArray[np.float64] | None, share: float
    ) -> NDArray[np.bool_]:
        coins = self._rng.random(rows) < share
        if values is None:
            return coins
        older, newer = self._recent
        recent = GroupedLogBuckets.from_bytes(newer.to_bytes()).merge(older)
        limit = recent.quantile(1.0 - share)
        low, high = float(limit.low[0]), float(limit.high[0])
        # Of those that the summary cannot tell from the limit, chance decides.
        return (values > high) | ((values >= low) & (values <= high) & coins)
