"""The part of delta at which the groups that a query shows are asked (shown_groups.py).

Of k intervals shown, each group adds the probability that it is shown and misses; all may add up
to k delta. Exact values add nothing and are not among the k: beside many of them, the intervals
alone would all be allowed to miss.

At a part a of delta, a group near the decision adds a. Its estimate is at most a half-width away
from the truth, unless it misses. So every sample has the decision no farther out than the k-th best
place that a group surely has with its half-width doubled: once from estimate to truth, once from
truth to another estimate. A group that is g beyond that decision is shown only after a deviation of
g/2: either this estimate is g/2 too far out, or another one deviates by g/2. Its interval at b
tells: where the doubled interval at b ends before the decision, the group adds b at most.
Source: the zoom correction of Zrnic and Fithian 2024, arXiv 2411.18569, for k winners and for
thresholds; it takes the widths of intervals as known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Expression
from shedder.queries.evidence.delta_shares import at_delta_share
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.having_order_limit import Keys, first_key, having_outcomes
from shedder.queries.evidence.output_columns import Groups
from shedder.queries.evidence.value_ranges import Mask
from synopses.model.estimate import Bound, Estimates

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

LEVELS: Final = 10  # Parts of delta at which groups may be asked; more resolve distances finer.
_SPENT: Final = 0.95  # Of delta; the rest is for a group above the decision that falls far below.


def share_of_shown(
    groups: Groups, decisions: list[Expression], *, shown: int, weights: Floats
) -> float:
    """The largest part of delta at which the false coverage rate of those shown is kept.

    A level is a part of delta. Levels are asked of those groups alone that they may decide about: a
    group that is near the decision at the whole delta is near it at all levels, because intervals
    grow as delta falls. Of the others, bisection finds the smallest level at which they are not.

    Args:
      groups: all groups, at the whole of delta; they can be asked again.
      decisions: what groups are chosen by.
      shown: how many intervals are shown, in the output with the fewest; at least 1.
      weights: float64 [groups], in how many of the groups that may miss each one counts.
    """
    least, budget = shown / float(weights.sum()), _SPENT * shown
    shares = np.geomspace(1.0, least / 10.0, LEVELS)
    levels = _Levels(groups, decisions, shares)
    bottom = LEVELS - 1
    away = levels.is_away(0, levels.decision(0)) & (weights > 0)
    # Where no group is as near as it may be, the share is no larger than this.
    most = _filled(np.where(away, shares[bottom], np.inf), weights, budget)
    for level, share in enumerate(shares):
        if share * _SPENT > most:
            continue
        counts = levels.counts(np.flatnonzero(away), levels.decision(level) if away.any() else 0.0)
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


@dataclass(slots=True, eq=False)
class _Places:
    """What HAVING and the first order key can be, with half-widths doubled.

    sure, possible: bool [groups], whether HAVING surely, possibly keeps a group. low, high: float64
    [groups], ends of the first order key, as in `Keys`.
    """

    sure: Mask
    possible: Mask
    low: Floats
    high: Floats

    @classmethod
    def of(cls, groups: Groups, keys: Keys | None) -> _Places:
        """keys: of these groups, where the levels do not differ; None: they are asked."""
        truth = having_outcomes(groups)
        if keys is None:
            keys = first_key(groups, groups.query.order[0], np.arange(groups.evidence.groups))
        sure = truth.true & ~(truth.false | truth.null)
        return cls(sure, truth.true, keys.low, keys.high)

    def put(self, rows: Rows, some: _Places) -> None:
        """Take some groups from elsewhere."""
        self.sure[rows], self.possible[rows] = some.sure, some.possible
        self.low[rows], self.high[rows] = some.low, some.high


@dataclass(slots=True, eq=False)
class _Levels:
    """The places of groups at each part of delta; a level is asked of a group when it is needed."""

    groups: Groups
    decisions: list[Expression]
    shares: Floats
    _keys: Keys | None = field(init=False)
    _places: list[_Places] = field(init=False)
    _estimated: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        evidence, order = self.groups.evidence, self.groups.query.order
        nothing = np.zeros(evidence.groups)
        self._keys = None if order else Keys(nothing, nothing)
        if (
            order
            and (key := order[0].expression)
            and (self.groups.is_certain(key) or self.groups.outcomes(key) is None)
        ):
            self._keys = first_key(self.groups, order[0], np.arange(evidence.groups))
        first = _Places.of(self._doubled(evidence), self._keys)
        blank = np.zeros(evidence.groups, np.bool_)
        self._places = [first] + [
            _Places(blank.copy(), blank.copy(), nothing.copy(), nothing.copy())
            for _ in self.shares[1:]
        ]
        self._estimated = np.zeros((len(self.shares), evidence.groups), np.bool_)
        self._estimated[0] = True

    def is_away(self, level: int, decision: float, rows: Rows | None = None) -> Mask:
        """bool [groups], whether no half of a doubled interval reaches the decision."""
        some = slice(None) if rows is None else rows
        places = self._places[level]
        away: Mask = ~(places.possible[some] & (places.low[some] <= decision))
        return away

    def counts(self, rows: Rows, decision: float) -> Floats:
        """The smallest part of delta at which each group is away from the decision; inf: none.

        rows: int64, the groups that may be away at some level; all others are not.
        """
        counts = np.full(self.groups.evidence.groups, np.inf)
        rows = rows[self.is_away(0, decision, rows)]
        low, high = np.zeros(len(rows), np.int64), np.full(len(rows), len(self.shares) - 1)
        if not len(rows):
            return counts
        self._ask(len(self.shares) - 1, rows)
        at_last = self.is_away(len(self.shares) - 1, decision, rows)
        low = np.where(at_last, high, low)
        while (open_ := high - low > 1).any():
            middle = (low + high) // 2
            for level in np.unique(middle[open_]).tolist():
                mine = np.flatnonzero(open_ & (middle == level))
                self._ask(level, rows[mine])
                away = self.is_away(level, decision, rows[mine])
                low[mine] = np.where(away, level, low[mine])
                high[mine] = np.where(away, high[mine], level)
        counts[rows] = self.shares[low]
        return counts

    def decision(self, level: int) -> float:
        """The place of the first key that the k-th of the shown groups has at worst."""
        query, others = self.groups.query, self.groups.evidence.others
        limit = query.limit
        if limit is None or not query.order:
            return np.inf
        first = self._places[0]
        sure = first.sure.copy()
        if others is not None:
            sure[others] = False
        rows = np.flatnonzero(sure)
        if not 0 < limit <= len(rows):
            return np.inf
        best = rows[np.argpartition(first.high[rows], limit - 1)[:limit]]
        self._ask(level, best)
        bound = self._worst(level, best, limit)
        rows = rows[first.high[rows] <= bound]
        self._ask(level, rows)
        return self._worst(level, rows, limit)

    def _worst(self, level: int, rows: Rows, limit: int) -> float:
        places = self._places[level]
        high = places.high[rows[places.sure[rows]]]
        return float(np.partition(high, limit - 1)[limit - 1]) if len(high) >= limit else np.inf

    def _ask(self, level: int, rows: Rows) -> None:
        """Ask some groups at a level, unless they were."""
        rows = rows[~self._estimated[level, rows]]
        if not len(rows):
            return
        groups = self.groups
        found = at_delta_share(
            groups.query, groups.evidence, float(self.shares[level]), self.decisions, rows
        )
        keys = self._keys
        known = None if keys is None else Keys(keys.low[rows], keys.high[rows])
        self._places[level].put(rows, _Places.of(self._doubled(found), known))
        self._estimated[level, rows] = True

    def _doubled(self, evidence: Evidence) -> Groups:
        """With half-widths doubled."""
        estimates = {each: doubled(column) for each, column in evidence.estimates.items()}
        return Groups(self.groups.query, replace(evidence, estimates=estimates))


def doubled(column: Estimates) -> Estimates:
    """Half-widths of intervals around values, doubled."""
    value, low, high = column.value, column.low, column.high
    if value.dtype == np.dtype(object):
        return column
    value, low, high = (np.asarray(each, np.float64) for each in (value, low, high))
    is_interval = (column.bound == Bound.INTERVAL) & ~column.null
    with np.errstate(invalid="ignore"):
        low = np.where(is_interval, value - 2.0 * (value - low), low)
        high = np.where(is_interval, value + 2.0 * (high - value), high)
    return replace(column, value=value, low=low, high=high)
