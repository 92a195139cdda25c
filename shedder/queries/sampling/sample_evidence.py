"""Evidence of samples, at the confidence that each aggregate of a query needs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.confidence_budget import at_share, split_confidence
from shedder.queries.evidence.estimators import EvidenceSource
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.sampling.sampled_rows import SampledGroups


class SampledSource(EvidenceSource, Protocol):
    """What one sample, or several of disjoint parts, have read of a query."""

    @property
    def groups(self) -> SampledGroups:
        """The groups that were seen."""

    def missing(self, query: BoundQuery) -> MissingGroups | None:
        """Bound the groups of which no row was read; None: none can be missing."""

    def only(self, groups: NDArray[np.int64] | None) -> Self:
        """Of some groups, in this order; None: of all."""


def evidence_of(
    query: BoundQuery, source: SampledSource, aggregates: Collection[Aggregate]
) -> Evidence:
    """Estimate some aggregates of the query that the source has read."""
    certain = {each for each in query.aggregates if source.is_certain(each)}
    confidences = split_confidence(query, certain=certain)
    errors = {each: source.rank_error(each, confidences[each]) for each in aggregates}
    return Evidence(
        source.groups.keys,
        {each: source.estimate(each, confidences[each]) for each in aggregates},
        missing=source.missing(query),
        rank_errors={each: error for each, error in errors.items() if error is not None},
        again=lambda share, of, rows=None: evidence_of(
            at_share(query, share), source.only(rows), of
        ),
    )
