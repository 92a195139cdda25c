"""COUNT, SUM and AVG over joins that are made without pairs, against brute force over the pairs."""

from __future__ import annotations

import pytest

from shedder.cql.expressions.expression import Aggregate, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Filter,
    Join,
    JoinKind,
    RowsWindow,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.errors import BudgetExceeded
from tests.dataflow import brute_force as brute
from tests.dataflow.worlds import (
    AVG,
    BIGINT,
    COUNT,
    DOUBLE,
    END,
    NAME,
    SUM,
    D,
    K,
    X,
    batch_of,
    boolean,
    check,
    column,
    dataflow,
    equal,
    grouped,
    matches,
    number,
    rows_of,
    run,
    scan,
    stream,
    windowed,
)

A, B, C = stream(101), stream(102), stream(103, size=60)
STREAMS = {"a": A, "b": B}

AGGREGATES = (
    (Aggregate(COUNT, None, type=BIGINT), None),
    (Aggregate(SUM, column("a.x"), type=BIGINT), X),
    (Aggregate(SUM, column("b.x"), type=BIGINT), 5 + X),
    (Aggregate(SUM, column("b.d"), type=DOUBLE), 5 + D),
    (Aggregate(AVG, column("a.d"), type=DOUBLE), D),
    (Aggregate(COUNT, column("b.name"), type=BIGINT), 5 + NAME),
)
ALL = tuple(aggregate for aggregate, _ in AGGREGATES)
PLACES = [(aggregate.function, place) for aggregate, place in AGGREGATES]
match = matches(K)


@pytest.mark.parametrize("groups", [(), ("a.k",), ("b.k",), ("a.name",)])
@pytest.mark.parametrize("slide", [1, 15])
def test_sums_over_pairs_of_two_windows_are_those_of_the_brute_force(groups, slide):
    join = Join(JoinKind.INNER, windowed("a", 60, slide), windowed("b", 40), equal("a.k", "b.k"))
    plan = Aggregated(join, tuple(map(column, groups)), ALL)
    pairs = brute.join(brute.range_window(A, 60, slide), brute.range_window(B, 40), match)
    places = {"a.k": K, "b.k": 5 + K, "a.name": NAME}
    check(plan, STREAMS, grouped(pairs, tuple(places[name] for name in groups), PLACES), seed=104)


def test_conditions_on_one_side_and_two_keys_are_applied():
    join = Join(JoinKind.INNER, windowed("a", 60), windowed("b", 60), equal("a.k", "b.k"))
    kept = Filter(
        join,
        boolean(Op.AND, boolean(Op.GT, column("a.x"), number(0)), equal("a.name", "b.name")),
    )
    plan = Aggregated(kept, (column("b.name"), column("a.k")), ALL)

    def both(a, b):
        named = a[NAME] is not None and a[NAME] == b[NAME]
        return match(a, b) and named and a[X] is not None and a[X] > 0

    pairs = brute.join(brute.range_window(A, 60), brute.range_window(B, 60), both)
    check(plan, STREAMS, grouped(pairs, (NAME, K), PLACES), seed=105)


def test_a_condition_on_both_sides_is_applied_to_pairs():
    condition = boolean(Op.AND, equal("a.k", "b.k"), boolean(Op.LT, column("a.x"), column("b.x")))
    join = Join(JoinKind.INNER, windowed("a", 60), windowed("b", 60), condition)
    plan = Aggregated(join, (), ALL)

    def both(a, b):
        return match(a, b) and None not in (a[X], b[X]) and a[X] < b[X]

    pairs = brute.join(brute.range_window(A, 60), brute.range_window(B, 60), both)
    check(plan, STREAMS, grouped(pairs, (), PLACES), seed=106)


def test_rows_that_leave_a_rows_window_and_an_anti_join_leave_the_sums():
    left = Join(JoinKind.ANTI, windowed("a", 60), windowed("c", 10), equal("a.x", "c.x"))
    right = WindowOf(scan("b"), RowsWindow(3, partition=("b.k",)))
    plan = Aggregated(Join(JoinKind.INNER, left, right, equal("a.k", "b.k")), (column("a.k"),), ALL)
    ours, others = brute.range_window(A, 60), brute.range_window(C, 10)

    def alone(e):
        taken = {row[X] for row in others(e)} - {None}
        return [row for row in ours(e) if row[X] not in taken]

    pairs = brute.join(alone, brute.rows_window(B, 3, lambda row: row[K]), match)
    check(plan, {**STREAMS, "c": C}, grouped(pairs, (K,), PLACES), seed=107)


def test_stream_of_sums_does_not_depend_on_batches():
    join = Join(JoinKind.INNER, windowed("a", 60), windowed("b", 40), equal("a.k", "b.k"))
    plan = ToStream(StreamOperator.ISTREAM, Aggregated(join, (), ALL))
    pairs = brute.join(brute.range_window(A, 60), brute.range_window(B, 40), match)
    relation = grouped(pairs, (), PLACES)
    expected = [(ts, row) for ts, _, row in brute.insertions(relation, range(END + 100))]
    for seed, batch_max in ((108, 1), (109, 100)):
        tuples = run(plan, STREAMS, seed=seed, batch_max=batch_max).changes
        found = list(zip(tuples.ts_us.tolist(), rows_of(tuples.columns), strict=True))
        assert found[0][1] == expected[0][1]  # The empty row is there from the first instant on.
        assert found[1:] == expected[1:]


def test_four_million_pairs_of_one_key_are_counted_in_two_megabytes():
    rows = [(ts, ts, (7, 1, "a", 0.5, ts)) for ts in range(2_000)]
    join = Join(JoinKind.INNER, windowed("a", 10**6), windowed("b", 10**6), equal("a.k", "b.k"))
    plans = (Aggregated(join, (), ALL), join)
    flows = [dataflow(plan, state_bytes_max=2_000_000) for plan in plans]
    for flow in flows:
        flow.push("a", batch_of(rows), 0)
        flow.push("b", batch_of(rows), 0)
    changes = flows[0].advance({"a": 5_000, "b": 5_000})
    assert rows_of(changes.columns)[-1] == (4 * 10**6, 4 * 10**6, 4 * 10**6, 2e6, 0.5, 4 * 10**6)
    with pytest.raises(BudgetExceeded):
        flows[1].advance({"a": 5_000, "b": 5_000})


def test_sums_of_whole_numbers_beyond_64_bits_are_null_and_come_back():
    window = RowsWindow(2)
    join = Join(
        JoinKind.INNER, WindowOf(scan("a"), window), windowed("b", 10**6), equal("a.x", "b.x")
    )
    plan = Aggregated(join, (), (Aggregate(SUM, column("a.k"), type=BIGINT),))
    top = 2**62
    values = [top, 5, -top, -1, -top, -top]
    ours = [(ts + 10, ts, (value, 1, "", 0.0, ts + 10)) for ts, value in enumerate(values)]
    theirs = [(ts, ts, (0, 1, "", 0.0, ts)) for ts in range(2)]
    made = run(plan, {"a": ours, "b": theirs}, seed=110, lateness=1)
    found = [next(iter(made.at(11 + ts)))[0] for ts in range(len(values))]
    assert found == [None, None, -(2**63) + 10, None, None, None]


def test_keys_that_have_left_take_no_memory():
    join = Join(JoinKind.INNER, windowed("a", 100), windowed("b", 100), equal("a.k", "b.k"))
    flow = dataflow(Aggregated(join, (column("a.k"),), ALL[:3]))
    for first in range(0, 40_000, 2_000):
        rows = [(ts, ts, (ts, 1, "a", 0.5, ts)) for ts in range(first, first + 2_000)]
        flow.push("a", batch_of(rows), first)
        flow.push("b", batch_of(rows), first)
        assert len(flow.advance({"a": first + 2_000, "b": first + 2_000})) > 3_500
        assert flow.size_bytes < 8_000_000
