"""Estimators of aggregates from level segments: parts that were read thinned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import (
    BY_TIME,
    JOINS,
    OF_PAIRS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
)
from shedder.engine.estimates.full_estimators import in_type, times_of
from shedder.engine.estimates.thinned_covariance import thinned_cross
from shedder.engine.estimates.thinned_extremes import thinned_extreme, thinned_text
from shedder.engine.estimates.thinned_first_last import thinned_end
from shedder.engine.estimates.thinned_frequent_items import thinned_frequent, thinned_top
from shedder.engine.estimates.thinned_join_size import (
    Side,
    confidence_of_sizes,
    thinned_join,
    thinned_self_join,
)
from shedder.engine.estimates.thinned_rank_quantiles import RankStrata
from shedder.engine.estimates.thinned_sketches import (
    SOURCE,
    read_values,
    thinned_distinct,
    thinned_quantile,
)
from shedder.engine.panes.level_segment import Segment, selected
from shedder.engine.synopsis_plans.synopsis_plan import RANKED, SynopsisKind
from shedder.queries.evidence.confidence_budget import CERTAIN_ENDS, EXACT_IN_PANES
from shedder.queries.evidence.estimators import Estimator, Estimators
from shedder.queries.evidence.int64_sums import within_int64
from shedder.queries.sampling.delta_by_group import at_parts
from shedder.queries.sampling.interval_columns import as_estimates
from synopses.intervals.interval import Intervals
from synopses.intervals.seen_groups import shown_delta
from synopses.model.estimate import Bound, Estimates
from synopses.model.overflow import (
    OUT_OF_RANGE,
    SUM_OUT_OF_RANGE,
    in_range,
    unless_out_of_range,
    without,
)
from synopses.strata.stratified import stratified_count, stratified_mean, stratified_sum
from synopses.strata.stratified_variance import stratified_deviation, stratified_variance
from synopses.strata.stratum import SquareMoments, Stratum, unit_of

_INFINITE = "the column has infinite values, and tuples were skipped"
_ROUNDING = 2.0**-50  # Of sums of so many values in doubles, relative to the largest of them.


@dataclass(frozen=True, slots=True, eq=False)
class ThinnedPart:
    """A part of a window: its synopsis of what was read in full, and its segments by level.

    whole: there are no groups, so that the basics are about what is asked. partner: the other part
    of a JOIN_SIZE.
    """

    kind: SynopsisKind
    synopsis: Any
    leveled: Sequence[tuple[int, Segment]]
    whole: bool
    partner: ThinnedPart | None = None

    @property
    def segments(self) -> list[Segment]:
        """The segments, without their levels."""
        return [segment for _, segment in self.leveled]

    @property
    def skipped(self) -> int:
        """Values that no synopsis read."""
        return sum(segment.skipped for segment in self.segments)

    @property
    def read_counts(self) -> NDArray[np.int64]:
        """Return how many values of each group were read: there were no fewer. int64 [groups]."""
        counts: NDArray[np.int64] = sum(map(_counts, self._synopses), np.zeros(1, np.int64))
        return counts

    @property
    def known_counts(self) -> NDArray[np.int64] | None:
        """The same, where the synopses know; of joins, no fewer than the values of both parts."""
        if self.kind is SynopsisKind.COUNTERS:
            sides = [self] if self.partner is None else [self, self.partner]
            most = [sum(s.totals() for s in side._synopses) + side.skipped for side in sides]
            return np.asarray(sum(most), np.int64)
        counted = self.kind in (
            SynopsisKind.COUNT,
            SynopsisKind.MOMENTS,
            SynopsisKind.BUCKETS,
            *RANKED,
        )
        return self.read_counts if counted else None

    def quantile(self, aggregate: Aggregate, confidence: float, q: float) -> Estimates:
        """The q-quantile, in the aggregate's type."""
        if self.kind in RANKED:
            return in_type(self._by_rank.quantile(q, confidence), aggregate)
        found = thinned_quantile(self.synopsis, self.leveled, q, confidence, ungrouped=self.whole)
        return in_type(found, aggregate)

    def frequent(self, aggregate: Aggregate, confidence: float, late: int = 0) -> Estimates:
        """The values of a share; `late` more tuples are allowed for."""
        ask = partial(ThinnedPart._frequent, late=late)
        return self._if_shown(aggregate, confidence, ask)

    def _frequent(self, aggregate: Aggregate, confidence: float, *, late: int = 0) -> Estimates:
        assert aggregate.parameter is not None, aggregate
        assert aggregate.promise is not None, aggregate
        return thinned_frequent(
            self.synopsis, self.leveled, aggregate.parameter, aggregate.promise, confidence,
            late=late, ungrouped=self.whole,
        )  # fmt: skip

    def rank_error(self, aggregate: Aggregate, confidence: float) -> NDArray[np.float64] | None:
        """The rank error of a quantile that was asked by rank, per group; None for others."""
        if self.kind not in RANKED or aggregate.parameter is None:
            return None
        return self._by_rank.rank_error(aggregate.parameter, confidence)

    def times(self, aggregate: Aggregate) -> NDArray[np.int64] | None:
        """Return the event time of the FIRST or LAST that was read; the true one may be beyond."""
        each = [times_of(synopsis, aggregate) for synopsis in self._synopses]
        there = [times for times in each if times is not None]
        if not there:
            return None
        is_first = aggregate.function is AggregateFunction.FIRST
        found: NDArray[np.int64] = (np.min if is_first else np.max)(there, axis=0)
        return found

    @property
    def _by_rank(self) -> RankStrata:
        return RankStrata(self.synopsis, self.leveled, ungrouped=self.whole)

    @property
    def share_error(self) -> None:
        """Unknown: an item's count has the error of the sample, too."""
        return None

    @property
    def crosses(self) -> None:
        """Unknown: sums of pairs that were skipped."""
        return None

    def is_certain(self, aggregate: Aggregate) -> bool:
        """Return whether the estimate spends no confidence: its ends are certain."""
        if aggregate.function is AggregateFunction.COUNT:
            return self.whole or not self.skipped
        if not self.skipped:
            return aggregate.function in EXACT_IN_PANES
        return aggregate.function in CERTAIN_ENDS

    def estimate(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """Estimate an aggregate of each group, in the aggregate's type or as float64.

        Each interval holds if its group is shown (synopses.intervals.seen_groups). What doubles
        cannot hold on the way has no bound.
        """
        estimator = THINNED.answered[aggregate.function].estimate
        with np.errstate(over="ignore", invalid="ignore"):
            return self._if_shown(aggregate, confidence, estimator)

    def _if_shown(
        self,
        aggregate: Aggregate,
        confidence: float,
        ask: Callable[[ThinnedPart, Aggregate, float], Estimates],
    ) -> Estimates:
        """Ask the groups at parts of delta such that each interval holds if its group is shown."""
        if self.whole or not self.skipped or self._holds_if_shown(aggregate):
            return ask(self, aggregate, confidence)
        # Either side alone shows the group: the smaller part holds by that side.
        sides = [self] if self.partner is None else [self, self.partner]
        each = [shown_delta(*side._rows_read(), confidence=confidence) for side in sides]
        parts = np.min(each, axis=0)
        return at_parts(
            parts, confidence, lambda groups, at: ask(self._only(groups), aggregate, at)
        )

    def _holds_if_shown(self, aggregate: Aggregate) -> bool:
        """Return whether the interval holds given the number of values that were read."""
        function = aggregate.function
        if THINNED.answered[function].holds_if_shown:
            return True
        of_one = len(self.leveled) == 1 and self.kind in (SynopsisKind.MOMENTS, SynopsisKind.CROSS)
        return (
            of_one and function is not AggregateFunction.SUM and not self._read(self.synopsis).any()
        )

    def _rows_read(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """What was read of each group, and at which share, by strata: [strata, groups]."""
        if self.kind is SynopsisKind.DISTINCT:
            return read_values(self.synopsis, self.leveled)
        shares = [[1.0], *([1.0 - segment.unread_share] for segment in self.segments)]
        return np.stack(list(map(self._read, self._synopses))), np.array(shares)

    def _read(self, synopsis: Any) -> NDArray[np.int64]:
        """Return how many values of each group a synopsis has read."""
        match self.kind:
            case SynopsisKind.COUNTERS:
                return np.asarray(synopsis.totals(), np.int64)
            case SynopsisKind.FREQUENT:
                return np.asarray(synopsis.totals, np.int64)
            case SynopsisKind.CROSS:
                return np.asarray(synopsis.sums().pairs, np.int64)
            case _:
                return _counts(synopsis)

    def _only(self, groups: NDArray[np.int64] | None) -> ThinnedPart:
        """Of some groups, in this order; None: of all."""
        if groups is None:
            return self
        return replace(
            self,
            synopsis=selected(self.synopsis, groups),
            leveled=[(level, segment.select(groups)) for level, segment in self.leveled],
            partner=None if self.partner is None else self.partner._only(groups),
        )

    def _sum(self, confidence: float) -> Estimates:
        if not self.skipped and self.synopsis.integer:
            return self._whole_sum()
        found = self._moments(stratified_sum, confidence, is_sum=True)
        if self.synopsis.integer:
            return within_int64(found, found.low, found.high)
        return unless_out_of_range(found, SUM_OUT_OF_RANGE)

    def _mean(self, confidence: float) -> Estimates:
        return unless_out_of_range(self._moments(stratified_mean, confidence), SUM_OUT_OF_RANGE)

    def _cross(self, aggregate: Aggregate, confidence: float) -> Estimates:
        function, segments = aggregate.function, self.segments
        return thinned_cross(function, self.synopsis, segments, confidence, ungrouped=self.whole)

    def _own_quantile(self, aggregate: Aggregate, confidence: float) -> Estimates:
        assert aggregate.parameter is not None, aggregate
        return self.quantile(aggregate, confidence, aggregate.parameter)

    def _top(self, aggregate: Aggregate, confidence: float) -> Estimates:
        assert aggregate.parameter is not None, aggregate
        return thinned_top(self.synopsis, self.leveled, int(aggregate.parameter), confidence)

    def _end_in_time(self, aggregate: Aggregate, _: float) -> Estimates:
        is_first = aggregate.function is AggregateFunction.FIRST
        return thinned_end(self.synopsis, self.segments, is_first=is_first)

    def _join(self, _: Aggregate, confidence: float) -> Estimates:
        parts = [self] if self.partner is None else [self, self.partner]
        each = confidence_of_sizes(confidence, len(parts))
        sides = [Side.of(p.synopsis, p.segments, each, ungrouped=p.whole) for p in parts]
        if len(sides) == 1:
            return thinned_self_join(sides[0], confidence)
        return thinned_join(sides[0], sides[1], confidence)

    @property
    def _synopses(self) -> list[Any]:
        return [self.synopsis, *(segment.synopsis for segment in self.segments)]

    # --- counts and extremes ------------------------------------------------------------------

    def _count(self, confidence: float) -> Estimates:
        if self.whole:
            known = int(_counts(self.synopsis).sum()) + sum(s.population for s in self.segments)
            return Estimates.exact(np.array([known], np.int64), "basics")
        if not self.skipped:
            return Estimates.exact(self.read_counts, SOURCE)
        found = stratified_count(self._strata(_counting), confidence=confidence, shown_if_read=True)
        return found.estimates(confidence=confidence, source=SOURCE)

    def _extreme(self, aggregate: Aggregate, _: float) -> Estimates:
        is_min = aggregate.function is AggregateFunction.MIN
        if self.kind is SynopsisKind.EXTREMES:
            return thinned_text(self._merged(), is_min=is_min, skipped=self.skipped)
        return thinned_extreme(self._synopses, self.segments, is_min=is_min, ungrouped=self.whole)

    def _merged(self) -> Any:
        """All synopses as one."""
        merged = self.synopsis.select(np.arange(self.synopsis.groups))
        for segment in self.segments:
            merged.merge(segment.synopsis)
        return merged

    # --- sums, averages, variances ------------------------------------------------------------

    def _whole_sum(self) -> Estimates:
        """Nothing was skipped: the sum of whole numbers, NULL where it is beyond int64."""
        sums = [synopsis.sum() for synopsis in self._synopses]
        over = np.logical_or.reduce([s.null & (_counts(y) > 0) for s, y in self._with(sums)])
        total = np.sum([s.value.astype(object) for s in sums], axis=0)
        over |= np.array([not -(2**63) <= x < 2**63 for x in total], np.bool_)
        values = np.where(over, 0, total).astype(np.int64)
        return Estimates.exact(values, SOURCE, over | (self.read_counts == 0))

    def _with(self, columns: Sequence[Estimates]) -> list[tuple[Estimates, Any]]:
        return list(zip(columns, self._synopses, strict=True))

    def _spread(self, bounds: Callable[..., Intervals], confidence: float) -> Estimates:
        """Without a bound where squares of the values have lost digits, or their squares would.

        NULL where the squares themselves have lost digits.
        """
        if not self.skipped and self.synopsis.integer:
            variance: Estimates = self._merged().variance()
            root = np.sqrt(variance.value) if bounds is stratified_deviation else variance.value
            return replace(variance, value=root, low=root, high=root, source=SOURCE)
        found = unless_out_of_range(self._moments(bounds, confidence))
        spoiled = np.logical_or.reduce([_infinite(s) for s in self._synopses])
        strata = self._strata(_averaging, spoiled)
        if unit_of(strata) == 1.0:
            return found
        none = np.full(len(found), np.uint8(Bound.NONE))
        lost = np.logical_or.reduce([(s.counts > 1) & ~in_range(s.squares) for s in strata])
        return without(replace(found, bound=none, reason=OUT_OF_RANGE), lost, OUT_OF_RANGE)

    def _moments(
        self, bounds: Callable[..., Intervals], confidence: float, *, is_sum: bool = False
    ) -> Estimates:
        spoiled = np.logical_or.reduce([_infinite(s) for s in self._synopses])
        lost = np.logical_or.reduce([_lost(s) for s in self._synopses]) & ~spoiled
        ends = [end for s in self.segments for end in (s.low, s.high) if end is not None]
        spoiled = spoiled | (not np.isfinite(np.array(ends, np.float64)).all())
        empty = self.read_counts == 0
        strata = [_cleared(each, spoiled) for each in self._strata(_averaging, spoiled)]
        unit = unit_of(strata)
        scaled = bounds([s.in_unit(unit) for s in strata], confidence=confidence)
        intervals = scaled.scaled(unit)
        if bounds is stratified_variance:
            intervals = intervals.scaled(unit)  # A variance is in the unit of squares.
        elif is_sum:
            intervals = _rounded_out(intervals, strata)
        elif bounds is stratified_mean:
            intervals = _mean_rounded_out(intervals, strata)
        found = as_estimates(
            intervals, confidence, empty=empty, known=not self.skipped, source=SOURCE
        )
        if spoiled.any():
            bound = np.where(spoiled, np.uint8(Bound.NONE), found.bound)
            found = replace(found, bound=bound, null=found.null | spoiled, reason=_INFINITE)
        return without(found, lost, SUM_OUT_OF_RANGE)

    def _strata(
        self, of: Callable[[Any], tuple[Any, Any, Any]], spoiled: NDArray[np.bool_] | None = None
    ) -> list[Stratum]:
        """What was read in full first, where there is any; then every segment.

        Args:
          of: counts, means and squares of a synopsis.
          spoiled: bool [groups], groups that nothing is said of.
        """
        strata = []
        for synopsis, segment in zip(self._synopses, [None, *self.segments], strict=True):
            counts, means, squares = of(synopsis)
            total = int(counts.sum())
            if segment is None:
                there = counts > 0 if spoiled is None else (counts > 0) & ~spoiled
                low, high = _seen_range(synopsis, there)
                population, read = total, total
            else:
                low, high = _range(segment)
                population, read = segment.population, segment.read
            if population:
                shape = None if segment is None else _shape(segment, counts)
                strata.append(
                    Stratum(population, read, counts, means, squares, low, high, self.whole, shape)
                )
        if not strata:
            counts, means, squares = of(self.synopsis)
            strata.append(Stratum(0, 0, counts, means, squares, 0.0, 0.0, self.whole))
        return strata


def _counts(synopsis: Any) -> NDArray[np.int64]:
    counts = synopsis.counts
    found: NDArray[np.int64] = counts() if callable(counts) else counts
    return found


def _counting(synopsis: Any) -> tuple[Any, Any, Any]:
    counts = _counts(synopsis)
    return counts, np.ones(len(counts)), np.zeros(len(counts))


def _averaging(synopsis: Any) -> tuple[Any, Any, Any]:
    counts = _counts(synopsis)
    squares = np.zeros(len(counts))
    if synopsis.spread:
        squares = synopsis.squares()
    return counts, synopsis.mean().value, squares


def _infinite(synopsis: Any) -> NDArray[np.bool_]:
    low, high = (np.asarray(e.value, np.float64) for e in (synopsis.minimum(), synopsis.maximum()))
    return np.isinf(low) | np.isinf(high)


def _lost(synopsis: Any) -> NDArray[np.bool_]:
    """Return where finite values have a sum, and so a mean, that is not."""
    null: NDArray[np.bool_] = synopsis.mean().null
    return null & (_counts(synopsis) > 0)


def _shape(segment: Segment, counts: NDArray[np.int64]) -> SquareMoments | None:
    """Return how squares of what was read are spread; None where some of these are not finite."""
    if segment.shape is None:
        return None
    sums = segment.shape.sums()
    if len(sums.pairs) != len(counts) or (sums.pairs != counts).any():
        return None
    return SquareMoments(sums.cross, sums.squares_y)


def _seen_range(synopsis: Any, there: NDArray[np.bool_]) -> tuple[float, float]:
    """The range of values that were all read, of these groups."""
    if not there.any() or not hasattr(synopsis, "minimum"):
        return 0.0, 0.0
    low = np.asarray(synopsis.minimum().value, np.float64)[there].min()
    high = np.asarray(synopsis.maximum().value, np.float64)[there].max()
    return float(low), float(high)


def _range(segment: Segment) -> tuple[float, float]:
    """The segment's range as floats, rounded outward."""
    if segment.low is None or segment.high is None:
        return 0.0, 0.0
    low, high = float(segment.low), float(segment.high)
    low = low if low <= segment.low else float(np.nextafter(low, -np.inf))
    return low, high if high >= segment.high else float(np.nextafter(high, np.inf))


def _cleared(stratum: Stratum, spoiled: NDArray[np.bool_]) -> Stratum:
    """Without infinities, which no interval is computed of: their groups have the bound NONE."""
    if not spoiled.any():
        return stratum
    means, squares = (np.where(spoiled, 0.0, x) for x in (stratum.means, stratum.squares))
    ends = np.nan_to_num([stratum.low, stratum.high], posinf=0.0, neginf=0.0)
    low, high = float(ends.min()), float(ends.max())
    return replace(stratum, means=means, squares=squares, low=low, high=high)


def _rounded_out(intervals: Intervals, strata: Sequence[Stratum]) -> Intervals:
    """Ends moved outward by what doubles may have lost on the way."""
    lost = _ROUNDING * sum(s.population * max(abs(s.low), abs(s.high)) for s in strata)
    inexact = np.where(intervals.bound == Bound.EXACT, 0.0, lost)
    return replace(intervals, low=intervals.low - inexact, high=intervals.high + inexact)


def _mean_rounded_out(intervals: Intervals, strata: Sequence[Stratum]) -> Intervals:
    """The same of means: each stratum's, and what they are joined to, is rounded to a double."""
    largest = max((max(abs(s.low), abs(s.high)) for s in strata), default=0.0)
    lost = np.where(intervals.bound == Bound.EXACT, 0.0, 4.0 * _ROUNDING * largest)
    return replace(intervals, low=intervals.low - lost, high=intervals.high + lost)


_KNOWS_ITS_SHARE = "a theta sketch is thinned by hash and answers for all values, whatever it read"
THINNED: Final[Estimators[ThinnedPart]] = Estimators(
    {
        AggregateFunction.COUNT: Estimator(
            lambda part, _, at: part._count(at), holds_if_shown=True
        ),
        AggregateFunction.SUM: Estimator(lambda part, _, at: part._sum(at)),
        AggregateFunction.AVG: Estimator(lambda part, _, at: part._mean(at)),
        AggregateFunction.MIN: Estimator(ThinnedPart._extreme, holds_if_shown=True),
        AggregateFunction.MAX: Estimator(ThinnedPart._extreme, holds_if_shown=True),
        AggregateFunction.VAR: Estimator(lambda part, _, at: part._spread(stratified_variance, at)),
        AggregateFunction.STDDEV: Estimator(
            lambda part, _, at: part._spread(stratified_deviation, at)
        ),
        AggregateFunction.COUNT_DISTINCT: Estimator(
            lambda part, _, at: thinned_distinct(part.synopsis, part.leveled, at)
        ),
        AggregateFunction.QUANTILE: Estimator(ThinnedPart._own_quantile, holds_if_shown=True),
        AggregateFunction.TOP: Estimator(ThinnedPart._top),
        AggregateFunction.FREQUENT: Estimator(ThinnedPart._frequent),
        **dict.fromkeys(BY_TIME, Estimator(ThinnedPart._end_in_time, holds_if_shown=True)),
        **dict.fromkeys(JOINS, Estimator(ThinnedPart._join)),
        **dict.fromkeys(OF_PAIRS, Estimator(ThinnedPart._cross)),
    },
    refused=dict.fromkeys(SET_FUNCTIONS, _KNOWS_ITS_SHARE),
)
