"""Sums from weighted bottom-k samples: certain heavy rows, and a count of light ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.poisson import garwood
from synopses.model.estimate import Bound


@dataclass(frozen=True, slots=True, eq=False)
class WeightedMatches:
    """What a weighted sample holds of each group (or of each filter).

    certain: float64 [groups], sum of the matching weights >= tau; infinite beyond doubles.
    light: int64 [groups], number of the matching rows with weight < tau; each stands for tau.
    tau: of the sample; 0.0 when nothing was left out.
    """

    certain: NDArray[np.float64]
    light: NDArray[np.int64]
    tau: float

    @classmethod
    def by_group(
        cls,
        weights: NDArray[np.float64],
        *,
        tau: float,
        ids: NDArray[np.int32] | None,
        groups: int,
    ) -> WeightedMatches:
        """Collect the kept rows that match.

        Args:
          weights: float64 [matches], of the kept rows that pass the filter (WeightedBottomK
            after settle).
          tau: the sample's tau.
          ids: int32 [matches], each row's group; None: all are group 0.
          groups: number of groups.
        """
        rows = np.zeros(len(weights), np.int32) if ids is None else ids
        heavy = weights >= tau
        certain = np.zeros(groups)
        with np.errstate(over="ignore"):
            np.add.at(certain, rows[heavy], weights[heavy])
        light = np.bincount(rows[~heavy], minlength=groups)
        return cls(certain, light, tau)


def weighted_sum(matches: WeightedMatches, *, confidence: float) -> Intervals:
    """The sum of a non-negative column behind a filter or per group, from one weighted sample.

    Estimate S + tau*C, ends S + tau * Garwood(C): C is a sum of independent Bernoullis with
    mean (true light sum)/tau. Held in every simulated cell, empty matches included; relative
    half-width about 1.96/sqrt(C) at 95 %. Sources: Duffield, Lund & Thorup 2007; Ting 2018
    (adaptive thresholds); Garwood 1936, Biometrika 28 (ends for a Poisson mean).

    Returns:
      sums: [groups]; exact where tau is 0. Without value and bound where doubles cannot hold it.
    """
    low, high = garwood(matches.light, confidence=confidence)
    with np.errstate(over="ignore", invalid="ignore"):
        value = matches.certain + matches.tau * matches.light
        ends = matches.certain + matches.tau * low, matches.certain + matches.tau * high
    lost = ~np.isfinite(value)
    return Intervals.of(
        np.where(lost, np.nan, value),
        np.where(lost, -np.inf, ends[0]),
        np.where(lost, np.inf, ends[1]),
        exact=~lost & (matches.tau == 0.0),
    )


def signed_sum(
    positive: WeightedMatches, negative: WeightedMatches, *, confidence: float
) -> Intervals:
    """The sum of a signed column: one sample of max(x, 0), one of max(-x, 0), delta/2 each."""
    half = 1.0 - (1.0 - confidence) / 2.0
    plus = weighted_sum(positive, confidence=half)
    minus = weighted_sum(negative, confidence=half)
    exact = (plus.bound == Bound.EXACT) & (minus.bound == Bound.EXACT)
    return Intervals.of(
        plus.value - minus.value, plus.low - minus.high, plus.high - minus.low, exact=exact
    )
