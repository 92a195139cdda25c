"""Evidence from a stream's live sample: for every aggregate an estimate with its interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import (
    BY_TIME,
    JOINS,
    LISTS,
    OF_PAIRS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Column,
)
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.confidence_budget import CERTAIN_ENDS
from shedder.queries.evidence.estimators import Estimator, Estimators
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.sampling.delta_by_group import GroupsByPart
from shedder.queries.sampling.extreme_stratum import view_of_matches
from shedder.queries.sampling.interval_columns import SOURCE
from shedder.queries.sampling.sample_evidence import evidence_of
from shedder.queries.sampling.sampled_counts import sampled_count
from shedder.queries.sampling.sampled_covariance import gains_by_certain, sampled_cross
from shedder.queries.sampling.sampled_distinct import sampled_distinct
from shedder.queries.sampling.sampled_extremes import sampled_extreme
from shedder.queries.sampling.sampled_first_last import sampled_by_time
from shedder.queries.sampling.sampled_joins import sampled_join
from shedder.queries.sampling.sampled_moments import sampled_spread
from shedder.queries.sampling.sampled_quantiles import rank_error, sampled_ranks
from shedder.queries.sampling.sampled_query import Sampled
from shedder.queries.sampling.sampled_rows import RowFilter, SampledGroups
from shedder.queries.sampling.sampled_sets import sampled_sets
from shedder.queries.sampling.sampled_sums import sampled_average, sampled_total
from shedder.queries.sampling.sampled_top import sampled_list
from shedder.queries.sampling.split_values import gains_by_split
from shedder.queries.sampling.stratified import REFUSED, missing_from_strata
from shedder.streams.live_sample import SampleView
from synopses.intervals.unseen_groups import missing_group_rows
from synopses.model.estimate import Estimates

# Counts ask for groups that are shown. The upper ends of distinct values, which alone can miss, are
# too low only if few rows were read. All others hold given how many rows of a group were read.
_OF_EACH_STRATUM: Final = {
    AggregateFunction.COUNT: Estimator(sampled_count, holds_if_shown=True),
    AggregateFunction.SUM: Estimator(sampled_total),
    AggregateFunction.AVG: Estimator(sampled_average, holds_if_shown=True),
    AggregateFunction.MIN: Estimator(sampled_extreme, holds_if_shown=True),
    AggregateFunction.MAX: Estimator(sampled_extreme, holds_if_shown=True),
    AggregateFunction.VAR: Estimator(sampled_spread, holds_if_shown=True),
    AggregateFunction.STDDEV: Estimator(sampled_spread, holds_if_shown=True),
    AggregateFunction.COUNT_DISTINCT: Estimator(sampled_distinct, holds_if_shown=True),
    AggregateFunction.QUANTILE: Estimator(sampled_ranks, holds_if_shown=True),
}
STRATIFIED: Final[Estimators[Sampled]] = Estimators(_OF_EACH_STRATUM, REFUSED)
UNIFORM: Final[Estimators[Sampled]] = Estimators(
    {
        **_OF_EACH_STRATUM,
        **dict.fromkeys(BY_TIME, Estimator(sampled_by_time, holds_if_shown=True)),
        **dict.fromkeys(OF_PAIRS, Estimator(sampled_cross, holds_if_shown=True)),
        **dict.fromkeys(LISTS, Estimator(sampled_list)),
        **dict.fromkeys(JOINS, Estimator(sampled_join)),
        **dict.fromkeys(SET_FUNCTIONS, Estimator(sampled_sets)),
    },
    refused={},
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
      marked: whether the sample's rows say which of them are deleted, see `RowFilter`.
    """
    row_filter = RowFilter(query, start_us, end_us, marked)
    sampled = Sampled.of(row_filter, view_of_matches(row_filter, view) or view)
    found = evidence_of(query, SampleSource(sampled), query.aggregates)
    name = SOURCE if sampled.stratified is None else "stratified sample"
    position = sampled.view.position
    return found.changed(
        partial(replace, start_us=start_us, end_us=end_us, position=position, sources=(name,))
    )


@dataclass(frozen=True)
class SampleSource:
    """What one sample, uniform or stratified, has read of a query."""

    sampled: Sampled

    @property
    def view(self) -> SampleView:
        """The sample itself."""
        return self.sampled.view

    @property
    def groups(self) -> SampledGroups:
        """The groups that were seen."""
        return self.sampled.groups

    def missing(self, query: BoundQuery) -> MissingGroups | None:
        """Bound the groups of which no row was read; None: none can be missing."""
        sampled, view = self.sampled, self.view
        if sampled.stratified is not None:
            return missing_from_strata(
                sampled.row_filter, sampled.stratified, confidence=query.confidence
            )
        if not query.groups or view.is_everything:
            return None
        largest = missing_group_rows(
            population=view.population, read=view.rows.num_rows, confidence=query.confidence
        )
        return MissingGroups(float(largest + 1), query.confidence)

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
            lambda sampled, at: SampleSource(sampled).before_shown(aggregate, at),
            self._allowing(aggregate),
        )

    @cached_property
    def _by_part(self) -> GroupsByPart[Sampled]:
        return GroupsByPart()

    def before_shown(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """The same, but only counts allow for groups that are shown because they were read."""
        with np.errstate(over="ignore", invalid="ignore"):
            known = self.sampled.known(aggregate)
            if known is not None:
                return known
            return self._estimator(aggregate).estimate(self.sampled, aggregate, confidence)

    def rank_error(self, aggregate: Aggregate, confidence: float) -> NDArray[np.float64] | None:
        """Bound how far in rank a quantile may lie from q, as a fraction; None for others."""
        if aggregate.function is not AggregateFunction.QUANTILE:
            return None
        return rank_error(self.sampled, aggregate, confidence)

    def only(self, groups: NDArray[np.int64] | None) -> SampleSource:
        """Of some groups, in this order; None: of all."""
        return self if groups is None else SampleSource(self.sampled.only(groups))

    def _estimator(self, aggregate: Aggregate) -> Estimator[Sampled]:
        table = UNIFORM if self.sampled.stratified is None else STRATIFIED
        return table.answered[aggregate.function]

    def _holds_if_shown(self, aggregate: Aggregate) -> bool:
        """Return whether the interval holds given the number of rows that were read."""
        if self._is_split(aggregate) or self._is_weighted_mean(aggregate):
            return False
        return (
            self.sampled.known(aggregate) is not None or self._estimator(aggregate).holds_if_shown
        )

    def _is_weighted_mean(self, aggregate: Aggregate) -> bool:
        node = aggregate.argument
        is_mean = aggregate.function is AggregateFunction.AVG
        return is_mean and isinstance(node, Column) and node.name in self.view.weighted

    def _is_split(self, aggregate: Aggregate) -> bool:
        """Return whether an interval takes the number of a group's other rows."""
        node, second = aggregate.argument, aggregate.second
        if aggregate.function is AggregateFunction.CORR and node is not None and second is not None:
            return gains_by_certain(self.sampled, (node, second))
        if aggregate.function not in _BESIDE_EXTREMES or node is None:
            return False
        return gains_by_split(self.sampled, node)

    def _allowing(self, aggregate: Aggregate) -> NDArray[np.bool_] | None:
        """Return the groups asked at a part of delta; None: all. Others have no extreme row."""
        extremes = self.sampled.extremes
        if extremes is None or not self._is_split(aggregate) or self._is_weighted_mean(aggregate):
            return None
        return self.sampled.per_group(extremes.ids) > 0
