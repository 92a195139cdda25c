"""Precision curves of the synopses that have a size: error against bytes, and what is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from shedder.cql.expressions.expression import SET_FUNCTIONS, Aggregate, AggregateFunction
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import TargetKind
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, kind_of, rank_choice
from shedder.engine.synopsis_plans.thinning_error import beside, both
from shedder.queries.evidence.confidence_budget import EXACT_IN_PANES, split_confidence
from synopses.counters.count_min import GroupedCountMin
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.model.errors import BadParameter
from synopses.model.profile import TYPICAL, Profile
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import K_MIN, GroupedReq
from synopses.quantiles.req_datasketches_format import K_MAX
from synopses.theta.theta_sketch import GroupedTheta

OPTIONS_MAX: Final = 24
"""Sizes of one synopsis that are worth telling apart."""

_OF_THRESHOLD: Final = 0.5
"""FREQUENT(x, share): by so much of its threshold a count may be too low at worst."""


@dataclass(frozen=True, slots=True)
class SizedSummary:
    """What the engine makes of a summary that has a size.

    smallest, largest: of it; larger ones make panes too heavy. words: with {} for the size.
    roomy: without a target, what is to spare makes it so large; None: its default is enough.
    """

    profile: Profile
    smallest: int
    largest: int
    words: str
    roomy: int | None = None

    @property
    def in_powers(self) -> bool:
        """Return whether the size is the binary logarithm of how much is kept."""
        return self.profile.size.startswith("lg")


# What is predicted is the error of the union; of a part of it, it is larger.
_THETA = "two theta sketches of 2^{} hashes, for all values of either set"

SIZED: Final = {
    SynopsisKind.DISTINCT: SizedSummary(
        GroupedDistinct.profile, 7, 18, "HLL of 2^{} registers", 14
    ),
    SynopsisKind.THETA: SizedSummary(GroupedTheta.profile, 7, 16, _THETA, 14),
    SynopsisKind.KLL: SizedSummary(GroupedKll.profile, 8, 8_000, "KLL of k = {}"),
    SynopsisKind.REQ_HIGH: SizedSummary(
        GroupedReq.profile, K_MIN, K_MAX, "REQ of k = {}, for high ranks"
    ),
    SynopsisKind.REQ_LOW: SizedSummary(
        GroupedReq.profile, K_MIN, K_MAX, "REQ of k = {}, for low ranks"
    ),
    SynopsisKind.FREQUENT: SizedSummary(
        GroupedFrequent.profile, 1_024, 16_384, "frequent items of {} entries"
    ),
    SynopsisKind.COUNTERS: SizedSummary(
        GroupedCountMin.profile, 6, 16, "Count-Min of 5 x 2^{} counters"
    ),
}
"""The synopses that have a size, and the sizes that panes may have."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Error of one synopsis as a function of its size, and what is wanted of it.

    tables: how many such synopses answer one aggregate.
    tail: what the profile's error is a share of. reason: why this synopsis, where there is another.
    aim: the error to size for where there is no target; None: the default size.
    factor: what its answers were measured to err by, as a multiple of what the profile says.
    """

    kind: SynopsisKind
    confidence: float
    target: float | None
    tables: int
    tail: float = 1.0
    reason: str = ""
    factor: float = 1.0
    aim: float | None = None

    @property
    def sizes(self) -> SizedSummary:
        """What it may be."""
        return SIZED[self.kind]

    @property
    def wanted(self) -> int:
        """The size that meets the target, or the default without one, within what is possible."""
        return self.wanted_beside(0.0)

    def wanted_beside(self, skipped: float) -> int:
        """The same where skipping tuples adds an error of its own."""
        sizes, wanted = self.sizes, self.aim if self.target is None else self.target
        if wanted is None:
            return sizes.profile.default
        if skipped < wanted:  # Else no size is of any help.
            wanted = beside(self.kind, wanted, skipped)
        scale = self.tail * self.factor
        return _enough(self.kind, min(1.0, wanted / scale) if scale else 1.0, self.confidence)

    def bytes_of(self, size: int) -> int:
        """Of all tables of one pane."""
        return self.tables * self.sizes.profile.bytes_of(size, TYPICAL)

    def options(self, *, roomy: bool, skipped: float = 0.0) -> Sequence[int]:
        """The sizes to choose from, ascending: up to the wanted one.

        Args:
          roomy: or, without a target, up to what is worth having while memory is to spare.
          skipped: what skipping tuples adds to the error.
        """
        most = max(self.wanted_beside(skipped), self.sizes.smallest)
        if roomy and self.target is None and self.aim is None:
            most = max(most, self.sizes.roomy or 0)
        return _options(self.kind, most)

    def error(self, size: int) -> float:
        """What its answers are predicted to err by, in the unit of its kind."""
        return self.factor * self.tail * _error(self.kind, size, self.confidence)

    def uncorrected(self, size: int, error: float) -> float:
        """The error of a size by its profile alone, where measurements corrected it to `error`.

        error: of the size and of skipped tuples together; what skipping adds stays what it is.
        """
        if self.factor == 1.0:
            return error
        skipped = beside(self.kind, error, self.error(size))
        plain = replace(self, factor=1.0).error(size)
        return float(both(self.kind, np.array([plain]), np.array([skipped]))[0, 0])

    def words(self, size: int) -> str:
        """What is kept, for humans."""
        words = self.sizes.words.format(size)
        return f"{words} ({self.reason})" if self.reason else words


def curve_of(
    query: BoundQuery, aggregate: Aggregate, confidence: float, factor: float = 1.0
) -> Curve:
    """The curve of an aggregate whose synopsis has a size.

    Args:
      query: whose aggregate it is.
      aggregate: of a kind in `SIZED`.
      confidence: that its interval is asked to hold with.
      factor: as in `Curve`.
    """
    kind, choice = kind_of(aggregate, query), rank_choice(aggregate, query)
    target = None
    if query.target is not None:
        sized = kind in (SynopsisKind.DISTINCT, SynopsisKind.THETA)
        sized |= aggregate.function is AggregateFunction.SELF_JOIN_SIZE
        relative = query.target.kind is TargetKind.RELATIVE and sized
        if relative or choice is not None:
            target = query.target.size
    tables = 2 if aggregate.function in (AggregateFunction.JOIN_SIZE, *SET_FUNCTIONS) else 1
    if aggregate.function is AggregateFunction.FREQUENT:
        assert aggregate.parameter is not None, aggregate
        aim = aggregate.parameter * _OF_THRESHOLD
        return Curve(kind, confidence, target, tables, factor=factor, aim=aim)
    if choice is None:
        return Curve(kind, confidence, target, tables, factor=factor)
    tail = choice.tail if choice.req else 1.0
    return Curve(kind, confidence, target, tables, tail, choice.reason, factor)


def sizes_wanted(query: BoundQuery) -> dict[Aggregate, int]:
    """The sizes that meet the target, or are usual, of the aggregates whose synopsis has one."""
    confidences = split_confidence(query, EXACT_IN_PANES)
    return {
        aggregate: curve_of(query, aggregate, confidences[aggregate]).wanted
        for aggregate in query.aggregates
        if kind_of(aggregate, query) in SIZED
    }


def fixed_error(kind: SynopsisKind) -> float:
    """What a synopsis without a choice of sizes errs by when it reads all; 0: it is exact.

    Buckets of values err by half a bucket, relative to the value.
    """
    if kind is not SynopsisKind.BUCKETS:
        return 0.0
    profile = GroupedLogBuckets.profile
    return profile.error_of(profile.default, TYPICAL, 1.0)


@lru_cache(maxsize=1 << 14)
def _enough(kind: SynopsisKind, share: float, confidence: float) -> int:
    """The smallest size whose error is at most this share, within what is possible."""
    sizes = SIZED[kind]
    try:
        enough = sizes.profile.for_error(share, confidence=confidence)
    except BadParameter:  # Not even the largest meets it.
        return sizes.largest
    return min(max(enough, sizes.smallest), sizes.largest)


@lru_cache(maxsize=1 << 16)
def _options(kind: SynopsisKind, most: int) -> tuple[int, ...]:
    sizes = [size for size in SIZED[kind].profile.sizes if SIZED[kind].smallest <= size <= most]
    if len(sizes) > OPTIONS_MAX:
        places = np.geomspace(1, len(sizes), OPTIONS_MAX).astype(int) - 1
        sizes = [sizes[place] for place in np.unique(places)]
    return tuple(sizes)


@lru_cache(maxsize=1 << 16)
def _error(kind: SynopsisKind, size: int, confidence: float) -> float:
    return SIZED[kind].profile.error_of(size, TYPICAL, confidence)
