"""The tuples that come: keys by Zipf's law, which may drift, and values with heavy tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.simulation.scenario import ScenarioStream

STREAM = "requests"
"""Of the default tenant."""
TABLE = "clients"
"""Of the default tenant."""
_FIELDS: list[pa.Field[Any]] = [
    pa.field("ts", pa.timestamp("us")),
    pa.field("key", pa.int64()),
    pa.field("value", pa.float64()),
    pa.field("size", pa.int64()),
    pa.field("ok", pa.bool_()),
]
SCHEMA = pa.schema(_FIELDS)
NO_TUPLES = pa.RecordBatch.from_pylist([], schema=SCHEMA)
TABLE_SCHEMA = pa.schema(
    [pa.field("key", pa.int64(), nullable=False), pa.field("shard", pa.int64())]
)
_STEPS = 32  # So many exponents between `skew` and `skew_to`, each of whose weights is kept.
_STRIDE = 2_654_435_761  # Knuth's multiplicative hash: far from neighbours at every drift.


def stream_of(tenant: str) -> str:
    """The name of a tenant's stream."""
    return f"{STREAM}_of_{tenant}" if tenant else STREAM


def create(stream: ScenarioStream, name: str = STREAM) -> str:
    """The statement that makes a stream like this."""
    lateness_us = round(1e6 * stream.lateness_s)
    return (
        f"CREATE STREAM {name} (ts TIMESTAMP, key BIGINT, value DOUBLE, size BIGINT, "
        f"ok BOOLEAN) TIMESTAMP BY ts LATENESS INTERVAL '{lateness_us}' MICROSECOND "
        f"ON OVERLOAD {stream.on_overload}"
    )


class Payload:
    """Draws batches. Values hang together with keys, so that a part that leaned to some would
    show.
    """

    def __init__(self, stream: ScenarioStream, seconds: float) -> None:
        self._stream = stream
        self._seconds = seconds
        self._cumulative: dict[float, NDArray[np.float64]] = {}

    def draw(
        self, rng: np.random.Generator, rows: int, *, start_us: int, end_us: int, zero_us: int
    ) -> pa.RecordBatch:
        """A batch whose event times lie in [start_us, end_us), in order.

        Args:
          rng: of the producer. zero_us: when the world began.
        """
        times = np.sort(rng.integers(start_us, max(end_us, start_us + 1), rows))
        at_s = (start_us - zero_us) / 1e6
        ranks = np.searchsorted(self._weights(at_s), rng.random(rows), side="right")
        keys = self._keys(ranks, at_s)
        spread = rng.normal(0.0, 1.0, rows)
        values = np.exp(self._stream.sigma * (spread + 0.25 * (keys % 5)))
        arrays: list[pa.Array[Any]] = [
            pa.array(times, pa.timestamp("us")),
            pa.array(keys),
            pa.array(values),
            pa.array(np.rint(100.0 * values).astype(np.int64)),
            pa.array(rng.random(rows) < 0.95),
        ]
        return pa.record_batch(arrays, schema=SCHEMA)

    def _weights(self, at_s: float) -> NDArray[np.float64]:
        """Of the ranks, cumulated up to 1."""
        first, last = self._stream.skew, self._stream.skew_to
        skew = first
        if last is not None:
            step = round(_STEPS * min(1.0, at_s / self._seconds))
            skew = first + (last - first) * step / _STEPS
        if skew not in self._cumulative:
            weights = np.arange(1, self._stream.keys + 1) ** -skew
            cumulative = np.cumsum(weights / weights.sum())
            cumulative[-1] = 1.0
            self._cumulative = {skew: cumulative}
        return self._cumulative[skew]

    def _keys(self, ranks: NDArray[np.int64], at_s: float) -> NDArray[np.int64]:
        """Return which key has which rank now."""
        if not self._stream.drift_s:
            return ranks
        moved = int(at_s / self._stream.drift_s)
        shifted: NDArray[np.int64] = (ranks + moved * (_STRIDE % self._stream.keys)) % (
            self._stream.keys
        )
        return shifted
