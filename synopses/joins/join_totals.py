"""COUNT, SUM and AVG over an equi-join of windows, with distribution-free intervals.

A key that is heavy in no pane has at most the product of the sums of its bucket. Keys that are
heavy in some panes only may have much more. Those of the largest bounds are not estimated: unless
they are known, their rest is between its bounds. The others are estimated from the sampled keys
(synopses/intervals/key_totals/sampled_keys.py). Which keys are estimated depends on bounds alone,
not on the sample.

An average of v is a + D/N, where N is the number of pairs with a value, and D the sum of v - a over
them. The constant a comes from exact counts and bucket sums, so it is fixed before the sample. D is
small where a is near the average. Both have intervals; a union bound makes that of the average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.key_totals.sampled_keys import CertainParts, SampledParts, sampled_key_total
from synopses.joins.joined_windows import ROUNDING, WHOLE_MAX, JoinedWindows, TermTotals
from synopses.joins.window_sums import KnownKeys, RowTerm
from synopses.model.estimate import Bound
from synopses.model.parameters import error_share

PAIRS_MAX = 1 << 62  # More pairs are not counted.
_UNIT = 2.0**-52  # Relative, of one operation on doubles.
_COUNT_SHARE = 0.2  # Of an average's error probability: of the number of its pairs.


@dataclass(frozen=True, slots=True)
class TotalParts:
    """How far the ends of a total are from its value, by what they allow for.

    below, above: from the value to the low end and to the high end, for keys that were not sampled.
    unknown: to each end, for the keys that are heavy in some panes only and are not estimated.
    """

    below: float = 0.0
    above: float = 0.0
    unknown: float = 0.0


@dataclass(frozen=True, slots=True)
class _Estimated:
    """A total with its ends, without the rounding of sums."""

    low: float
    value: float
    high: float
    parts: TotalParts = TotalParts()


class KeyTotals(Protocol):
    """Totals over some keys of a join, as `JoinedWindows` has them over all."""

    @property
    def keys(self) -> KnownKeys:
        """The keys."""
        ...

    def totals(self, window: int, term: RowTerm) -> TermTotals | None:
        """Return the totals of a term; None: a value or a sum is not finite."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class JoinTotals:
    """Totals over all pairs of a join. part: over the pairs of some keys; None: of all."""

    windows: JoinedWindows
    part: KeyTotals | None = None
    _found: dict[tuple[int, RowTerm, float], tuple[Intervals, TotalParts | None]] = field(
        init=False, repr=False, default_factory=dict
    )

    @property
    def _source(self) -> KeyTotals:
        return self.windows if self.part is None else self.part

    def pairs(self, *, confidence: float) -> Intervals:
        """COUNT(*), with whole ends; EXACT where no key was left out.

        Sizes beyond 2^53 are never EXACT.

        Raises:
          OverflowError: there may be more than PAIRS_MAX pairs.
        """
        joined = self.windows
        if not joined.is_empty:
            rows = [joined.rows(at) for at in range(len(joined.windows))]
            if math.prod(rows) > PAIRS_MAX:
                raise OverflowError(" join ".join(f"{each:.0f} rows" for each in rows))
        return _outward(self._total(0, RowTerm(), confidence))

    def present(self, window: int, expression: int, *, confidence: float) -> Intervals:
        """COUNT of an expression of one window, as `pairs`."""
        if not self.windows.is_empty:
            low, high = self.windows.ends(window, expression)
            if low > high:  # No row of the window has a value.
                none = np.zeros(1)
                return Intervals.of(none, none, none, exact=True)
        return _outward(self._total(window, RowTerm(expression, is_present=True), confidence))

    def sum(self, window: int, expression: int, *, confidence: float) -> Intervals:
        """SUM of an expression of one window.

        The value is NaN if no pair with a value is known: so are the ends if there is none. Of
        whole numbers, the ends are whole. The bound is NONE if a value or a sum is not finite.
        """
        found = self._total(window, RowTerm(expression), confidence)
        if found.bound[0] == Bound.NONE:
            return found
        if self.windows.is_whole(window, expression):
            found = _outward(found)
        return _unless_none(found, self.present(window, expression, confidence=confidence))

    def average(self, window: int, expression: int, *, confidence: float) -> Intervals:
        """AVG of an expression of one window; NaN and NONE as of `sum`."""
        pairs = self.present(window, expression, confidence=confidence)
        total = self._total(window, RowTerm(expression), confidence)
        if total.bound[0] == Bound.NONE:
            return total
        if pairs.high[0] == 0.0:
            return _unless_none(pairs, pairs)
        if total.bound[0] == pairs.bound[0] == Bound.EXACT:
            exact = total.value / pairs.value
            return Intervals.of(exact, exact, exact, exact=True)
        error = error_share(confidence)
        about = self._about(window, expression)
        over = self._total(
            window, RowTerm(expression, shift=about), 1.0 - error * (1.0 - _COUNT_SHARE)
        )
        if over.bound[0] == Bound.NONE:
            return over
        pairs = self.present(window, expression, confidence=1.0 - error * _COUNT_SHARE)
        low, high = self.windows.ends(window, expression)
        fewest, most = float(pairs.low[0]), float(pairs.high[0])
        under = float(over.low[0]), float(over.high[0])
        if fewest > 0.0:
            spread = 4.0 * _UNIT * (abs(about) + abs(low) + abs(high))
            low = max(low, about + under[0] / (fewest if under[0] < 0.0 else most) - spread)
            high = min(high, about + under[1] / (fewest if under[1] > 0.0 else most) + spread)
        value = about + float(over.value[0]) / max(float(pairs.value[0]), 1.0)
        found = Intervals.of(np.array([value]), np.array([low]), np.array([high]))
        return _unless_none(found, pairs)

    def _about(self, window: int, expression: int) -> float:
        """Return a constant near the average, which does not depend on the sample."""
        joined = self.windows
        heavy, buckets = joined.others(window).heavy[-1], joined.count_bounds(window).buckets[-1]
        terms = RowTerm(expression), RowTerm(expression, is_present=True)
        bounds = [joined.bounds(window, each) for each in terms]
        over, under = (
            float(heavy @ joined.sums(window, term).heavy[-1])
            + float(buckets @ (of.bucket_up[-1] - of.bucket_down[-1]))
            for term, of in zip(terms, bounds, strict=True)
        )
        about = over / under if under > 0.0 else 0.0
        return about if math.isfinite(about) else 0.0

    def parts(self, window: int, term: RowTerm, *, confidence: float) -> TotalParts | None:
        """Return what the ends of a term's total allow for; None: a value or sum is not finite."""
        self._total(window, term, confidence)
        return self._found[window, term, confidence][1]

    def _total(self, window: int, term: RowTerm, confidence: float) -> Intervals:
        """Return the total of a term over all pairs."""
        found = self._found.get((window, term, confidence))
        if found is None:
            found = self._found[window, term, confidence] = self._computed(window, term, confidence)
        return found[0]

    def _computed(
        self, window: int, term: RowTerm, confidence: float
    ) -> tuple[Intervals, TotalParts | None]:
        if self.windows.is_empty:
            return _exact(0.0), TotalParts()
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._source.totals(window, term)
        if found is None:
            none = Intervals.of(np.array([np.nan]), np.array([-np.inf]), np.array([np.inf]))
            return none, None
        keys = self._source.keys
        total = self._estimated(found, confidence)
        low, value, high = total.low, total.value, total.high
        of_kept = float(found.gross_kept.sum())
        scale = float(found.gross_heavy.sum()) + of_kept
        if low == high and found.rounding == ROUNDING and scale <= WHOLE_MAX:
            return _exact(value), TotalParts()
        scale += of_kept * (2.0 ** float(keys.levels[-1]) - 1.0)
        if low < high:
            scale += float(found.rests.up.sum() + found.rests.down.sum())
        margin = found.rounding * scale
        ends = np.array([low - margin]), np.array([high + margin])
        return Intervals.of(np.array([value]), *ends), total.parts

    def _estimated(self, totals: TermTotals, confidence: float) -> _Estimated:
        """Return low end, value and high end of exact, certain and estimated parts together."""
        keys = self._source.keys
        certain = float(totals.heavy.sum())
        if keys.all_known:
            total = certain + float(totals.parts.sum())
            return _Estimated(total, total, total)
        is_wide = _not_estimated(totals, 2.0 ** -float(keys.levels[-1]), confidence)
        apart = np.zeros(len(keys.kept), np.bool_)
        if len(keys.heavy):
            apart = (keys.heavy_at >= 0) & is_wide[keys.heavy_at]
        is_whole = apart & (keys.known == len(keys.levels))
        unknown = is_wide.copy()
        unknown[keys.heavy_at[is_whole]] = False
        rests, buckets = totals.rests, totals.buckets
        bounds = CertainParts(
            np.concatenate([buckets.up, rests.up[:, ~is_wide]], axis=1),
            np.concatenate([buckets.down, rests.down[:, ~is_wide]], axis=1),
        )
        sample = SampledParts(totals.parts[:, ~apart], keys.known[~apart], keys.levels)
        found = sampled_key_total(sample, bounds, confidence=confidence)
        known = certain + float(totals.parts[:, is_whole].sum())
        up, down = float(rests.up[:, unknown].sum()), float(rests.down[:, unknown].sum())
        value = known + float(found.value[0]) + (up - down) / 2.0
        low, high = known + float(found.low[0]) - down, known + float(found.high[0]) + up
        half, middle = (up + down) / 2.0, float(found.value[0])
        parts = TotalParts(middle - float(found.low[0]), float(found.high[0]) - middle, half)
        return _Estimated(low, value, high, parts)


def _not_estimated(totals: TermTotals, share: float, confidence: float) -> NDArray[np.bool_]:
    """Return the heavy keys whose rests are not estimated: those with which the width is least.

    The width is that of certain facts alone, as if all classes were read at one share.
    """
    sizes = (totals.rests.up + totals.rests.down).sum(axis=0)
    pairs = (totals.buckets.up + totals.buckets.down).sum(axis=0)
    order = np.argsort(-sizes)
    largest = np.append(sizes[order], 0.0)
    unit = max(float(largest[0]), float(pairs.max()), 1e-300)
    largest, pairs = largest / unit, pairs / unit
    left = float(np.square(pairs).sum()) + np.square(largest)[::-1].cumsum()[::-1]
    apart = np.append(0.0, largest[:-1].cumsum())
    most = np.maximum(largest, pairs.max())
    weight = math.log(2.0 / error_share(confidence))
    odds = (1.0 - share) / share
    reach = most * max(odds, 1.0) * weight / 3.0
    widths = apart + 2.0 * (reach + np.sqrt(np.square(reach) + 2.0 * weight * odds * left))
    found = np.zeros(len(sizes), np.bool_)
    found[order[: int(np.argmin(widths))]] = True
    return found


def _exact(total: float) -> Intervals:
    whole = np.array([total])
    return Intervals.of(whole, whole, whole, exact=True)


def _outward(found: Intervals) -> Intervals:
    """Whole ends outside of those that were computed."""
    is_exact = found.bound == Bound.EXACT
    value = np.rint(found.value)
    return Intervals.of(value, np.floor(found.low), np.ceil(found.high), exact=is_exact)


def _unless_none(found: Intervals, pairs: Intervals) -> Intervals:
    """Return an interval without its value where no pair is known, and none without any pair.

    pairs: number of pairs with a value.
    """
    none = np.array([np.nan])
    if pairs.high[0] <= 0.0:
        return replace(pairs, value=none, low=none, high=none)
    return replace(found, value=none) if pairs.value[0] <= 0.0 else found
