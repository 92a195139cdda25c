"""Quantiles by rank from thinned parts: the sketch's rank error plus the sampling error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.level_segment import Segment
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.quantiles import rank_bounds
from synopses.model.estimate import Bound, Estimates
from synopses.quantiles.rank_sketches import RankSketches

SOURCE = "thinned panes"
_UNSEEN = "no value of the group was read, and tuples were skipped"

Floats = NDArray[np.float64]


class RankStrata:
    """The sketches of a window's strata: what was read in full, where there is any, then segments.

    ungrouped: every value is the one group's, so that the number of all of them is known.
    """

    def __init__(
        self, whole: RankSketches, segments: Sequence[tuple[int, Segment]], *, ungrouped: bool
    ) -> None:
        full = int(whole.counts().sum())
        self._strata = [Segment(whole, full, full)] if full else []
        self._strata += [segment for _, segment in segments]
        self._groups = whole.groups
        self._ungrouped = ungrouped

    def quantile(self, q: float, confidence: float) -> Estimates:
        """The discrete q-quantile of each group: float64.

        It lies between the least and the greatest of its strata's. In each that skipped any, order
        statistics enclose it at delta/2, and the sketch finds them at delta/2.
        """
        each = split_confidence(confidence, len(self._strata))
        low, high = np.full(self._groups, np.inf), np.full(self._groups, -np.inf)
        value, most = np.zeros(self._groups), np.zeros(self._groups)
        for stratum in self._strata:
            counts = stratum.synopsis.counts()
            middle = stratum.synopsis.quantile(q, each)
            first, last = middle.low, middle.high
            if stratum.skipped:
                first, last = self._enclosing(stratum, q, each)
            there = (counts > 0) | (stratum.skipped > 0)
            low = np.where(there, np.minimum(low, first), low)
            high = np.where(there, np.maximum(high, last), high)
            weight = counts * (stratum.population / max(stratum.read, 1))
            value, most = np.where(weight > most, middle.value, value), np.maximum(most, weight)
        null = most == 0
        low, high = np.where(low > high, -np.inf, low), np.where(low > high, np.inf, high)
        value = np.clip(value, low, high)
        skipped = any(stratum.skipped for stratum in self._strata)
        none = np.isinf(low) & np.isinf(high)
        bound = np.where(none, Bound.NONE, Bound.INTERVAL).astype(np.uint8)
        bound = np.where(null & (not skipped), np.uint8(Bound.EXACT), bound)
        reason = _UNSEEN if (null & skipped).any() else ""
        return Estimates(value, low, high, bound, null, confidence, SOURCE, reason)

    def rank_error(self, q: float, confidence: float) -> Floats:
        """Return the rank error of the value as a fraction; 1 where strata are several."""
        if len(self._strata) != 1:
            return np.ones(self._groups)
        [stratum] = self._strata
        if not stratum.skipped:
            whole: Floats = stratum.synopsis.rank_error(q, confidence)
            return whole
        half = split_confidence(confidence, 2)
        counts = np.maximum(stratum.synopsis.counts(), 1)
        first, last = self._ranks(stratum, q, half)
        away = np.maximum(q - (first - 1) / counts, last / counts - q)
        error: Floats = np.minimum(1.0, away + stratum.synopsis.rank_error(q, half))
        return error

    def _ranks(
        self, stratum: Segment, q: float, confidence: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        members = stratum.population if self._ungrouped else 0
        return rank_bounds(
            stratum.synopsis.counts(),
            members=np.full(self._groups, members, np.int64),
            members_known=self._ungrouped,
            rank_share=q,
            confidence=confidence,
        )

    def _enclosing(self, stratum: Segment, q: float, confidence: float) -> tuple[Floats, Floats]:
        half = split_confidence(confidence, 2)
        first, last = self._ranks(stratum, q, half)
        counts = stratum.synopsis.counts()
        low = np.full(self._groups, -np.inf if stratum.low is None else stratum.low, np.float64)
        high = np.full(self._groups, np.inf if stratum.high is None else stratum.high, np.float64)
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
        for group in np.flatnonzero(counts):
            one = stratum.synopsis.select(np.array([group]))
            # A share in the middle of a rank: as a decimal, r / n may lie above rank r.
            if first[group] >= 1:
                low[group] = one.quantile((first[group] - 0.5) / counts[group], half).low[0]
            if last[group] <= counts[group]:
                high[group] = one.quantile((last[group] - 0.5) / counts[group], half).high[0]
        return low, high
