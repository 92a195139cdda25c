"""Push-down of conditions and columns: results by brute force, and where conditions end up."""

from __future__ import annotations

from collections import Counter
from random import Random

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
    RowsWindow,
    SetOperation,
    SetOperator,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.plans.needed_columns import with_needed_columns
from shedder.cql.plans.plan_columns import columns_of
from shedder.cql.plans.push_down import pushed_down
from shedder.cql.statements.statement import Output, RangeWindow
from tests.dataflow.random_plans import RandomPlans
from tests.dataflow.worlds import (
    END,
    boolean,
    column,
    equal,
    number,
    run,
    scan,
    windowed,
)
from tests.scale import scaled
from tests.seeds import seed

X = boolean(Op.GT, column("a.x"), number(1))
Y = boolean(Op.GT, column("b.x"), number(1))
D = boolean(Op.GT, column("a.d"), column("a.d"))


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(30, 400)))
def test_random_plans_have_the_rows_of_the_brute_force(world):
    plans = RandomPlans(seed("push-down", world))
    relation = plans.relation(depth=3)
    made = run(relation.plan, plans.streams, seed=world, batch_max=60)
    random = Random(world)
    for e in [random.randrange(END) for _ in range(12)]:
        assert made.at(e) == Counter(relation.at(e)), (e, relation.plan)


def conditions(plan: Plan) -> list[Plan]:
    """The inputs of all Filters."""
    found: list[Plan] = []
    for each in (getattr(plan, name, None) for name in ("input", "left", "right")):
        if each is not None:
            found += conditions(each)
    return [plan.input, *found] if isinstance(plan, Filter) else found


A, B = windowed("a", 40), windowed("b", 20)
BELOW = {
    "a window": (Filter(A, X), scan("a")),
    "a join": (Filter(Join(JoinKind.INNER, A, B, equal("a.k", "b.k")), X), scan("a")),
    "the left of a left join": (
        Filter(Join(JoinKind.LEFT, A, B, equal("a.k", "b.k")), X),
        scan("a"),
    ),
    "ON of a left join": (Join(JoinKind.LEFT, A, B, Y), scan("b")),
    "NOT EXISTS": (Filter(Join(JoinKind.ANTI, A, B, equal("a.k", "b.k")), X), scan("a")),
    "DISTINCT": (Filter(Distinct(A), X), scan("a")),
    "ISTREAM": (Filter(ToStream(StreamOperator.ISTREAM, A), X), scan("a")),
    "a window over a join": (
        Filter(WindowOf(Join(JoinKind.INNER, scan("a"), scan("b"), None), RangeWindow(9, 1)), Y),
        scan("b"),
    ),
}
STAYS: dict[str, Plan] = {
    "a ROWS window": Filter(WindowOf(scan("a"), RowsWindow(3)), X),
    "RSTREAM": Filter(ToStream(StreamOperator.RSTREAM, A), X),
    "the right of a left join": Filter(Join(JoinKind.LEFT, A, B, equal("a.k", "b.k")), Y),
    "a full join": Filter(Join(JoinKind.FULL, A, B, equal("a.k", "b.k")), X),
    "DISTINCT of -0.0 and NaN": Filter(Distinct(A), D),
    "EXCEPT of -0.0 and NaN": Filter(SetOperation(SetOperator.EXCEPT, False, A, B), D),
}


@pytest.mark.parametrize("name", BELOW)
def test_condition_is_pushed_below(name):
    plan, source = BELOW[name]
    assert conditions(pushed_down(plan)) == [source]


@pytest.mark.parametrize("name", STAYS)
def test_condition_stays_above(name):
    assert pushed_down(STAYS[name]) == STAYS[name]


def test_condition_in_on_of_a_left_join_does_not_filter_the_left():
    plan = Join(JoinKind.LEFT, A, B, boolean(Op.AND, equal("a.k", "b.k"), X))
    assert pushed_down(plan) == plan


def test_condition_reaches_both_sides_of_a_union_under_their_own_names():
    union = SetOperation(SetOperator.UNION, True, A, B)
    assert conditions(pushed_down(Filter(union, X))) == [scan("a"), scan("b")]


def test_condition_on_a_computed_column_is_over_what_it_is_computed_from():
    sum_ = Call(Op.ADD, (column("a.k"), number(1)), ColumnType.BIGINT)
    passing = boolean(Op.GT, column("n", ColumnType.BIGINT), number(4))
    plan = Filter(Project(A, (Output("n", sum_),)), passing)
    below = Filter(scan("a"), boolean(Op.GT, sum_, number(4)))
    expected = Project(WindowOf(below, A.window), (Output("n", sum_),))
    assert pushed_down(plan) == expected


def test_join_holds_only_columns_that_are_read():
    plan = Project(
        Filter(Join(JoinKind.INNER, A, B, equal("a.k", "b.k")), boolean(Op.AND, X, Y)),
        (Output("name", column("b.name")),),
    )
    slim = with_needed_columns(pushed_down(plan))
    assert isinstance(slim, Project)
    join = slim.input
    assert isinstance(join, Join)
    assert [each.name for each in columns_of(join.left)] == ["a.k"]
    assert [each.name for each in columns_of(join.right)] == ["b.k", "b.name"]


def test_whole_rows_are_compared_also_if_few_columns_are_read():
    plan = Project(Distinct(Join(JoinKind.INNER, A, B, None)), (Output("k", column("a.k")),))
    slim = with_needed_columns(plan)
    assert isinstance(slim, Project)
    assert len(columns_of(slim.input)) == 10
