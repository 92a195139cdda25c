"""A stream of one batch per second, and the grants of its standing queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import shedder
from shedder.engine.apply.size_records import shrinks
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment

SECOND = 1_000_000
START = 1_700_000_000
CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts"
WINDOW = "[RANGE INTERVAL '8' SECOND SLIDE INTERVAL '1' SECOND]"


def second(number: int, rows: int = 1_000) -> pa.Table:
    """One second of the stream."""
    rng = np.random.default_rng(number)
    times = (START + number) * SECOND + np.sort(rng.integers(0, SECOND, rows))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": rng.integers(0, 20_000, rows),
            "v": rng.random(rows),
        }
    )


def opened(directory: Path) -> Engine:
    engine = shedder.open(directory, checkpoint_seconds=1e6, allocation_seconds=1e6)
    assert isinstance(engine, Engine)
    return engine


def inside(answer: Any, pushed: Sequence[pa.Table]) -> pa.Table:
    """The tuples in an answer's window."""
    whole = pa.concat_tables(pushed)
    times = np.asarray(whole["ts"].cast(pa.int64()))
    return whole.filter(pa.array((times >= answer.start_us) & (times < answer.end_us)))


def reallocate(db: Engine) -> None:
    """Allocate memory to the standing queries now, as setting the budget again does."""
    db.budgets.set_synopsis_bytes(db.core.synopsis_bytes_set)


def log_registers(db: Engine) -> dict[str, int]:
    """The size of each query's last synopsis, once all records of sizes are in force."""
    while db.core.executor.call(lambda: shrinks(db.core)).result():
        pass
    db.heartbeat("s", START * SECOND)  # Behind them in the log.
    return {
        name: standing_query.state.plan.parts[-1].size
        for name, standing_query in db.core.streams["s"].queries.items()
    }


def explained(db: Engine, name: str, synopsis: str) -> dict[str, Any]:
    [row] = [
        row
        for row in db.execute("EXPLAIN ALLOCATION").table.to_pylist()
        if row["query"] == name and row["synopsis"].startswith(synopsis)
    ]
    return row


class Advanced(Environment):
    """This machine, with a clock that is moved on by hand."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s
