"""Facts of operators: rows and time of each, by hand, and the graph as text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    BoundRelational,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    RowsWindow,
    SetOperation,
    SetOperator,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.statements.statement import Output
from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.graph_text import graph_text
from shedder.dataflow.update_patterns import UpdatePattern
from tests.dataflow.worlds import batch_of, boolean, column, equal, number, scan, windowed

STEP_NS = 1_000  # Of the clock, each time that it is read.
PAIRS = Join(
    JoinKind.INNER, windowed("a", 40_000_000), windowed("b", 20_000_000), equal("a.k", "b.k")
)


def measured(plan: Plan) -> Dataflow:
    clock: Iterator[int] = count(0, STEP_NS)
    return Dataflow(
        BoundRelational("", plan, ()), state_bytes_max=1 << 26, clock_ns=lambda: next(clock)
    )


def rows(times: list[int], key: int) -> list[tuple[int, int, tuple[object, ...]]]:
    return [(ts, at, (key, at, "a", 0.0, ts)) for at, ts in enumerate(times)]


def test_each_operator_counts_its_rows_and_its_time():
    passing = boolean(Op.GT, column("a.x"), number(0))
    flow = measured(Filter(windowed("a", 40_000_000), passing))
    assert flow.push("a", batch_of(rows([1, 2, 3, 90], 7)), 0) == 0
    flow.advance({"a": 50})
    stream, selection, window = flow.operators()
    assert (stream.rows_in, stream.rows_out) == (4, 3)  # The tuple at 90 waits.
    assert stream.size_bytes > 0
    assert (selection.rows_in, selection.rows_out) == (3, 2)
    assert (window.rows_in, window.rows_out) == (2, 2)
    assert stream.ns == 2 * STEP_NS  # One push and one release.
    assert window.ns == selection.ns == STEP_NS
    assert selection.ns_per_row == pytest.approx(STEP_NS / 3)
    assert [each.inputs for each in flow.operators()] == [(), (0,), (1,)]


def test_late_tuples_are_not_counted_as_waiting():
    flow = measured(windowed("a", 40_000_000))
    flow.advance({"a": 10})
    assert flow.push("a", batch_of(rows([1, 2, 30], 7)), 0) == 2
    stream, _ = flow.operators()
    assert stream.rows_in - stream.rows_out == 1


def test_sizes_of_operators_are_those_of_the_dataflow():
    flow = measured(Project(PAIRS, (Output("n", column("b.name")),)))
    for alias in ("a", "b"):
        flow.push(alias, batch_of(rows([1, 2, 3, 90], 7)), 0)
    flow.advance({"a": 50, "b": 50})
    assert sum(each.size_bytes for each in flow.operators()) == flow.size_bytes > 0


def test_graph_is_a_tree_with_labels_and_numbers_by_hand():
    flow = measured(Project(PAIRS, (Output("n", column("b.name")), Output("k", column("a.k")))))
    for alias in ("a", "b"):
        flow.push(alias, batch_of(rows([1, 2], 7)), 0)
    flow.advance({"a": 10, "b": 10})
    text = graph_text(flow.operators())
    sizes = [f"{each.size_bytes:,}" for each in flow.operators()]
    width = max(map(len, sizes))
    expected = [
        ("operator", "rows leave", "rows", "bytes", "ns/row"),
        ("Project b.name AS n, a.k", "WK", "4", sizes[7], "250"),
        ("Join a.k = b.k", "WK", "4", sizes[6], "250"),
        ("├ Project a.k", "WKS", "2", sizes[2], "500"),
        ("│ Window [RANGE INTERVAL '40' SECOND]", "WKS", "2", sizes[1], "500"),
        ("│ a, rows kept by k", "MONOTONIC", "2", sizes[0], "1,500"),
        ("└ Project b.k, b.name", "WKS", "2", sizes[5], "500"),
        ("  Window [RANGE INTERVAL '20' SECOND]", "WKS", "2", sizes[4], "500"),
        ("  b, rows kept by k", "MONOTONIC", "2", sizes[3], "1,500"),
    ]
    assert text == [
        f"{name:37}  {label:10}  {made:>4}  {size:>{width}}  {ns:>6}"
        for name, label, made, size, ns in expected
    ]


def test_operator_with_several_readers_is_shown_once_and_numbered():
    unpaid = Join(
        JoinKind.ANTI, windowed("a", 40_000_000), windowed("b", 20_000_000), equal("a.k", "b.k")
    )
    lines = graph_text(measured(unpaid).operators())
    assert sum("Window [RANGE INTERVAL '40' SECOND]" in line for line in lines) == 1
    [again] = [line for line in lines if "as above" in line]
    [first] = [line for line in lines if "(1) Window" in line]
    assert "(1) as above" in again
    assert lines.index(first) < lines.index(again)


def test_long_text_is_wrapped_between_the_branches():
    many = tuple(Output(f"o{at}", column("a.k")) for at in range(30))
    lines = graph_text(measured(Project(PAIRS, many)).operators())
    assert max(map(len, lines)) <= 79
    text = " ".join(line.strip() for line in lines[1:])
    assert all(f"a.k AS o{at}" in " ".join(text.split()) for at in (0, 1))


COUNT = Aggregate(AggregateFunction.COUNT, None, type=ColumnType.BIGINT)
NAMED = [
    (windowed("a", 40_000_000), "Window [RANGE INTERVAL '40' SECOND]", UpdatePattern.WEAKEST),
    (
        WindowOf(scan("a"), RowsWindow(3, 2, ("a.k",))),
        "Window [PARTITION BY a.k ROWS 3 SLIDE 2]",
        UpdatePattern.STRICT,
    ),
    (Distinct(windowed("a", 40_000_000)), "DISTINCT", UpdatePattern.STRICT),
    (
        SetOperation(
            SetOperator.EXCEPT, True, windowed("a", 40_000_000), windowed("b", 40_000_000)
        ),
        "EXCEPT ALL",
        UpdatePattern.STRICT,
    ),
    (
        SetOperation(SetOperator.UNION, True, windowed("a", 40_000_000), windowed("b", 40_000_000)),
        "UNION ALL",
        UpdatePattern.WEAKEST,
    ),
    (
        SetOperation(SetOperator.UNION, True, windowed("a", 40_000_000), windowed("b", 30_000_000)),
        "UNION ALL",
        UpdatePattern.WEAK,
    ),
    (
        Join(JoinKind.INNER, windowed("a", 40_000_000), windowed("b", 40_000_000), None),
        "Join of all pairs",
        UpdatePattern.WEAK,
    ),
    (
        Aggregated(windowed("a", 40_000_000), (column("a.k"),), (COUNT,)),
        "Aggregate COUNT(*) GROUP BY a.k",
        UpdatePattern.STRICT,
    ),
    (
        Aggregated(PAIRS, (), (COUNT,)),
        "Aggregate COUNT(*) per key a.k = b.k, without pairs",
        UpdatePattern.STRICT,
    ),
    (
        ToStream(StreamOperator.DSTREAM, windowed("a", 40_000_000)),
        "DSTREAM",
        UpdatePattern.MONOTONIC,
    ),
    (
        ToStream(StreamOperator.RSTREAM, windowed("a", 40_000_000)),
        "RSTREAM",
        UpdatePattern.MONOTONIC,
    ),
]


@pytest.mark.parametrize(("plan", "text", "pattern"), NAMED)
def test_operator_says_what_it_computes_and_when_rows_leave(plan, text, pattern):
    last = measured(plan).operators()[-1]
    assert (last.text, last.pattern) == (text, pattern)
