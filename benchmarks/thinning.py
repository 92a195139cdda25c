"""What thinning saves: CPU per tuple of every kind of synopsis, at the shares that it can read."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from benchmarks.eight import SYNOPSIS_BYTES
from benchmarks.measure import Report
from benchmarks.workloads.trades import BATCH_ROWS, CREATE, batches
from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import CreateStream, Select
from shedder.cql.text.sampling_fractions import share_text
from shedder.engine.allocation.negotiation import negotiate
from shedder.engine.synopsis_plans.synopsis_plan import plan
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions
from synopses.precompile import compile_kernels

BATCHES = 12
PASSES = 5
LEVELS = (0, 1, 2, 3)
AGGREGATES = {
    "COUNT(*)": "COUNT(*)",
    "SUM, AVG, MIN, MAX": "SUM(value)",
    "VAR": "VAR(value)",
    "CORR": "CORR(value, value * 2.0)",
    "FIRST": "FIRST(value)",
    "COUNT(DISTINCT)": "COUNT(DISTINCT key)",
    "QUANTILE": "QUANTILE(value, 0.99)",
    "QUANTILE by rank": "MEDIAN(value)",
    "TOP": "TOP(key, 20)",
    "SELF_JOIN_SIZE": "SELF_JOIN_SIZE(key)",
}
BY_RANK = ("MEDIAN(value)",)
TOGETHER = "all together"


def schema() -> StreamSchema:
    """Of the benchmarks' stream."""
    statement = parse(CREATE)
    assert isinstance(statement, CreateStream)
    return StreamSchema(
        name=statement.name,
        columns=statement.columns,
        time_column=statement.time_column,
        lateness_us=statement.lateness_us,
        retain_us=None,
        layout=statement.layout,
        seed=1,
    )


def standing_of(aggregates: Sequence[str], *, grouped: bool) -> QueryState:
    """A standing query of these aggregates, by a thousand groups or by none."""
    by = " GROUP BY key % 1000" if grouped else ""
    key = "key % 1000 AS shard, " if grouped else ""
    outputs = ", ".join(f"{each} AS a{at}" for at, each in enumerate(aggregates))
    within = " WITHIN 0.02 RANK" if tuple(aggregates) == BY_RANK else ""
    select = parse(f"SELECT {key}{outputs} FROM trades{by}{within}")
    assert isinstance(select, Select)
    query = bind(select, schema())
    granted = negotiate(query, SYNOPSIS_BYTES, group_bytes_max=SYNOPSIS_BYTES)
    return QueryState("q", query, plan(query, granted.sizes), part_bytes_max=SYNOPSIS_BYTES)


def cost_ns(
    given: Sequence[pa.RecordBatch], aggregates: Sequence[str], level: int, *, grouped: bool
) -> float:
    """CPU per arriving tuple, the fastest of some passes over batches into warm synopses."""
    query_state = standing_of(aggregates, grouped=grouped)
    query_state.set_levels([level] * len(query_state.levels))
    best = float("inf")
    for number in range(PASSES + 1):
        frames = [
            Frame(batch, "ts", positions=Positions(1, (number * len(given) + at) * BATCH_ROWS))
            for at, batch in enumerate(given)
        ]
        began = time.thread_time()
        for frame in frames:
            query_state.apply(frame, watermark_us=None, limit_us=None)
        if number:
            best = min(best, time.thread_time() - began)
    return best / (len(given) * BATCH_ROWS) * 1e9


def run() -> Report:
    """Every kind alone, and all of them, which share one choice of rows."""
    compile_kernels()
    given = list(batches(BATCHES * BATCH_ROWS))
    rows = []
    kinds = {name: [aggregates] for name, aggregates in AGGREGATES.items()} | {
        TOGETHER: [*AGGREGATES.values()]
    }
    for grouped in (False, True):
        for name, aggregates in kinds.items():
            costs = [cost_ns(given, aggregates, level, grouped=grouped) for level in LEVELS]
            saved = 1.0 - costs[-1] / costs[0]
            where = "1,000 groups" if grouped else "one group"
            rows.append([name, where, *(f"{cost:.2f}" for cost in costs), f"{saved:+.0%}"])
    return Report(
        claim="Thinning saves most of what a synopsis costs, where it costs more than the basics.",
        columns=["aggregate", "of", *(f"ns at {share_text(level)}" for level in LEVELS), "saved"],
        rows=rows,
        notes=[
            (
                f"{BATCHES * BATCH_ROWS:,} tuples in batches of {BATCH_ROWS:,}, CPU time of one "
                f"thread per arriving tuple, the fastest of {PASSES} passes into warm synopses; "
                "saved: at 1/8 against all."
            ),
            (
                "In every figure: counts, range and nulls of all tuples, and, thinned, which rows "
                "are kept (once per batch and level, whatever reads them). Sums of one group cost "
                "about as much as that, so there thinning saves next to nothing."
            ),
        ],
    )
