"""What a standing query is granted: sizes of its synopses, from its target and the free memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allocator.bytes import Demands, grant
from allocator.errors import BudgetTooSmall
from shedder.cql.expression import SET_FUNCTIONS, Aggregate, AggregateFunction
from shedder.cql.query import BoundQuery
from shedder.cql.statement import Contract, TargetKind
from shedder.engine.plan import OPEN_TIMES, Kind, Part, kind_of
from shedder.errors import BudgetExceeded, PrecisionUnavailable
from shedder.queries.confidence import EXACT_IN_PANES, split_confidence
from shedder.streams.windows import PaneGrid
from synopses.count_min import GroupedCountMin
from synopses.counts import GroupedCount
from synopses.cross_moments import GroupedCrossMoments
from synopses.distinct import GroupedDistinct
from synopses.errors import BadParameter
from synopses.first_last import GroupedFirstLast
from synopses.frequent import GroupedFrequent
from synopses.kll import GroupedKll
from synopses.log_buckets import GroupedLogBuckets
from synopses.moments import GroupedMoments
from synopses.profile import TYPICAL, Profile
from synopses.theta import GroupedTheta

_KIB = 1024
_GROUP_BYTES_MIN = 16 * _KIB  # Below it, hardly a group finds room.
_UNSIZED = {
    Kind.COUNT: GroupedCount.profile,
    Kind.MOMENTS: GroupedMoments.profile,
    Kind.CROSS: GroupedCrossMoments.profile,
    Kind.FIRST_LAST: GroupedFirstLast.profile,
    Kind.BUCKETS: GroupedLogBuckets.profile,
}
_USUAL_BYTES = {
    Kind.TEXT_FIRST_LAST: 320,  # Texts of some dozen letters.
    Kind.EXTREMES: 256,
    **{kind: it.bytes_of(it.default, TYPICAL) for kind, it in _UNSIZED.items()},
}
_OBJECT_BYTES = 1_024  # Python and numpy objects of a synopsis (measured: 430 to 1,900).
_SLIDING_SHARE = 2  # While a window is merged, its accumulator stands beside its panes.


@dataclass(frozen=True, slots=True)
class Granted:
    """sizes: of each sized aggregate. facts: for humans. size_bytes: what that takes, at most."""

    sizes: dict[Aggregate, int]
    facts: dict[str, str]
    size_bytes: int


def negotiate(query: BoundQuery, free_bytes: int) -> Granted:
    """Size the synopses of a query: the target's size if there is room, else what there is.

    Args:
      query: to be registered.
      free_bytes: of the synopsis budget.

    Raises:
      PrecisionUnavailable: the contract is FAIL and the target does not fit; says what would.
      BudgetExceeded: not even the smallest synopses fit.
    """
    by_rank = query.target is not None and query.target.kind is TargetKind.RANK
    sized = [
        aggregate for aggregate in query.aggregates if kind_of(aggregate, by_rank=by_rank) in _SIZED
    ]
    if not sized:
        return Granted({}, {"synopses": "exact moments, log-buckets"}, 0)
    confidences = split_confidence(query, EXACT_IN_PANES)
    curves = [
        _curve(query, aggregate, confidences[aggregate], by_rank=by_rank) for aggregate in sized
    ]
    copies = _copies(query)
    demands = Demands(
        minimum_bytes=np.array([copies * c.bytes_of(c.smallest) for c in curves], np.int64),
        target_bytes=np.array([copies * c.bytes_of(c.wanted) for c in curves], np.float64),
        maximum_bytes=np.array(
            [copies * c.bytes_of(max(c.wanted, c.smallest)) for c in curves], np.float64
        ),
        weight=np.full(len(sized), query.weight),
        scale=np.array(
            [c.error(c.wanted) * (copies * c.bytes_of(c.wanted)) ** c.power for c in curves]
        ),
        power=np.array([c.power for c in curves]),
    )
    try:
        granted = grant(demands, free_bytes)
    except BudgetTooSmall as error:
        raise BudgetExceeded(f"no memory for this query: {error}") from error
    sizes = {
        aggregate: curve.size_of(int(size) // copies)
        for aggregate, curve, size in zip(sized, curves, granted.bytes, strict=True)
    }
    total = sum(copies * c.bytes_of(sizes[a]) for a, c in zip(sized, curves, strict=True))
    facts = {"bytes": str(total), "free_bytes": str(free_bytes - total)}
    missed = []
    for aggregate, curve in zip(sized, curves, strict=True):
        predicted = curve.error(sizes[aggregate])
        name = _name(aggregate)
        of_what = "" if curve.tables == 1 else " for columns that are alike"
        words = curve.words(sizes[aggregate])
        facts[name] = f"{words}, predicted error {predicted:.3%}{of_what}"
        if curve.target is not None and predicted > curve.target:
            missed.append(f"{name}: {_shortfall(curve, predicted, copies, free_bytes)}")
    if missed and query.contract is Contract.FAIL:
        raise PrecisionUnavailable("; ".join(missed))
    if missed:
        facts["missed"] = "; ".join(missed)
    return Granted(sizes, facts, total)


def reserve(
    query: BoundQuery,
    granted: Granted,
    parts: Sequence[Part],
    free_bytes: int,
    group_bytes_max: int,
) -> Granted:
    """Set aside what the query may come to hold, beside the sizes of its synopses.

    With GROUP BY each synopsis gets a cap on all of its groups: `group_bytes_max`, or its part of
    half of what is free. Without, the synopses that have no size get what they usually take.

    Raises:
      BudgetExceeded: too little is free.
    """
    objects = len(parts) * _copies(query) * _OBJECT_BYTES
    if query.groups:
        cap = min(group_bytes_max, max(0, free_bytes - objects) // (2 * len(parts)))
        if cap < _GROUP_BYTES_MIN:
            raise BudgetExceeded(
                f"{free_bytes // _KIB:,} KiB of the synopsis budget are free; "
                f"{len(parts)} grouped synopses need {2 * len(parts) * _GROUP_BYTES_MIN // _KIB:,}"
            )
        total = max(granted.size_bytes, cap * len(parts)) + objects
        facts = {**granted.facts, "group_bytes": str(cap)}
    else:
        usual = sum(_USUAL_BYTES.get(part.kind, 0) for part in parts)
        total = granted.size_bytes + usual * _copies(query) + _open_bytes(query, parts) + objects
        if total > free_bytes:
            raise BudgetExceeded(
                f"the query needs about {total // _KIB:,} KiB, {free_bytes // _KIB:,} KiB are free"
            )
        facts = dict(granted.facts)
    facts |= {"bytes": str(total), "free_bytes": str(max(0, free_bytes - total))}
    return Granted(granted.sizes, facts, total)


def group_bytes(facts: Mapping[str, str], otherwise: int) -> int:
    """The cap on the groups of one synopsis that a query was granted."""
    return int(facts.get("group_bytes", otherwise))


def _shortfall(curve: _Curve, predicted: float, copies: int, free_bytes: int) -> str:
    """Why a target is missed, and what can be had."""
    need = copies * curve.bytes_of(curve.wanted) // _KIB
    if curve.target is not None and curve.error(curve.wanted) > curve.target:
        return (
            f"no size reaches {curve.target:.3%}; the largest, {need:,} KiB, "
            f"gives {curve.error(curve.wanted):.3%}"
        )
    return (
        f"{curve.target:.3%} needs {need:,} KiB, {free_bytes // _KIB:,} KiB are free; "
        f"you would get {predicted:.3%}"
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What the engine makes of a summary that has a size.

    smallest, largest: of it; larger ones make panes too heavy. words: with {} for the size.
    """

    profile: Profile
    smallest: int
    largest: int
    words: str


# What is predicted is the error of the union; of a part of it, it is larger.
_THETA = "two theta sketches of 2^{} hashes, for all values of either set"

_SIZED = {
    Kind.DISTINCT: _Sizes(GroupedDistinct.profile, 7, 18, "HLL of 2^{} registers"),
    Kind.THETA: _Sizes(GroupedTheta.profile, 7, 16, _THETA),
    Kind.KLL: _Sizes(GroupedKll.profile, 8, 8_000, "KLL of k = {}"),
    Kind.FREQUENT: _Sizes(GroupedFrequent.profile, 1_024, 1_024, "frequent items of {} entries"),
    Kind.COUNTERS: _Sizes(GroupedCountMin.profile, 6, 16, "Count-Min of 5 x 2^{} counters"),
}


@dataclass(frozen=True, slots=True)
class _Curve:
    """Error of one synopsis as a function of its size, and what is wanted of it.

    tables: how many such synopses answer one aggregate.
    """

    kind: Kind
    confidence: float
    target: float | None
    tables: int

    @property
    def sizes(self) -> _Sizes:
        return _SIZED[self.kind]

    @property
    def power(self) -> float:
        return self.sizes.profile.power

    @property
    def smallest(self) -> int:
        return self.sizes.smallest

    @property
    def wanted(self) -> int:
        """The size that meets the target, or the default without one, within what is possible."""
        sizes = self.sizes
        if self.target is None:
            return sizes.profile.default
        try:
            enough = sizes.profile.for_error(self.target, confidence=self.confidence)
        except BadParameter:  # Not even the largest meets it.
            return sizes.largest
        return min(max(enough, sizes.smallest), sizes.largest)

    def bytes_of(self, size: int) -> int:
        return self.tables * self.sizes.profile.bytes_of(size, TYPICAL)

    def size_of(self, granted_bytes: int) -> int:
        size = self.sizes.profile.size_within(granted_bytes // self.tables)
        return min(max(size, self.sizes.smallest), self.sizes.largest)

    def error(self, size: int) -> float:
        return self.sizes.profile.error_of(size, TYPICAL, self.confidence)

    def words(self, size: int) -> str:
        return self.sizes.words.format(size)


def _curve(query: BoundQuery, aggregate: Aggregate, confidence: float, *, by_rank: bool) -> _Curve:
    kind = kind_of(aggregate, by_rank=by_rank)
    target = None
    if query.target is not None:
        sized = kind in (Kind.DISTINCT, Kind.THETA)
        sized |= aggregate.function is AggregateFunction.SELF_JOIN_SIZE
        relative = query.target.kind is TargetKind.RELATIVE and sized
        if relative or (by_rank and kind is Kind.KLL):
            target = query.target.size
    tables = 2 if aggregate.function in (AggregateFunction.JOIN_SIZE, *SET_FUNCTIONS) else 1
    return _Curve(kind, confidence, target, tables)


def _copies(query: BoundQuery) -> int:
    """How many panes and merges of them stand at once, and what a window is merged into."""
    grid = PaneGrid.of(query.window)
    panes = grid.panes_max(query.schema.lateness_us)
    return panes + grid.merges_max + _SLIDING_SHARE if grid.slides else panes


def _open_bytes(query: BoundQuery, parts: Sequence[Part]) -> int:
    """What open panes take beyond their size once they are closed (plan.opened)."""
    grid = PaneGrid.of(query.window)
    if not grid.slides:
        return 0
    panes = grid.panes_max(query.schema.lateness_us) - grid.panes_live + 1
    tables = sum(
        GroupedFrequent.profile.bytes_of(part.size, TYPICAL)
        for part in parts
        if part.kind is Kind.FREQUENT
    )
    return panes * (OPEN_TIMES - 1) * tables


def _name(aggregate: Aggregate) -> str:
    return aggregate.function.value.replace("_", " ").lower()
