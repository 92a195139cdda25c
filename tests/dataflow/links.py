"""Links of a network: tuples with a source, a target and a protocol (Golab 2006, section 3.6)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.plans.logical_plan import BoundRelational
from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.join_order import StreamStatistics
from tests.cql.relations import Relations, stream

LINKS = ("link1", "link2", "link3")
SCHEMAS = {
    name: stream(name, src=ColumnType.BIGINT, dst=ColumnType.BIGINT, protocol=ColumnType.BIGINT)
    for name in LINKS
}
FTP = 1


def ticks(count: int) -> str:
    return f"INTERVAL '{count / 1e6:.6f}' SECOND"


def bound(text: str, window: int) -> BoundRelational:
    """A query over links. {w}: its window, in ticks of 1 us; {s}: an eighth of it."""
    streams = Relations({name: (schema, []) for name, schema in SCHEMAS.items()})
    return streams.bound(text.format(w=ticks(window), s=ticks(window // 8)))


def flow(
    text: str,
    window: int,
    expiry: Expiry = Expiry.PATTERN,
    statistics: dict[str, StreamStatistics] | None = None,
) -> Dataflow:
    query = bound(text, window)
    return Dataflow(query, state_bytes_max=1 << 32, expiry=expiry, statistics=statistics)


def traffic(tuples: int, sources: int, base: int) -> list[dict[str, pa.RecordBatch]]:
    """Batches of 100 ticks; each tick has a tuple of each link."""
    dice = np.random.default_rng(base)
    parts = []
    for first in range(0, tuples, 100):
        part = {}
        for name in LINKS:
            columns = {
                "src": dice.integers(0, sources, 100),
                "dst": dice.integers(0, 5, 100),
                "protocol": dice.integers(0, 2, 100),
                "ts": pa.array(range(first, first + 100), pa.timestamp("us")),
            }
            part[name] = pa.record_batch(columns)
        parts.append(part)
    return parts
