"""Estimators: how a source of evidence answers each aggregate function, or why it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from synopses.model.estimate import Estimates

S = TypeVar("S")


class EvidenceSource(Protocol):
    """What a source has read: panes in full, thinned panes, or samples."""

    def is_certain(self, aggregate: Aggregate) -> bool:
        """Return whether the estimate spends no confidence: its ends are certain."""

    def estimate(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """Estimate an aggregate of each group: value, interval and kind of bound.

        Each interval holds with this confidence if its group is shown (`seen_groups`).
        """

    def rank_error(self, aggregate: Aggregate, confidence: float) -> NDArray[np.float64] | None:
        """Bound how far in rank a quantile may lie from q, as a fraction; None: unknown."""


@dataclass(frozen=True, slots=True)
class Estimator(Generic[S]):
    """How a source answers one aggregate function.

    estimate: (source, aggregate, confidence) -> one estimate per group, in the aggregate's type or
      as float64.
    holds_if_shown: whether the interval holds given how many values of a group were read, or allows
      itself for a group that is shown because of them.
    """

    estimate: Callable[[S, Aggregate, float], Estimates]
    holds_if_shown: bool = False


@dataclass(frozen=True, slots=True)
class Estimators(Generic[S]):
    """The estimators of a source: every aggregate function is answered or refused.

    answered: estimator by function.
    refused: why the source does not answer a function.
    """

    answered: Mapping[AggregateFunction, Estimator[S]]
    refused: Mapping[AggregateFunction, str]

    def __post_init__(self) -> None:
        known = sorted(function.name for function in (*self.answered, *self.refused))
        assert known == sorted(function.name for function in AggregateFunction), known
