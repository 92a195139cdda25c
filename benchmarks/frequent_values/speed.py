"""Most frequent values of windows of rows, beside exact counts"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.measure import Report
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column
from shedder.cql.plans.logical_plan import (
    Aggregated,
    BoundRelational,
    RelationKind,
    RowsWindow,
    Scan,
    WindowOf,
)
from shedder.cql.statements.statement import ColumnDefinition
from shedder.dataflow.dataflow import Dataflow
from shedder.engine.registration.list_lengths import LIST_FACTOR

VALUES, SKEW = 1_647, 1.1
WINDOW = 100_000
ROWS = 2 * WINDOW  # The window is full in the second half, which is timed.
BATCH_ROWS = 5_000
SLIDES = (20, 100, 500)
LENGTH = 10  # Values that are shown.
KEPT = LIST_FACTOR * LENGTH  # Values that each pane lists.
RECOUNTS = 20  # Of DuckDB, of which the fastest counts.
_BIGINT = ColumnType.BIGINT
_QUERY = f"SELECT k, COUNT(*) AS n FROM held GROUP BY k ORDER BY n DESC LIMIT {LENGTH}"

NOTES = (
    f"{WINDOW:,} tuples a window, {VALUES:,} values with Zipf's distribution, {SKEW:g}.",
    f"The {LENGTH} most frequent values at each slide, from lists of {KEPT}; one thread.",
    f"Batches have {BATCH_ROWS:,} rows.",
    "Exact counts are `GROUP BY` in Shedder with the same slide, which has the rows of all values.",
    "DuckDB counts the window, an Arrow table, again at each slide; its time is divided by it.",
    "Interval: of the value that is tenth in truth, as shares of its true count.",
    "Guaranteed: values for which the answer says that none without a row occurs more often.",
)


@dataclass(frozen=True, slots=True)
class ListsRun:
    """Bytes of the operators, CPU ns for each tuple with a full window, and the last rows."""

    size_bytes: int
    ns: float
    rows: pa.Table


def query(slide_rows: int, listed: int | None) -> BoundRelational:
    """Counts by value of the newest tuples. listed: rows that are shown; None: all, exactly."""
    scan = Scan("s", "s", RelationKind.STREAM, (ColumnDefinition("s.k", _BIGINT, False),), "s.ts")
    key = Column("s.k", _BIGINT)
    count = Aggregate(AggregateFunction.COUNT, key, type=_BIGINT)
    rows = WindowOf(scan, RowsWindow(WINDOW, slide_rows))
    return BoundRelational("", Aggregated(rows, (key,), (count,), listed=listed, kept=KEPT), ())


def values() -> np.ndarray:
    """The values of all tuples, numbered by falling share."""
    share = np.arange(1, VALUES + 1) ** -SKEW
    return np.random.default_rng(1).choice(VALUES, ROWS, p=share / share.sum())


def batches(keys: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Tuples, one a microsecond."""
    for first in range(0, ROWS, BATCH_ROWS):
        times = pa.array(np.arange(first, first + BATCH_ROWS)).cast(pa.timestamp("us"))
        part = pa.array(keys[first : first + BATCH_ROWS])
        yield pa.RecordBatch.from_arrays([part, times], names=["k", "ts"])


def measured(keys: np.ndarray, slide_rows: int, listed: int | None) -> ListsRun:
    """Push all tuples, and time the second half."""
    flow = Dataflow(query(slide_rows, listed), state_bytes_max=1 << 34)
    relation = flow.current_relation(1 << 34)
    spent_s = 0.0
    for step, batch in enumerate(batches(keys)):
        first = step * BATCH_ROWS
        began_s = time.process_time()
        flow.push("s", batch, first)
        changes = flow.advance({"s": first + BATCH_ROWS})
        if first >= WINDOW:
            spent_s += time.process_time() - began_s
        relation.add(first + BATCH_ROWS, changes)
    return ListsRun(flow.size_bytes, spent_s / (ROWS - WINDOW) * 1e9, relation.table(ROWS))


def recount_s(keys: np.ndarray) -> float:
    """Return CPU seconds in which DuckDB counts the values of one window."""
    session = duckdb.connect()
    session.execute("SET threads = 1")
    session.register("held", pa.table({"k": pa.array(keys[-WINDOW:])}))
    found = []
    for _ in range(RECOUNTS):
        began_s = time.process_time()
        session.execute(_QUERY).fetchall()
        found.append(time.process_time() - began_s)
    return min(found)


def run() -> Report:
    """Measure lists and exact counts at each slide, and DuckDB's counts of the same window."""
    keys = values()
    truth = np.bincount(keys[-WINDOW:], minlength=VALUES)
    tenth = int(np.argsort(-truth, kind="stable")[LENGTH - 1])
    again_s = recount_s(keys)
    rows = []
    for slide in SLIDES:
        lists, exact = (measured(keys, slide, listed) for listed in (LENGTH, None))
        found = {row["g0"]: row for row in lists.rows.to_pylist()}
        duck_ns = again_s / slide * 1e9
        rows.append(
            (
                f"SLIDE {slide}",
                f"{lists.size_bytes:,}",
                f"{exact.size_bytes:,}",
                f"{exact.size_bytes / lists.size_bytes:.0f}",
                f"{lists.ns:,.0f}",
                f"{exact.ns:,.0f}",
                f"{duck_ns:,.0f}",
                f"{duck_ns / lists.ns:,.1f}",
                str(sum(row["guaranteed"] for row in found.values())),
                _interval(found.get(tenth), int(truth[tenth])),
            )
        )
    return Report(
        claim="Lists of each pane save memory, not CPU; their intervals are certain.",
        columns=(
            "window",
            "bytes of lists",
            "of exact counts",
            "ratio",
            "ns a tuple, lists",
            "exact counts",
            "DuckDB",
            "ratio to DuckDB",
            "guaranteed",
            "interval",
        ),
        rows=rows,
        notes=NOTES,
    )


def _interval(row: dict[str, int] | None, truth: int) -> str:
    if row is None:
        return "not shown"
    low, high = row["a0_low"], row["a0_high"]
    assert low <= truth <= high, (low, truth, high)
    return f"{low / truth:.2f} to {high / truth:.2f}"
