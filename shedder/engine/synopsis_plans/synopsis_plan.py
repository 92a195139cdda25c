"""Synopsis plan of a standing query: its synopses, and the one that answers each aggregate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    BY_TIME,
    JOINS,
    OF_PAIRS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Expression,
    inputs,
)
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import TargetKind
from shedder.engine.synopsis_plans.quantile_sketch_choice import RankSketch, rank_sketch
from shedder.streams.windows import PaneGrid
from synopses.quantiles.req_datasketches_format import K_MAX


class SynopsisKind(Enum):
    """The synopses that panes are made of."""

    COUNT = "count"
    MOMENTS = "moments"
    CROSS = "cross moments"
    EXTREMES = "extremes"
    FIRST_LAST = "first and last"
    TEXT_FIRST_LAST = "first and last text"
    DISTINCT = "hll"
    THETA = "theta"
    BUCKETS = "log-buckets"
    KLL = "kll"
    REQ_HIGH = "req, high ranks"
    REQ_LOW = "req, low ranks"
    FREQUENT = "frequent"
    COUNTERS = "count-min"


RANKED = (SynopsisKind.KLL, SynopsisKind.REQ_HIGH, SynopsisKind.REQ_LOW)  # Quantiles by rank.
BY_HASH = (
    SynopsisKind.DISTINCT,
    SynopsisKind.THETA,
)  # They are thinned by the hash of what they count.
SKETCHES = frozenset(
    {
        SynopsisKind.DISTINCT,
        SynopsisKind.THETA,
        SynopsisKind.BUCKETS,
        SynopsisKind.FREQUENT,
        SynopsisKind.COUNTERS,
        *RANKED,
    }
)  # They err although they read all tuples.
ENDS_IN_TIME = (SynopsisKind.FIRST_LAST, SynopsisKind.TEXT_FIRST_LAST)


@dataclass(frozen=True, slots=True)
class SynopsisSpec:
    """One synopsis of every pane.

    argument: None counts rows. size: lg_k of HLL and theta, k of KLL and REQ, entries of frequent
      items.
    variance: whether moments keep the second moment. second: the other column of pairs.
    """

    kind: SynopsisKind
    argument: Expression | None
    size: int = 0
    variance: bool = False
    second: Expression | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        both = self.argument, self.second
        object.__setattr__(self, "_hash", hash((self.kind, *both, self.size, self.variance)))

    def __hash__(self) -> int:
        return self._hash  # Of two expressions, which are trees.

    def reads_as(self, other: SynopsisSpec) -> bool:
        """Return whether both keep the same of the same values, whatever their sizes."""
        return (
            self.kind is other.kind
            and self.variance == other.variance
            and self.argument == other.argument
            and self.second == other.second
        )


@dataclass(frozen=True, slots=True)
class SynopsisPlan:
    """parts: each synopsis once; part 0 counts rows. answers: the part for each aggregate.

    partners: the other part of JOIN_SIZE and of SET_FUNCTIONS, None for other aggregates.
    sizes: of each part; 0 where it has none.
    """

    parts: tuple[SynopsisSpec, ...]
    answers: tuple[int, ...]
    partners: tuple[int | None, ...]
    sizes: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(part.size for part in self.parts))


# An open pane counts frequent items in a table so many times as large. When it closes, the most
# frequent stay: what found no room is then far less than what purges on the way would have taken.
OPEN_TIMES = 4
_VARIANCE = (AggregateFunction.VAR, AggregateFunction.STDDEV)


def rank_choice(aggregate: Aggregate, query: BoundQuery) -> RankSketch | None:
    """The sketch of a quantile whose target is a rank error; None for any other aggregate."""
    target = query.target
    if target is None or target.kind is not TargetKind.RANK or aggregate.parameter is None:
        return None
    if aggregate.function is not AggregateFunction.QUANTILE:
        return None
    return rank_sketch(
        aggregate.parameter, aggregate.type, error=target.size, confidence=query.confidence
    )


def kind_of(aggregate: Aggregate, query: BoundQuery) -> SynopsisKind:
    """The synopsis that answers an aggregate of a query."""
    match aggregate.function:
        case AggregateFunction.COUNT_DISTINCT:
            return SynopsisKind.DISTINCT
        case AggregateFunction.QUANTILE:
            return _quantiles(rank_choice(aggregate, query))
        case AggregateFunction.TOP | AggregateFunction.FREQUENT:
            return SynopsisKind.FREQUENT
        case AggregateFunction.COUNT:
            return SynopsisKind.COUNT
        case function if function in OF_PAIRS:
            return SynopsisKind.CROSS
        case function if function in JOINS:
            return SynopsisKind.COUNTERS
        case function if function in SET_FUNCTIONS:
            return SynopsisKind.THETA
        case _:
            argument = aggregate.argument
            assert argument is not None
            is_text = getattr(argument, "type", None) is ColumnType.VARCHAR
            if aggregate.function in BY_TIME:
                return SynopsisKind.TEXT_FIRST_LAST if is_text else SynopsisKind.FIRST_LAST
            return SynopsisKind.EXTREMES if is_text else SynopsisKind.MOMENTS


def _quantiles(choice: RankSketch | None) -> SynopsisKind:
    if choice is None:
        return SynopsisKind.BUCKETS
    if not choice.req:
        return SynopsisKind.KLL
    return SynopsisKind.REQ_HIGH if choice.high else SynopsisKind.REQ_LOW


def plan(query: BoundQuery, sizes: dict[Aggregate, int]) -> SynopsisPlan:
    """Share synopses between aggregates: one of moments serves SUM, AVG, MIN, MAX, VAR of a column.

    Args:
      query: the bound query.
      sizes: the granted size of each aggregate that has one (see engine/allocation/negotiation.py).
    """
    varied = {a.argument for a in query.aggregates if a.function in _VARIANCE}
    parts = [SynopsisSpec(SynopsisKind.COUNT, None)]
    answers: list[int] = []
    partners: list[int | None] = []
    for aggregate in query.aggregates:
        kind = kind_of(aggregate, query)
        variance = kind is SynopsisKind.MOMENTS and aggregate.argument in varied
        size = sizes.get(aggregate, 0)
        if kind in RANKED and size > K_MAX:
            kind = SynopsisKind.KLL  # Granted when there was no REQ: its panes hold KLL.
        if kind is SynopsisKind.CROSS:  # One synopsis reads both.
            part = SynopsisSpec(kind, aggregate.argument, second=aggregate.second)
            answers.append(_place(parts, part))
            partners.append(None)
            continue
        first, *others = inputs(aggregate) or (None,)
        answers.append(_place(parts, SynopsisSpec(kind, first, size, variance)))
        partners.append(_place(parts, SynopsisSpec(kind, others[0], size)) if others else None)
    return SynopsisPlan(tuple(parts), tuple(answers), tuple(partners))


def with_sizes(plan: SynopsisPlan, sizes: Sequence[int]) -> SynopsisPlan:
    """The same synopses in other sizes; shape [parts], 0 where one has none."""
    parts = zip(plan.parts, sizes, strict=True)
    return replace(plan, parts=tuple(replace(part, size=size) for part, size in parts))


def opened(query: BoundQuery, closed: SynopsisPlan) -> SynopsisPlan:
    """The plan of panes that still count: larger tables of frequent items, where windows slide.

    With GROUP BY the bytes go to more groups instead.
    """
    if query.groups or not PaneGrid.of(query.window).slides:
        return closed
    parts = (
        replace(part, size=OPEN_TIMES * part.size) if part.kind is SynopsisKind.FREQUENT else part
        for part in closed.parts
    )
    return replace(closed, parts=tuple(parts))


def _place(parts: list[SynopsisSpec], part: SynopsisSpec) -> int:
    """Return where the part is among the parts, where it is put if it is not there yet."""
    if part not in parts:
        parts.append(part)
    return parts.index(part)


def sizes_to_json(
    query: BoundQuery,
    sizes: dict[Aggregate, int],
    granted: dict[str, str],
    limits: Mapping[str, object] | None = None,
) -> str:
    """What was granted, for the catalog: sizes by the aggregate's place in the query.

    limits: the fields of what it may be given at most; None: what there is.
    """
    places = [sizes.get(aggregate, 0) for aggregate in query.aggregates]
    stored: dict[str, object] = {"sizes": places, "granted": granted}
    return json.dumps(stored if limits is None else stored | {"limits": limits})


def sizes_from_json(query: BoundQuery, text: str) -> tuple[dict[Aggregate, int], dict[str, str]]:
    """The inverse of sizes_to_json."""
    stored = json.loads(text)
    places = zip(query.aggregates, stored["sizes"], strict=True)
    return {aggregate: size for aggregate, size in places if size}, stored["granted"]
