"""ROWS windows, with and without PARTITION BY and SLIDE, against brute force."""

from __future__ import annotations

from collections import Counter

import pytest

from shedder.cql.expressions.expression import Op
from shedder.cql.plans.logical_plan import (
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
from shedder.cql.statements.statement import Output, RangeWindow
from shedder.errors import BudgetExceeded, Unimplemented
from tests.dataflow import brute_force as brute
from tests.dataflow.worlds import (
    END,
    batch_of,
    boolean,
    column,
    dataflow,
    equal,
    instants,
    matches,
    number,
    rows_of,
    run,
    scan,
    stream,
)

LOG, OTHER = stream(61, size=200), stream(62)
PLACES = {"s.k": 0, "s.x": 1, "s.name": 2}


@pytest.mark.parametrize("rows", [1, 3, 10])
@pytest.mark.parametrize("partition", [(), ("s.k",), ("s.name",), ("s.k", "s.x")])
def test_newest_rows_are_those_of_the_brute_force(rows, partition):
    plan = WindowOf(scan("s"), RowsWindow(rows, partition=partition))
    expected = brute.rows_window(
        LOG, rows, lambda row: tuple(row[PLACES[name]] for name in partition)
    )
    made = run(plan, {"s": LOG}, seed=63)
    for e in instants(64):
        assert made.at(e) == Counter(expected(e)), e


@pytest.mark.parametrize(("rows", "slide"), [(10, 4), (4, 4), (3, 7)])
@pytest.mark.parametrize("partition", [(), ("s.k",)])
def test_a_window_with_a_slide_changes_after_every_so_many_tuples(rows, slide, partition):
    plan = WindowOf(scan("s"), RowsWindow(rows, slide, partition))

    def expected(e):
        tuples = brute.before(LOG, e)
        seen = tuples[: len(tuples) // slide * slide]
        return brute.rows_window(
            seen, rows, lambda row: tuple(row[PLACES[name]] for name in partition)
        )(e)

    made = run(plan, {"s": LOG}, seed=65)
    for e in instants(66):
        assert made.at(e) == Counter(expected(e)), e


def test_where_inside_of_the_window_is_applied_before_it():
    late = boolean(Op.GT, column("s.x"), number(1))
    plan = WindowOf(scan("s"), RowsWindow(4, partition=("s.k",)), late)
    kept = [each for each in LOG if each[2][1] is not None and each[2][1] > 1]
    expected = brute.rows_window(kept, 4, lambda row: row[0])
    made = run(plan, {"s": LOG}, seed=67)
    for e in instants(68):
        assert made.at(e) == Counter(expected(e)), e


@pytest.mark.slow
@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.ANTI, JoinKind.FULL])
def test_newest_rows_are_joined_as_the_brute_force_joins_them(kind):
    plan = Join(
        kind,
        WindowOf(scan("s"), RowsWindow(3, partition=("s.k",))),
        WindowOf(scan("t"), RowsWindow(2, partition=("t.x",))),
        equal("s.k", "t.k"),
    )
    ours = brute.rows_window(LOG, 3, lambda row: row[0])
    theirs = brute.rows_window(OTHER, 2, lambda row: row[1])

    match = matches(0)

    def expected(e):
        left, right = ours(e), theirs(e)
        alone = [a for a in left if not any(match(a, b) for b in right)]
        if kind is JoinKind.ANTI:
            return alone
        pairs = [a + b for a in left for b in right if match(a, b)]
        if kind is JoinKind.INNER:
            return pairs
        widowed = [b for b in right if not any(match(a, b) for a in left)]
        return pairs + [(*a, *[None] * 5) for a in alone] + [(*[None] * 5, *b) for b in widowed]

    made = run(plan, {"s": LOG, "t": OTHER}, seed=69)
    for e in instants(70):
        assert made.at(e) == Counter(expected(e)), e


def test_stream_of_distinct_newest_values_is_the_difference_of_neighbouring_instants():
    window = WindowOf(scan("s"), RowsWindow(5))
    plan = ToStream(
        StreamOperator.ISTREAM, Distinct(Project(window, (Output("k", column("s.k")),)))
    )
    relation = brute.distinct(brute.project(brute.rows_window(LOG, 5), lambda row: (row[0],)))
    expected = Counter((ts, row) for ts, _, row in brute.insertions(relation, range(END + 100)))
    for seed, batch_max in ((71, 1), (72, 100)):
        tuples = run(plan, {"s": LOG}, seed=seed, batch_max=batch_max).changes
        assert Counter(zip(tuples.ts_us.tolist(), rows_of(tuples.columns), strict=True)) == expected


def test_tuples_that_have_left_take_no_memory():
    flow = dataflow(WindowOf(scan("s"), RowsWindow(4, partition=("s.k",))))
    for first in range(0, 100_000, 2_000):
        rows = [(ts, ts, (ts % 100, 1, "a", 0.0, ts)) for ts in range(first, first + 2_000)]
        flow.push("s", batch_of(rows), first)
        flow.advance({"s": first + 2_000})
        assert flow.size_bytes < 2_000_000


def test_partitions_beyond_the_limit_are_refused_with_both_sizes():
    flow = dataflow(
        WindowOf(scan("s"), RowsWindow(1, partition=("s.k",))), state_bytes_max=1_000_000
    )
    rows = [(ts, ts, (ts, 1, "a", 0.0, ts)) for ts in range(5_000)]
    flow.push("s", batch_of(rows), 0)
    with pytest.raises(BudgetExceeded, match=r"need [\d,]+ bytes; the limit is 1,000,000"):
        flow.advance({"s": 6_000})


@pytest.mark.parametrize(("rows", "slide"), [(1, 1), (4, 1), (5, 3)])
@pytest.mark.parametrize("partition", [(), ("t.k",)])
def test_a_window_over_the_stream_of_a_subquery_has_its_newest_rows(rows, slide, partition):
    """A condition in the window is applied before its rows are counted."""
    columns = (Output("t.k", column("s.k")), Output("t.x", column("s.x")))
    inner = Project(Filter(scan("s"), boolean(Op.GT, column("s.x"), number(1))), columns)
    derived = ToStream(StreamOperator.ISTREAM, inner)
    condition = boolean(Op.LT, column("t.k"), number(4))
    plan = WindowOf(Filter(derived, condition), RowsWindow(rows, slide, partition))
    log = [
        (ts, at, row[:2])
        for ts, at, row in LOG
        if row[1] is not None and row[1] > 1 and row[0] is not None and row[0] < 4
    ]
    made = run(plan, {"s": LOG}, seed=67)
    for e in instants(68):
        tuples = brute.before(log, e)
        seen = tuples[: len(tuples) // slide * slide]
        expected = brute.rows_window(seen, rows, lambda row: row[: len(partition)])
        assert made.at(e) == Counter(expected(e)), e


def test_a_rows_window_over_a_derived_stream_is_refused_by_name():
    window = WindowOf(scan("s"), RangeWindow(5, 1))
    derived = ToStream(StreamOperator.ISTREAM, window)
    with pytest.raises(Unimplemented, match="a ROWS window over the stream of a subquery"):
        dataflow(WindowOf(derived, RowsWindow(3)))
