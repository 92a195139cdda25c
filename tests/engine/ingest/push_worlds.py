"""Pushes of numbered rows, and the truth about what a stream must have of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import arrow_schema, encode
from shedder.streams.push_parts import in_parts

CREATE = "CREATE STREAM s (ts TIMESTAMP NOT NULL, push BIGINT, k BIGINT, t VARCHAR) TIMESTAMP BY ts"
STORED = "SELECT push, COUNT(*) AS n, SUM(k) AS total FROM s GROUP BY push"


def rows_of(push: int, rows: int) -> pa.Table:
    """The rows of one push; no other push has any of them."""
    k = np.arange(rows)
    return pa.table(
        {
            "ts": pa.array(k * 1_000, pa.timestamp("us")),
            "push": pa.array(np.full(rows, push)),
            "k": pa.array(k),
            "t": pa.array([f"{push}/{each}" for each in range(rows)], pa.string()),
        }
    )


@dataclass
class Truth:
    """How many rows of each push must be stored: all of those that were acknowledged."""

    rows: Counter[int] = field(default_factory=Counter)

    def check(self, database) -> None:
        """Compare with the archive; each row must be there once."""
        table = database.execute(STORED).table.to_pylist()
        found = {row["push"]: (row["n"], row["total"]) for row in table}
        wanted = {push: (n, n * (n - 1) // 2) for push, n in self.rows.items() if n}
        assert found == wanted


def push_in_part(
    engine: Engine, data: pa.Table, *, producer: str, sequence: int, parts: int
) -> int:
    """Push the first batches of a push and die; how many rows that was."""
    schema, done = engine.schema("s"), 0
    batches = conform(
        data, schema, rows_max=engine.ingest.limits.rows_max, limits=engine.ingest.limits
    )
    nothing = pa.RecordBatch.from_pylist([], arrow_schema(schema))
    for part, batch in islice(in_parts(batches, nothing, ends_at_error=False), parts):
        engine.append(
            "s",
            encode(batch),
            producer=producer,
            epoch=0,
            sequence=sequence,
            rows=batch.num_rows,
            part=part,
        ).result()
        done += batch.num_rows
    return done
