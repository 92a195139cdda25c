"""Equal windows over one stream: stored once, with the rows of windows that are not shared."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from shedder.cql.expressions.expression import Op
from shedder.cql.plans.logical_plan import (
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    RowsWindow,
    SetOperation,
    SetOperator,
    WindowOf,
    scans_of,
)
from shedder.cql.plans.shared_windows import with_shared_windows
from shedder.cql.statements.statement import Output, RangeWindow
from tests.dataflow import brute_force as brute
from tests.dataflow.worlds import (
    END,
    batch_of,
    boolean,
    column,
    dataflow,
    equal,
    number,
    run,
    scan,
    stream,
    windowed,
)

LOG = stream(71)
K, X = 0, 1


def newest(alias: str, rows: int = 4, relation: str = "s") -> WindowOf:
    return WindowOf(scan(alias, relation), RowsWindow(rows, partition=(f"{alias}.k",)))


def passing(alias: str) -> Plan:
    return Filter(
        windowed(alias, 40, relation="s"), boolean(Op.GT, column(f"{alias}.x"), number(0))
    )


def same_k(a, b):
    return a[K] is not None and a[K] == b[K]


def positive(row):
    return row[X] is not None and row[X] > 0


RANGE, NEWEST = brute.range_window(LOG, 40), brute.rows_window(LOG, 4, lambda row: row[K])
PASSING = brute.select(RANGE, positive)
WORLDS = {
    "ROWS": (newest("a"), newest("b"), NEWEST, NEWEST),
    "RANGE": (windowed("a", 40, relation="s"), windowed("b", 40, relation="s"), RANGE, RANGE),
    "conditions": (passing("a"), passing("b"), PASSING, PASSING),
    "one condition": (passing("a"), windowed("b", 40, relation="s"), PASSING, RANGE),
    "two lengths": (
        windowed("a", 40, relation="s"),
        windowed("b", 20, relation="s"),
        RANGE,
        brute.range_window(LOG, 20),
    ),
}
SHARED = ("ROWS", "RANGE", "conditions", "two lengths")


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.ANTI])
def test_joins_of_a_stream_with_itself_have_the_rows_of_the_brute_force(name, kind):
    left, right, ours, theirs = WORLDS[name]
    made = run(Join(kind, left, right, equal("a.k", "b.k")), {"a": LOG, "b": LOG}, seed=72)
    random = Random(73)
    for e in [random.randrange(END + 100) for _ in range(60)]:
        if kind is JoinKind.INNER:
            expected = brute.join(ours, theirs, same_k)(e)
        else:
            expected = [a for a in ours(e) if not any(same_k(a, b) for b in theirs(e))]
        assert made.at(e) == Counter(expected), e
    streams = [each for each in made.flow.operators() if each.alias is not None]
    assert len(streams) == (1 if name in SHARED else 2)


def test_columns_that_only_one_alias_reads_are_there():
    left = Project(newest("a"), (Output("x", column("a.x")),))
    right = Project(newest("b"), (Output("y", column("b.k")),))
    made = run(Join(JoinKind.INNER, left, right, None), {"a": LOG, "b": LOG}, seed=74)
    expected = [(a[X], b[K]) for a in NEWEST(200) for b in NEWEST(200)]
    assert made.at(200) == Counter(expected)


@pytest.mark.parametrize(
    "other",
    [
        newest("b", relation="t"),
        newest("b", rows=5),
        WindowOf(Filter(scan("b", "s"), boolean(Op.GT, column("b.x"), number(0))), RowsWindow(4)),
        WindowOf(WindowOf(scan("b", "s"), RangeWindow(9, 1)), RangeWindow(9, 1)),
    ],
)
def test_windows_that_differ_stay_apart(other):
    plan = Join(JoinKind.INNER, newest("a"), other, None)
    assert with_shared_windows(plan) == (plan, {})


def test_four_windows_have_one_reader_and_hold_each_tuple_once():
    windows: list[Plan] = [newest(alias) for alias in "abcd"]
    union = windows[0]
    for each in windows[1:]:
        union = SetOperation(SetOperator.UNION, True, union, each)
    plan, readers = with_shared_windows(union)
    assert readers == dict.fromkeys("bcd", "a")
    assert {each.alias for each in scans_of(plan)} == {"a"}
    four, one = dataflow(union), dataflow(newest("a"))
    rows = [(ts, ts, (ts % 500, 1, "some text", 0.0, ts)) for ts in range(5_000)]
    for alias in "abcd":
        assert four.push(alias, batch_of(rows), 0) == 0
    one.push("a", batch_of(rows), 0)
    assert len(four.advance(dict.fromkeys("abcd", 6_000))) == 4 * len(one.advance({"a": 6_000}))
    assert four.size_bytes == one.size_bytes > 0


def test_late_tuples_of_each_alias_are_counted():
    flow = dataflow(Join(JoinKind.INNER, newest("a"), newest("b"), equal("a.k", "b.k")))
    flow.advance({"a": 10, "b": 10})
    rows = [(ts, ts, (1, 1, "a", 0.0, ts)) for ts in (3, 8, 12)]
    assert [flow.push(alias, batch_of(rows), 0) for alias in "ab"] == [2, 2]
    assert len(flow.advance({"a": 20})) == 0  # The other alias is behind.
    assert len(flow.advance({"b": 20})) == 1
