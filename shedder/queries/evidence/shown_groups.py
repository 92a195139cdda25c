"""Confidence of the groups that HAVING, ORDER BY and LIMIT choose by estimates.

A group that is shown because its estimate is large is shown partly by chance (the winner's curse).
So its interval is asked at a smaller delta, such that of the groups shown a share of at most delta
is expected to miss: the false coverage rate.

Of m groups that were seen k are shown: each is asked at 1 - delta k/m (Benjamini and Yekutieli
2005, JASA 100(469), Thm 1 for independent groups). Intervals hold given that a group was seen
(synopses.intervals.seen_groups), so the m are those that were: a group of which no tuple was read
is not shown, whatever it could have been. Groups whose estimates are far from the decision count
less (decision_share.py).
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
from shedder.queries.evidence.decision_share import share_of_shown
from shedder.queries.evidence.delta_shares import at_delta_share, with_rows
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.having_order_limit import first_key, having_outcomes
from shedder.queries.evidence.output_columns import Groups
from shedder.queries.evidence.value_ranges import Mask
from synopses.model.estimate import Bound, Estimates

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

_BOUNDED: Final = frozenset({AggregateFunction.COUNT, AggregateFunction.COUNT_DISTINCT})


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

    Intervals that cannot be asked again have no bound.
    """
    evidence = groups.evidence
    decisions = _decisions(groups, limited=False)
    if not _is_inexact(evidence, decisions, by_chance=True):
        return evidence
    share = 1.0 / (evidence.groups + 1)  # One more is for `missing`.
    share /= _intervals_each(groups)
    found = at_delta_share(groups.query, evidence, share, decisions)
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
    fewest, weights = min(each for each in intervals if each), _weights(evidence, outputs)
    if evidence.again is None:
        least = fewest / weights.sum()
        return Shown(at_delta_share(groups.query, evidence, least, outputs), 1.0)
    share = share_of_shown(groups, _decisions(groups), shown=fewest, weights=weights)
    some = at_delta_share(groups.query, evidence, share, outputs, rows)
    return Shown(with_rows(evidence, rows, some), share)


def missing_first(together: Groups) -> float:
    """The first place by the first key that a group can have of which no tuple was read.

    It is in the units of `first_key`; inf where no group can be missing, or no place is limited.
    """
    order, limit = together.query.order, together.query.limit
    if together.evidence.missing is None or not order or limit is None:
        return np.inf
    if not together.evidence.groups or _reads_keys(together):
        return -np.inf
    longer = _with_missing(together)
    if not having_outcomes(longer).true[-1]:
        return np.inf
    last = np.array([longer.evidence.groups - 1])
    return float(first_key(longer, order[0], last).low[0])


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
    """Return whether an aggregate of the expressions is inexact; by_chance: with a known delta."""
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


def _weights(evidence: Evidence, nodes: list[Expression]) -> Floats:
    """1.0 for each group that can be shown and miss, else 0.0."""
    weights = np.zeros(evidence.groups)
    for node in nodes:
        for each in (evidence.estimates[part] for part in aggregates_of(node)):
            if each.confidence < 1.0:
                weights = np.maximum(weights, each.bound != Bound.EXACT)
    if evidence.others is not None:
        weights[evidence.others] = 0.0
    return weights


def _intervals_each(groups: Groups) -> float:
    """Return how many times delta the intervals of one group spend that its place is decided by."""
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


def _reads_keys(groups: Groups) -> bool:
    """Return whether a decision depends on group keys, which are not known of missing groups."""
    keys = set(groups.query.groups)
    nodes = [key.expression for key in groups.query.order[:1]]
    nodes += [] if groups.query.having is None else [groups.query.having]
    return any(part in keys for node in nodes for part in _outside(node))


def _outside(node: Expression) -> Iterator[Expression]:
    """The parts of an expression that are not inside of an aggregate."""
    inside = {part for each in aggregates_of(node) for part in walk(each)}
    return (part for part in walk(node) if part not in inside)


def _with_missing(groups: Groups) -> Groups:
    """One more row: a group of which no tuple was read."""
    evidence = groups.evidence
    missing = evidence.missing
    most = None if missing is None or missing.weight_max is None else missing.weight_max - 1.0
    estimates = {
        aggregate: _longer(column, most if aggregate.function in _BOUNDED else None)
        for aggregate, column in evidence.estimates.items()
    }
    keys = tuple(_with_null(key) for key in evidence.keys)
    return Groups(groups.query, replace(evidence, keys=keys, estimates=estimates, others=None))


def _with_null(key: pa.Array[Any]) -> pa.Array[Any]:
    longer: pa.Array[Any] = pa.concat_arrays([key, pa.nulls(1, key.type)])
    return longer


def _longer(column: Estimates, most: float | None) -> Estimates:
    """One row more: from 0 to `most`, or unknown."""
    value, low, high = column.value, column.low, column.high
    if value.dtype != np.dtype(object):
        value, low, high = (np.asarray(each, np.float64) for each in (value, low, high))
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
