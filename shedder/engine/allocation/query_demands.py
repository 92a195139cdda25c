"""Demands of one query: a row for each synopsis, with its options and its readers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from allocator.curves import falling, table
from allocator.demands import Floats, Integers, Options
from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import TargetKind
from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest
from shedder.engine.synopsis_plans.cpu_costs import costs_ns
from shedder.engine.synopsis_plans.error_curves import SIZED, Curve, curve_of, fixed_error
from shedder.engine.synopsis_plans.memory_footprint import (
    GROUP_BYTES_MIN,
    beside_bytes,
    copies_of,
    pane_bytes,
    window_bytes,
)
from shedder.engine.synopsis_plans.synopsis_plan import (
    RANKED,
    SynopsisKind,
    SynopsisPlan,
    SynopsisSpec,
    kind_of,
)
from shedder.engine.synopsis_plans.thinning_error import both, skipping_error
from shedder.queries.evidence.confidence_budget import EXACT_IN_PANES, split_confidence

_GROUPS_UNKNOWN = 1 << 20  # Bytes that the groups of a synopsis are taken to need before any came.
_MORE = 16  # A cap that is just enough leaves a part of so many free: what is needed, varies.
_GROWTH = 0.01  # What room counts that groups do not need yet: less than most targets.
_SPARE = 1e-3  # What room beyond the need is worth: it is the first that is taken away.
_ROWS_IN_VALUE = (
    SynopsisKind.COUNT,
    SynopsisKind.MOMENTS,
    SynopsisKind.CROSS,
    SynopsisKind.BUCKETS,
    SynopsisKind.DISTINCT,
    SynopsisKind.THETA,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One demand: a synopsis, several of one size, or the room that groups have.

    request: the number of the query. parts: of its plan; empty: the cap on its groups.
    sizes, levels: option i * len(levels) + j has size i (of the cap: bytes) and level j.
    curve: of a synopsis that has a size. more_bytes: by how much the cap on groups is raised with
      each size; empty: by nothing.
    """

    request: int
    parts: tuple[int, ...]
    sizes: tuple[int, ...]
    levels: tuple[int, ...]
    curve: Curve | None
    more_bytes: tuple[int, ...] = ()

    def size(self, option: int) -> int:
        """Of an option."""
        return self.sizes[option // len(self.levels)]

    def level(self, option: int) -> int:
        """Of an option."""
        return self.levels[option % len(self.levels)]

    def more(self, option: int) -> int:
        """By how much an option raises the cap on groups, in bytes."""
        return self.more_bytes[option // len(self.levels)] if self.more_bytes else 0


@dataclass(frozen=True, slots=True, eq=False)
class QueryDemands:
    """What one query demands: r rows, read by m aggregates.

    rows: [r]; those of the query's own number. options: [r, k].
    present: int64 [r]; the option that each has; -1 where the query does not stand yet.
    aggregates: [m]; None: all groups. synopsis: int64 [m]; the row that each reads.
    scale, target: float64 [m]; of the synopsis' error; what is accepted while the query is active.
    beside_bytes: what it takes whatever it is given.
    """

    rows: tuple[Row, ...]
    options: Options
    present: Integers
    aggregates: tuple[Aggregate | None, ...]
    synopsis: Integers
    scale: Floats
    target: Floats
    beside_bytes: int

    def numbered(self, number: int) -> QueryDemands:
        """The same of a query of this number."""
        if self.rows[0].request == number:
            return self
        return replace(self, rows=tuple(replace(row, request=number) for row in self.rows))


def draw(
    request: AllocationRequest, number: int, *, group_bytes_max: int, levels: Sequence[int] | None
) -> QueryDemands:
    """The demands of a query; weight, activity and what was measured of its answers are not in it.

    Args:
      request: the query. number: among all.
      group_bytes_max, levels: as in `allocation.problem`.
    """
    found = list(_rows_of(number, request, levels))
    if request.query.groups:
        found.append(_room(number, request, group_bytes_max))
    readers = [(at, *reader) for at, one in enumerate(found) for reader in one.readers]
    return QueryDemands(
        rows=tuple(one.row for one in found),
        options=table(
            [f"{request.name}: {one.name}" for one in found],
            [one.size_bytes for one in found],
            [one.cost_ns for one in found],
            [one.error for one in found],
        ),
        present=np.array([one.present for one in found], np.int64),
        aggregates=tuple(aggregate for _, aggregate, _, _ in readers),
        synopsis=np.array([at for at, _, _, _ in readers], np.int64),
        scale=np.array([scale for _, _, scale, _ in readers], np.float64),
        target=np.array([target for _, _, _, target in readers], np.float64),
        beside_bytes=beside_bytes(request.query, request.plan),
    )


@dataclass(slots=True, eq=False)
class _Demand:
    """A row with its options: sizes [k], cost [levels], error [k, levels], and its readers.

    readers: each with its scale and its target.
    """

    row: Row
    name: str
    size_bytes: Integers
    cost_ns: NDArray[np.float64]
    error: NDArray[np.float64]
    present: int
    readers: list[tuple[Aggregate | None, float, float]] = field(default_factory=list)


def _rows_of(
    number: int, request: AllocationRequest, levels: Sequence[int] | None
) -> Iterator[_Demand]:
    query, plan = request.query, request.plan
    confidences = split_confidence(query, EXACT_IN_PANES)
    for parts in tied(plan):
        first = plan.parts[parts[0]]
        readers = readers_of(request, parts)
        level = request.levels[parts[0]]
        chosen = (level,) if levels is None else tuple(sorted({level, *levels}))
        assert chosen[0] >= 0
        assert chosen[-1] <= LEVEL_MAX
        factor = request.factor(parts[0])
        cost = sum(costs_ns(plan.parts[part], grouped=bool(query.groups)) for part in parts)
        confidence = confidences[readers[0]] if readers else query.confidence
        skipped = skipping_error(
            first.kind,
            request.tuples,
            confidence,
            grouped=bool(query.groups),
            factor=request.skipping_factor(parts[0]),
        )
        if readers and all(is_known_thinned(query, aggregate) for aggregate in readers):
            skipped = np.zeros_like(skipped)
        curve, sizes, error = None, (first.size,), np.full(1, fixed_error(first.kind))
        name = first.kind.value
        if first.kind in SIZED:
            curve = curve_of(query, readers[0], confidence, factor)
            offered = offered_sizes(request, parts, curve, skipped=float(skipped[level]))
            sizes = tuple(sorted({*offered, *((first.size,) if request.stands else ())}))
            name = curve.words(first.size)
            error = falling(
                f"{request.name}: {name}", np.array([curve.error(size) for size in sizes])
            )
        size_bytes = np.zeros(len(sizes), np.int64)
        more_bytes: tuple[int, ...] = ()
        if not query.groups:  # The bytes of groups are in their cap.
            size_bytes += [len(parts) * window_bytes(query, first, size) for size in sizes]
        elif first.kind in SIZED:
            if request.halved:
                more_bytes = tuple(_more_bytes(request, parts, size) for size in sizes)
                size_bytes += [len(plan.parts) * more for more in more_bytes]
            # The cap has room for a group in every pane at the present size; more is to be paid.
            cells, now_bytes = copies_of(query) * len(parts), pane_bytes(first, first.size)
            more = [cells * (pane_bytes(first, size) - now_bytes) for size in sizes]
            size_bytes = np.maximum(size_bytes, more)
        drawn = _Demand(
            Row(number, parts, sizes, chosen, curve, more_bytes),
            name,
            size_bytes,
            np.asarray(cost, np.float64)[list(chosen)] * request.tuples_per_s,
            both(first.kind, error, skipped[list(chosen)]),
            sizes.index(first.size) * len(chosen) + chosen.index(level) if request.stands else -1,
        )
        for aggregate in readers:
            scale, target = 1.0, _target(query, aggregate, first)
            if curve is not None:
                own = curve_of(query, aggregate, confidences[aggregate], factor)
                at = curve.sizes.profile.default
                scale = own.error(at) / curve.error(at) if curve.error(at) > 0 else 1.0
            drawn.readers.append((aggregate, scale, target))
        yield drawn


def readers_of(request: AllocationRequest, parts: Collection[int]) -> list[Aggregate]:
    """The aggregates that parts of a query answer."""
    answers = zip(request.query.aggregates, request.plan.answers, strict=True)
    return [aggregate for aggregate, part in answers if part in parts]


def offered_sizes(
    request: AllocationRequest, parts: Sequence[int], curve: Curve, *, skipped: float
) -> Sequence[int]:
    """The sizes, ascending, that parts of a query may be given; they are tied."""
    offered = curve.options(roomy=not request.query.groups, skipped=skipped)
    if request.limits is None:
        return offered
    return [size for size in offered if size <= request.limits.sizes[parts[0]]]


def _more_bytes(request: AllocationRequest, parts: Sequence[int], size: int) -> int:
    """What the groups need beyond what they do, where tied parts have a larger size."""
    sizes = list(request.sizes)
    for part in parts:
        sizes[part] = size
    return round(max(0.0, request.needed_share(sizes) - 1.0) * request.needed_bytes)


def tied(plan: SynopsisPlan) -> list[tuple[int, ...]]:
    """The parts of a plan; those that are compared with each other are one: they have one size."""
    home = list(range(len(plan.parts)))
    for first, second in zip(plan.answers, plan.partners, strict=True):
        if second is not None:
            old, new = home[second], home[first]
            home = [new if each == old else each for each in home]
    return [
        tuple(part for part, each in enumerate(home) if each == root) for root in sorted(set(home))
    ]


def is_known_thinned(query: BoundQuery, aggregate: Aggregate | None) -> bool:
    """Return whether the answer is exact whatever is skipped: the range of all numbers is known."""
    return aggregate is not None and not query.groups and _is_end(query, aggregate)


def _is_end(query: BoundQuery, aggregate: Aggregate) -> bool:
    """The least or the greatest number."""
    function, kind = aggregate.function, kind_of(aggregate, query)
    return kind is SynopsisKind.MOMENTS and function in (
        AggregateFunction.MIN,
        AggregateFunction.MAX,
    )


def _target(query: BoundQuery, aggregate: Aggregate, part: SynopsisSpec) -> float:
    """The error that an aggregate accepts, in the unit of its synopsis' error; inf: any.

    That of the ends of a range is none of their synopsis', which is about sums.
    """
    if query.target is None or _is_end(query, aggregate):
        return np.inf
    by_rank = part.kind in RANKED and query.target.kind is TargetKind.RANK
    sized = curve_of(query, aggregate, query.confidence).target if part.kind in SIZED else None
    relative = query.target.kind is TargetKind.RELATIVE and part.kind in _ROWS_IN_VALUE
    return query.target.size if by_rank or relative or sized is not None else np.inf


def room_bytes(request: AllocationRequest, sizes: Sequence[int], cap: int) -> int:
    """What the groups of a query take with parts of these sizes, and this cap on each of them."""
    sized = sum(
        pane_bytes(part, size)
        for part, size in zip(request.plan.parts, sizes, strict=True)
        if part.kind in SIZED
    )
    return max(copies_of(request.query) * sized, len(sizes) * cap)


def _room(number: int, request: AllocationRequest, most: int) -> _Demand:
    """The cap on the groups of a query's synopses, which is one for each of them.

    Its error is the share of what the groups need that finds no room, and a little of what they
    might come to need: a target that is missed for certain is worth more than that.
    """
    if request.limits is not None:
        most = min(most, request.limits.group_bytes)
    least = min(max(GROUP_BYTES_MIN, request.held_bytes), max(most, request.group_bytes))
    caps = {least, most, *(1 << lg for lg in range(least.bit_length(), most.bit_length()))}
    needed = max(request.needed_bytes or min(_GROUPS_UNKNOWN, most), 1)
    caps.add(max(least, min(needed + needed // _MORE, most)))
    if request.group_bytes:
        caps.add(request.group_bytes)
    sizes = np.array(sorted(cap for cap in caps if cap >= least or cap == request.group_bytes))
    error = np.maximum(0.0, 1.0 - sizes / needed) + _SPARE * (1.0 - sizes / sizes[-1])
    error += _GROWTH * np.maximum(0.0, 1.0 - sizes / max(needed, request.grown_bytes))
    return _Demand(
        Row(number, (), tuple(sizes.tolist()), (0,), None),
        "room for groups",
        np.array([room_bytes(request, request.sizes, cap) for cap in sizes.tolist()], np.int64),
        np.zeros(1),
        error[:, None],
        sizes.tolist().index(request.group_bytes) if request.stands else -1,
        [(None, 1.0, np.inf)],
    )
