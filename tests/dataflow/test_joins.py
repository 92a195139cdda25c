"""Joins of windows, against brute force: pairs, outer joins, [NOT] EXISTS, several streams."""

from __future__ import annotations

from collections import Counter

import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Op
from shedder.cql.plans.logical_plan import (
    Distinct,
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.statements.statement import Output, RangeWindow
from shedder.errors import BudgetExceeded, Unimplemented
from tests.dataflow import brute_force as brute
from tests.dataflow.worlds import (
    END,
    NAME,
    D,
    K,
    X,
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
    windowed,
)

A, B, C = stream(31), stream(32), stream(33, size=60)


def both(*parts):
    condition = parts[0]
    for part in parts[1:]:
        condition = boolean(Op.AND, condition, part)
    return condition


CONDITIONS = {
    "key": (equal("a.k", "b.k"), matches(K)),
    "text": (equal("b.name", "a.name"), matches(NAME)),
    "two keys": (
        both(equal("a.k", "b.k"), equal("a.name", "b.name")),
        lambda a, b: matches(K)(a, b) and matches(NAME)(a, b),
    ),
    "key of two types": (equal("a.k", "b.x"), matches(K, X)),
    "key and a rest": (
        both(equal("a.k", "b.k"), boolean(Op.LT, column("a.x"), column("b.x"))),
        lambda a, b: matches(K)(a, b) and None not in (a[X], b[X]) and a[X] < b[X],
    ),
    "one side": (
        both(
            equal("a.k", "b.k"),
            boolean(Op.GT, column("a.x"), number(1)),
            boolean(Op.IS_NULL, column("b.name")),
        ),
        lambda a, b: matches(K)(a, b) and a[X] is not None and a[X] > 1 and b[NAME] is None,
    ),
    "theta": (
        boolean(Op.LT, column("a.d"), column("b.d")),
        lambda a, b: None not in (a[D], b[D]) and a[D] < b[D],
    ),
}
WINDOWS = {
    "equal": ((40, 1), (40, 1)),
    "unequal": ((40, 1), (15, 1)),
    "slides": ((40, 10), (30, 15)),
}


def sides(windows):
    (size, slide), (other, other_slide) = WINDOWS[windows]
    plans = windowed("a", size, slide), windowed("b", other, other_slide)
    relations = (
        brute.range_window(A, size, slide),
        brute.range_window(B, other, other_slide),
    )
    return plans, relations


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("windows", WINDOWS)
def test_pairs_of_two_windows_are_those_of_the_brute_force(condition, windows):
    (left, right), relations = sides(windows)
    bound, python = CONDITIONS[condition]
    made = run(Join(JoinKind.INNER, left, right, bound), {"a": A, "b": B}, seed=34)
    expected = brute.join(*relations, python)
    for e in instants(35):
        assert made.at(e) == Counter(expected(e)), e


def brute_outer(kind: JoinKind, left: brute.At, right: brute.At, condition) -> brute.At:
    def at(e):
        ours, theirs = left(e), right(e)
        alone = [a for a in ours if not any(condition(a, b) for b in theirs)]
        widowed = [b for b in theirs if not any(condition(a, b) for a in ours)]
        pairs = [a + b for a in ours for b in theirs if condition(a, b)]
        match kind:
            case JoinKind.SEMI:
                return [a for a in ours if any(condition(a, b) for b in theirs)]
            case JoinKind.ANTI:
                return alone
            case JoinKind.LEFT:
                return pairs + [(*a, *[None] * 5) for a in alone]
            case _:
                padded = [(*a, *[None] * 5) for a in alone]
                return pairs + padded + [(*[None] * 5, *b) for b in widowed]

    return at


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", [JoinKind.SEMI, JoinKind.ANTI, JoinKind.LEFT, JoinKind.FULL])
def test_outer_joins_and_exists_are_those_of_the_brute_force(condition, kind):
    # Slides, where both inputs change at one instant, take turns with the other conditions.
    (left, right), relations = sides("slides" if condition in ("key", "theta") else "unequal")
    bound, python = CONDITIONS[condition]
    made = run(Join(kind, left, right, bound), {"a": A, "b": B}, seed=36)
    expected = brute_outer(kind, *relations, python)
    for e in instants(37):
        assert made.at(e) == Counter(expected(e)), e


def brute_not_in(left: brute.At, right: brute.At, condition) -> brute.At:
    """Rows for which the condition, True, False or None, is False of every row."""
    return lambda e: [a for a in left(e) if all(condition(a, b) is False for b in right(e))]


@pytest.mark.parametrize("rest", [False, True])
def test_not_in_is_that_of_the_brute_force(rest):
    some = [each for each in C if each[2][K] is not None or each[0] < END // 2]
    bound = equal("a.k", "c.k")
    if rest:
        bound = both(bound, boolean(Op.GT, column("a.x"), column("c.x")))

    def condition(a, c):
        tests = [None if None in (a[K], c[K]) else a[K] == c[K]]
        if rest:
            tests.append(None if None in (a[X], c[X]) else a[X] > c[X])
        return False if False in tests else None if None in tests else True

    plan = Join(JoinKind.ANTI_NULL_AWARE, windowed("a", 40), windowed("c", 8), bound)
    expected = brute_not_in(brute.range_window(A, 40), brute.range_window(some, 8), condition)
    made = run(plan, {"a": A, "c": some}, seed=53)
    for e in instants(54):
        assert made.at(e) == Counter(expected(e)), e


def test_exists_without_a_condition_asks_for_any_row():
    plan = Join(JoinKind.ANTI, windowed("a", 40), windowed("c", 3), None)
    expected = brute_outer(
        JoinKind.ANTI, brute.range_window(A, 40), brute.range_window(C, 3), lambda a, b: True
    )
    made = run(plan, {"a": A, "c": C}, seed=38)
    for e in instants(39):
        assert made.at(e) == Counter(expected(e)), e


def test_a_stream_joins_itself():
    plan = Join(
        JoinKind.INNER, windowed("a", 40), windowed("b", 20, relation="a"), equal("a.k", "b.k")
    )
    made = run(plan, {"a": A, "b": A}, seed=40)
    expected = brute.join(brute.range_window(A, 40), brute.range_window(A, 20), matches(K))
    for e in instants(41):
        assert made.at(e) == Counter(expected(e)), e


@pytest.mark.parametrize("wrapped", [False, True])
def test_three_streams_with_their_conditions_in_where_are_joined_by_keys(wrapped):
    plan: Plan = Join(JoinKind.INNER, windowed("a", 30), windowed("b", 30), None)
    plan = Join(JoinKind.INNER, plan, windowed("c", 50), None)
    plan = Filter(plan, both(equal("a.k", "b.k"), equal("c.k", "b.k")))
    expected = brute.join(
        brute.join(brute.range_window(A, 30), brute.range_window(B, 30), matches(K)),
        brute.range_window(C, 50),
        matches(K),
    )
    if wrapped:
        plan = Project(plan, (Output("n", column("c.name")),))
        expected = brute.project(expected, lambda row: (row[10 + NAME],))
    made = run(plan, {"a": A, "b": B, "c": C}, seed=42)
    for e in instants(43):
        assert made.at(e) == Counter(expected(e)), e


def test_negation_below_a_join_and_a_join_below_negation_agree_with_brute_force():
    kept = Join(JoinKind.ANTI, windowed("a", 40), windowed("c", 20), equal("a.k", "c.k"))
    plan = Join(JoinKind.INNER, kept, windowed("b", 30), equal("a.x", "b.x"))
    low = brute_outer(
        JoinKind.ANTI, brute.range_window(A, 40), brute.range_window(C, 20), matches(K)
    )
    expected = brute.join(low, brute.range_window(B, 30), matches(X))
    made = run(plan, {"a": A, "b": B, "c": C}, seed=44)
    for e in instants(45):
        assert made.at(e) == Counter(expected(e)), e

    pairs = Join(JoinKind.INNER, windowed("a", 40), windowed("b", 30), equal("a.x", "b.x"))
    plan = Join(JoinKind.ANTI, pairs, windowed("c", 20), equal("a.k", "c.k"))
    other = run(plan, {"a": A, "b": B, "c": C}, seed=46)
    for e in instants(47):
        assert other.at(e) == Counter(expected(e)), e


def test_a_window_over_a_subquery_holds_its_pairs_by_their_event_time():
    pairs = Join(JoinKind.INNER, scan("a"), scan("c"), equal("a.k", "c.k"))
    plan = WindowOf(pairs, RangeWindow(30, 10))
    log = [(max(a_ts, c_ts), 0, a + c) for a_ts, _, a in A for c_ts, _, c in C if matches(K)(a, c)]
    expected = brute.range_window(log, 30, 10)
    made = run(plan, {"a": A, "c": C}, seed=58)
    for e in instants(59):
        assert made.at(e) == Counter(expected(e)), e


def test_a_window_over_rows_that_leave_is_refused_by_name():
    leaving = WindowOf(windowed("a", 10), RangeWindow(30, 1))
    with pytest.raises(Unimplemented, match="a window over a relation whose rows leave"):
        dataflow(leaving)


def test_distinct_values_of_pairs_are_those_of_the_brute_force():
    pairs = Join(JoinKind.INNER, windowed("a", 30), windowed("b", 20), equal("a.k", "b.k"))
    total = Call(Op.ADD, (column("a.x"), column("b.x")), ColumnType.BIGINT)
    plan = Distinct(Project(pairs, (Output("t", total), Output("n", column("a.name")))))
    expected = brute.distinct(
        brute.project(
            brute.join(brute.range_window(A, 30), brute.range_window(B, 20), matches(K)),
            lambda row: (None if None in (row[X], row[5 + X]) else row[X] + row[5 + X], row[NAME]),
        )
    )
    made = run(plan, {"a": A, "b": B}, seed=48)
    for e in instants(49):
        assert made.at(e) == Counter(expected(e)), e


@pytest.mark.slow
@pytest.mark.parametrize("operator", [StreamOperator.ISTREAM, StreamOperator.DSTREAM])
def test_stream_of_a_left_join_is_the_difference_of_neighbouring_instants(operator):
    join = Join(JoinKind.LEFT, windowed("a", 40), windowed("b", 20), equal("a.k", "b.k"))
    plan = ToStream(
        operator, Project(join, (Output("n", column("a.name")), Output("x", column("b.x"))))
    )
    relation = brute.project(
        brute_outer(
            JoinKind.LEFT, brute.range_window(A, 40), brute.range_window(B, 20), matches(K)
        ),
        lambda row: (row[NAME], row[5 + X]),
    )
    differences = brute.insertions if operator is StreamOperator.ISTREAM else brute.deletions
    expected = Counter((ts, row) for ts, _, row in differences(relation, range(END + 100)))
    for seed, batch_max in ((50, 1), (51, 200)):
        tuples = run(plan, {"a": A, "b": B}, seed=seed, batch_max=batch_max).changes
        found = zip(tuples.ts_us.tolist(), rows_of(tuples.columns), strict=True)
        assert Counter(found) == expected
    assert len(expected) > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        (None, JoinKind.INNER),
        (None, JoinKind.FULL),
        (StreamOperator.ISTREAM, JoinKind.FULL),
        (StreamOperator.ISTREAM, JoinKind.ANTI),
        (StreamOperator.RSTREAM, JoinKind.INNER),
    ],
)
def test_order_of_emitted_rows_does_not_depend_on_steps(kind, operator):
    crowded = [[(ts // 20 * 20, at, row) for ts, at, row in log] for log in (A, B)]
    plan: Plan = Join(kind, windowed("a", 40), windowed("b", 30), equal("a.k", "b.k"))
    if operator is not None:
        plan = ToStream(operator, plan)
    found = []
    for seed, batch_max in ((55, 1), (56, 7), (57, 300)):
        streams = {"a": crowded[0], "b": crowded[1]}
        made = run(plan, streams, seed=seed, batch_max=batch_max, lateness=seed - 54)
        steps = made.steps
        if operator is None:
            signs = made.flow.signed_changes()
            steps = [(as_of, signs.apply(as_of, changes)) for as_of, changes in steps]
        rows = [
            (ts, sign, row)
            for _, step in steps
            for ts, sign, row in zip(
                step.ts_us.tolist(), step.weight.tolist(), rows_of(step.columns), strict=True
            )
        ]
        found.append(rows)
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 50


def test_current_relation_of_an_outer_join_is_the_relation_at_each_step():
    plan = Join(JoinKind.FULL, windowed("a", 40), windowed("b", 20), equal("a.k", "b.k"))
    made = run(plan, {"a": A, "b": B}, seed=52)
    relation = made.flow.current_relation(1 << 20)
    for as_of, changes in made.steps:
        relation.add(as_of, changes)
        assert Counter(rows_of(relation.table(as_of))) == made.at(as_of)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.ANTI, JoinKind.FULL])
def test_rows_that_have_left_take_no_memory_in_a_join(kind):
    plan = Join(kind, windowed("a", 300), windowed("b", 100), equal("a.k", "b.k"))
    flow = dataflow(plan)
    for first in range(0, 60_000, 1_000):
        for alias, shift in (("a", 0), ("b", 50)):
            rows = [(ts, ts, (ts + shift, 1, "a", 0.0, ts)) for ts in range(first, first + 1_000)]
            flow.push(alias, batch_of(rows), first)
        assert len(flow.advance({"a": first + 1_000, "b": first + 1_000})) > 500
        assert flow.size_bytes < 8_000_000


def test_a_step_with_too_many_pairs_is_refused_with_the_limit():
    flow = dataflow(Join(JoinKind.INNER, scan("a"), scan("b"), None), state_bytes_max=1_000_000)
    rows = [(ts, ts, (1, 1, "a", 0.0, ts)) for ts in range(1_000)]
    flow.push("a", batch_of(rows), 0)
    flow.push("b", batch_of(rows), 0)
    with pytest.raises(BudgetExceeded, match=r"pairs of more than 1,000,000 bytes in one step"):
        flow.advance({"a": 2_000, "b": 2_000})


def test_pairs_that_a_band_drops_take_no_memory():
    """A million pairs are tried in one step; 1,999 are in the band."""
    rows = [(ts, ts, (ts, 1, "a", 0.5, ts)) for ts in range(1_000)]
    above = Call(Op.ADD, (column("b.k"), number(1)), ColumnType.BIGINT)
    band = boolean(
        Op.AND,
        boolean(Op.GE, column("a.k"), column("b.k")),
        boolean(Op.LE, column("a.k"), above),
    )
    plan = Join(JoinKind.INNER, windowed("a", 10**6), windowed("b", 10**6), band)
    flow = dataflow(plan, state_bytes_max=1_000_000)
    for alias in "ab":
        flow.push(alias, batch_of(rows), 0)
    pairs = flow.advance({"a": 5_000, "b": 5_000})
    found = sorted((row[0], row[5]) for row in rows_of(pairs.columns))
    assert found == sorted(
        (k + more, k) for k in range(1_000) for more in (0, 1) if k + more < 1_000
    )
