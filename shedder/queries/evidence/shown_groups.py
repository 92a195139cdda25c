"""Confidence of the groups that HAVING, ORDER BY and LIMIT choose by estimates.

A group that is shown because its estimate is large is shown partly by chance (the winner's curse).
So its interval is asked at a smaller delta, such that of the groups shown a share of at most delta
is expected to miss: the false coverage rate.

Of m groups that could have been shown k are: each is asked at 1 - delta k/m (Benjamini and
Yekutieli 2005, JASA 100(469), Thm 1 for independent groups; for a fixed k the proof needs no
independence). Groups whose estimates are far from the decision count less: one is shown, and
counts, only if it deviates as far as the decision, and the probability of that is known from its
own interval at a smaller delta (the zoom correction: Zrnic and Fithian 2024, arXiv 2411.18569,
for k winners and for thresholds). The widths of intervals are taken as known there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import AggregateFunction, Expression, walk
from shedder.queries.evidence.confidence_budget import aggregates_of
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.having_order_limit import Keys, first_key, having_outcomes
from shedder.queries.evidence.output_columns import Groups
from shedder.queries.evidence.value_ranges import Mask
from synopses.model.estimate import Bound, Estimates

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

LEVELS: Final = 10  # Confidences at which all groups are asked; more resolve distances finer.
_SPENT: Final = 0.95  # Of delta; the rest is for a group above the decision that falls far below.
_DELTA_MIN: Final = 1e-12  # 1 less a part of it must be below 1.
_BOUNDED: Final = frozenset({AggregateFunction.COUNT, AggregateFunction.COUNT_DISTINCT})
_GIVEN_ROWS: Final = frozenset(  # Their intervals hold given how many rows of a group were read.
    {
        AggregateFunction.AVG,
        AggregateFunction.MIN,
        AggregateFunction.MAX,
        AggregateFunction.VAR,
        AggregateFunction.STDDEV,
        AggregateFunction.QUANTILE,
    }
)


@dataclass(frozen=True, slots=True)
class Shown:
    """Evidence for the groups that are shown.

    share: the part of delta at which each interval was asked; 1.0 when nothing was chosen by
      estimates, and when intervals cannot be asked again.
    """

    evidence: Evidence
    share: float


def all_at_once(groups: Groups) -> Evidence:
    """The evidence with intervals that hold for all groups at once, by the union bound.

    Groups of which no tuple was read count, too. Intervals that cannot be asked again have no
    bound.
    """
    evidence = groups.evidence
    decisions = _decisions(groups, limited=False)
    if not _is_inexact(evidence, decisions, by_chance=True):
        return evidence
    share = 1.0 / (evidence.groups + evidence.unread + 1)  # One more is for `missing`.
    share /= _intervals_each(groups)
    found = _asked(groups, share, decisions)
    estimates = {
        aggregate: _held(column, evidence.estimates[aggregate].confidence)
        for aggregate, column in found.estimates.items()
    }
    return replace(found, estimates=estimates)


def for_shown(groups: Groups, rows: Rows) -> Shown:
    """The evidence whose intervals hold for the groups that are shown.

    Args:
      groups: all groups that were seen.
      rows: int64, those that are shown, without the others row.
    """
    evidence = groups.evidence
    seen = evidence.groups - (evidence.others is not None)
    outputs = [output.expression for output in groups.query.outputs]
    chosen = 0 < len(rows) < seen and _is_inexact(evidence, _decisions(groups), by_chance=False)
    intervals = [int(each[rows].sum()) for each in _with_interval(evidence, outputs)]
    if not chosen or not any(intervals):
        return Shown(evidence, 1.0)
    fewest, weights = min(each for each in intervals if each), _weights(groups, outputs)
    least = fewest / weights.sum()
    if evidence.again is None:
        return Shown(_asked(groups, least, outputs), 1.0)
    share = _share(groups, fewest, least, weights)
    return Shown(_asked(groups, share, outputs), share)


def missing_first(together: Groups) -> float:
    """The first place by the first key that a group can have of which no tuple was read.

    It is in the units of `first_key`; inf where no group can be missing.
    """
    if together.evidence.missing is None:
        return np.inf
    if not together.evidence.groups or _reads_keys(together):
        return -np.inf
    having, keys = _places(_with_missing(together, 1.0))
    return float(keys.low[-1]) if having.possible[-1] else np.inf


def _decisions(groups: Groups, *, limited: bool = True) -> list[Expression]:
    """Expressions that groups are chosen by, or placed by where `limited` is false."""
    query = groups.query
    ordered = query.limit is not None or not limited
    keys = _deciding(groups) if ordered else []
    return keys if query.having is None else [*keys, query.having]


def _deciding(groups: Groups) -> list[Expression]:
    """The order keys up to one that is exact and tells all groups apart."""
    keys: list[Expression] = []
    for key in groups.query.order:
        keys.append(key.expression)
        exact = groups.is_certain(key.expression)
        if exact and len(groups.evaluate(key.expression).unique()) == groups.evidence.groups:
            break
    return keys


def _is_inexact(evidence: Evidence, nodes: list[Expression], *, by_chance: bool) -> bool:
    """Whether an aggregate of the expressions is inexact; by_chance: with a known delta."""
    return any(
        bool((each.bound == Bound.INTERVAL).any()) and each.confidence < 1.0
        if by_chance
        else bool(each.bound.any())
        for node in nodes
        for each in (evidence.estimates[part] for part in aggregates_of(node))
    )


def _with_interval(evidence: Evidence, nodes: list[Expression]) -> Iterator[Mask]:
    """Of each expression with a known delta, the rows with an interval: these alone can miss."""
    for node in nodes:
        parts = [evidence.estimates[part] for part in aggregates_of(node)]
        if any(each.confidence < 1.0 for each in parts):
            yield np.maximum.reduce([each.bound for each in parts]) == Bound.INTERVAL


def _weights(groups: Groups, nodes: list[Expression]) -> Floats:
    """How many groups each row stands for that may be shown and miss; last, those not read."""
    evidence = groups.evidence
    weights = np.zeros(evidence.groups + 1)
    for node in nodes:
        for each in (evidence.estimates[part] for part in aggregates_of(node)):
            if each.confidence < 1.0:
                weights[:-1] = np.maximum(weights[:-1], each.bound != Bound.EXACT)
    if evidence.others is not None:
        weights[evidence.others] = 0.0
    weights[-1] = _unseen(groups)
    return weights


def _intervals_each(groups: Groups) -> float:
    """How many times delta the intervals of one group spend that its place is decided by."""
    query, estimates = groups.query, groups.evidence.estimates
    nodes = [key.expression for key in query.order[:1]]
    nodes += [] if query.having is None else [query.having]
    parts = {part for node in nodes for part in aggregates_of(node)}
    spent = sum(1.0 - estimates[part].confidence for part in parts)
    return max(1.0, spent / (1.0 - query.confidence))


def _held(column: Estimates, confidence: float) -> Estimates:
    """The intervals if they claim this confidence; else none."""
    if column.confidence >= confidence:
        return column
    bound = np.where(column.bound == Bound.INTERVAL, np.uint8(Bound.NONE), column.bound)
    return replace(column, bound=bound)


def _unseen(groups: Groups) -> int:
    """How many groups may be missing that could have been read, and shown."""
    functions = {aggregate.function for aggregate in groups.query.aggregates}
    return 0 if functions <= _GIVEN_ROWS else groups.evidence.unread


# --- asking again -----------------------------------------------------------------------------


def _asked(groups: Groups, share: float, nodes: list[Expression]) -> Evidence:
    """The evidence with the aggregates of some expressions at a part of delta; values stay.

    Intervals claim all of delta. What cannot be asked again claims less: by the part that it
    should have been asked at.
    """
    evidence, delta = groups.evidence, 1.0 - groups.query.confidence
    found, of = evidence, {part for node in nodes for part in aggregates_of(node)}
    if evidence.again is not None and share < 1.0:
        found = evidence.again(min(1.0, max(share, _DELTA_MIN / delta)), of)
    estimates = dict(evidence.estimates)
    for aggregate in of:
        before = evidence.estimates[aggregate]
        estimates[aggregate] = _claimed(before, found.estimates[aggregate], share)
    return replace(
        evidence, estimates=estimates, rank_errors=found.rank_errors, missing=found.missing
    )


def _claimed(before: Estimates, found: Estimates, share: float) -> Estimates:
    """An estimate that was asked at a part of delta, around the value of before."""
    delta = 1.0 - before.confidence
    confidence = before.confidence
    if 1.0 - found.confidence > delta * share * (1 + 1e-3):
        confidence = max(0.0, 1.0 - (1.0 - found.confidence) / share)
    bound = found.bound
    if confidence <= 0.0:
        bound = np.where(bound == Bound.INTERVAL, np.uint8(Bound.NONE), bound)
    if found.value.dtype == np.dtype(object):
        return replace(found, bound=bound, confidence=confidence)
    with np.errstate(invalid="ignore"):
        low, high = np.minimum(found.low, before.value), np.maximum(found.high, before.value)
    low, high = (
        np.where(before.null, end, inside) for end, inside in ((found.low, low), (found.high, high))
    )
    return replace(before, low=low, high=high, bound=bound, confidence=confidence)


# --- the share of delta -----------------------------------------------------------------------


def _share(groups: Groups, shown: int, least: float, weights: Floats) -> float:
    """The largest part of delta at which the false coverage rate of those shown is kept.

    Of k intervals shown, each group adds its weight's part. Exact values have no weight and are not
    among the k: beside many of them, the intervals alone would all be allowed to miss.

    Each group adds the probability that it is shown and misses; all may add up to k delta. At a
    part a of delta, a group near the decision adds a. Its estimate is at most a half-width away
    from the truth, unless it misses. So every sample has the decision no farther out than the
    k-th best place that a group surely has with its half-width doubled: once from estimate to
    truth, once from truth to another estimate. A group that is g beyond that decision is shown
    only after a deviation of g/2: either this estimate is g/2 too far out, or another one
    deviates by g/2. Its interval at b tells: where the doubled interval at b ends before the
    decision, the group adds b at most.
    """
    shares = np.geomspace(1.0, least / 10.0, LEVELS)
    views = [_doubled(groups, share) for share in shares]
    places = [_places(view) for view in views]
    unseen, budget = _unseen(groups), _SPENT * shown
    hidden = _reads_keys(groups)
    for share, (having, keys) in zip(shares, places, strict=True):
        decision = _decision(groups, having.sure, keys)
        counts = np.full(len(keys.low), np.inf)
        for other, (also, ends) in zip(shares, places, strict=True):
            counts[~(also.possible & (ends.low <= decision))] = other
        if hidden:
            counts[-1] = np.inf
        elif unseen:  # `missing` holds for all groups at once.
            counts[-1] /= unseen
        found = _filled(counts, weights, budget)
        if found >= share * _SPENT:
            return max(least * _SPENT, found)
    return least * _SPENT


def _filled(counts: Floats, weights: Floats, budget: float) -> float:
    """The largest a <= _SPENT with sum of weights * min(a, counts) <= budget."""
    order = np.argsort(counts)
    ends, weight = counts[order], weights[order]
    below = np.cumsum(np.where(np.isfinite(ends), ends, 0.0) * weight)
    above = weight.sum() - np.cumsum(weight)
    with np.errstate(invalid="ignore"):
        totals = np.where(np.isfinite(ends), below + ends * above, np.inf)
    at = int(np.searchsorted(totals, budget, side="right"))
    if at == len(ends):
        return _SPENT
    left = budget - (below[at - 1] if at else 0.0)
    near = weight[at:].sum()
    return min(_SPENT, left / near) if near else _SPENT


def _decision(groups: Groups, sure: Mask, keys: Keys) -> float:
    """The place of the first key that the k-th of the shown groups has at worst."""
    limit = groups.query.limit
    if limit is None or not groups.query.order:
        return np.inf
    known = sure.copy()
    known[-1] = False
    if groups.evidence.others is not None:
        known[groups.evidence.others] = False
    high = keys.high[known]
    return float(np.partition(high, limit - 1)[limit - 1]) if len(high) >= limit > 0 else np.inf


@dataclass(frozen=True, slots=True, eq=False)
class _Having:
    """bool [groups]: certainly kept by HAVING; possibly kept."""

    sure: Mask
    possible: Mask


def _places(groups: Groups) -> tuple[_Having, Keys]:
    """What HAVING and the first key can be in each group."""
    count, query = groups.evidence.groups, groups.query
    truth = having_outcomes(groups)
    having = _Having(truth.true & ~(truth.false | truth.null), truth.true)
    if not query.order:
        return having, Keys(np.zeros(count), np.zeros(count))
    return having, first_key(groups, query.order[0], np.arange(count))


def _reads_keys(groups: Groups) -> bool:
    """Whether a decision depends on group keys, which are not known of missing groups."""
    keys = set(groups.query.groups)
    nodes = [key.expression for key in groups.query.order[:1]]
    nodes += [] if groups.query.having is None else [groups.query.having]
    return any(part in keys for node in nodes for part in _outside(node))


def _outside(node: Expression) -> Iterator[Expression]:
    """The parts of an expression that are not inside of an aggregate."""
    inside = {part for each in aggregates_of(node) for part in walk(each)}
    return (part for part in walk(node) if part not in inside)


def _doubled(groups: Groups, share: float) -> Groups:
    asked = _asked(groups, share, _decisions(groups))
    return _with_missing(Groups(groups.query, asked), 2.0)


def _with_missing(groups: Groups, factor: float) -> Groups:
    """Half-widths times a factor, and one more row: a group of which no tuple was read."""
    evidence = groups.evidence
    missing = evidence.missing
    most = None if missing is None else missing.weight_max
    estimates = {
        aggregate: _longer(
            column,
            factor,
            None if most is None or aggregate.function not in _BOUNDED else factor * (most - 1.0),
        )
        for aggregate, column in evidence.estimates.items()
    }
    keys = tuple(_with_null(key) for key in evidence.keys)
    return Groups(groups.query, replace(evidence, keys=keys, estimates=estimates, others=None))


def _with_null(key: pa.Array[Any]) -> pa.Array[Any]:
    longer: pa.Array[Any] = pa.concat_arrays([key, pa.nulls(1, key.type)])
    return longer


def _longer(column: Estimates, factor: float, most: float | None) -> Estimates:
    """One row more: from 0 to `most`, or unknown."""
    value, low, high = column.value, column.low, column.high
    if value.dtype != np.dtype(object):
        value, low, high = (np.asarray(each, np.float64) for each in (value, low, high))
        is_interval = (column.bound == Bound.INTERVAL) & ~column.null
        with np.errstate(invalid="ignore"):
            low = np.where(is_interval, value - factor * (value - low), low)
            high = np.where(is_interval, value + factor * (high - value), high)
    numeric = most is not None and value.dtype != np.dtype(object)
    last = (0.0, 0.0, most) if numeric else (value[0], low[0], high[0])
    bound = np.uint8(Bound.INTERVAL if numeric else Bound.NONE)
    value, low, high = (
        np.append(each, np.array([end], each.dtype) if each.dtype != object else _cell(end))
        for each, end in zip((value, low, high), last, strict=True)
    )
    return replace(
        column,
        value=value,
        low=low,
        high=high,
        bound=np.append(column.bound, bound),
        null=np.append(column.null, not numeric),
    )


def _cell(value: object) -> NDArray[np.object_]:
    cell = np.empty(1, object)
    cell[0] = value
    return cell
