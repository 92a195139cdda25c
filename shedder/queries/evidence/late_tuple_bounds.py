"""Late tuples: intervals widened by tuples that came too late for their panes.

They are in the archive and in no synopsis, so what the window's answer would have been with them
is only known by how many there were and by the range of the columns (estimators: 12). Which group
a late tuple belongs to is not known either: every group is widened by all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    BY_TIME,
    JOINS,
    OF_PAIRS,
    Aggregate,
    AggregateFunction,
    children,
)
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.covariance_bounds import always_bounded, late_cross
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.int64_sums import within_int64
from shedder.queries.evidence.known_range import known_range
from shedder.queries.evidence.late_quantiles import late_quantile
from shedder.streams.basics import ColumnBasics
from shedder.streams.batches import TIME_MAX_US, TIME_MIN_US
from synopses.model.estimate import Bound, Estimates, TopItem

End = float | NDArray[np.float64]

_OF_ONE_COLUMN = (
    AggregateFunction.SUM,
    AggregateFunction.AVG,
    AggregateFunction.MIN,
    AggregateFunction.MAX,
    AggregateFunction.QUANTILE,
)
_SPREADS = (AggregateFunction.VAR, AggregateFunction.STDDEV)

_REASON = "tuples came too late and their values could be anything"
_BY_TIME = "tuples came too late that may be before the first or after the last"
_UNLISTED = "tuples came too late that may make other values frequent"
_LATE_GROUPS = "a group may have no tuple but late ones"
_INT64_END = 2.0**63 - 2048  # the last float64 but one before the end


def widen_late(
    query: BoundQuery,
    evidence: Evidence,
    basics: Mapping[str, ColumnBasics],
    why: str = "came too late for this window",
    *,
    among: Mapping[str, ColumnBasics] | None = None,
) -> Evidence:
    """The evidence with every interval wide enough for its `late` tuples.

    Some answers are made anew of what the source knows, as if no tuple was allowed for yet; these
    allow for the tuples of all calls together.

    Args:
      query: whose aggregates they are.
      evidence: of a window that `late` tuples were too late for. With its `counts` averages and
        variances, with its `quantiles` too quantiles move no further than so many more values can
        move them; without, they can be anywhere in the column's range.
      basics: of the columns of the late tuples, at least.
      among: of the columns of all tuples, those that the evidence has, too; None: `basics` are.
      why: what has become of the tuples, where it is something else that keeps them out.
    """
    if not evidence.late:
        return evidence
    late, span, again = evidence.late, evidence.late_span, evidence.again
    found = _allowing(query, evidence, basics, why, among)
    if again is None:
        return found

    def once_more(
        share: float, of: Collection[Aggregate], rows: NDArray[np.int64] | None = None
    ) -> Evidence:
        lacking = replace(again(share, of), late=late, late_span=span)
        allowing = _allowing(query, lacking, basics, why, among)
        return allowing if rows is None else allowing.take(rows)

    return replace(found, again=once_more)


def _allowing(
    query: BoundQuery,
    evidence: Evidence,
    basics: Mapping[str, ColumnBasics],
    why: str,
    among: Mapping[str, ColumnBasics] | None,
) -> Evidence:
    counts, among = _counts(evidence), basics if among is None else among
    total = evidence.late + evidence.allowed
    estimates = {}
    for aggregate, found in evidence.estimates.items():
        ends = _range(aggregate, among if aggregate.function in _SPREADS else basics)
        column = _of_no_value(aggregate, found, ends)
        ask, count = evidence.quantiles.get(aggregate), counts.get(aggregate)
        if ask is not None and count is not None and aggregate.parameter is not None:
            low, high = late_quantile(ask, count, share=aggregate.parameter, late=total, ends=ends)
            low, high = (
                np.where(column.null, *each) for each in zip(ends, (low, high), strict=True)
            )
            estimates[aggregate] = _pulled(column, low, high)
        elif aggregate.function is AggregateFunction.FREQUENT:
            again = evidence.frequents.get(aggregate)
            widened = _unlisted(column) if again is None else again(total)
            estimates[aggregate] = replace(widened, bound=np.maximum(widened.bound, column.bound))
        elif aggregate.function in BY_TIME:
            estimates[aggregate] = _by_time(aggregate, column, evidence)
        elif aggregate.function in OF_PAIRS:
            estimates[aggregate] = _crossed(aggregate, column, evidence, total, among)
        elif aggregate.function in JOINS:
            estimates[aggregate] = _more_pairs(aggregate, column, evidence, counts.get(aggregate))
        else:
            estimates[aggregate] = _widened(aggregate, column, evidence.late, ends, counts)
        if aggregate.type is ColumnType.TIMESTAMP:
            estimates[aggregate] = _in_the_calendar(estimates[aggregate])
    note = f"{evidence.late:,} tuples {why}; intervals allow for them"
    missing = evidence.missing
    if query.groups:
        note += "; a group of such tuples only may be missing"
        missing = _missing(evidence)
    return replace(
        evidence,
        estimates=estimates,
        rank_errors={
            aggregate: _rank_error(aggregate, errors, evidence.late, counts.get(aggregate))
            for aggregate, errors in evidence.rank_errors.items()
        },
        notes=(*evidence.notes, note),
        missing=missing,
        allowed=total,
    )


def _rank_error(
    aggregate: Aggregate, errors: NDArray[np.float64], late: int, counts: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    """Return the rank error of a quantile when up to `late` values are added to its group.

    Of n values, those below it are (q - e) n to (q + e) n. With l more they are up to l more, of
    n + l: the error is at most (e n + l max(q, 1 - q) + 1) / (n + l), where 1 is for ranks that
    are whole. In l this rises or falls throughout, so 1 and `late` are enough.
    """
    share = aggregate.parameter
    if counts is None or share is None:
        return np.ones_like(errors)
    moved, ranks = max(share, 1.0 - share), errors * counts + 1.0
    ends = [(ranks + each * moved) / (counts + each) for each in (1, late)]
    widest: NDArray[np.float64] = np.minimum(1.0, np.maximum.reduce([errors, *ends]))
    return widest


def _missing(evidence: Evidence) -> MissingGroups:
    """A group that is missing may have every late tuple, beside those that the source missed."""
    known = evidence.missing
    if known is None:
        return MissingGroups(evidence.late + 1.0, 1.0, _LATE_GROUPS)
    if known.weight_max is None:
        return known
    return replace(known, weight_max=known.weight_max + evidence.late)


def _in_the_calendar(column: Estimates) -> Estimates:
    """No event time is outside of the years 1 to 9999, and nothing downstream could show one."""
    low, high = (np.clip(ends, TIME_MIN_US, TIME_MAX_US) for ends in (column.low, column.high))
    return replace(column, low=low, high=high)


def _range(aggregate: Aggregate, basics: Mapping[str, ColumnBasics]) -> tuple[float, float]:
    if aggregate.argument is None:
        return -np.inf, np.inf
    return known_range(aggregate.argument, basics)


def _counts(evidence: Evidence) -> Mapping[Aggregate, NDArray[np.int64]]:
    """Return the number of values of each aggregate, from the source or a COUNT beside it."""
    counted = {
        aggregate.argument: np.floor(np.asarray(column.low, np.float64)).astype(np.int64)
        for aggregate, column in evidence.estimates.items()
        if aggregate.function is AggregateFunction.COUNT and aggregate.argument is not None
    }
    beside = {
        aggregate: counted[aggregate.argument]
        for aggregate in evidence.estimates
        if aggregate.argument in counted and not (aggregate.second or aggregate.conditions)
    }
    return beside | dict(evidence.counts)


def _of_no_value(aggregate: Aggregate, column: Estimates, ends: tuple[float, float]) -> Estimates:
    """The column with ends where it is NULL for certain: late tuples alone may give it a value.

    A sum of no value adds 0 to that of the late ones; an average, an extreme or a quantile of late
    values lies in their range. Of other functions nothing is known.
    """
    none = column.null & (column.bound == Bound.EXACT)
    if aggregate.function not in _OF_ONE_COLUMN or not none.any() or column.value.dtype.kind == "O":
        return column
    known = np.array((0.0, 0.0) if aggregate.function is AggregateFunction.SUM else ends)
    low, high = known
    if column.value.dtype.kind == "i":
        if not np.isfinite(known).all():
            return column
        low, high = outward_int(known[:1], -1)[0], outward_int(known[1:], 1)[0]
    return replace(
        column,
        low=np.where(none, low, column.low),
        high=np.where(none, high, column.high),
        bound=np.where(none, np.uint8(Bound.INTERVAL), column.bound),
    )


def _widened(
    aggregate: Aggregate,
    column: Estimates,
    late: int,
    ends: tuple[float, float],
    counts: Mapping[Aggregate, NDArray[np.int64]],
) -> Estimates:
    low, high = ends
    match aggregate.function:
        case AggregateFunction.COUNT | AggregateFunction.COUNT_DISTINCT:
            return _stretched(column, 0.0, float(late))
        case AggregateFunction.DISTINCT_BOTH:  # A tuple can bring one value to both sets.
            return _stretched(column, 0.0, float(late))
        case AggregateFunction.DISTINCT_ONLY:  # Or bring it to the one, or to the other.
            return _least_zero(_stretched(column, -float(late), float(late)))
        case AggregateFunction.JACCARD:
            return _jaccard(column, late, counts.get(aggregate))
        case AggregateFunction.SUM:
            return _summed(aggregate, column, late * min(0.0, low), late * max(0.0, high))
        case AggregateFunction.MIN:
            return _pulled(column, low, None)
        case AggregateFunction.MAX:
            return _pulled(column, None, high)
        case AggregateFunction.AVG:
            return _averaged(column, late, ends, counts.get(aggregate))
        case AggregateFunction.QUANTILE:
            return _pulled(column, low, high)
        case AggregateFunction.VAR | AggregateFunction.STDDEV:
            return _spread(aggregate, column, late, ends, counts.get(aggregate))
        case AggregateFunction.TOP:
            return _more_top(column, late)
        case _:
            raise AssertionError(aggregate)


def _summed(aggregate: Aggregate, column: Estimates, down: float, up: float) -> Estimates:
    found = _stretched(column, down, up)
    if aggregate.type is ColumnType.DOUBLE:
        return found
    low, high = _floats(column)
    return within_int64(found, low + down, high + up)


def _stretched(column: Estimates, down: float, up: float) -> Estimates:
    """Both ends moved by this much."""
    if down == 0 and up == 0:
        return column
    low, high = _floats(column)
    with np.errstate(invalid="ignore"):  # inf - inf: then nothing is known, see _with_ends
        return _with_ends(column, low + down, high + up)


def _least_zero(column: Estimates) -> Estimates:
    return replace(column, low=np.maximum(column.low, 0))


def _jaccard(column: Estimates, late: int, either: NDArray[np.int64] | None) -> Estimates:
    """B common values of U: each late tuple makes it B of U + 1, B + 1 of U, or both plus 1.

    So between B / (U + L) and (B + L) / U, which is farthest for the smallest U.
    """
    low, high = _floats(column)
    least = np.zeros(len(low)) if either is None else np.asarray(either, np.float64)
    new_low = low * least / (least + late)
    new_high = np.minimum(high + late / np.maximum(least, 1.0), 1.0)
    return _with_ends(column, new_low, np.where(least > 0, new_high, 1.0))


def _pulled(column: Estimates, low: End | None, high: End | None) -> Estimates:
    """Ends that reach at least as far as these; text has no range, so nothing is known of it."""
    if column.value.dtype == np.dtype(object):
        return _unknown(column)
    old_low, old_high = _floats(column)
    new_low = old_low if low is None else np.minimum(old_low, low)
    new_high = old_high if high is None else np.maximum(old_high, high)
    return _with_ends(column, new_low, new_high)


def _averaged(
    column: Estimates, late: int, ends: tuple[float, float], counts: NDArray[np.int64] | None
) -> Estimates:
    """All late values at one end of the range: (n avg + L end) / (n + L), worst at the most L."""
    low, high = _floats(column)
    share = np.ones(len(low)) if counts is None else late / np.maximum(counts + late, 1.0)
    with np.errstate(invalid="ignore"):
        new_low = np.minimum(low, low + share * (ends[0] - low))
        new_high = np.maximum(high, high + share * (ends[1] - high))
    return _with_ends(column, new_low, new_high)


def _spread(
    aggregate: Aggregate,
    column: Estimates,
    late: int,
    ends: tuple[float, float],
    counts: NDArray[np.int64] | None,
) -> Estimates:
    """A variance of n values with up to L more, none farther from their mean than the range.

    With l more the squared deviations are at least M2 and at most M2 + l D^2 (about the old mean),
    over n + l - 1.
    """
    if counts is None or not np.isfinite(ends).all():
        return _unknown(column)
    low, high = _floats(column)
    rooted = aggregate.function is AggregateFunction.STDDEV
    if rooted:
        low, high = low**2, high**2
    rest = np.maximum(counts - 1, 1.0)
    low = low * rest / (rest + late)
    width = (ends[1] - ends[0]) ** 2
    high = np.maximum(high, (high * rest + late * width) / (rest + late))
    if rooted:
        low, high = np.sqrt(low), np.sqrt(high)
    return _with_ends(column, low, high)


def _by_time(aggregate: Aggregate, column: Estimates, evidence: Evidence) -> Estimates:
    """FIRST and LAST stay what they are where every late tuple comes after, or before, for certain.

    A late tuple lies in late_span, so the first value is still the first if it was before all of
    that; the last one still the last if it was not before its end. Elsewhere nothing is known: the
    late one can have any value.
    """
    times = evidence.times.get(aggregate)
    if times is None or evidence.late_span is None:
        return _unknown(column, _BY_TIME)
    low, high = evidence.late_span
    certain = times < low if aggregate.function is AggregateFunction.FIRST else times >= high
    certain &= ~column.null
    if certain.all():
        return column
    bound = np.where(certain, column.bound, np.uint8(Bound.NONE))
    return replace(column, bound=bound, reason=column.reason or _BY_TIME)


def _crossed(
    aggregate: Aggregate,
    column: Estimates,
    evidence: Evidence,
    late: int,
    basics: Mapping[str, ColumnBasics],
) -> Estimates:
    """Functions of pairs, by the sums they are made of; without these, or a range, nothing."""
    first, second = (known_range(node, basics) for node in children(aggregate))
    sums = evidence.crosses.get(aggregate)
    finite = bool(np.isfinite([first, second]).all())
    if sums is None or not finite:
        return always_bounded(aggregate.function, _unknown(column), finite=finite)
    ends = late_cross(aggregate.function, sums, late=late, ranges=(first, second))
    return always_bounded(aggregate.function, _pulled(column, *ends), finite=True)


def _unlisted(column: Estimates) -> Estimates:
    """Late tuples may make values frequent of which the source does not tell."""
    none = np.full(len(column), Bound.NONE, np.uint8)
    return replace(column, bound=none, reason=column.reason or _UNLISTED)


def _more_top(column: Estimates, late: int) -> Estimates:
    lists = np.empty(len(column), object)
    for group, found in enumerate(column.value):
        lists[group] = [
            TopItem(item.value, item.count, item.low, item.high + late, False)
            for item in found or []
        ]
    bound = np.maximum(column.bound, np.uint8(Bound.INTERVAL))
    return replace(column, value=lists, low=lists, high=lists, bound=bound)


def _more_pairs(
    aggregate: Aggregate,
    column: Estimates,
    evidence: Evidence,
    counts: NDArray[np.int64] | None,
) -> Estimates:
    """With L more tuples no pair is lost.

    Counts f become f + l with sum l = L, so their norm grows by the norm of l, which is L at most:
    (sqrt(F) + L)^2. Of two columns, a late tuple meets no more tuples of either than there are:
    J + L (n + m) + L^2. Those that were allowed for before may be of both.
    """
    late = evidence.late
    low, high = _floats(column)
    if aggregate.function is AggregateFunction.SELF_JOIN_SIZE:
        most = (np.sqrt(high) + late) ** 2
    elif counts is None:
        most = np.full(len(high), np.inf)
    else:
        most = high + late * (counts.astype(np.float64) + 2.0 * evidence.allowed + late)
    return _with_ends(column, low, np.ceil(most))


def _floats(column: Estimates) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(column.low, np.float64), np.asarray(column.high, np.float64)


def _with_ends(column: Estimates, low: NDArray[np.float64], high: NDArray[np.float64]) -> Estimates:
    """The column with these ends; a value that was NULL for certain has none."""
    bound = np.maximum(column.bound, np.uint8(Bound.INTERVAL))
    unbounded = np.isinf(low) & np.isinf(high) | np.isnan(low) | np.isnan(high)
    unknown = unbounded | (column.null & (column.bound != Bound.INTERVAL))
    bound = np.where(unknown, np.uint8(Bound.NONE), bound)
    low, high = (np.where(np.isnan(x), y, x) for x, y in ((low, -np.inf), (high, np.inf)))
    gone = bool((bound == Bound.NONE).any())
    reason = column.reason or (_REASON if gone else "")
    if column.value.dtype.kind == "i" and not np.isinf(low).any() and not np.isinf(high).any():
        whole = outward_int(low, -1), outward_int(high, 1)
        return replace(column, low=whole[0], high=whole[1], bound=bound, reason=reason)
    return replace(column, low=low, high=high, bound=bound, reason=reason)


def outward_int(ends: NDArray[np.float64], step: int) -> NDArray[np.int64]:
    """Whole ends, one float64 step (at most 1,024 in int64) outward where floats have gaps."""
    limited = np.clip(ends, -_INT64_END, _INT64_END)
    whole = (np.floor(limited) if step < 0 else np.ceil(limited)).astype(np.int64)
    whole = np.where(np.abs(limited) >= 2.0**53, whole + step * 1024, whole)
    last = np.iinfo(np.int64).min if step < 0 else np.iinfo(np.int64).max
    return np.where(step * ends >= _INT64_END, last, whole)


def _unknown(column: Estimates, reason: str = _REASON) -> Estimates:
    none = np.full(len(column), np.uint8(Bound.NONE))
    return replace(column, bound=none, reason=column.reason or reason)
