"""Stratified samples as a source: the queries that they answer, and their missing groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from shedder.cql.expressions.expression import (
    BY_TIME,
    JOINS,
    LISTS,
    OF_PAIRS,
    SET_FUNCTIONS,
    Column,
)
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.sampling.sampled_rows import RowFilter
from shedder.streams.group_keys import OTHERS
from shedder.streams.live_sample import SampleView
from shedder.streams.stratified_sample import StratifiedView
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.hypergeometric import matching_count_max
from synopses.intervals.unseen_groups import missing_group_rows

REFUSED: Final = dict.fromkeys(
    (*BY_TIME, *JOINS, *LISTS, *OF_PAIRS, *SET_FUNCTIONS),
    "its estimator takes one simple random sample of all tuples, not one of each stratum",
)
"""Aggregate functions that a stratified sample does not answer, with the reason."""


def stratified_for(query: BoundQuery, view: SampleView) -> StratifiedView | None:
    """The stratified sample that has each group of the query in one stratum; None: there is none.

    Of several, the one of most columns: its strata are nearest to the groups.
    """
    if not query.groups or any(each.function in REFUSED for each in query.aggregates):
        return None
    names = {group.name for group in query.groups if isinstance(group, Column)}
    fitting = [each for each in view.stratified if names.issuperset(each.columns)]
    return max(fitting, key=lambda each: len(each.columns), default=None)


def missing_from_strata(
    row_filter: RowFilter, view: StratifiedView, *, confidence: float
) -> MissingGroups | None:
    """Return how large a group can be of which no matching row was read.

    In a stratum that is one group of the query, its matching tuples are bounded by name, for all
    such strata at once; where groups share a stratum, or are parts of one, as in a uniform sample.
    Half of delta is for either. None: no group can be missing.
    """
    query = row_filter.query
    skipped = np.flatnonzero(view.read < view.population)
    if not skipped.size or (
        row_filter.is_all and not view.has_others and len(query.groups) == len(view.columns)
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


def missing_from_parts(
    sizes: Sequence[tuple[int, int]], *, confidence: float
) -> MissingGroups | None:
    """Bound the size of a group without a read row in any part; None: none can be missing.

    A group that is missing has no tuple in a part that was read in full. At most N/g groups have g
    of the N other tuples or more. With p the smallest share read of any part, one of g tuples is
    missed with probability at most min((1 - p)^g, (1 - g/N)^(p N)), however its tuples are spread
    over the parts (by Jensen's inequality for the latter), so the bound for one part holds.

    Args:
      sizes: tuples, and how many of them were read, of each part that skipped any.
      confidence: that all groups hold with at once.
    """
    if not sizes:
        return None
    population, share = sum(size for size, _ in sizes), min(read / size for size, read in sizes)
    largest = missing_group_rows(
        population=population, read=int(share * population), confidence=confidence
    )
    return MissingGroups(float(largest + 1), confidence)
