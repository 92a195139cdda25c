"""Negation above or below a join, by cost.

L ANTI R, joined with O, has the rows of (L join O) ANTI R if the negation reads columns of L alone.
Below the join it sends fewer rows into it; above it, its negative rows cross no join.
Source: Golab 2006, section 3.5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.expressions.conjunctions import names_in, with_columns
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Join,
    JoinKind,
    Plan,
    Project,
    scans_of,
    with_inputs,
)
from shedder.cql.plans.plan_columns import column_names, columns_of
from shedder.cql.statements.statement import Output
from shedder.dataflow.join_order import StreamStatistics, WindowSample, window_sample
from shedder.dataflow.joins.match_condition import MatchCondition
from shedder.dataflow.negations.negation_cost import NegatedJoin, WindowRows, distinct_values


@dataclass(frozen=True, slots=True)
class NegationChoice:
    """A chosen place.

    alias: of the stream in the negation. is_above: the negation stands above the join.
    cost, other_cost: rows per second of this place and of the other.
    """

    alias: str
    is_above: bool
    cost: float
    other_cost: float

    @property
    def fact(self) -> tuple[str, str]:
        """The name of the choice and its text, for EXPLAIN."""
        place, other = ("above", "below") if self.is_above else ("below", "above")
        costs = f"{self.cost:,.0f} rows/s, {self.other_cost:,.0f} {other} it"
        return f"negation of {self.alias}", f"{place} the join; {costs}"


@dataclass(frozen=True, slots=True)
class _Negated:
    """`kept` JOIN `other`, without the rows of `kept` that match `negated`.

    on: condition of the join; without: of the negation. is_left: `kept` is the left side.
    outputs: of the join, if not the columns of both sides.
    """

    kept: Plan
    other: Plan
    negated: Plan
    on: Expression | None
    without: Expression | None
    is_left: bool
    outputs: tuple[Output, ...] | None

    def plan(self, *, is_above: bool) -> Plan:
        """Return the plan with the negation above or below the join."""
        if is_above:
            pairs = self._joined(self.kept)
            made = Join(JoinKind.ANTI, pairs, self.negated, self.without)
        else:
            made = self._joined(Join(JoinKind.ANTI, self.kept, self.negated, self.without))
        return made if self.outputs is None else Project(made, self.outputs)

    def _joined(self, kept: Plan) -> Join:
        sides = (kept, self.other) if self.is_left else (self.other, kept)
        return Join(JoinKind.INNER, *sides, self.on)


def placed_negations(
    plan: Plan, statistics: Mapping[str, StreamStatistics]
) -> tuple[Plan, list[NegationChoice]]:
    """Return a plan with the same rows whose negations stand where they cost less, and the places.

    A negation stays where it is written if one of the three relations is no window over a stream
    with statistics, if a condition is not one equality, or below an aggregate.

    statistics: by alias.
    """
    choices: list[NegationChoice] = []
    return _placed(plan, statistics, choices), choices


def _placed(
    plan: Plan, statistics: Mapping[str, StreamStatistics], choices: list[NegationChoice]
) -> Plan:
    found = _negated(plan)
    known = None if found is None else _costed(found, statistics)
    if found is not None and known is not None:
        is_above = known.above < known.below
        costs = (known.above, known.below) if is_above else (known.below, known.above)
        alias = next(scans_of(found.negated)).alias
        choices.append(NegationChoice(alias, is_above, *costs))
        return found.plan(is_above=is_above)
    if isinstance(plan, Aggregated) and isinstance(plan.input, Join):
        return plan
    return with_inputs(plan, lambda each: _placed(each, statistics, choices))


def _negated(plan: Plan) -> _Negated | None:
    """Return the parts of a join with a negation above or below it; None: it is another plan."""
    match plan:
        case Join(kind=JoinKind.ANTI, left=Join(kind=JoinKind.INNER) as join, right=negated):
            read = names_in(plan.condition) if plan.condition is not None else frozenset()
            read -= column_names(negated)
            for kept, other, is_left in (
                (join.left, join.right, True),
                (join.right, join.left, False),
            ):
                if read and read <= column_names(kept):
                    return _Negated(
                        kept, other, negated, join.condition, plan.condition, is_left, None
                    )
        case Join(kind=JoinKind.INNER):
            for side, other, is_left in (
                (plan.left, plan.right, True),
                (plan.right, plan.left, False),
            ):
                names = _names_of(side)
                below = side.input if isinstance(side, Project) else side
                if names is not None and isinstance(below, Join) and below.kind is JoinKind.ANTI:
                    on = None if plan.condition is None else with_columns(plan.condition, names)
                    outputs = tuple(
                        Output(each.name, names.get(each.name, Column(each.name, each.type)))
                        for each in columns_of(plan)
                    )
                    return _Negated(
                        below.left,
                        other,
                        below.right,
                        on,
                        below.condition,
                        is_left,
                        outputs if names else None,
                    )
    return None


def _names_of(plan: Plan) -> dict[str, Expression] | None:
    """Return the columns that a select list renames, by new names; None: it computes something."""
    if not isinstance(plan, Project):
        return {}
    if all(isinstance(output.expression, Column) for output in plan.outputs):
        return {output.name: output.expression for output in plan.outputs}
    return None


def _costed(found: _Negated, statistics: Mapping[str, StreamStatistics]) -> NegatedJoin | None:
    """Return the costs of both places; None: they are not known."""
    samples = [window_sample(each, statistics) for each in (found.kept, found.other, found.negated)]
    known = [each for each in samples if each is not None]
    joined = _key(found.on, found.kept, found.other)
    negated = _key(found.without, found.kept, found.negated)
    if len(known) < len(samples) or joined is None or negated is None:
        return None
    kept, other, without = known
    values = [
        _distinct(sample, key)
        for sample, key in zip((kept, other, kept, without), (*joined, *negated), strict=True)
    ]
    ours, others, negations = (WindowRows(each.rate_per_s, each.rows) for each in known)
    return NegatedJoin(ours, others, negations, max(values[:2]), values[2], values[3])


def _key(
    condition: Expression | None, left: Plan, right: Plan
) -> tuple[Expression, Expression] | None:
    """Return both sides of a condition that is one equality; None: it is another one."""
    matches = MatchCondition.of(condition, column_names(left), column_names(right))
    if len(matches.keys) != 1 or matches != MatchCondition(matches.keys, None, None, None):
        return None
    return matches.keys[0]


def _distinct(sample: WindowSample, key: Expression) -> float:
    values = evaluate(key, sample.tuples).filter(pa.array(np.asarray(sample.passing)))
    return distinct_values(int(pc.count_distinct(values).as_py()), len(values))
