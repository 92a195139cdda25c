"""How long ingest waits while the synopses of standing queries change size."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import numpy as np

import shedder
from benchmarks.measure import Report
from benchmarks.workloads.trades import BATCH_ROWS, CREATE, QUERIES, batches
from shedder.engine.apply.size_records import shrinks, submit_sizes
from shedder.engine.engine import Engine

SETTINGS: dict[str, Any] = {"allocation_seconds": 1e6}  # The rebalancer changes no sizes.
BATCHES = 400  # With a change of size after every tenth.
GROUPS = 3_000
BY_GROUP = {
    "distinct": f"SELECT key % {GROUPS} AS shard, COUNT(DISTINCT key) AS keys, TOP(key, 3) AS busy "
    f"FROM trades [RANGE INTERVAL '4' SECOND SLIDE INTERVAL '1' SECOND] GROUP BY key % {GROUPS}",
    "ranks": f"SELECT key % {GROUPS} AS shard, QUANTILE(value, 0.5) AS half, "
    "SELF_JOIN_SIZE(key) AS pairs, JACCARD(key, value < 20, value > 10) AS alike "
    "FROM trades [RANGE INTERVAL '4' SECOND SLIDE INTERVAL '1' SECOND] "
    f"GROUP BY key % {GROUPS} WITHIN 0.01 RANK",
}
BATCHES_BY_GROUP = 80


def run() -> Report:
    """The longest turns of the apply thread that were spent on sizes, beside those on batches."""
    rows, largest = [], []
    for words, queries, some in (
        ("", QUERIES, BATCHES),
        (f"{GROUPS:,} groups: ", BY_GROUP, BATCHES_BY_GROUP),
    ):
        tuples, applied, sizes, slices, heaviest = _measured(queries, some)
        rows += [
            [f"{words}a batch of 65,536 is applied", *_row(applied)],
            [f"{words}a change of sizes takes force", *_row(sizes)],
            [f"{words}live panes shrink, a slice at a time", *_row(slices)],
        ]
        largest.append(f"{words}{tuples:,} tuples, panes of up to {heaviest / 2**20:.1f} MiB")
    return Report(
        claim="Sizes change while the stream runs. Wanted: no turn of the apply thread that is "
        "spent on it takes 5 ms, with thousands of groups neither. The rival is "
        "applying a batch, which every tuple waits for anyway.",
        columns=[
            "turn of the apply thread",
            "turns",
            "median",
            "99th percentile",
            "longest",
            "most CPU",
        ],
        rows=rows,
        notes=[
            *largest,
            (
                "all tuples applied; eight aggregates, and by group four; all sketches an eighth "
                f"as large and as large again, {BATCHES // 10} and {BATCHES_BY_GROUP // 10} "
                "changes of each query."
            ),
            "the longest batches are those with which a window closes and all groups are answered",
        ],
    )


Times = list[tuple[float, float]]


def _measured(queries: Mapping[str, str], some: int) -> tuple[int, Times, Times, Times, int]:
    """Tuples; turns that apply a batch, set sizes, shrink panes; the heaviest pane, in bytes."""
    with tempfile.TemporaryDirectory() as name, shedder.open(name, **SETTINGS) as db:
        assert isinstance(db, Engine)
        db.execute(CREATE)
        for query, text in queries.items():
            db.register(query, text)
        large = {query: _sizes(db, query, 0) for query in queries}
        small = {query: _sizes(db, query, -3) for query in queries}
        records, shrinker = db.services.records, db.services.records.shrinker
        applied, sizes = _timed(records, "apply_batch"), _timed(shrinker, "apply_sizes")
        slices = _timed(shrinker, "_shrink")
        heaviest = 0
        for number, batch in enumerate(batches(some * BATCH_ROWS)):
            db.push("trades", batch)
            if number % 10 == 9:
                heaviest = max(
                    heaviest, db.core.executor.call(partial(_heaviest, db, queries)).result()
                )
                _change(db, small if number % 20 == 9 else large)
        while db.core.executor.call(lambda: shrinks(db.core)).result():
            pass
        return db.ledger("trades").applied, applied, sizes, slices, heaviest


def _heaviest(db: Engine, queries: Mapping[str, str]) -> int:
    query_states = [db.core.standing_query(name)[1].state for name in queries]
    return max(sum(pane.part_bytes) for each in query_states for pane in each.panes.values())


def _timed(core: Any, name: str) -> Times:
    """Milliseconds of every call of a method, from now on, and those of CPU.

    Where others use the machine, a turn is interrupted; its CPU is what it would have taken.
    """
    times: Times = []
    method: Callable[..., Any] = getattr(core, name)

    @wraps(method)
    def timed(*given: Any, **named: Any) -> Any:
        began, began_cpu = time.perf_counter(), time.thread_time()
        try:
            return method(*given, **named)
        finally:
            took_cpu = time.thread_time() - began_cpu
            times.append(((time.perf_counter() - began) * 1e3, took_cpu * 1e3))

    setattr(core, name, timed)
    return times


def _change(db: Engine, sizes: Mapping[str, tuple[int, ...]]) -> None:
    for name in sizes:
        stream, standing_query = db.core.standing_query(name)
        submit_sizes(db.core, stream, name, sizes[name], standing_query.state.sizes.part_bytes_max)


def _sizes(db: Engine, query: str, scale: int) -> tuple[int, ...]:
    """Of each synopsis, 2^scale times as large; registers and hashes count in powers of two."""
    _, standing_query = db.core.standing_query(query)
    return tuple(
        part.size and (part.size + scale if part.size < 32 else int(part.size * 2.0**scale))
        for part in standing_query.state.plan.parts
    )


def _row(times: Times) -> list[str]:
    of_clock, of_cpu = np.array(times).T
    times_ms = (*np.quantile(of_clock, (0.5, 0.99)), of_clock.max(), of_cpu.max())
    return [f"{len(times):,}", *(f"{each:.2f} ms" for each in times_ms)]
