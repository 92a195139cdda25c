"""Synopsis factory: the class and an empty synopsis for each part of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shedder.cql.expressions.column_types import ColumnType
from shedder.engine.synopsis_plans.synopsis_plan import Kind, Part
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

_CLASSES: dict[Kind, Any] = {
    Kind.COUNT: GroupedCount,
    Kind.MOMENTS: GroupedMoments,
    Kind.CROSS: GroupedCrossMoments,
    Kind.FIRST_LAST: GroupedFirstLast,
    Kind.TEXT_FIRST_LAST: GroupedTextFirstLast,
    Kind.EXTREMES: GroupedTextExtremes,
    Kind.DISTINCT: GroupedDistinct,
    Kind.THETA: GroupedTheta,
    Kind.BUCKETS: GroupedLogBuckets,
    Kind.KLL: GroupedKll,
    Kind.REQ_HIGH: GroupedReq,
    Kind.REQ_LOW: GroupedReq,
    Kind.FREQUENT: GroupedFrequent,
    Kind.COUNTERS: GroupedCountMin,
}


def class_of(part: Part, *, thinned: bool = False) -> Any:
    """What a part is read into, in full or thinned: distinct values survive thinning as theta."""
    return GroupedTheta if thinned and part.kind is Kind.DISTINCT else _CLASSES[part.kind]


def make(part: Part, groups: int) -> Any:
    """An empty synopsis with room for this many groups."""
    match part.kind:
        case Kind.COUNT | Kind.CROSS | Kind.EXTREMES | Kind.BUCKETS:
            return _CLASSES[part.kind](groups)
        case Kind.MOMENTS:
            assert part.argument is not None
            integer = part.argument.type is not ColumnType.DOUBLE
            return GroupedMoments(groups, integer=integer, variance=part.variance)
        case Kind.TEXT_FIRST_LAST:
            return GroupedTextFirstLast(groups)
        case Kind.FIRST_LAST:
            assert part.argument is not None
            integer = part.argument.type is not ColumnType.DOUBLE
            return GroupedFirstLast(groups, integer=integer)
        case Kind.FREQUENT:
            return GroupedFrequent(groups, part.size, _item_kind(part))
        case Kind.REQ_HIGH | Kind.REQ_LOW:
            return GroupedReq(groups, part.size, high=part.kind is Kind.REQ_HIGH)
        case _:
            return _CLASSES[part.kind](groups, part.size)


def _item_kind(part: Part) -> ItemKind:
    assert part.argument is not None
    match part.argument.type:
        case ColumnType.VARCHAR:
            return ItemKind.TEXT
        case ColumnType.DOUBLE:
            return ItemKind.DOUBLE
        case _:
            return ItemKind.INTEGER


def make_thinned(part: Part) -> Any:
    """A synopsis that is read thinned.

    An interval for a sum needs the squares, too; distinct values survive thinning as theta only.
    """
    match part.kind:
        case Kind.MOMENTS:
            return make(replace(part, variance=True), 0)
        case Kind.DISTINCT:
            return GroupedTheta(0, thinned_size(part))
        case _:
            return make(part, 0)


def thinned_size(part: Part) -> int:
    """Of the synopsis that a thinned part is read into."""
    if part.kind is Kind.DISTINCT:
        return min(max(part.size, LG_K_MIN), _THETA_LG_K_MAX)
    return part.size
