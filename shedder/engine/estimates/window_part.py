"""A part of a window: what answers an aggregate, whether its values were all read or thinned."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate
from shedder.queries.evidence.estimators import EvidenceSource
from synopses.model.estimate import Estimates
from synopses.moments.covariance import CrossSums


class WindowPart(EvidenceSource, Protocol):
    """Evidence of panes, with what bounds the effect of late tuples; None where it is unknown."""

    @property
    def share_error(self) -> NDArray[np.float64] | None:
        """By what share of a group's values the count of one may be too low, per group."""

    @property
    def known_counts(self) -> NDArray[np.int64] | None:
        """Return how many values each group has, at the least."""

    @property
    def crosses(self) -> CrossSums | None:
        """The sums of pairs of each group."""

    def times(self, aggregate: Aggregate) -> NDArray[np.int64] | None:
        """Return the event time of each group's FIRST or LAST."""

    def quantile(self, aggregate: Aggregate, confidence: float, q: float) -> Estimates:
        """The q-quantile, in the aggregate's type."""

    def frequent(self, aggregate: Aggregate, confidence: float, late: int = 0) -> Estimates:
        """The values of a share; `late` more tuples are allowed for."""
