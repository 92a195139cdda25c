"""Stratified samples as a source: the queries that they answer, and their missing groups."""

from __future__ import annotations

from typing import Final

import numpy as np

from shedder.cql.expressions.expression import AggregateFunction, Column
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.sampling.sampled_rows import Selection
from shedder.streams.group_keys import OTHERS
from shedder.streams.live_sample import SampleView
from shedder.streams.stratified_sample import StratifiedView
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.hypergeometric import matching_count_max
from synopses.intervals.unseen_groups import missing_group_rows

# Those that are known of a simple random sample of each group, by itself.
_SERVED: Final = frozenset(
    {
        AggregateFunction.COUNT,
        AggregateFunction.SUM,
        AggregateFunction.AVG,
        AggregateFunction.MIN,
        AggregateFunction.MAX,
        AggregateFunction.VAR,
        AggregateFunction.STDDEV,
        AggregateFunction.COUNT_DISTINCT,
        AggregateFunction.QUANTILE,
    }
)


def stratified_for(query: BoundQuery, view: SampleView) -> StratifiedView | None:
    """The stratified sample that has each group of the query in one stratum; None: there is none.

    Of several, the one of most columns: its strata are nearest to the groups.
    """
    if not query.groups or any(each.function not in _SERVED for each in query.aggregates):
        return None
    names = {group.name for group in query.groups if isinstance(group, Column)}
    fitting = [each for each in view.stratified if names.issuperset(each.columns)]
    return max(fitting, key=lambda each: len(each.columns), default=None)


def missing_from_strata(
    selection: Selection, view: StratifiedView, *, confidence: float
) -> MissingGroups | None:
    """How large a group can be of which no matching row was read.

    In a stratum that is one group of the query, its matching tuples are bounded by name, for all
    such strata at once; where groups share a stratum, or are parts of one, as in a uniform sample.
    Half of delta is for either. None: no group can be missing.
    """
    query = selection.query
    skipped = np.flatnonzero(view.read < view.population)
    if not skipped.size or (
        selection.is_all and not view.has_others and len(query.groups) == len(view.columns)
    ):
        return None
    each = split_confidence(confidence, 2 * skipped.size)
    population, read = view.population[skipped], view.read[skipped]
    if len(query.groups) == len(view.columns):
        whole = skipped != OTHERS
        named = matching_count_max(
            population=population[whole], read=read[whole], matched=0 * read[whole], confidence=each
        )
        population, read = population[~whole], read[~whole]
        largest = float(named.max(initial=0.0))
    else:
        largest = 0.0
    for size, kept in zip(population.tolist(), read.tolist(), strict=True):
        found = missing_group_rows(population=size, read=kept, confidence=each)
        largest = max(largest, float(found))
    return MissingGroups(largest + 1.0, confidence)
