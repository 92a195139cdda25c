"""Operators of standing row queries beside libraries that look at the whole window again"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"  # Read once, when polars is imported.

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.measure import Report
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Call, Column, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    BoundRelational,
    Distinct,
    Join,
    JoinKind,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    WindowOf,
)
from shedder.cql.statements.statement import ColumnDefinition, Output, RangeWindow
from shedder.cql.statements.table_schema import TableSchema
from shedder.dataflow.dataflow import Dataflow
from shedder.wire.malloc_tuning import keep_big_blocks

KEYS = 1_000_000
WINDOW = 1_000_000  # Tuples and microseconds: one tuple a microsecond.
SLIDE = 10_000  # Microseconds.
BATCH_ROWS = 65_536
STEPS = 64  # The window is full after 16 of them; the second half is measured.
RIVAL_STEPS = 6
_BIGINT = ColumnType.BIGINT

NOTES = (
    f"Windows of {WINDOW:,} tuples a stream and as many uniform keys; one thread each.",
    f"Batches of {BATCH_ROWS:,} rows. Shedder emits the changes of each microsecond.",
    f"With SLIDE it emits those of each {SLIDE:,}th microsecond.",
    "A rival computes one result per batch: over the whole window again.",
    "In the first row it computes the pairs of a batch with a window that it need not keep.",
    "The C heap keeps what is freed, as the server sets it up; for the rivals, too.",
    f"The table has {KEYS:,} rows under a primary key; a tuple joins the version at its place.",
)

Batch = pa.RecordBatch
Work = Callable[[Batch, Batch], object]


def batch(seed: int, first: int) -> Batch:
    """Tuples with uniform keys, one a microsecond."""
    random = np.random.default_rng((seed, first))
    times = np.arange(first, first + BATCH_ROWS)
    keys = pa.array(random.integers(0, KEYS, BATCH_ROWS))
    columns: list[pa.Array[Any]] = [keys, pa.array(times)]
    columns.append(pa.array(times).cast(pa.timestamp("us")))
    return pa.RecordBatch.from_arrays(columns, names=["k", "v", "ts"])


def window(alias: str, slide_us: int = 1) -> WindowOf:
    """The last second of a stream."""
    columns = tuple(ColumnDefinition(f"{alias}.{name}", _BIGINT, False) for name in ("k", "v"))
    scan = Scan(alias, alias, RelationKind.STREAM, columns, f"{alias}.ts")
    return WindowOf(scan, RangeWindow(WINDOW, slide_us))


def table_rows() -> Batch:
    """One row for each key, in random order."""
    keys = np.random.default_rng(3).permutation(KEYS)
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(2 * keys)], names=["k", "n"])


def table_join() -> Join:
    """A stream with a table, by the primary key of the table."""
    columns = tuple(ColumnDefinition(f"t.{name}", _BIGINT, False) for name in ("k", "n"))
    table = Scan("t", "t", RelationKind.TABLE, columns, None)
    keys = (Column("a.k", _BIGINT), Column("t.k", _BIGINT))
    condition = Call(Op.EQ, keys, ColumnType.BOOLEAN)
    return Join(JoinKind.INNER, window("a").input, table, condition)


def dataflow(plan: Plan) -> Dataflow:
    """The operators of a plan; a table has all its rows."""
    columns = tuple(ColumnDefinition(name, _BIGINT, False) for name in ("k", "n"))
    tables = {"t": TableSchema("t", columns, ("k",))}
    flow = Dataflow(BoundRelational("", plan, ()), state_bytes_max=1 << 33, tables=tables)
    for versions in flow.versions.values():
        versions.upsert(table_rows(), 0)
    return flow


def plans() -> dict[str, tuple[Plan, str]]:
    """Plans and the aliases of their streams, by what they do."""
    left, right = Column("a.k", _BIGINT), Column("b.k", _BIGINT)
    condition = Call(Op.EQ, (left, right), ColumnType.BOOLEAN)
    join = Join(JoinKind.INNER, window("a"), window("b"), condition)
    count = Aggregate(AggregateFunction.COUNT, None, type=_BIGINT)
    slid = Join(JoinKind.INNER, window("a", SLIDE), window("b", SLIDE), condition)
    value = Column("a.v", _BIGINT)
    total = Aggregate(AggregateFunction.SUM, value, type=_BIGINT)
    largest = Aggregate(AggregateFunction.MAX, value, type=_BIGINT)
    newest = WindowOf(window("a").input, RowsWindow(10, partition=("a.k",)))
    return {
        "join": (join, "ab"),
        "COUNT(*) over the join": (Aggregated(join, (), (count,)), "ab"),
        "the same with SLIDE": (Aggregated(slid, (), (count,)), "ab"),
        "SUM over the join with SLIDE": (Aggregated(slid, (), (total,)), "ab"),
        "SUM over the join": (Aggregated(join, (), (total,)), "ab"),
        "COUNT(*) GROUP BY k": (Aggregated(window("a"), (left,), (count,)), "a"),
        "SUM GROUP BY k with SLIDE": (Aggregated(window("a", SLIDE), (left,), (total,)), "a"),
        "MAX with SLIDE": (Aggregated(window("a", SLIDE), (), (largest,)), "a"),
        "DISTINCT": (Distinct(Project(window("a"), (Output("k", left),))), "a"),
        "PARTITION BY k ROWS 10": (newest, "a"),
        "table join": (table_join(), "a"),
    }


def own(plan: Plan, aliases: str) -> float:
    """Tuples per second of CPU, while the windows are full."""
    flow = dataflow(plan)
    spent = 0.0
    for step in range(STEPS):
        first = step * BATCH_ROWS
        batches = {alias: batch(ord(alias), first) for alias in aliases}
        began = time.process_time()
        for alias, rows in batches.items():
            flow.push(alias, rows, first)
        flow.advance(dict.fromkeys(aliases, first + BATCH_ROWS))
        if step >= STEPS // 2:
            spent += time.process_time() - began
    return (STEPS - STEPS // 2) * len(aliases) * BATCH_ROWS / spent


def again(work: Work, tuples: int, held: Batch | None = None) -> float:
    """Tuples per second of CPU of work over a batch and what is held; None: a full window."""
    whole = pa.Table.from_batches(
        [batch(1, first) for first in range(0, WINDOW, BATCH_ROWS)]
    ).combine_chunks()
    held = whole.to_batches()[0] if held is None else held
    times = []
    for step in range(RIVAL_STEPS):
        fresh = batch(2, WINDOW + step * BATCH_ROWS)
        began = time.process_time()
        work(fresh, held)
        times.append(time.process_time() - began)
    return tuples / min(times)


def duckdb_work(session: duckdb.DuckDBPyConnection, text: str) -> Work:
    """A query over the batch `fresh` and the window `held`."""

    def work(fresh: Batch, held: Batch) -> object:
        session.register("fresh", pa.Table.from_batches([fresh]))
        session.register("held", pa.Table.from_batches([held]))
        return session.sql(text).to_arrow_table()

    return work


def polars_work(of: Callable[[pl.DataFrame, pl.DataFrame], object]) -> Work:
    """A function of the batch and of the window, as data frames."""

    def work(fresh: Batch, held: Batch) -> object:
        tables = (pa.Table.from_batches([each]) for each in (fresh, held))
        return of(*(pl.DataFrame(table) for table in tables))

    return work


def rivals() -> dict[str, dict[str, float]]:
    """Tuples per second of libraries that read the window at each batch, by what they do."""
    session = duckdb.connect()
    session.execute("SET threads = 1")
    query = partial(duckdb_work, session)
    joined = "FROM fresh JOIN held ON fresh.k = held.k"
    newest = "SELECT * FROM held QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) <= 10"
    both = 2 * BATCH_ROWS  # The other side's batch is probed likewise.
    summed = {
        "duckdb": again(query("SELECT sum(a.v) FROM held a JOIN held b ON a.k = b.k"), both),
        "polars": again(polars_work(lambda _, old: old.join(old, on="k")["v"].sum()), both),
    }
    return {
        "join": {
            "duckdb": again(query(f"SELECT fresh.*, held.* {joined}"), BATCH_ROWS),
            "polars": again(polars_work(lambda new, old: new.join(old, on="k")), BATCH_ROWS),
        },
        "COUNT(*) over the join": {
            "duckdb": again(query("SELECT count(*) FROM held a JOIN held b ON a.k = b.k"), both),
            "polars": again(
                polars_work(lambda _, old: old.join(old, on="k").select(pl.len())), both
            ),
        },
        "the same with SLIDE": {
            "duckdb": again(query("SELECT count(*) FROM held a JOIN held b ON a.k = b.k"), both),
            "polars": again(
                polars_work(lambda _, old: old.join(old, on="k").select(pl.len())), both
            ),
        },
        "SUM over the join with SLIDE": summed,
        "SUM over the join": summed,
        "COUNT(*) GROUP BY k": {
            "duckdb": again(query("SELECT k, count(*) FROM held GROUP BY k"), BATCH_ROWS),
            "polars": again(polars_work(lambda _, old: old.group_by("k").len()), BATCH_ROWS),
        },
        "SUM GROUP BY k with SLIDE": {
            "duckdb": again(query("SELECT k, sum(v) FROM held GROUP BY k"), BATCH_ROWS),
            "polars": again(
                polars_work(lambda _, old: old.group_by("k").agg(pl.col("v").sum())), BATCH_ROWS
            ),
        },
        "MAX with SLIDE": {
            "duckdb": again(query("SELECT max(v) FROM held"), BATCH_ROWS),
            "polars": again(polars_work(lambda _, old: old["v"].max()), BATCH_ROWS),
        },
        "DISTINCT": {
            "duckdb": again(query("SELECT DISTINCT k FROM held"), BATCH_ROWS),
            "polars": again(polars_work(lambda _, old: old["k"].unique()), BATCH_ROWS),
        },
        "PARTITION BY k ROWS 10": {
            "duckdb": again(query(newest), BATCH_ROWS),
            "polars": again(polars_work(lambda _, old: old.group_by("k").tail(10)), BATCH_ROWS),
        },
        "table join": {
            "duckdb": again(query(f"SELECT fresh.*, held.n {joined}"), BATCH_ROWS, table_rows()),
            "polars": again(
                polars_work(lambda new, old: new.join(old, on="k")), BATCH_ROWS, table_rows()
            ),
        },
    }


def run() -> Report:
    """Measure all operators in one process, each rival in the same run."""
    keep_big_blocks()
    for plan, aliases in plans().values():
        own_warm(plan, aliases)
    other = rivals()
    rows = []
    for name, (plan, aliases) in plans().items():
        rate = own(plan, aliases)
        cells = [f"{other[name][rival] / 1e6:.2f}" for rival in ("duckdb", "polars")]
        best = max(other[name].values())
        rows.append((name, f"{rate / 1e6:.2f}", *cells, f"{rate / best:.1f}"))
    return Report(
        "Millions of tuples per second of CPU, with one result per instant.",
        ("operator", "Shedder", "duckdb", "polars", "ratio to the faster"),
        rows,
        NOTES,
    )


def own_warm(plan: Plan, aliases: str) -> None:
    """Compile the kernels of a plan."""
    flow = dataflow(plan)
    for alias in aliases:
        flow.push(alias, batch(0, 0), 0)
    flow.advance(dict.fromkeys(aliases, BATCH_ROWS))


if __name__ == "__main__":
    print(run().markdown())
