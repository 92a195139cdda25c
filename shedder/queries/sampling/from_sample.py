"""Evidence from a stream's live sample: for every aggregate an estimate with its interval."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import assert_never

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    OF_PAIRS,
    Aggregate,
    AggregateFunction,
    Column,
    Expression,
)
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.confidence_budget import CERTAIN_ENDS, at_share, split_confidence
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.int64_sums import whole_ends, within_int64
from shedder.queries.sampling.anchored_values import (
    HELD_MAX,
    AnchoredValues,
    RankedValues,
    is_beyond_doubles,
)
from shedder.queries.sampling.delta_by_group import GroupsByPart
from shedder.queries.sampling.extreme_stratum import view_of_matches
from shedder.queries.sampling.interval_columns import SOURCE, UNSEEN, as_estimates, both
from shedder.queries.sampling.sampled_covariance import sampled_cross
from shedder.queries.sampling.sampled_extremes import sampled_extreme
from shedder.queries.sampling.sampled_first_last import sampled_by_time
from shedder.queries.sampling.sampled_joins import sampled_join
from shedder.queries.sampling.sampled_moments import count_of, mean_of, sum_of, variance_of
from shedder.queries.sampling.sampled_query import Sampled
from shedder.queries.sampling.sampled_rows import Selection
from shedder.queries.sampling.sampled_sets import sampled_sets
from shedder.queries.sampling.sampled_top import sampled_list
from shedder.queries.sampling.split_values import gains_by_split
from shedder.queries.sampling.stratified import missing_from_strata
from shedder.streams.live_sample import SampleView
from synopses.intervals.confidence_split import split_confidence as split_confidence_in
from synopses.intervals.distinct import distinct_by_hash, distinct_by_rows
from synopses.intervals.interval import Intervals
from synopses.intervals.means import sampled_mean
from synopses.intervals.quantiles import sampled_quantile
from synopses.intervals.unseen_groups import missing_group_rows
from synopses.intervals.weighted import signed_sum, weighted_sum
from synopses.model.estimate import Bound, Estimates
from synopses.model.overflow import SUM_OUT_OF_RANGE, unless_out_of_range, without
from synopses.moments.moments import GroupedMoments

STRATIFIED = "stratified sample"
_INFINITE = "the column has infinite values"
# Counts ask for groups that are shown. The upper ends of distinct values, which alone can miss, are
# too low only if few rows were read. All others hold given how many rows of a group were read.
_HOLD_IF_SHOWN = frozenset(
    {
        AggregateFunction.AVG,
        AggregateFunction.COUNT,
        AggregateFunction.COUNT_DISTINCT,
        AggregateFunction.VAR,
        AggregateFunction.STDDEV,
        AggregateFunction.QUANTILE,
        *CERTAIN_ENDS,
        *OF_PAIRS,
    }
)

_BESIDE_EXTREMES = frozenset(
    {AggregateFunction.AVG, AggregateFunction.VAR, AggregateFunction.STDDEV}
)


def evidence_from_sample(
    query: BoundQuery,
    view: SampleView,
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    marked: bool = False,
) -> Evidence:
    """What the sample knows about a query's aggregates.

    Each aggregate is asked at the confidence that its outputs need (`split_confidence`). What is
    exact is so marked: everything, when the sample holds all tuples, or the extreme rows all that
    can match; and without filter counts, minima and maxima.

    Args:
      query: any query over the sample's stream.
      view: the sample.
      start_us, end_us: the stretch of event time that the query is over; None is open.
      marked: whether the sample's rows say which of them are deleted, see `Selection`.
    """
    selection = Selection(query, start_us, end_us, marked)
    sampled = Sampled.of(selection, view_of_matches(selection, view) or view)
    return _asked(query, Estimator(sampled), start_us, end_us, query.aggregates)


def _asked(
    query: BoundQuery,
    estimator: Estimator,
    start_us: int | None,
    end_us: int | None,
    aggregates: Collection[Aggregate],
) -> Evidence:
    """What a sample knows at the query's confidence."""
    sampled, view = estimator.sampled, estimator.view
    certain = {each for each in query.aggregates if estimator.is_certain(each)}
    confidences = split_confidence(query, certain=certain)
    missing = None
    if sampled.stratified is not None:
        missing = missing_from_strata(
            sampled.selection, sampled.stratified, confidence=query.confidence
        )
    elif query.groups and not view.is_everything:
        largest = missing_group_rows(
            population=view.population, read=view.rows.num_rows, confidence=query.confidence
        )
        missing = MissingGroups(float(largest + 1), query.confidence)
    return Evidence(
        sampled.groups.keys,
        {each: estimator.estimate(each, confidences[each]) for each in aggregates},
        missing=missing,
        start_us=start_us,
        end_us=end_us,
        position=view.position,
        sources=(SOURCE if sampled.stratified is None else STRATIFIED,),
        rank_errors={
            each: estimator.rank_errors(each, confidences[each])
            for each in aggregates
            if each.function is AggregateFunction.QUANTILE
        },
        again=lambda share, of, rows=None: _asked(
            at_share(query, share), estimator.only(rows), start_us, end_us, of
        ),
    )


@dataclass(frozen=True)
class Estimator:
    """Which interval function answers which aggregate of a sample, and with what."""

    sampled: Sampled

    @property
    def view(self) -> SampleView:
        """The sample itself."""
        return self.sampled.view

    def is_certain(self, aggregate: Aggregate) -> bool:
        """Return whether the estimate spends no confidence: its ends are certain."""
        if self.sampled.is_everything or aggregate.function in CERTAIN_ENDS:
            return True
        if aggregate.function is AggregateFunction.COUNT:
            return self.sampled.knows_count(aggregate.argument)
        return self.sampled.known(aggregate) is not None

    def estimate(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """One estimate per group, whose interval holds if the group is shown (seen_groups.py).

        What doubles cannot hold on the way has no bound.
        """
        if self._holds_if_shown(aggregate):
            return self.before_shown(aggregate, confidence)
        return self._by_part.ask(
            self.sampled,
            confidence,
            lambda sampled, at: Estimator(sampled).before_shown(aggregate, at),
            self._allowing(aggregate),
        )

    @cached_property
    def _by_part(self) -> GroupsByPart[Sampled]:
        return GroupsByPart()

    def before_shown(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """The same, but only counts allow for groups that are shown because they were read."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._estimate(aggregate, confidence)

    def only(self, groups: NDArray[np.int64] | None) -> Estimator:
        """Of some groups, in this order; None: of all."""
        return self if groups is None else Estimator(self.sampled.only(groups))

    def _holds_if_shown(self, aggregate: Aggregate) -> bool:
        """Whether the interval holds given how many rows were read, or allows for it itself."""
        if self._is_split(aggregate) or self._is_weighted_mean(aggregate):
            return False
        return self.sampled.known(aggregate) is not None or aggregate.function in _HOLD_IF_SHOWN

    def _is_weighted_mean(self, aggregate: Aggregate) -> bool:
        node = aggregate.argument
        is_mean = aggregate.function is AggregateFunction.AVG
        return is_mean and isinstance(node, Column) and node.name in self.view.weighted

    def _is_split(self, aggregate: Aggregate) -> bool:
        """Whether an average or variance takes the number of a group's other rows."""
        node = aggregate.argument
        if aggregate.function not in _BESIDE_EXTREMES or node is None:
            return False
        return gains_by_split(self.sampled, node)

    def _allowing(self, aggregate: Aggregate) -> NDArray[np.bool_] | None:
        """Which groups are asked at a part of delta; None: all. Others have no extreme row."""
        extremes = self.sampled.extremes
        if extremes is None or not self._is_split(aggregate) or self._is_weighted_mean(aggregate):
            return None
        return self.sampled.per_group(extremes.ids) > 0

    def _estimate(self, aggregate: Aggregate, confidence: float) -> Estimates:
        node = aggregate.argument
        known = self.sampled.known(aggregate)
        if known is not None:
            return known
        if aggregate.function is AggregateFunction.COUNT:
            return self._count(node, confidence)
        assert node is not None, aggregate
        match aggregate.function:
            case AggregateFunction.SUM:
                return self._added(node, self._sum(node, aggregate.type, confidence))
            case AggregateFunction.AVG:
                return self._added(node, self._average(node, confidence))
            case AggregateFunction.MIN | AggregateFunction.MAX:
                is_min = aggregate.function is AggregateFunction.MIN
                return sampled_extreme(self.sampled, node, is_min=is_min)
            case AggregateFunction.FIRST | AggregateFunction.LAST:
                return sampled_by_time(self.sampled, aggregate)
            case AggregateFunction.VAR:
                intervals = variance_of(self.sampled, node, confidence, is_root=False)
                return unless_out_of_range(self._moments(node, intervals, confidence))
            case AggregateFunction.STDDEV:
                intervals = variance_of(self.sampled, node, confidence, is_root=True)
                return unless_out_of_range(self._moments(node, intervals, confidence))
            case (
                AggregateFunction.COVAR_POP
                | AggregateFunction.COVAR_SAMP
                | AggregateFunction.CORR
                | AggregateFunction.REGR_SLOPE
                | AggregateFunction.REGR_INTERCEPT
            ):
                return sampled_cross(self.sampled, aggregate, confidence)
            case AggregateFunction.COUNT_DISTINCT:
                return self._distinct(node, confidence)
            case AggregateFunction.QUANTILE:
                assert aggregate.parameter is not None
                return self._quantile(node, aggregate.parameter, confidence)
            case AggregateFunction.TOP | AggregateFunction.FREQUENT:
                totals = partial(self._count, node)
                return sampled_list(self.sampled, aggregate, totals, confidence)
            case AggregateFunction.SELF_JOIN_SIZE | AggregateFunction.JOIN_SIZE:
                return sampled_join(self.sampled, aggregate, confidence)
            case (
                AggregateFunction.DISTINCT_BOTH
                | AggregateFunction.DISTINCT_ONLY
                | AggregateFunction.JACCARD
            ):
                return sampled_sets(
                    self.sampled,
                    aggregate,
                    values_max=_values_max(node, self.sampled),
                    confidence=confidence,
                    source=SOURCE,
                )
            case _:
                assert_never(aggregate.function)

    def rank_errors(self, aggregate: Aggregate, confidence: float) -> NDArray[np.float64]:
        """How far in rank the sampled quantile may lie from q, as a fraction, per group.

        The rank of the r-th smallest of m values drawn at random is Beta(r, m - r + 1).
        Source: David & Nagaraja 2003, Order Statistics, 2.1.
        """
        assert aggregate.argument is not None, aggregate
        assert aggregate.parameter is not None, aggregate
        rows = self.sampled.per_group(self.sampled.present_ids(aggregate.argument))
        share, tail = aggregate.parameter, (1 - confidence) / 2
        rank = np.clip(np.ceil(share * rows), 1, np.maximum(rows, 1))
        low, high = (betaincinv(rank, np.maximum(rows, 1) - rank + 1, x) for x in (tail, 1 - tail))
        return np.where(rows > 0, np.maximum(share - low, high - share), 1.0)

    # --- the aggregates -----------------------------------------------------------------------

    def _count(self, node: Expression | None, confidence: float) -> Estimates:
        sampled = self.sampled
        ids = sampled.groups.ids if node is None else sampled.present_ids(node)
        matched = sampled.per_group(ids)
        if self.sampled.is_everything:
            return Estimates.exact(matched, SOURCE)
        if sampled.are_strata and node is None:
            return Estimates.exact(np.asarray(sampled.population), "basics")
        if sampled.is_whole and node is None:
            return Estimates.exact(np.array([sampled.population]), "basics")
        if sampled.is_whole and isinstance(node, Column):
            return Estimates.exact(np.array([self.view.basics[node.name].rows]), "basics")
        intervals = count_of(sampled, node, matched, confidence)
        seen = np.nan_to_num(intervals.value, nan=0.0)  # Of nothing read: as many as were counted.
        return replace(intervals, value=seen).estimates(confidence=confidence, source=SOURCE)

    def _added(self, node: Expression, found: Estimates) -> Estimates:
        """A sum or mean, unless finite doubles left their range on the way to it."""
        if node.type is ColumnType.DOUBLE:
            seen = self.sampled.per_group(self.sampled.present_ids(node)) > 0
            nothing = found.null & seen & ~self.sampled.infinite(node)
            found = without(found, nothing, SUM_OUT_OF_RANGE)
        return unless_out_of_range(found, SUM_OUT_OF_RANGE)

    def _sum(self, node: Expression, kind: ColumnType | None, confidence: float) -> Estimates:
        if kind is ColumnType.DOUBLE:
            return self._part_sum(node, confidence)
        if self.sampled.is_everything:
            return self._whole_sum(node)
        found = self._with_whole_sums(node, self._part_sum(node, confidence))
        return within_int64(found, found.low, found.high)

    def _with_whole_sums(self, node: Expression, found: Estimates) -> Estimates:
        """Sums of whole numbers; those that are exact have digits that doubles may have lost."""
        exact = (found.bound == Bound.EXACT) & ~found.null
        large = np.abs(found.value) >= HELD_MAX
        if is_beyond_doubles(self.sampled, node):
            large = np.ones_like(large)
        added = exact & large & np.broadcast_to(self.sampled.is_complete, exact.shape)
        rounded = np.where(exact & large & ~added, np.uint8(Bound.INTERVAL), found.bound)
        if not added.any():
            return replace(found, bound=rounded)
        sums = self._whole_sum(node)
        value, low, high = (
            np.where(added, sums.value, whole_ends(part, side))
            for part, side in ((found.value, 0), (found.low, -1), (found.high, 1))
        )
        null = found.null | (added & sums.null)
        return replace(found, value=value, low=low, high=high, bound=rounded, null=null)

    def _part_sum(self, node: Expression, confidence: float) -> Estimates:
        if self.sampled.stratified is None:
            weighted = self._weighted_sum(node, confidence)
            return self._uniform_sum(node, confidence) if weighted is None else weighted
        half = split_confidence_in(confidence, 2)
        weighted = self._weighted_sum(node, half)
        if weighted is None:
            return self._uniform_sum(node, confidence)
        return both(self._uniform_sum(node, half), weighted, confidence)

    def _uniform_sum(self, node: Expression, confidence: float) -> Estimates:
        intervals, unseen = sum_of(self.sampled, node, confidence)
        return self._moments(node, intervals, confidence, empty=unseen)

    def _whole_sum(self, node: Expression) -> Estimates:
        """The exact sum of whole numbers, added in 128 bits."""
        return replace(self._whole_moments(node).sum(), source=SOURCE)

    def _whole_moments(self, node: Expression) -> GroupedMoments:
        values, ids = self.sampled.present(node)
        moments = GroupedMoments(self.sampled.groups.count, integer=True)
        moments.update(ids.astype(np.int32), values)
        return moments

    def _weighted_sum(self, node: Expression, confidence: float) -> Estimates | None:
        """From the weighted samples of the column, where there are any."""
        views = self.view.weighted.get(node.name) if isinstance(node, Column) else None
        low, high = self.sampled.range(node)
        if views is None or not np.isfinite([low, high]).all():
            return None
        positive, negative = (self.sampled.weighted_matches(each) for each in views)
        if low >= 0:
            intervals = weighted_sum(positive, confidence=confidence)
        else:
            intervals = signed_sum(positive, negative, confidence=confidence)
        seen = self.sampled.per_group(self.sampled.present_ids(node))
        for part in (positive, negative):
            seen = seen + part.light + (part.certain > 0)
        # All weight may be known and still rows of weight zero be unseen: then NULL is no fact.
        known = self.sampled.is_everything or self.sampled.is_whole
        return as_estimates(
            intervals, confidence, empty=seen == 0, known=known, source="weighted sample"
        )

    def _average(self, node: Expression, confidence: float) -> Estimates:
        """Certified normal where it may be; else betting, with the weighted sum if there is one."""
        if self.sampled.is_whole and isinstance(node, Column) and not self.sampled.is_everything:
            total = self._weighted_sum(node, confidence)
            rows = self.view.basics[node.name].rows
            if total is not None and rows:
                value, low, high = (x / rows for x in (total.value, total.low, total.high))
                return replace(total, value=value, low=low, high=high)
        if is_beyond_doubles(self.sampled, node):
            anchored = AnchoredValues.of(self.sampled, node)
            intervals = anchored.raised(sampled_mean(anchored.sample, confidence=confidence))
            if (intervals.bound == Bound.EXACT).any():
                exact = (intervals.bound == Bound.EXACT) & ~np.isnan(intervals.value)
                mean = self._whole_moments(node).mean().value
                ends = (intervals.value, intervals.low, intervals.high)
                value, low, high = (np.where(exact, mean, end) for end in ends)
                intervals = replace(intervals, value=value, low=low, high=high)
            return self._moments(node, intervals, confidence)
        intervals = mean_of(self.sampled, node, confidence)
        found = self._moments(node, intervals, confidence)
        if intervals.certified.all() or self.sampled.is_everything:
            return found
        return self._crosswise(node, found, ~intervals.certified, confidence)

    def _crosswise(
        self, node: Expression, found: Estimates, wanted: NDArray[np.bool_], confidence: float
    ) -> Estimates:
        """Averages as weighted sum by count, cut with betting's: half of delta for either."""
        half = split_confidence_in(confidence, 2)
        quarter = split_confidence_in(confidence, 4)
        total = self._weighted_sum(node, quarter)
        if total is None:
            return found
        count = self._count(node, quarter)
        mean = mean_of(self.sampled, node, half)
        lows, highs = np.maximum(count.low, 1.0), np.maximum(count.high, 1.0)
        low = np.maximum(mean.low, total.low / np.where(total.low >= 0, highs, lows))
        high = np.minimum(mean.high, total.high / np.where(total.high >= 0, lows, highs))
        # Without a common point one of the two has missed, as it may.
        usable = wanted & (count.low > 0) & ~total.null & ~found.null & (low <= high)
        value = np.clip(total.value / np.maximum(count.value, 1.0), low, np.maximum(low, high))
        return replace(
            found,
            value=np.where(usable, value, found.value),
            low=np.where(usable, low, found.low),
            high=np.where(usable, high, found.high),
            bound=np.where(usable, np.uint8(Bound.INTERVAL), found.bound),
        )

    def _quantile(self, node: Expression, share: float, confidence: float) -> Estimates:
        if not is_beyond_doubles(self.sampled, node):
            values = self.sampled.values(node, finite=False)
            intervals = sampled_quantile(values, rank_share=share, confidence=confidence)
            return as_estimates(intervals, confidence)
        ranked = RankedValues.of(self.sampled, node)
        intervals = sampled_quantile(ranked.sample, rank_share=share, confidence=confidence)
        found = as_estimates(intervals, confidence)
        value, low, high = (
            ranked.valued(part) for part in (intervals.value, intervals.low, intervals.high)
        )
        return replace(found, value=value, low=low, high=high)

    def _moments(
        self,
        node: Expression,
        intervals: Intervals,
        confidence: float,
        empty: NDArray[np.bool_] | None = None,
    ) -> Estimates:
        """Sums, means and variances, which infinities spoil."""
        found = as_estimates(intervals, confidence, empty=empty)
        spoiled = self.sampled.infinite(node)
        if not spoiled.any():
            return found
        bound = np.where(spoiled, np.uint8(Bound.NONE), found.bound)
        return replace(found, bound=bound, null=found.null | spoiled, reason=_INFINITE)

    def _distinct(self, node: Expression, confidence: float) -> Estimates:
        sampled = self.sampled
        view = self.view.hashed.get(node.name) if isinstance(node, Column) else None
        if view is not None and not self.sampled.is_everything:
            kept = sampled.per_group(sampled.hashed_counts(node, view).group)
            intervals = distinct_by_hash(kept=kept, share=view.share, confidence=confidence)
            return intervals.estimates(confidence=confidence, source="hash sample")
        pairs = sampled.value_counts(node)
        seen = sampled.per_group(pairs.group)
        if self.sampled.is_everything:
            return Estimates.exact(seen, SOURCE)
        intervals = distinct_by_rows(
            seen=seen,
            once=sampled.per_group(pairs.group[pairs.rows == 1]),
            matched=sampled.per_group(sampled.present_ids(node)),
            population=sampled.population,
            read=sampled.read,
            values_max=_values_max(node, sampled),
            confidence=confidence,
        )
        if not np.any(sampled.read):  # As of counts; and nothing is known of how many there are.
            none = np.full(len(seen), np.uint8(Bound.NONE))
            return replace(Estimates.exact(seen, SOURCE), bound=none, reason=UNSEEN)
        return intervals.estimates(confidence=confidence, source=SOURCE)


def _values_max(node: Expression, sampled: Sampled) -> float:
    """How many values the type and the range allow."""
    if node.type is ColumnType.BOOLEAN:
        return 2.0
    if node.type in (ColumnType.DOUBLE, ColumnType.VARCHAR):
        return np.inf
    low, high = sampled.range(node)
    return high - low + 1
