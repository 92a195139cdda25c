"""Two tenants with a stream each, and the batches that they send."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.engine.runtime.caller import Caller
from shedder.streams.batches import encode

ACME, BOLT = Caller("acme"), Caller("bolt")
CREATE = "CREATE STREAM {} (ts TIMESTAMP, x DOUBLE) TIMESTAMP BY ts"
SEND = {"producer": "", "epoch": 0, "sequence": None}
START = 1_000_000_000


def batch(rows):
    times = pa.array(np.full(rows, START), pa.timestamp("us"))
    return encode(pa.record_batch({"ts": times, "x": np.arange(rows, dtype=float)}))
