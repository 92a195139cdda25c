"""Stores of rows that several graphs read, after rows were dropped and beside a slow reader."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.cql.plans.logical_plan import Aggregated, Join, JoinKind, Plan
from shedder.dataflow.dataflow import Dataflow
from tests.dataflow.worlds import SCHEMA, column, dataflow, equal, windowed

STEP = 500
STEPS = 20  # More than 8,192 rows: then the oldest ones are dropped.
LAGS = 2  # Steps that the slow reader is behind.


def joined(left: str, right: str, size: int, slide: int, key: str, other: str) -> Join:
    sides = windowed(left, size, slide, "r"), windowed(right, size // 2, 1, other)
    return Join(JoinKind.INNER, *sides, equal(f"{left}.{key}", f"{right}.{key}"))


def plans() -> list[Plan]:
    """Windows of three lengths over r, by two keys; those with t are slow."""
    largest = Aggregate(AggregateFunction.MAX, column("g.x"), type=ColumnType.BIGINT)
    names = Aggregate(AggregateFunction.COUNT_DISTINCT, column("g.name"), type=ColumnType.BIGINT)
    return [
        joined("a", "b", 1_500, 1, "k", "s"),
        joined("c", "d", 2_500, 70, "name", "t"),
        joined("e", "f", 700, 1, "k", "t"),
        Aggregated(windowed("g", 1_000, 30, "r"), (column("g.k"),), (largest, names)),
    ]


def batch(stream: str, first: int) -> pa.RecordBatch:
    dice = np.random.default_rng((ord(stream), first))
    keys, names = dice.integers(0, 700, STEP), dice.integers(0, 900, STEP)
    columns = [
        pa.array(keys, mask=keys == 7),
        pa.array(dice.integers(0, 1 << 20, STEP).astype(np.int32)),
        pa.array([None if at == 5 else f"n{at}" for at in names]),
        pa.array(dice.random(STEP)),
        pa.array(np.arange(first, first + STEP)).cast(pa.timestamp("us")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def step(flow: Dataflow, at: int) -> Counter[tuple[object, ...]]:
    """Push a step of each stream; t is behind."""
    marks = {}
    for alias, source in flow.sources.items():
        behind = at - LAGS * (source.relation == "t")
        if behind >= 0:
            flow.push(alias, batch(source.relation, behind * STEP), behind * STEP)
            marks[alias] = (behind + 1) * STEP
    made = flow.advance(marks)
    times = zip(made.born_us.tolist(), made.expires_us.tolist(), made.weight.tolist(), strict=True)
    values = map(tuple, map(dict.values, made.columns.to_pylist()))
    return Counter(zip(values, times, strict=True))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_graphs_of_one_store_make_the_changes_of_graphs_alone(order):
    """Graphs come and go; rows are dropped meanwhile, as far as no reader needs them."""
    drawn = [plans()[at] for at in order]
    alone, together = ([dataflow(plan) for plan in drawn] for _ in range(2))
    for at in range(STEPS):
        if at < 2 * len(drawn) and at % 2:
            flow = together[at // 2]
            for other in together[: at // 2]:
                flow.share_with(other, agreeing(flow, other))
        if at == 12:
            together[1].source_graph.split()
        if at == 16:
            together[0].source_graph.leave()
            del together[0], alone[0]
        for own, shared in zip(alone, together, strict=True):
            assert step(own, at) == step(shared, at), at


def agreeing(flow: Dataflow, other: Dataflow):
    return lambda alias, its, _: flow.sources[alias].relation == other.sources[its].relation


def test_a_window_of_another_length_adds_no_rows():
    """The bytes are those of the longest window, but for the other sides of the joins."""
    long, short = joined("a", "b", 2_000, 1, "k", "s"), joined("c", "d", 1_000, 1, "k", "s")
    flows = [dataflow(plan) for plan in (long, short)]
    flows[1].share_with(flows[0], agreeing(flows[1], flows[0]))
    alone = dataflow(long)
    for at in range(12):
        for flow in (*flows, alone):
            step(flow, at)
    parts = {id(part): part for flow in flows for part in flow.source_graph.shared_nodes}
    stores = sum(part.size_bytes for part in parts.values())
    assert stores == alone.size_bytes
    assert all(
        each.size_bytes == 0
        for flow in flows
        for each in flow.operators()
        if each.text.startswith(("Join", "Window"))
    )
