"""COUNT, SUM and AVG for each key of an equi-join of windows, from their panes.

A key of which all classes are known has exact sums. So has a key that is heavy in all panes. A key
that is heavy in some panes, and not sampled, has sums between bounds that are certain. Those of
these keys are shown that have the most pairs. All others are one group, that of the other keys. Its
sums
are those of all pairs (synopses/joins/join_totals.py) without those of the keys that are shown. So
they have distribution-free intervals, and with the groups that are shown they are the whole join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.key_totals.sampled_keys import CertainParts, SampledParts, sampled_key_total
from synopses.joins.join_totals import JoinTotals, TotalParts
from synopses.joins.joined_windows import ROUNDING, WHOLE_MAX, JoinedWindows
from synopses.joins.key_tables import Floats, Longs, Words
from synopses.joins.window_sums import RowTerm
from synopses.model.estimate import Bound
from synopses.model.parameters import error_share

_Total = Callable[[float], Intervals]


@dataclass(frozen=True, slots=True, eq=False)
class _ShownSums:
    """Sums of the keys that are shown, with ends that are certain. All [keys]."""

    value: Floats
    low: Floats
    high: Floats
    is_exact: NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class JoinGroups:
    """Aggregates of each key that is shown, and then of the other keys if there may be any.

    groups_max: keys that are shown.
    named: keys that may be shown, ascending; None: all.
    totals: over all keys.
    hashes: uint64 [groups], of the keys that are shown.
    has_others: a further group stands for the other keys.
    """

    windows: JoinedWindows
    groups_max: int
    named: Words | None = None
    totals: JoinTotals = field(init=False)
    hashes: Words = field(init=False)
    has_others: bool = field(init=False)
    _known: Longs = field(init=False)  # Places among the kept keys.
    _heavy: Longs = field(init=False)  # Places among the heavy keys, of other ones.
    _light: int = field(init=False)  # Known keys that have pairs and are not heavy.

    def __post_init__(self) -> None:
        none = np.empty(0, np.int64)
        self.totals = JoinTotals(self.windows)
        self.hashes, self._known, self._heavy = np.empty(0, np.uint64), none, none
        self.has_others, self._light = False, 0
        if self.windows.is_empty:
            return
        keys = self.windows.keys
        is_known = keys.known == len(keys.levels)
        is_partial = np.ones(len(keys.heavy), np.bool_)
        is_partial[keys.heavy_at[is_known & (keys.heavy_at >= 0)]] = False
        self._known, self._heavy = np.flatnonzero(is_known), np.flatnonzero(is_partial)
        pairs = self._sums(RowTerm(), 0)
        if pairs is None:  # Beyond doubles.
            raise OverflowError("sums of pairs beyond doubles")
        has_pairs = pairs.low > 0.0
        known = len(self._known)
        is_light = has_pairs[:known] & (keys.heavy_at[self._known] < 0)
        self._light = int(np.count_nonzero(is_light))
        may_show = has_pairs & self._are_named()
        most = np.argsort(-np.where(may_show, pairs.low, 0.0), kind="stable")[: self.groups_max]
        is_shown = np.zeros(len(has_pairs), np.bool_)
        is_shown[most] = may_show[most]
        self.has_others = bool(keys.levels[-1] > 0 or (has_pairs & ~is_shown).any())
        self._known = self._known[is_shown[:known]]
        self._heavy = self._heavy[is_shown[known:]]
        self.hashes = np.concatenate([keys.kept[self._known], keys.heavy[self._heavy]])

    def pairs(self, *, confidence: float) -> Intervals:
        """COUNT(*) of each group, with whole ends.

        Raises:
          OverflowError: as `JoinTotals.pairs`.
        """
        total = self.totals.pairs(confidence=confidence)
        return self._counted(RowTerm(), 0, total)

    def present(self, window: int, expression: int, *, confidence: float) -> Intervals:
        """COUNT of an expression of one window, as `pairs`."""
        total = self.totals.present(window, expression, confidence=confidence)
        return self._counted(RowTerm(expression, is_present=True), window, total)

    def sum(self, window: int, expression: int, *, confidence: float) -> Intervals:
        """SUM of an expression of one window; NaN where no pair with a value is known."""
        total = self.totals.sum(window, expression, confidence=confidence)
        found = self._grouped(RowTerm(expression), window, total)
        if self.windows.is_whole(window, expression):
            found = _outward(found)
        pairs = self.present(window, expression, confidence=confidence)
        return _without_empty(found, pairs)

    def average(self, window: int, expression: int, *, confidence: float) -> Intervals:
        """AVG of an expression of one window; NaN where no pair with a value is known."""
        half = 1.0 - error_share(confidence) / 2.0
        total = self.sum(window, expression, confidence=half)
        pairs = self.present(window, expression, confidence=half)
        fewest, most = np.maximum(pairs.low, 1.0), np.maximum(pairs.high, 1.0)
        is_none = total.bound == Bound.NONE
        with np.errstate(invalid="ignore"):
            value = total.value / np.maximum(pairs.value, 1.0)
            low = total.low / np.where(total.low < 0.0, fewest, most)
            high = total.high / np.where(total.high > 0.0, fewest, most)
        is_exact = (total.bound == Bound.EXACT) & (pairs.bound == Bound.EXACT)
        if len(value) and not self.windows.is_empty:
            ends = self.windows.ends(window, expression)
            is_bounded = ~is_none & ~is_exact & np.isfinite(low) & (ends[0] <= ends[1])
            low = np.where(is_bounded, np.maximum(low, ends[0]), low)
            high = np.where(is_bounded, np.minimum(high, ends[1]), high)
            high = np.maximum(low, high)
        found = Intervals.of(value, low, high, exact=is_exact)
        return _without_empty(found, pairs)

    def _are_named(self) -> NDArray[np.bool_]:
        """Return which of the keys may be shown: of those that are known, and then heavy ones."""
        keys = self.windows.keys
        every = np.concatenate([keys.kept[self._known], keys.heavy[self._heavy]])
        return np.ones(len(every), np.bool_) if self.named is None else np.isin(every, self.named)

    @property
    def known(self) -> int:
        """Number of groups, the first ones, of whose keys all classes are known."""
        return len(self._known)

    def parts(self, window: int, term: RowTerm, *, confidence: float) -> TotalParts | None:
        """Return what the ends of the other keys' total allow for, as `JoinTotals.parts`.

        The bounds of the heavy keys that are shown are among those that are unknown.
        """
        found = self.totals.parts(window, term, confidence=confidence)
        sums = None if found is None or self.windows.is_empty else self._sums(term, window)
        if found is None or sums is None:
            return found
        shown = float(sums.high.sum()) - float(sums.value.sum())
        return replace(found, unknown=found.unknown + shown)

    def hidden(self, *, confidence: float) -> Intervals:
        """The number of other keys that have pairs."""
        if not self.has_others:
            return Intervals.of(*np.zeros((3, 1)), exact=True)
        keys = self.windows.keys
        counts = [self.windows.bounds(at, RowTerm()) for at in range(len(self.windows.windows))]
        up = np.minimum.reduce([each.bucket_up[-1] for each in counts])
        known = np.ones(self._light, np.int64)
        sample = SampledParts(np.ones((1, self._light)), known, keys.levels[-1:])
        certain = CertainParts(up[None], np.zeros((1, len(up))))
        found = sampled_key_total(sample, certain, confidence=confidence)
        light = float(np.count_nonzero(keys.heavy_at[self._known] < 0))
        heavy = float(len(keys.heavy) - (len(self.hashes) - light))  # They may have pairs.
        low = np.floor(np.maximum(found.low - light, 0.0))
        return Intervals.of(found.value - light, low, np.ceil(found.high - light + heavy))

    def _sums(self, term: RowTerm, window: int) -> _ShownSums | None:
        """Return the sums of a term; None: a value or a sum is not finite."""
        keys = self.windows.keys
        totals = self.windows.totals(window, term)
        if totals is None:
            return None
        known, heavy = self._known, self._heavy
        exact = (keys.of_kept(totals.heavy[None])[0] + totals.parts.sum(axis=0))[known]
        base = totals.heavy[heavy]
        rests = totals.rests
        up, down = (each.sum(axis=0)[heavy] for each in (rests.up, rests.down))
        gross = np.concatenate([totals.gross_kept[known], totals.gross_heavy[heavy] + up + down])
        is_exact = np.concatenate([np.ones(len(known), np.bool_), (up + down) == 0.0])
        is_exact &= (gross <= WHOLE_MAX) & (totals.rounding == ROUNDING)
        margin = np.where(is_exact, 0.0, totals.rounding * gross)
        value = np.concatenate([exact, base + (up - down) / 2.0])
        low, high = np.concatenate([exact, base - down]), np.concatenate([exact, base + up])
        return _ShownSums(value, low - margin, high + margin, is_exact)

    def _grouped(self, term: RowTerm, window: int, total: Intervals) -> Intervals:
        """Return the sums of a term, of the other keys last. total: of all keys."""
        if self.windows.is_empty:
            return Intervals.of(*np.empty((3, 0)))
        sums = self._sums(term, window)
        groups = len(self.hashes) + self.has_others
        if sums is None:
            ends = np.full(groups, np.inf)
            return Intervals.of(np.full(groups, np.nan), -ends, ends)
        found = (sums.value, sums.low, sums.high)
        if not self.has_others:
            return Intervals.of(*found, exact=sums.is_exact)
        least, most = float(sums.low.sum()), float(sums.high.sum())
        margin = ROUNDING * (abs(least) + abs(most))
        low = _or_zero(total.low) - most - margin
        high = np.maximum(_or_zero(total.high) - least + margin, low)
        value = _or_zero(total.value) - float(sums.value.sum())
        others = (value, low, high)
        whole = (np.append(ours, other) for ours, other in zip(found, others, strict=True))
        return Intervals.of(*whole, exact=np.append(sums.is_exact, False))

    def _counted(self, term: RowTerm, window: int, total: Intervals) -> Intervals:
        found = self._grouped(term, window, total)
        return _outward(found.clipped(np.zeros(len(found)), np.full(len(found), np.inf)))


def _or_zero(ends: Floats) -> Floats:
    """Return 0 for the NaN of a sum of no pairs."""
    return np.where(np.isnan(ends), 0.0, ends)


def _outward(found: Intervals) -> Intervals:
    """Whole ends outside of those that were computed."""
    is_exact = found.bound == Bound.EXACT
    low, high = np.floor(found.low), np.ceil(found.high)
    return Intervals.of(np.rint(found.value), low, high, exact=is_exact)


def _without_empty(found: Intervals, pairs: Intervals) -> Intervals:
    """Return no value where no pair with a value is known, and no ends where none may exist."""
    none = pairs.high <= 0.0
    bound = np.where(none, Bound.EXACT, found.bound).astype(np.uint8)
    low, high = np.where(none, np.nan, found.low), np.where(none, np.nan, found.high)
    value = np.where(pairs.value <= 0.0, np.nan, found.value)
    return Intervals(value, low, high, bound, found.variance)
