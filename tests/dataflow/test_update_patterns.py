"""Labels of edges: golden plans, and what each label promises of the expiry of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Join,
    JoinKind,
    Plan,
    Project,
    RowsWindow,
    SetOperation,
    SetOperator,
    WindowOf,
    inputs_of,
)
from shedder.cql.statements.statement import Output
from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.graph_text import graph_outline
from shedder.dataflow.update_patterns import UpdatePattern
from tests.cql.relations import Relations
from tests.cql.relations import stream as schema
from tests.dataflow.brute_force import Row, Tuple
from tests.dataflow.random_plans import RandomPlans
from tests.dataflow.worlds import (
    BIGINT,
    COUNT,
    END,
    Run,
    column,
    dataflow,
    equal,
    run,
    scan,
    stream,
    windowed,
)
from tests.scale import scaled
from tests.seeds import seed

MINUTE = "[RANGE INTERVAL '1' MINUTE]"
NO_MATCH = f"NOT EXISTS (SELECT * FROM s3 {MINUTE} WHERE s3.a = s1.a)"
# Q28 of Golab 2006, section 3.5.1: the negation above the join, and below it.
ABOVE = f"SELECT RSTREAM(s1.a) FROM s1 {MINUTE}, s2 {MINUTE} WHERE s1.a = s2.a AND {NO_MATCH}"
BELOW = (
    f"SELECT RSTREAM(r.a) FROM (SELECT a FROM s1 {MINUTE} WHERE {NO_MATCH}) r, s2 {MINUTE} "
    "WHERE r.a = s2.a"
)
ABOVE_LABELS = """\
RSTREAM: MONOTONIC
Project s1.a: STR
Difference: STR
├ (1) Project s1.a: WK
│ Join s1.a = s2.a: WK
│ ├ Window [RANGE INTERVAL '1' MINUTE]: WKS
│ │ s1, rows kept by a: MONOTONIC
│ └ Window [RANGE INTERVAL '1' MINUTE]: WKS
│   s2, rows kept by a: MONOTONIC
└ Project s1.a: STR
  Join s1.a = #0: STR
  ├ (1) as above
  └ DISTINCT: STR
    Project s3.a AS #0: WKS
    Window [RANGE INTERVAL '1' MINUTE]: WKS
    s3: MONOTONIC"""
BELOW_LABELS = """\
RSTREAM: MONOTONIC
Project r.a: STR
Join r.a = s2.a: STR
├ Project s1.a AS r.a: STR
│ Difference: STR
│ ├ (1) Window [RANGE INTERVAL '1' MINUTE]: WKS
│ │ s1, rows kept by a: MONOTONIC
│ └ Project s1.a: STR
│   Join s1.a = #0: STR
│   ├ (1) as above
│   └ DISTINCT: STR
│     Project s3.a AS #0: WKS
│     Window [RANGE INTERVAL '1' MINUTE]: WKS
│     s3: MONOTONIC
└ Window [RANGE INTERVAL '1' MINUTE]: WKS
  s2, rows kept by a: MONOTONIC"""


@pytest.mark.parametrize(("text", "labels"), [(ABOVE, ABOVE_LABELS), (BELOW, BELOW_LABELS)])
def test_both_plans_of_a_join_with_a_negation_have_the_labels_of_golab(text, labels):
    streams = {name: (schema(name, a=ColumnType.BIGINT), []) for name in ("s1", "s2", "s3")}
    made = Dataflow(Relations(streams).bound(text), state_bytes_max=1 << 20)
    assert "\n".join(graph_outline(made.operators())) == labels


def parts(plan: Plan) -> Iterator[Plan]:
    yield plan
    for part in inputs_of(plan):
        yield from parts(part)


def with_future(log: list[Tuple], other: list[Tuple], now: int) -> list[Tuple]:
    """The log up to an instant, and another one behind it."""
    rows = [(ts, row) for ts, _, row in log if ts < now]
    rows += [(ts, row) for ts, _, row in other if ts >= now]
    return [(ts, position, row) for position, (ts, row) in enumerate(rows)]


def lives(made: Run, now: int) -> Counter[tuple[Row, int, int]]:
    """Rows that are born up to an instant, with their births and expiries."""
    changes = made.changes
    ends = zip(made.rows, changes.born_us.tolist(), changes.expires_us.tolist(), strict=True)
    return Counter(each for each in ends if each[1] <= now)


@pytest.mark.parametrize("trial", range(scaled(6, 150)))
def test_the_future_changes_no_expiry_on_an_edge_that_is_not_strict(trial):
    drawn = RandomPlans(seed("update patterns", trial))
    plan, now = drawn.relation(depth=scaled(2, 3)).plan, END // 2
    for part in parts(plan):
        label = None if isinstance(part, type(scan("a"))) else dataflow(part).label
        if label is None or label.is_strict:
            continue
        names = {each.alias for each in parts(part) if isinstance(each, type(scan("a")))}
        logs = {name: log for name, log in drawn.streams.items() if name in names}
        others = {name: stream(trial + at, size=100) for at, name in enumerate(logs)}
        futures = [logs, {n: with_future(log, others[n], now) for n, log in logs.items()}]
        made = [run(part, each, seed=trial) for each in futures]
        assert lives(made[0], now) == lives(made[1], now)
        changes = made[0].changes
        assert (changes.weight > 0).all()
        if label.pattern is UpdatePattern.WEAKEST:
            order = changes.take(changes.born_us.argsort(kind="stable"))
            assert (order.expires_us[1:] >= order.expires_us[:-1]).all()


def only_k(alias: str) -> Project:
    return Project(windowed(alias, 40), (Output("k", column(f"{alias}.k")),))


A, B, ON = windowed("a", 40), windowed("b", 40), equal("a.k", "b.k")
TOTAL = Aggregate(COUNT, None, type=BIGINT)
# (plan, times of tuples of a and b before the instant, of those behind it): k is 1 in all.
WITNESSES = {
    "ROWS": (WindowOf(scan("a"), RowsWindow(1)), ([10], []), ([20], [])),
    "DISTINCT": (Distinct(only_k("a")), ([10], []), ([20], [])),
    "GROUP BY": (Aggregated(A, (), (TOTAL,)), ([10], []), ([20], [])),
    "UNION": (
        SetOperation(SetOperator.UNION, False, only_k("a"), only_k("b")),
        ([10], []),
        ([], [20]),
    ),
    "EXCEPT": (
        SetOperation(SetOperator.EXCEPT, True, only_k("a"), only_k("b")),
        ([10], []),
        ([], [20]),
    ),
    "INTERSECT": (
        SetOperation(SetOperator.INTERSECT, False, only_k("a"), only_k("b")),
        ([12], [10]),
        ([], [20]),
    ),
    "EXISTS": (Join(JoinKind.SEMI, A, B, ON), ([12], [10]), ([], [20])),
    "NOT EXISTS": (Join(JoinKind.ANTI, A, B, ON), ([10], []), ([], [20])),
    "NOT IN": (Join(JoinKind.ANTI_NULL_AWARE, A, B, ON), ([10], []), ([], [20])),
    "LEFT JOIN": (Join(JoinKind.LEFT, A, B, ON), ([10], []), ([], [20])),
}


def of_times(times: list[int]) -> list[Tuple]:
    return [(ts, at, (1, 0, "", 0.0, ts)) for at, ts in enumerate(times)]


@pytest.mark.parametrize("kind", WITNESSES)
def test_a_strict_edge_has_two_futures_that_give_one_row_two_expiries(kind):
    """The first future is empty; a window of rows then keeps its row."""
    plan, past, future = WITNESSES[kind]
    assert dataflow(plan).label.is_strict
    now, last = 15, []
    for behind in (([], []), future):
        logs = {
            alias: of_times([*before, *after])
            for alias, before, after in zip("ab", past, behind, strict=True)
        }
        used = {alias: logs[alias] for alias in dataflow(plan).sources}
        made = run(plan, used, seed=1)
        (row,) = made.at(now)
        last.append(next((e for e in range(now, 2 * END) if not made.at(e)[row]), None))
    assert last[0] != last[1]
