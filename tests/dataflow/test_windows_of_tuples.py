"""Windows, WHERE, select lists and ISTREAM over one stream, against brute force."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Call, Literal, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Filter,
    NowWindow,
    Ordered,
    Project,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.statements.statement import (
    LandmarkWindow,
    OrderKey,
    Output,
    RangeWindow,
    SnapshotWindow,
    UnboundedWindow,
)
from shedder.dataflow.relation_to_stream import stream_batch
from shedder.errors import BudgetExceeded
from tests.dataflow import brute_force as brute
from tests.dataflow.worlds import (
    COLUMNS,
    END,
    batch_of,
    boolean,
    column,
    dataflow,
    instants,
    number,
    rows_of,
    run,
    scan,
    stream,
    windowed,
)

LOG = stream(1)

WINDOWS = {
    "range": (RangeWindow(50, 1), brute.range_window(LOG, 50)),
    "slide": (RangeWindow(50, 20), brute.range_window(LOG, 50, 20)),
    "tumbling": (RangeWindow(40, 40), brute.range_window(LOG, 40, 40)),
    "gaps": (RangeWindow(10, 30), brute.range_window(LOG, 10, 30)),
    "now": (NowWindow(), brute.range_window(LOG, 1)),
    "unbounded": (UnboundedWindow(), brute.unbounded(LOG)),
    "landmark": (LandmarkWindow(100), brute.landmark(LOG, 100)),
    "snapshot": (SnapshotWindow(100, 200), brute.landmark(LOG, 100, 200)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_holds_the_tuples_of_the_brute_force(name):
    window, expected = WINDOWS[name]
    made = run(WindowOf(scan("s"), window), {"s": LOG}, seed=2)
    for e in instants(3):
        assert made.at(e) == Counter(expected(e)), e


def test_where_and_select_list_are_those_of_the_brute_force():
    kept = Filter(windowed("s", 60, 7), boolean(Op.GT, column("s.x"), number(1)))
    total = Call(Op.ADD, (column("s.k"), column("s.x")), ColumnType.BIGINT)
    plan = Project(kept, (Output("n", column("s.name")), Output("t", total)))
    filtered = brute.select(
        brute.range_window(LOG, 60, 7), lambda row: row[1] is not None and row[1] > 1
    )
    expected = brute.project(
        filtered, lambda row: (row[2], None if row[0] is None else row[0] + row[1])
    )
    made = run(plan, {"s": LOG}, seed=4)
    for e in instants(5):
        assert made.at(e) == Counter(expected(e)), e


def test_where_inside_of_a_window_is_applied_before_it():
    plan = WindowOf(scan("s"), RangeWindow(30, 1), boolean(Op.IS_NULL, column("s.name")))
    expected = brute.select(brute.range_window(LOG, 30), lambda row: row[2] is None)
    made = run(plan, {"s": LOG}, seed=6)
    for e in instants(7):
        assert made.at(e) == Counter(expected(e)), e


def test_the_stream_of_all_tuples_is_the_stream_in_order():
    plan = ToStream(StreamOperator.ISTREAM, scan("s"))
    tuples = run(plan, {"s": LOG}, seed=8).changes
    assert rows_of(tuples.columns) == [row for _, _, row in LOG]
    assert tuples.ts_us.tolist() == [ts for ts, _, _ in LOG]
    assert stream_batch(tuples).schema.names[-2:] == ["_ts", "_sign"]


@pytest.mark.parametrize("operator", [StreamOperator.ISTREAM, StreamOperator.DSTREAM])
@pytest.mark.parametrize("slide", [1, 20])
def test_stream_of_a_window_is_the_difference_of_neighbouring_instants(operator, slide):
    plan = ToStream(operator, Project(windowed("s", 50, slide), (Output("n", column("s.name")),)))
    relation = brute.project(brute.range_window(LOG, 50, slide), lambda row: (row[2],))
    differences = brute.insertions if operator is StreamOperator.ISTREAM else brute.deletions
    expected = differences(relation, range(END + 100))
    tuples = run(plan, {"s": LOG}, seed=9).changes
    found = Counter(zip(tuples.ts_us.tolist(), rows_of(tuples.columns), strict=True))
    assert found == Counter((ts, row) for ts, _, row in expected)
    assert (np.diff(tuples.ts_us) >= 0).all()
    assert len(found) > 20


@pytest.mark.parametrize(("slide", "evaluated"), [(20, range(0, END + 100, 20)), (1, None)])
def test_whole_relation_is_emitted_at_each_evaluated_instant(slide, evaluated):
    name = (Output("n", column("s.name")),)
    plan = ToStream(StreamOperator.RSTREAM, Project(windowed("s", 50, slide), name))
    relation = brute.project(brute.range_window(LOG, 50, slide), lambda row: (row[2],))
    if evaluated is None:
        bags = [Counter(relation(e)) for e in range(END + 100)]
        evaluated = [e for e in range(1, END + 100) if bags[e] != bags[e - 1]]
    expected = Counter((e - 1, row) for e in evaluated for row in relation(e))
    for seed in (15, 16):
        tuples = run(plan, {"s": LOG}, seed=seed).changes
        assert Counter(zip(tuples.ts_us.tolist(), rows_of(tuples.columns), strict=True)) == expected


def test_the_whole_relation_skips_the_instants_at_which_it_is_empty():
    """A tuple with a wrong clock may be followed by one 50 years later: 10^14 slides."""
    plan = ToStream(
        StreamOperator.RSTREAM, Project(windowed("s", 20, 10), (Output("k", column("s.k")),))
    )
    flow = dataflow(plan)
    late = 10**15 + 1
    flow.push("s", batch_of([(5, 0, (1, 0, "", 0.0, 5)), (late, 1, (2, 0, "", 0.0, late))]), 0)
    rows = [flow.advance({"s": watermark}) for watermark in (11, 10**15, 10**15 + 100)]
    made = [
        (row[0], ts)
        for each in rows
        for row, ts in zip(rows_of(each.columns), each.ts_us, strict=True)
    ]
    assert made == [(1, 9), (1, 19), (2, 10**15 + 9), (2, 10**15 + 19)]


def test_an_aggregate_of_no_tuples_is_emitted_from_the_first_tuple_on():
    """Without GROUP BY its row is there from the year 1 on, and so would be its instants."""
    count = Aggregate(AggregateFunction.COUNT, None, type=ColumnType.BIGINT)
    plan = ToStream(StreamOperator.RSTREAM, Aggregated(windowed("s", 20, 10), (), (count,)))
    flow, again = dataflow(plan), dataflow(plan)
    assert len(flow.advance({"s": 30})) == 0
    flow.push("s", batch_of([(35, 0, (1, 0, "", 0.0, 35)), (36, 1, (2, 0, "", 0.0, 36))]), 0)
    made = flow.advance({"s": 71})
    assert rows_of(made.columns) == [(2,), (2,), (0,), (0,)]
    assert made.ts_us.tolist() == [39, 49, 59, 69]
    again.advance({"s": 71})  # A restart that has no tuples to read again.
    again.go_on()
    for each in (flow, again):
        made = each.advance({"s": 90})
        assert (rows_of(made.columns), made.ts_us.tolist()) == ([(0,), (0,)], [79, 89])


def test_the_whole_relation_at_very_many_instants_is_refused():
    """Values of 10 MB, in 100,000 batches of kilobytes."""
    plan = ToStream(StreamOperator.RSTREAM, windowed("s", 10**9, 10))
    flow = dataflow(plan, state_bytes_max=1 << 24)
    flow.push("s", batch_of([(5, 0, (1, 0, "", 0.0, 5))]), 0)
    with pytest.raises(BudgetExceeded, match="RSTREAM made more than"):
        flow.advance({"s": 10**6})


def test_whole_relations_beyond_the_limit_are_refused_with_the_limit():
    flow = dataflow(ToStream(StreamOperator.RSTREAM, scan("s")), state_bytes_max=200_000)
    rows = [(ts, ts, (1, 1, "a", 0.0, ts)) for ts in range(1_000)]
    flow.push("s", batch_of(rows), 0)
    with pytest.raises(BudgetExceeded, match="RSTREAM made more than 200,000 bytes"):
        flow.advance({"s": 2_000})


def test_sum_of_signed_changes_is_the_relation():
    plan = Project(windowed("s", 50), (Output("k", column("s.k")),))
    made = run(plan, {"s": LOG}, seed=10)
    signs = made.flow.signed_changes()
    bag: Counter = Counter()
    for as_of, changes in made.steps:
        signed = signs.apply(as_of, changes)
        rows = rows_of(signed.columns)
        for row, weight in zip(rows, signed.weight.tolist(), strict=True):
            bag[row] += weight
        assert +bag == made.at(as_of)
        assert min(bag.values(), default=0) >= 0
    assert len(made.steps) > 5


def test_current_relation_is_the_relation_at_each_step():
    made = run(windowed("s", 50, 10), {"s": LOG}, seed=11)
    relation = made.flow.current_relation(1 << 20)
    for as_of, changes in made.steps:
        relation.add(as_of, changes)
        assert Counter(rows_of(relation.table(as_of))) == made.at(as_of)
        assert Counter(rows_of(relation.table(as_of + 7))) == made.at(as_of + 7) or as_of < END


def test_order_by_and_limit_apply_to_the_current_relation():
    keys = (OrderKey(column("s.k"), descending=True), OrderKey(column("s.ts"), descending=False))
    plan = Ordered(windowed("s", 100), keys, limit=5, offset=2)
    made = run(plan, {"s": LOG}, seed=12)
    relation = made.flow.current_relation(1 << 20)
    for as_of, changes in made.steps[:-1]:
        relation.add(as_of, changes)
        rows = sorted(
            brute.range_window(LOG, 100)(as_of),
            key=lambda row: (row[0] is None, -(row[0] or 0), row[4]),
        )
        table = relation.table(as_of).select(["s.k", "s.ts"])
        assert rows_of(table) == [(row[0], row[4]) for row in rows[2:7]]


def test_current_relation_beyond_its_limit_says_how_many_bytes_it_needs():
    made = run(scan("s"), {"s": LOG}, seed=13)
    relation = made.flow.current_relation(1000)
    as_of, _ = made.steps[-1]
    with pytest.raises(BudgetExceeded, match=r"needs [\d,]+ bytes; the limit is 1,000"):
        relation.add(as_of, made.changes)


def test_rows_that_have_left_take_no_memory_in_the_current_relation():
    flow = dataflow(windowed("s", 10))
    relation = flow.current_relation(1 << 20)
    rows = [(ts, ts, (1, 1, "a", 0.0, ts)) for ts in range(20_000)]
    for first in range(0, len(rows), 500):
        flow.push("s", batch_of(rows[first : first + 500]), first)
        changes = flow.advance({"s": first + 500})
        relation.add(first + 500, changes)
        assert relation.size_bytes < 250_000


def test_late_tuples_are_counted_and_left_out():
    flow = dataflow(scan("s"))
    flow.push("s", batch_of(LOG[:50]), 0)
    flow.advance({"s": LOG[49][0]})
    late = sum(ts < LOG[49][0] for ts, _, _ in LOG[40:60])
    assert flow.push("s", batch_of(LOG[40:60]), 40) == late
    assert late > 0


def test_tuples_at_the_watermark_wait_and_count_as_state():
    flow = dataflow(scan("s"))
    flow.push("s", batch_of(LOG[:50]), 0)
    assert len(flow.advance({"s": LOG[49][0]})) == sum(ts < LOG[49][0] for ts, _, _ in LOG)
    assert flow.size_bytes > 0
    assert len(flow.advance({"s": LOG[49][0] + 1})) == 50 - sum(
        ts < LOG[49][0] for ts, _, _ in LOG[:50]
    )
    assert flow.size_bytes == 0


def test_tuples_that_wait_beyond_the_limit_are_refused_with_both_sizes():
    flow = dataflow(scan("s"), state_bytes_max=500)
    with pytest.raises(BudgetExceeded, match=r"need [\d,]+ bytes; the limit is 500"):
        flow.push("s", batch_of(LOG), 0)


def test_a_source_names_the_columns_of_its_stream():
    source = dataflow(windowed("s", 10, relation="requests")).sources["s"]
    assert source.relation == "requests"
    assert source.columns == (*COLUMNS, "ts")
    assert source.time_column == "ts"


def test_a_constant_without_columns_has_a_row_per_tuple():
    one = Output("one", Literal(1, ColumnType.BIGINT))
    bare = scan("s")
    plan = Project(type(bare)(bare.relation, "s", bare.kind, (), "s.ts"), (one,))
    made = run(plan, {"s": LOG}, seed=14)
    assert made.at(END) == Counter({(1,): len(LOG)})
