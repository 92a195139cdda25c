"""Least and largest values of windows that rows leave in the order in which they came."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column
from shedder.cql.plans.logical_plan import Aggregated, SetOperation, SetOperator
from shedder.cql.statements.statement import RangeWindow
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.sums.grouped_aggregates import (
    AggregateSpec,
    GroupedAggregates,
    output_schema,
)
from shedder.dataflow.window_lifetimes import WindowLifetimes
from tests.dataflow.worlds import END, batch_of, column, dataflow, stream, windowed
from tests.seeds import seed

BIGINT = ColumnType.BIGINT
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
K, V = Column("k", BIGINT), Column("v", BIGINT)
FUNCTIONS = (
    AggregateFunction.MIN,
    AggregateFunction.MAX,
    AggregateFunction.FIRST,
    AggregateFunction.LAST,
)
AGGREGATES = tuple(Aggregate(function, V, type=BIGINT) for function in FUNCTIONS)
SERIES = {
    "rising": lambda dice, size: np.arange(size),
    "falling": lambda dice, size: -np.arange(size),
    "few values": lambda dice, size: dice.integers(0, 4, size),
    "random walk": lambda dice, size: np.cumsum(dice.integers(-3, 4, size)),
}


def brute_force(ts, keys, values, e, window):
    """[least, largest, first and last value] of each key as of a multiple of the slide."""
    live = (ts < e) & (ts >= e - window)
    groups: dict[int, list[int]] = {}
    for key, value in zip(keys[live].tolist(), values[live].tolist(), strict=True):
        groups.setdefault(key, []).append(value)
    return {key: (min(of), max(of), of[0], of[-1]) for key, of in groups.items()}


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("slide", [1, 40])
def test_values_are_those_of_the_rows_in_the_window(name, slide):
    dice = np.random.default_rng(seed("queues", name, slide) % 2**32)
    size, window = 2_000, 120
    ts, keys = np.sort(dice.integers(0, 1_000, size)), dice.integers(0, 3, size)
    values = SERIES[name](dice, size).astype(np.int64)
    spec = AggregateSpec.of_rows((K,), AGGREGATES, in_order=True)
    operator = GroupedAggregates(spec, output_schema((K,), AGGREGATES))
    lifetimes = WindowLifetimes(RangeWindow(window, slide))
    held: dict[int, tuple[int, ...]] = {}
    at = first = 0
    while at < 1_200:
        at += int(dice.choice([1, 7, 90]))
        end = int(np.searchsorted(ts, at))
        rows = pa.record_batch([keys[first:end], values[first:end]], schema=SCHEMA)
        tuples = ChangeBatch.of_tuples(rows, ts[first:end])
        first = end
        made = operator.apply(at, lifetimes.apply(at, tuples))
        for weight, row in zip(made.weight.tolist(), made.columns.to_pylist(), strict=True):
            key, *results = row.values()
            if weight < 0:
                assert held.pop(key) == tuple(results)
            else:
                held[key] = tuple(results)
        assert held == brute_force(ts, keys, values, at // slide * slide, window), at
    assert not held


def test_values_that_a_newer_row_beats_take_no_memory():
    """A window has 50,000 rows, and its largest value is that of its newest row."""
    largest = AGGREGATES[1:2]
    size_bytes = []
    for in_order in (True, False):
        spec = AggregateSpec.of_rows((), largest, in_order=in_order)
        operator = GroupedAggregates(spec, output_schema((), largest))
        lifetimes = WindowLifetimes(RangeWindow(50_000, 1))
        for first in range(0, 100_000, 1_000):
            ts = np.arange(first, first + 1_000)
            tuples = ChangeBatch.of_tuples(pa.record_batch([ts, ts], schema=SCHEMA), ts)
            operator.apply(first + 1_000, lifetimes.apply(first + 1_000, tuples))
        size_bytes.append(operator.size_bytes)
    events = 50_000 * 5 * 8
    assert size_bytes[0] < 1.2 * events < size_bytes[1]


def test_union_of_equal_windows_has_the_largest_value_of_both():
    """The rows of a step come one input after the other, and leave by event time."""
    streams = {alias: stream(seed("queue union", alias) % 2**32) for alias in "ab"}
    union = SetOperation(SetOperator.UNION, True, windowed("a", 45, 20), windowed("b", 45, 20))
    largest = Aggregate(AggregateFunction.MAX, column("a.x"), type=ColumnType.INTEGER)
    flow = dataflow(Aggregated(union, (), (largest,)))
    for alias, tuples in streams.items():
        flow.push(alias, batch_of(tuples), 0)
    made = flow.advance(dict.fromkeys("ab", END + 100))
    every = [(ts, row[1]) for tuples in streams.values() for ts, _, row in tuples]
    for e in range(0, END + 100, 20):
        live = (made.born_us <= e) & (made.expires_us >= e)
        found = {}
        for row in np.flatnonzero(live).tolist():
            value = made.columns.column(0)[row].as_py()
            found[value] = found.get(value, 0) + int(made.weight[row])
        inside = [x for ts, x in every if x is not None and e - 45 <= ts < e]
        # Rows leave at multiples of the slide, behind the window's end.
        assert [value for value, weight in found.items() if weight] == [max(inside, default=None)]
