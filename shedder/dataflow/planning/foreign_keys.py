"""Foreign keys that a join may rely on.

A broken foreign key must only leave rows out. So above the join there are projections, conditions
and a stream operator alone: a difference or an aggregate would make false rows of missing pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.plans.logical_plan import (
    Filter,
    NowWindow,
    Plan,
    Project,
    RelationKind,
    Scan,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.statements.canonical_text import foreign_key_text
from shedder.cql.statements.foreign_key import ForeignKey
from shedder.cql.statements.statement import RangeWindow
from shedder.dataflow.joins.arriving_side import ArrivingSide
from shedder.dataflow.joins.join_conditions import filtered_join, split_join


def arriving_side(plan: Plan) -> ArrivingSide | None:
    """Return the side of a plan's only join whose rows need not stay; None: there is none.

    The keys of the join are those of a foreign key of the one side to the other one. The other side
    has all tuples of its stream in a time window: a condition there would hide partners.
    """
    join = filtered_join(plan)
    while join is None:
        match plan:
            case ToStream(operator=StreamOperator.RSTREAM):
                return None
            case ToStream() | Project() | Filter():
                plan = plan.input
            case _:
                return None
        join = filtered_join(plan)
    matches, *sides = split_join(join)
    for place, (side, other) in enumerate([tuple(sides), tuple(reversed(sides))]):
        scan, partner = _timed_scan(side), _timed_scan(other, whole=True)
        if scan is None or partner is None or scan.relation == partner.relation:
            continue
        keys = [(key[place], key[1 - place]) for key in matches.keys]
        fitting = [it for it in scan.foreign_keys if _is_over(keys, it, scan, partner)]
        if fitting:
            least = min(fitting, key=lambda it: it.within)
            rows, reason = f"rows of {scan.alias}", foreign_key_text(least)
            if least.within:
                text = f"{rows} are held until they have a partner: {reason}"
            else:
                text = f"{rows} are not held: {reason}"
            return ArrivingSide(place, text, least.within)
    return None


def _timed_scan(plan: Plan, *, whole: bool = False) -> Scan | None:
    """Return the stream of a time window; None: the plan is another one.

    whole: there is no condition on its tuples.
    """
    window = False
    while not isinstance(plan, Scan):
        match plan:
            case Project(outputs=outputs):
                columns = [it.expression for it in outputs if isinstance(it.expression, Column)]
                if [each.name for each in columns] != [it.name for it in outputs]:
                    return None
            case Filter():
                if whole:
                    return None
            case WindowOf(window=RangeWindow() | NowWindow(), condition=condition):
                if whole and condition is not None:
                    return None
                window = True
            case _:
                return None
        plan = plan.input
    is_whole = window and plan.kind is RelationKind.STREAM and plan.sample is None
    return plan if is_whole else None


def _is_over(
    keys: Sequence[tuple[Expression, Expression]],
    foreign_key: ForeignKey,
    scan: Scan,
    partner: Scan,
) -> bool:
    """Return whether the equalities of a join are those of a foreign key."""
    if foreign_key.relation != partner.relation:
        return False
    found = set[tuple[str, str]]()
    for ours, theirs in keys:
        if not (isinstance(ours, Column) and isinstance(theirs, Column)):
            return False
        found.add((ours.name, theirs.name))
    named = zip(foreign_key.columns, foreign_key.referenced, strict=True)
    return found == {(f"{scan.alias}.{own}", f"{partner.alias}.{other}") for own, other in named}
