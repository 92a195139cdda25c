"""Inner joins whose conditions stand in a WHERE, in ON, or on one side."""

from __future__ import annotations

from dataclasses import replace

from shedder.cql.expressions.conjunctions import conjunction, conjuncts
from shedder.cql.expressions.expression import Expression
from shedder.cql.plans.logical_plan import Filter, Join, JoinKind, Plan
from shedder.cql.plans.plan_columns import column_names
from shedder.dataflow.joins.match_condition import MatchCondition


def with_condition(join: Join, condition: Expression) -> Join:
    """Return an inner join whose pairs also meet a condition."""
    both = conjunction([*conjuncts(join.condition), *conjuncts(condition)])
    return replace(join, condition=both)


def filtered_join(plan: Plan) -> Join | None:
    """Return an inner join with the condition of a WHERE above it; None: it is another plan."""
    match plan:
        case Join(kind=JoinKind.INNER):
            return plan
        case Filter(input=Join(kind=JoinKind.INNER) as join, condition=condition):
            return with_condition(join, condition)
        case _:
            return None


def split_join(join: Join) -> tuple[MatchCondition, Plan, Plan]:
    """Return what makes a pair, and both sides with the conditions on one side applied."""
    matches = MatchCondition.of(join.condition, column_names(join.left), column_names(join.right))
    left = join.left if matches.left is None else Filter(join.left, matches.left)
    right = join.right if matches.right is None else Filter(join.right, matches.right)
    return replace(matches, left=None, right=None), left, right
