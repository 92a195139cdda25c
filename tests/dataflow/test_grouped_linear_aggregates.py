"""COUNT, SUM and AVG over relations whose rows leave, against brute force with fractions."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Project,
    RowsWindow,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.statements.statement import Output
from shedder.errors import Unimplemented
from tests.dataflow import brute_force as brute
from tests.dataflow.aggregate_world import NAMES, aggregate, at_each_instant
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

A, B = stream(81), stream(82)


ALL = [(COUNT, None), (COUNT, NAME), (SUM, X), (AVG, X), (SUM, D), (AVG, D), (COUNT, D)]
BOUND = tuple(
    aggregate(function, None if place is None else f"a.{NAMES[place]}") for function, place in ALL
)


@pytest.mark.parametrize("places", [(), (K,), (NAME, X), (D,)])
@pytest.mark.parametrize("window", ["range", "rows"])
def test_groups_of_a_window_are_those_of_the_brute_force(places, window):
    source = {
        "range": (windowed("a", 60, 10), brute.range_window(A, 60, 10)),
        "rows": (
            WindowOf(scan("a"), RowsWindow(4, partition=("a.k",))),
            brute.rows_window(A, 4, lambda row: row[K]),
        ),
    }
    rows, relation = source[window]
    groups = tuple(column(f"a.{NAMES[place]}") for place in places)
    plan = Aggregated(rows, groups, BOUND)
    check(plan, {"a": A}, grouped(relation, places, ALL), seed=83)


@pytest.mark.parametrize(
    "alone", [[(SUM, K)], [(AVG, K)], [(COUNT, None), (SUM, X)]], ids=lambda of: str(of[-1])
)
@pytest.mark.parametrize("window", ["range", "rows"])
def test_one_sum_by_group_is_that_of_the_brute_force(alone, window):
    """Groups of one sum of whole numbers have a kernel of their own; values may be NULL."""
    source = {
        "range": (windowed("a", 60, 10), brute.range_window(A, 60, 10)),
        "rows": (
            WindowOf(scan("a"), RowsWindow(4, partition=("a.k",))),
            brute.rows_window(A, 4, lambda row: row[K]),
        ),
    }
    rows, relation = source[window]
    groups = (column("a.name"), column("a.x"))
    bound = tuple(aggregate(of, None if at is None else f"a.{NAMES[at]}") for of, at in alone)
    plan = Aggregated(rows, groups, bound)
    check(plan, {"a": A}, grouped(relation, (NAME, X), alone), seed=84)


@pytest.mark.parametrize("places", [(), (K,), (NAME,)])
@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.ANTI])
def test_groups_of_a_join_are_those_of_the_brute_force(places, kind):
    join = Join(kind, windowed("a", 40), windowed("b", 20), equal("a.k", "b.k"))

    match = matches(K)
    ours, theirs = brute.range_window(A, 40), brute.range_window(B, 20)
    relation = brute.join(ours, theirs, match)
    if kind is JoinKind.ANTI:
        relation = lambda e: [a for a in ours(e) if not any(match(a, b) for b in theirs(e))]  # noqa: E731
    groups = tuple(column(f"a.{NAMES[place]}") for place in places)
    plan = Aggregated(join, groups, BOUND)
    check(plan, {"a": A, "b": B}, grouped(relation, places, ALL), seed=85)


def test_having_and_a_group_over_groups_are_those_of_the_brute_force():
    inner = Aggregated(windowed("a", 50), (column("a.k"),), (aggregate(COUNT),))
    kept = Filter(inner, boolean(Op.GT, Column("a0", BIGINT), number(1)))
    named = Project(kept, (Output("a.x", Column("a0", BIGINT)),))
    again = Aggregate(COUNT, None, type=BIGINT)
    plan = Aggregated(named, (Column("a.x", BIGINT),), (again,))
    counts = grouped(brute.range_window(A, 50), (K,), [(COUNT, None)])
    having = brute.select(counts, lambda row: row[1] > 1)
    expected = grouped(having, (1,), [(COUNT, None)])
    check(plan, {"a": A}, expected, seed=87)


def test_stream_of_a_count_has_a_tuple_per_change():
    plan = ToStream(
        StreamOperator.ISTREAM, Aggregated(windowed("a", 30), (column("a.x"),), (aggregate(COUNT),))
    )
    relation = grouped(brute.range_window(A, 30), (X,), [(COUNT, None)])
    expected = Counter((ts, row) for ts, _, row in brute.insertions(relation, range(END + 100)))
    for seed, batch_max in ((89, 1), (90, 100)):
        tuples = run(plan, {"a": A}, seed=seed, batch_max=batch_max).changes
        assert Counter(zip(tuples.ts_us.tolist(), rows_of(tuples.columns), strict=True)) == expected


def test_doubles_that_leave_take_no_digits_with_them():
    values = [1e16, 1.0, 1e-300, 5e-324, -5e-324, 1.7e308, 1.7e308, 0.1, 0.2]
    expected = [1e16, 1e16, 1.0, 1e-300, 0.0, 1.7e308, None, 1.7e308, 0.1 + 0.2]
    assert at_each_instant(values, aggregate(SUM, "a.d")) == expected


def test_infinities_leave_a_finite_sum_behind():
    inf = math.inf
    assert at_each_instant([1.0, inf, inf, 2.0, 3.0, -inf, inf], aggregate(SUM, "a.d")) == [
        1.0, inf, inf, inf, 5.0, -inf, None,
    ]  # fmt: skip


def test_sums_of_whole_numbers_beyond_64_bits_are_null_until_they_are_back():
    top = 2**63 - 1
    values = [top, 0, 1, top, 1, -(2**63), -1, -(2**63)]
    expected = [top, top, 1, None, None, -(2**63) + 1, None, None]
    assert at_each_instant(values, aggregate(SUM, "a.k"), K) == expected
    assert at_each_instant([top, top], aggregate(AVG, "a.k"), K) == [float(top), float(top)]
    plan = Aggregated(
        WindowOf(scan("a"), RowsWindow(2)), (column("a.x"),), (aggregate(SUM, "a.k"),)
    )
    rows = [(ts, ts, (value, 7, "", 0.0, ts)) for ts, value in enumerate(values)]
    made = run(plan, {"a": rows}, seed=210, lateness=1, batch_max=3)
    by_group = [dict(made.at(e)) for e in range(1, len(values) + 1)]
    assert by_group == [{(7, each): 1} for each in expected]


def test_groups_that_have_left_take_no_memory():
    flow = dataflow(Aggregated(windowed("a", 100), (column("a.k"),), BOUND))
    for first in range(0, 40_000, 2_000):
        rows = [(ts, ts, (ts, 1, "a", 0.5, ts)) for ts in range(first, first + 2_000)]
        flow.push("a", batch_of(rows), first)
        assert len(flow.advance({"a": first + 2_000})) > 3_500
        assert flow.size_bytes < 20_000_000


def test_a_count_over_distinct_rows_counts_each_once():
    distinct = Distinct(Project(windowed("a", 50), (Output("k", column("a.k")),)))
    plan = Aggregated(distinct, (), (Aggregate(COUNT, None, type=BIGINT),))
    expected = lambda e: [(len({row[K] for row in brute.range_window(A, 50)(e)}),)]  # noqa: E731
    check(plan, {"a": A}, expected, seed=92)


def test_an_aggregate_that_cannot_retract_is_refused_by_name():
    alike = Aggregate(
        AggregateFunction.JOIN_SIZE,
        column("a.x"),
        second=column("a.k"),
        type=DOUBLE,
    )
    with pytest.raises(Unimplemented, match="JOIN_SIZE in a standing row query"):
        dataflow(Aggregated(windowed("a", 10), (), (alike,)))
