"""Synopsis factory: the class and an empty synopsis for each part of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shedder.cql.expressions.column_types import ColumnType
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, SynopsisSpec
from shedder.streams.text_extremes import GroupedTextExtremes
from shedder.streams.text_first_last import GroupedTextFirstLast
from synopses.counters.count_min import GroupedCountMin
from synopses.frequent.entries import ItemKind
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.theta.profile import LG_K_MIN
from synopses.theta.theta_sketch import GroupedTheta

_THETA_LG_K_MAX = 13  # 1.1 % at 128 KiB, when there is more than 2^13 * 2^level to count.

_CLASSES: dict[SynopsisKind, Any] = {
    SynopsisKind.COUNT: GroupedCount,
    SynopsisKind.MOMENTS: GroupedMoments,
    SynopsisKind.CROSS: GroupedCrossMoments,
    SynopsisKind.FIRST_LAST: GroupedFirstLast,
    SynopsisKind.TEXT_FIRST_LAST: GroupedTextFirstLast,
    SynopsisKind.EXTREMES: GroupedTextExtremes,
    SynopsisKind.DISTINCT: GroupedDistinct,
    SynopsisKind.THETA: GroupedTheta,
    SynopsisKind.BUCKETS: GroupedLogBuckets,
    SynopsisKind.KLL: GroupedKll,
    SynopsisKind.REQ_HIGH: GroupedReq,
    SynopsisKind.REQ_LOW: GroupedReq,
    SynopsisKind.FREQUENT: GroupedFrequent,
    SynopsisKind.COUNTERS: GroupedCountMin,
}


def class_of(part: SynopsisSpec, *, thinned: bool = False) -> Any:
    """What a part is read into, in full or thinned: distinct values survive thinning as theta."""
    return GroupedTheta if thinned and part.kind is SynopsisKind.DISTINCT else _CLASSES[part.kind]


def make(part: SynopsisSpec, groups: int) -> Any:
    """An empty synopsis with room for this many groups."""
    match part.kind:
        case SynopsisKind.COUNT | SynopsisKind.CROSS | SynopsisKind.EXTREMES | SynopsisKind.BUCKETS:
            return _CLASSES[part.kind](groups)
        case SynopsisKind.MOMENTS:
            assert part.argument is not None
            integer = part.argument.type is not ColumnType.DOUBLE
            return GroupedMoments(groups, integer=integer, variance=part.variance)
        case SynopsisKind.TEXT_FIRST_LAST:
            return GroupedTextFirstLast(groups)
        case SynopsisKind.FIRST_LAST:
            assert part.argument is not None
            integer = part.argument.type is not ColumnType.DOUBLE
            return GroupedFirstLast(groups, integer=integer)
        case SynopsisKind.FREQUENT:
            return GroupedFrequent(groups, part.size, _item_kind(part))
        case SynopsisKind.REQ_HIGH | SynopsisKind.REQ_LOW:
            return GroupedReq(groups, part.size, high=part.kind is SynopsisKind.REQ_HIGH)
        case _:
            return _CLASSES[part.kind](groups, part.size)


def _item_kind(part: SynopsisSpec) -> ItemKind:
    assert part.argument is not None
    match part.argument.type:
        case ColumnType.VARCHAR:
            return ItemKind.TEXT
        case ColumnType.DOUBLE:
            return ItemKind.DOUBLE
        case _:
            return ItemKind.INTEGER


def make_thinned(part: SynopsisSpec) -> Any:
    """A synopsis that is read thinned.

    An interval for a sum needs the squares, too; distinct values survive thinning as theta only.
    """
    match part.kind:
        case SynopsisKind.MOMENTS:
            return make(replace(part, variance=True), 0)
        case SynopsisKind.DISTINCT:
            return GroupedTheta(0, thinned_size(part))
        case _:
            return make(part, 0)


def thinned_size(part: SynopsisSpec) -> int:
    """Of the synopsis that a thinned part is read into."""
    if part.kind is SynopsisKind.DISTINCT:
        return min(max(part.size, LG_K_MIN), _THETA_LG_K_MAX)
    return part.size
