"""DISTINCT and set operations over windows, against brute force."""

from __future__ import annotations

from collections import Counter

import pytest

from shedder.cql.plans.logical_plan import (
    Distinct,
    Plan,
    Project,
    SetOperation,
    SetOperator,
    StreamOperator,
    ToStream,
)
from shedder.cql.statements.statement import Output
from tests.dataflow import brute_force as brute
from tests.dataflow.worlds import batch_of, column, dataflow, instants, run, stream, windowed

LEFT, RIGHT = stream(21), stream(22)
STREAMS = {"a": LEFT, "b": RIGHT}
PLACES = {"k": 0, "x": 1, "name": 2, "d": 3}

RESULTS = {
    (SetOperator.UNION, True): lambda v1, v2: v1 + v2,
    (SetOperator.UNION, False): lambda v1, v2: int(v1 + v2 > 0),
    (SetOperator.EXCEPT, True): lambda v1, v2: max(0, v1 - v2),
    (SetOperator.EXCEPT, False): lambda v1, v2: int(v1 > 0 and v2 == 0),
    (SetOperator.INTERSECT, True): min,
    (SetOperator.INTERSECT, False): lambda v1, v2: int(v1 > 0 and v2 > 0),
}


def some(plan: Plan, alias: str, names: tuple[str, ...]) -> Plan:
    return Project(plan, tuple(Output(name, column(f"{alias}.{name}")) for name in names))


def brute_some(at: brute.At, names: tuple[str, ...]) -> brute.At:
    return brute.project(at, lambda row: tuple(row[PLACES[name]] for name in names))


@pytest.mark.parametrize("names", [("k",), ("name",), ("k", "name"), ("d", "x"), ("name", "d")])
@pytest.mark.parametrize("slide", [1, 15])
def test_distinct_rows_are_those_of_the_brute_force(names, slide):
    plan = Distinct(some(windowed("a", 40, slide), "a", names))
    expected = brute.distinct(brute_some(brute.range_window(LEFT, 40, slide), names))
    made = run(plan, {"a": LEFT}, seed=23)
    for e in instants(24):
        assert made.at(e) == Counter(expected(e)), e


@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize("names", [("k",), ("x", "name")])
def test_set_operations_are_those_of_the_brute_force(kind, names):
    operator, keeps_all = kind
    left = some(windowed("a", 40), "a", names)
    right = some(windowed("b", 25, 10), "b", names)
    expected = brute.by_counts(
        brute_some(brute.range_window(LEFT, 40), names),
        brute_some(brute.range_window(RIGHT, 25, 10), names),
        RESULTS[kind],
    )
    made = run(SetOperation(operator, keeps_all, left, right), STREAMS, seed=25)
    for e in instants(26):
        assert made.at(e) == Counter(expected(e)), e


@pytest.mark.parametrize("world", range(5))
def test_results_do_not_depend_on_batches_nor_on_order_within_the_lateness(world):
    left = Distinct(some(windowed("a", 40), "a", ("k", "name")))
    right = some(windowed("b", 30), "b", ("k", "name"))
    plan = ToStream(StreamOperator.ISTREAM, SetOperation(SetOperator.EXCEPT, False, left, right))
    first = run(plan, STREAMS, seed=27, lateness=1, batch_max=1).changes
    other = run(plan, STREAMS, seed=100 + world, lateness=30, batch_max=60).changes
    assert first.columns.equals(other.columns)
    assert (first.ts_us == other.ts_us).all()
    assert len(first) > 20


def test_keys_that_have_left_take_no_memory():
    flow = dataflow(Distinct(some(windowed("a", 100), "a", ("k",))))
    for first in range(0, 60_000, 2_000):
        rows = [(ts, ts, (ts, 1, "a", 0.0, ts)) for ts in range(first, first + 2_000)]
        flow.push("a", batch_of(rows), first)
        changes = flow.advance({"a": first + 2_000})
        assert len(changes) > 3_500
        assert flow.size_bytes < 2_000_000
