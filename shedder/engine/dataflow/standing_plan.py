"""Plan of a standing row query: ISTREAM where it is the default, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shedder.cql.binding.stream_defaults import is_stream_by_default
from shedder.cql.plans.logical_plan import (
    Aggregated,
    BoundRelational,
    KeySampling,
    Ordered,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    StreamOperator,
    ToStream,
    WindowOf,
    inputs_of,
    scans_of,
    with_inputs,
)
from shedder.cql.plans.thinning_keys import ThinningKeys, thinning_keys
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.engine.dataflow.join_sizes import JoinSampling
from shedder.engine.dataflow.lookback import ALL, lookbacks_us
from shedder.engine.dataflow.row_target import EVENT_TIME, SIGN
from shedder.errors import BadQuery


@dataclass(frozen=True, slots=True)
class StandingPlan:
    """A row query as it stands.

    query: a stream, or a relation. insertions_only: of a relation, subscribers get the rows that
    enter, ISTREAM; else they get the rows that leave, too.
    keys: by which it is thinned when its bytes are short; None: it fails.
    """

    query: BoundRelational
    insertions_only: bool
    keys: ThinningKeys | None = None


def standing_plan(select: RelationalSelect, bound: BoundRelational) -> StandingPlan:
    """Return a query with ISTREAM where that is the default: without aggregates.

    If the query has windows, its relation is kept for answers, beside the stream.

    If it reads tables alone, their changes correct its rows.

    Raises:
      BadQuery: it has ORDER BY, LIMIT or AS OF, or its state would grow for ever; or it has no
        keys for ON OVERLOAD SHED.
    """
    found = _standing(select, bound)
    if not select.sheds:
        return found
    query = replace(found.query, plan=_without_foreign_keys(found.query.plan))
    return replace(found, query=query, keys=_keys_of(found))


def _standing(select: RelationalSelect, bound: BoundRelational) -> StandingPlan:
    plan = bound.plan
    if any(isinstance(each, Ordered) for each in nodes_of(plan)):
        raise BadQuery(
            "ORDER BY, LIMIT and OFFSET are for rows that are asked once; a standing query has its "
            "rows in the order of event time"
        )
    if any(scan.as_of_us is not None for scan in scans_of(plan)):
        raise BadQuery("AS OF is for rows that are asked once; a standing query follows its tables")
    spans = lookbacks_us(plan)
    if not spans:
        return StandingPlan(replace(bound, plan=_corrected(plan)), insertions_only=False)
    inserts = not isinstance(plan, ToStream) and is_stream_by_default(select.query, plan)
    if inserts and not any(spans.values()):
        plan, inserts = ToStream(StreamOperator.ISTREAM, plan), False
    for scan in scans_of(plan):
        if scan.kind is RelationKind.TABLE:
            continue
        span_us = spans[scan.alias]
        if span_us >= ALL or (not span_us and not isinstance(plan, ToStream)):
            raise BadQuery(
                f"the query would have to keep every tuple of {scan.relation} for ever; give it a "
                f"window, such as {scan.relation} [RANGE 1 HOUR]"
            )
    return StandingPlan(replace(bound, plan=plan), inserts)


def _keys_of(standing: StandingPlan) -> ThinningKeys:
    """Return the keys by which a query is thinned.

    Raises:
      BadQuery: it has none.
    """
    plan = standing.query.plan
    if any(scan.kind is RelationKind.TABLE for scan in scans_of(plan)):
        raise BadQuery("ON OVERLOAD SHED is for a query of streams alone; this one reads tables")
    if not (standing.insertions_only or isinstance(plan, ToStream)):
        raise BadQuery(
            "ON OVERLOAD SHED needs rows that enter: a group of a key that is left out does not "
            "leave; write ISTREAM(...) around the select list"
        )
    if isinstance(plan, ToStream) and plan.operator is StreamOperator.RSTREAM:
        raise BadQuery(
            "ON OVERLOAD SHED is for rows that enter or leave; RSTREAM repeats all rows at each "
            "instant; write ISTREAM(...), or the select list without an operator"
        )
    found = thinning_keys(plan, frozenset({EVENT_TIME, SIGN}))
    if found is None:
        raise BadQuery(
            "ON OVERLOAD SHED keeps the rows of a sample of keys, and the select list has no "
            "column by which all inputs can be sampled; add a column of the join's equality, of "
            "both sides of the set operation, of PARTITION BY or of GROUP BY"
        )
    return found


def nodes_of(plan: Plan) -> Iterator[Plan]:
    """The nodes of a plan, each before its inputs."""
    yield plan
    for each in inputs_of(plan):
        yield from nodes_of(each)


def sampling_of(plan: Plan) -> KeySampling | None:
    """Return how the keys of a join are sampled; None: the plan is exact."""
    found = (node.sampling for node in nodes_of(plan) if isinstance(node, Aggregated))
    return next((each for each in found if each is not None), None)


def lists_values(plan: Plan) -> bool:
    """Return whether the rows are those of TOP over a window of rows."""
    return listed_of(plan) is not None


def listed_of(plan: Plan) -> Aggregated | None:
    """Return the node of TOP over a window of rows; None: there is none."""
    found = (it for it in nodes_of(plan) if isinstance(it, Aggregated) and it.listed is not None)
    return next(found, None)


def with_lists(plan: StandingPlan, kept: int) -> StandingPlan:
    """Return a plan of TOP over a window of rows whose lists have so many values."""

    def listed(node: Plan) -> Plan:
        if isinstance(node, Aggregated):
            return replace(node, kept=kept)
        return with_inputs(node, listed)

    return replace(plan, query=replace(plan.query, plan=listed(plan.query.plan)))


def with_seed(plan: StandingPlan, of: JoinSampling) -> StandingPlan:
    """Return a plan that samples keys by a seed, in so many bytes; others as they are."""

    def seeded(node: Plan) -> Plan:
        match node:
            case Aggregated(sampling=KeySampling() as sampling):
                sampling = replace(
                    sampling, seed=of.seed, bytes_max=of.bytes_max, resizes=of.resizes
                )
                return replace(node, sampling=sampling)
            case Project(input=source):
                return replace(node, input=seeded(source))
            case _:
                return node

    return replace(plan, query=replace(plan.query, plan=seeded(plan.query.plan)))


def reads_previous(plan: Plan) -> bool:
    """Return whether PREV reads a window of the plan."""
    windows = (node.window for node in nodes_of(plan) if isinstance(node, WindowOf))
    return any(isinstance(window, RowsWindow) and window.added for window in windows)


def _without_foreign_keys(plan: Plan) -> Plan:
    """Return a plan whose joins hold both sides: the counts of a sample of keys are of no use."""
    if isinstance(plan, Scan):
        return replace(plan, foreign_keys=())
    return with_inputs(plan, _without_foreign_keys)


def _corrected(plan: Plan) -> Plan:
    """Return a plan whose tables correct its rows."""
    if isinstance(plan, Scan):
        return replace(plan, retroactive=True)
    return with_inputs(plan, _corrected)
