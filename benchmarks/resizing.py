"""How long ingest waits while the synopses of standing queries change size."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np

import shedder
from benchmarks.measure import Report
from benchmarks.trades import BATCH_ROWS, CREATE, QUERIES, batches
from shedder.engine.engine import Engine

SETTINGS: dict[str, Any] = {"allocation_seconds": 1e6}  # Nobody else changes sizes.
BATCHES = 400  # With a change of size after every tenth.


def run() -> Report:
    """The longest turns of the apply thread that were spent on sizes, beside those on batches."""
    with tempfile.TemporaryDirectory() as name, shedder.open(name, **SETTINGS) as db:
        assert isinstance(db, Engine)
        db.execute(CREATE)
        for query, text in QUERIES.items():
            db.register(query, text)
        large = {query: _sizes(db, query, 0) for query in QUERIES}
        small = {query: _sizes(db, query, -3) for query in QUERIES}
        applied, sizes = _timed(db.core, "apply"), _timed(db.core, "apply_sizes")
        shrinks = _timed(db.core, "_shrink")
        for number, batch in enumerate(batches(BATCHES * BATCH_ROWS)):
            db.push("trades", batch)
            if number % 10 == 9:
                _change(db, small if number % 20 == 9 else large)
        db.core.actor.call(lambda: None).result()
        tuples = db.ledger("trades").applied
    rows = [
        ["a batch of 65,536 is applied", *_row(applied)],
        ["a change of sizes takes force", *_row(sizes)],
        ["live panes shrink, a slice at a time", *_row(shrinks)],
    ]
    return Report(
        claim="Sizes change while the stream runs, and no turn of the apply thread that is spent "
        "on it takes 5 ms. The rival is applying a batch, which every tuple waits for anyway.",
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
            (
                f"{tuples:,} tuples, all applied; eight aggregates; all sketches an eighth as "
                f"large and as large again, {BATCHES // 10} changes of three queries each."
            ),
        ],
    )


def _timed(core: Any, name: str) -> list[tuple[float, float]]:
    """Milliseconds of every call of a method, from now on, and those of CPU.

    Where others use the machine, a turn is interrupted; its CPU is what it would have taken.
    """
    times: list[tuple[float, float]] = []
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
    for name in QUERIES:
        stream, published = db.core.published(name)
        db.core.submit_sizes(stream, name, sizes[name], published.standing.part_bytes_max)


def _sizes(db: Engine, query: str, scale: int) -> tuple[int, ...]:
    """Of each synopsis, 2^scale times as large; registers and hashes count in powers of two."""
    _, published = db.core.published(query)
    return tuple(
        part.size and (part.size + scale if part.size < 32 else int(part.size * 2.0**scale))
        for part in published.standing.plan.parts
    )


def _row(times: list[tuple[float, float]]) -> list[str]:
    of_clock, of_cpu = np.array(times).T
    told = (*np.quantile(of_clock, (0.5, 0.99)), of_clock.max(), of_cpu.max())
    return [f"{len(times):,}", *(f"{each:.2f} ms" for each in told)]
