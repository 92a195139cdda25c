"""Row queries that share operators beside the same queries that stand alone"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from benchmarks.measure import Report
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Call, Column, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    BoundRelational,
    Join,
    JoinKind,
    Plan,
    RelationKind,
    RowsWindow,
    Scan,
    WindowOf,
)
from shedder.cql.statements.statement import ColumnDefinition, RangeWindow
from shedder.cql.statements.table_schema import TableSchema
from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.sharing.source_graph import Agrees

KEYS = 30_000
WINDOW = 30_000  # Tuples and microseconds: one tuple a microsecond.
BATCH_ROWS = 4_096
TABLE_ROWS = 1_000
STEPS = 16  # The windows are full after 8 of them; the rest is measured.
COUNTS = (1, 10, 100)
_BIGINT = ColumnType.BIGINT
TABLE = TableSchema(
    "c", tuple(ColumnDefinition(name, _BIGINT, False) for name in ("k", "n")), ("k",)
)

NOTES = (
    f"Windows of {WINDOW:,} tuples with {KEYS:,} uniform keys; batches of {BATCH_ROWS:,} rows.",
    "Bytes are those of all operators and waiting tuples; what several queries read counts once.",
    "CPU is that of pushes and steps of all queries in one thread, for each tuple of each stream.",
    "Rows that are kept for subscribers, and current relations, are not measured.",
    f"The table c has {TABLE_ROWS:,} rows and is not RETROACTIVE; each query has its own versions.",
    "In the last row, six queries have aggregates of their own over one window of rows.",
)


def window(alias: str, stream: str, size: int = WINDOW) -> WindowOf:
    """The newest tuples of a stream by event time."""
    columns = tuple(ColumnDefinition(f"{alias}.{name}", _BIGINT, False) for name in ("k", "v"))
    scan = Scan(stream, alias, RelationKind.STREAM, columns, f"{alias}.ts")
    return WindowOf(scan, RangeWindow(size, 1))


def joined(number: int, other: str = "s", key: str = "k", size: int = WINDOW) -> Plan:
    """r joined with another stream, under aliases of one query."""
    left, right = f"a{number}", f"b{number}"
    keys = (Column(f"{left}.{key}", _BIGINT), Column(f"{right}.{key}", _BIGINT))
    condition = Call(Op.EQ, keys, ColumnType.BOOLEAN)
    return Join(JoinKind.INNER, window(left, "r", size), window(right, other, size), condition)


def with_table(number: int) -> Plan:
    """r joined with s, and that with the rows of c."""
    alias = f"c{number}"
    columns = tuple(ColumnDefinition(f"{alias}.{name}", _BIGINT, False) for name in ("k", "n"))
    keys = (Column(f"a{number}.k", _BIGINT), Column(f"{alias}.k", _BIGINT))
    condition = Call(Op.EQ, keys, ColumnType.BOOLEAN)
    table = Scan("c", alias, RelationKind.TABLE, columns, None)
    return Join(JoinKind.INNER, joined(number), table, condition)


def with_third(number: int) -> Plan:
    """r joined with s, and that with t."""
    alias = f"c{number}"
    keys = (Column(f"a{number}.k", _BIGINT), Column(f"{alias}.k", _BIGINT))
    condition = Call(Op.EQ, keys, ColumnType.BOOLEAN)
    return Join(JoinKind.INNER, joined(number), window(alias, "t"), condition)


def aggregated(number: int) -> Plan:
    """One of six aggregates over the newest tuples of r."""
    alias = f"a{number}"
    rows = WindowOf(window(alias, "r").input, RowsWindow(WINDOW))
    key, size = Column(f"{alias}.k", _BIGINT), Column(f"{alias}.v", _BIGINT)
    functions = (AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.AVG)
    function = functions[number % len(functions)]
    kind = ColumnType.DOUBLE if function is AggregateFunction.AVG else _BIGINT
    grouped = (key,) if number % 2 else ()
    return Aggregated(rows, grouped, (Aggregate(function, size, type=kind),))


def largest(number: int) -> Plan:
    """MAX over the newest tuples of r, by key."""
    alias = f"a{number}"
    most = Aggregate(AggregateFunction.MAX, Column(f"{alias}.v", _BIGINT), type=_BIGINT)
    return Aggregated(window(alias, "r"), (Column(f"{alias}.k", _BIGINT),), (most,))


def batch(stream: str, first: int) -> pa.RecordBatch:
    """Tuples with uniform keys, one a microsecond."""
    random = np.random.default_rng((ord(stream), first))
    times = pa.array(np.arange(first, first + BATCH_ROWS))
    keys = pa.array(random.integers(0, KEYS, BATCH_ROWS))
    return pa.RecordBatch.from_arrays(
        [keys, times, times.cast(pa.timestamp("us"))], names=["k", "v", "ts"]
    )


def measured(plans: list[Plan], *, shares: bool) -> tuple[int, float]:
    """Return bytes with full windows, and CPU ns for each tuple of each stream."""
    flows = [
        Dataflow(BoundRelational("", each, ()), state_bytes_max=1 << 34, tables={"c": TABLE})
        for each in plans
    ]
    rows = pa.array(np.arange(TABLE_ROWS))
    for versions in (each for flow in flows for each in flow.versions.values()):
        versions.upsert(pa.RecordBatch.from_arrays([rows, rows], names=["k", "n"]), 0)
    for at, flow in enumerate(flows if shares else ()):
        for other in flows[:at]:
            flow.share_with(other, _agree(flow, other))
    streams = {source.relation for flow in flows for source in flow.sources.values()}
    spent = 0.0
    for step in range(STEPS):
        first = step * BATCH_ROWS
        batches = {stream: batch(stream, first) for stream in streams}
        began = time.process_time()
        for flow in flows:
            sources = flow.sources
            for alias, source in sources.items():
                flow.push(alias, batches[source.relation], first)
            flow.advance(dict.fromkeys(sources, first + BATCH_ROWS))
        if step >= STEPS // 2:
            spent += time.process_time() - began
    tuples = (STEPS - STEPS // 2) * BATCH_ROWS * len(streams)
    parts = {id(part): part.size_bytes for flow in flows for part in flow.source_graph.shared_nodes}
    shared = [sum(part.size_bytes for part in flow.source_graph.shared_nodes) for flow in flows]
    own = sum(flow.size_bytes - part for flow, part in zip(flows, shared, strict=True))
    return own + sum(parts.values()), spent / tuples * 1e9


def _agree(flow: Dataflow, other: Dataflow) -> Agrees:
    """Return whether aliases read one stream, of which both have read nothing."""
    return lambda alias, its, _: flow.sources[alias].relation == other.sources[its].relation


def cases() -> dict[str, list[Plan]]:
    """Sets of queries by what they have in common."""
    found = {f"{count} x r join s": [joined(at) for at in range(count)] for count in COUNTS}
    return found | {
        "r join s, and the same join t": [joined(0), with_third(1)],
        "r join s, and MAX over r": [joined(0), largest(1)],
        "r join s by k, and r join t by v": [joined(0), joined(1, "t", "v")],
        "r join s, r join t, r join u, all by k": [joined(at, "stu"[at]) for at in range(3)],
        "r join s with windows of 1, 1/2 and 1/4": [
            joined(at, size=WINDOW >> at) for at in range(3)
        ],
        "10 x r join s, each joined with c": [with_table(at) for at in range(10)],
        "r join s, and the same joined with c": [joined(0), with_table(1)],
        "6 aggregates over one window": [aggregated(at) for at in range(6)],
    }


def run() -> Report:
    """Measure each set of queries with and without sharing, in one process."""
    measured([joined(0)], shares=False)  # Kernels are compiled.
    rows = []
    for name, plans in cases().items():
        (bytes_shared, ns_shared), (bytes_alone, ns_alone) = (
            measured(plans, shares=shares) for shares in (True, False)
        )
        rows.append(
            (
                name,
                f"{bytes_shared / 1e6:,.1f}",
                f"{bytes_alone / 1e6:,.1f}",
                f"{bytes_alone / bytes_shared:,.1f}",
                f"{ns_shared:,.0f}",
                f"{ns_alone:,.0f}",
                f"{ns_alone / ns_shared:,.1f}",
            )
        )
    return Report(
        claim="Equal parts of queries are in memory once, and are evaluated once.",
        columns=(
            "queries",
            "MB shared",
            "MB alone",
            "ratio",
            "ns a tuple shared",
            "ns a tuple alone",
            "ratio",
        ),
        rows=rows,
        notes=NOTES,
    )
