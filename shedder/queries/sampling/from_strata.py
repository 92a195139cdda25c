"""Evidence from samples of several parts of a stream, each read at its own share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    BY_TIME,
    JOINS,
    LISTS,
    OF_PAIRS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Column,
    Expression,
)
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import TargetKind
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.confidence_budget import CERTAIN_ENDS
from shedder.queries.evidence.estimators import Estimator, Estimators
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.int64_sums import within_int64
from shedder.queries.sampling.anchored_values import (
    anchors_of,
    distances,
    is_beyond_doubles,
    raised,
    range_of_distances,
)
from shedder.queries.sampling.delta_by_group import GroupsByPart
from shedder.queries.sampling.from_sample import SampleSource, evidence_from_sample
from shedder.queries.sampling.interval_columns import SOURCE, as_estimates, spoiled
from shedder.queries.sampling.sample_evidence import evidence_of
from shedder.queries.sampling.sampled_query import Sampled
from shedder.queries.sampling.sampled_rows import RowFilter, SampledGroups
from shedder.queries.sampling.stratified import missing_from_parts
from shedder.streams.live_sample import SampleView
from synopses.intervals.interval import Intervals
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.seen_groups import shown_delta
from synopses.model.estimate import Bound, Estimates
from synopses.model.overflow import OUT_OF_RANGE, SUM_OUT_OF_RANGE, unless_out_of_range
from synopses.strata.joint_ranks import joint_quantile
from synopses.strata.stratified import stratified_count, stratified_mean, stratified_sum
from synopses.strata.stratified_variance import stratified_deviation, stratified_variance
from synopses.strata.stratum import Stratum

_ADDED: Final = frozenset({AggregateFunction.SUM, AggregateFunction.AVG})
_DEVIATIONS: Final = 6.0  # A binomial is above its mean by more with a probability under 1e-9.


def evidence_from_strata(
    query: BoundQuery,
    views: Sequence[SampleView],
    rng: np.random.Generator,
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    marked: bool = False,
) -> Evidence:
    """What samples of disjoint parts of a stream know together about a query's aggregates.

    Counts, sums, averages and variances are estimated part by part (synopses.strata.stratified)
    and minima and maxima from all that was seen, and quantiles by one test over all parts. Other
    aggregates need one simple random sample, so all parts are thinned to the smallest share that
    any was read at; so do quantiles where the test is not certified.

    Args:
      query: any query over the stream.
      views: at least one; each a simple random sample of its own part, with its basics.
      rng: what thinning is drawn with.
      start_us, end_us: the stretch of event time that the query is over; None is open.
      marked: whether the samples' rows say which of them are deleted, see `RowFilter`.
    """
    there = [view for view in views if view.population] or list(views[:1])
    if len(there) == 1:
        return evidence_from_sample(
            query, there[0], start_us=start_us, end_us=end_us, marked=marked
        )
    strata = _Strata.of(RowFilter(query, start_us, end_us, marked), there, rng)
    found = evidence_of(query, strata, query.aggregates)
    return found.changed(partial(replace, start_us=start_us, end_us=end_us, sources=(SOURCE,)))


@dataclass(frozen=True)
class _Strata:
    """One query over several samples; union: all their rows, as if of one.

    part: int64 [matches], the sample that each matching row is of. draw: draws a simple random
    sample of all parts, once.
    """

    union: Sampled
    views: Sequence[SampleView]
    part: NDArray[np.int64]
    draw: Callable[[], SampleSource]

    @classmethod
    def of(
        cls, row_filter: RowFilter, views: Sequence[SampleView], rng: np.random.Generator
    ) -> _Strata:
        merged = together(views)
        union = Sampled.of(row_filter, merged)
        _, where = row_filter.frame_and_rows(merged.rows)
        ends = np.cumsum([view.rows.num_rows for view in views])
        part = np.searchsorted(ends, where, side="right")
        return cls(union, views, part, cache(lambda: _thinned(union, views, rng)))

    def only(self, groups: NDArray[np.int64] | None) -> _Strata:
        """Of some groups, in this order; None: of all."""
        if groups is None:
            return self
        _, kept = self.union.groups.only(groups)
        draw = self.draw
        return _Strata(
            self.union.only(groups),
            self.views,
            self.part[kept],
            lambda: draw().only(groups),
        )

    def shown_delta(self, confidence: float) -> NDArray[np.float64] | None:
        """As of one sample, whose rows were read at several shares."""
        if not self.union.groups.groups or self.union.is_everything:
            return None
        counts = [self.union.per_group(self.union.groups.ids[mine]) for mine in self._parts()]
        shares = [[view.rows.num_rows / view.population] for view in self.views]
        return shown_delta(counts, shares, confidence=confidence)

    @property
    def groups(self) -> SampledGroups:
        """The groups that were seen in any part."""
        return self.union.groups

    def missing(self, query: BoundQuery) -> MissingGroups | None:
        """Bound the groups of which no row was read; None: none can be missing."""
        parts = [view for view in self.views if not view.is_everything] if query.groups else []
        sizes = [(view.population, view.rows.num_rows) for view in parts]
        return missing_from_parts(sizes, confidence=query.confidence)

    def is_certain(self, aggregate: Aggregate) -> bool:
        """Return whether the estimate spends no confidence: its ends are certain."""
        if aggregate.function is AggregateFunction.COUNT:
            return self.union.knows_count(aggregate.argument)
        return self.union.view.is_everything or aggregate.function in CERTAIN_ENDS

    def estimate(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """One estimate per group, whose interval holds if the group is shown (seen_groups.py)."""
        estimator = PARTS.answered[aggregate.function]
        with np.errstate(over="ignore", invalid="ignore"):
            if estimator.holds_if_shown:
                return estimator.estimate(self, aggregate, confidence)
            return self._by_part.ask(
                self, confidence, lambda strata, at: estimator.estimate(strata, aggregate, at)
            )

    def rank_error(self, aggregate: Aggregate, confidence: float) -> NDArray[np.float64] | None:
        """Of the thinned sample's quantile, which may be taken."""
        if aggregate.function is not AggregateFunction.QUANTILE:
            return None
        return self.thinned.rank_error(aggregate, confidence)

    @cached_property
    def _by_part(self) -> GroupsByPart[_Strata]:
        return GroupsByPart()

    def _of_union(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """From all rows, as if of one sample: of ends that are certain, or where all were read."""
        return SampleSource(self.union).before_shown(aggregate, confidence)

    def _of_thinned(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """From one simple random sample of all parts."""
        return self.thinned.before_shown(aggregate, confidence)

    def _quantile(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """The quantile over all strata at once, where it is certified.

        A target in ranks is judged by the rank error of the value that the thinned sample has.
        """
        node, share = aggregate.argument, aggregate.parameter
        assert node is not None, aggregate
        assert share is not None, aggregate
        thinned = self._of_thinned(aggregate, confidence)
        target = self.union.row_filter.query.target
        by_rank = target is not None and target.kind is TargetKind.RANK
        if self.union.is_everything or is_beyond_doubles(self.union, node) or by_rank:
            return thinned
        values, _ = self.union.present(node)
        ids, part = self._ids(node)
        sizes = np.array([self._read_of(node, at, part) for at in range(len(self.views))])
        groups = (self.union.groups.count,)
        low, high = (np.broadcast_to(end, groups) for end in self.union.ranges(node))
        intervals, certified = joint_quantile(
            np.asarray(values, np.float64), ids.astype(np.int64), part,
            population=sizes[:, 0], read=sizes[:, 1], low=low, high=high,
            rank_share=share, confidence=confidence,
        )  # fmt: skip
        found = intervals.estimates(confidence=confidence, source=SOURCE)
        return _where(certified & (thinned.bound != Bound.EXACT), found, thinned)

    def _read_of(self, node: Expression, at: int, part: NDArray[np.int64]) -> tuple[float, float]:
        """Return how many rows a stratum has, and how many of them were read.

        Of a column without a filter these are the values: a simple random sample of all of them,
        which are counted.
        """
        view = self.views[at]
        if self.union.is_whole and isinstance(node, Column):
            return view.basics[node.name].rows, int((part == at).sum())
        return view.population, view.rows.num_rows

    @cached_property
    def thinned(self) -> SampleSource:
        """A simple random sample of all parts, with the groups of all that was seen."""
        return self.draw()

    def _parts(self) -> list[NDArray[np.bool_]]:
        """bool [matches] for each sample: the matching rows that are of it."""
        return [self.part == at for at in range(len(self.views))]

    def _count(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """Counts of each stratum together."""
        node, union = aggregate.argument, self.union
        if node is not None and union.is_everything:
            return self._of_union(aggregate, confidence)
        if union.is_whole and (node is None or isinstance(node, Column)):
            basics = None if node is None else union.view.basics[node.name]
            known = union.population if basics is None else basics.rows
            return Estimates.exact(np.array([known]), "basics")
        counts = stratified_count(
            self._counting(node), confidence=confidence, shown_if_read=bool(union.groups.groups)
        )
        return counts.estimates(confidence=confidence, source=SOURCE)

    def _stratified(
        self, aggregate: Aggregate, confidence: float, *, bounds: Callable[..., Intervals]
    ) -> Estimates:
        """Moments of each stratum together."""
        node, union = aggregate.argument, self.union
        if union.is_everything:
            return self._of_union(aggregate, confidence)
        assert node is not None, aggregate
        intervals = self._bounds_of(node, aggregate.function, bounds, confidence)
        empty = union.per_group(union.present_ids(node)) == 0
        everything = union.view.is_everything
        found = as_estimates(intervals, confidence, empty=empty, known=everything)
        found = spoiled(found, union.infinite(node))
        if aggregate.function is AggregateFunction.SUM and aggregate.type is ColumnType.BIGINT:
            return within_int64(found, found.low, found.high)
        added = aggregate.function in _ADDED
        return unless_out_of_range(found, SUM_OUT_OF_RANGE if added else OUT_OF_RANGE)

    def _bounds_of(
        self,
        node: Expression,
        function: AggregateFunction,
        bounds: Callable[..., Intervals],
        confidence: float,
    ) -> Intervals:
        """Bounds; of whole numbers that doubles do not hold, by distances from one of them."""
        if function is AggregateFunction.SUM or not is_beyond_doubles(self.union, node):
            strata = self._moments(node, None)
            if function not in _ADDED:
                return bounds(strata, confidence=confidence)
            return bounds(strata, confidence=confidence, samples=self._rows(node, strata))
        values, ids = self.union.present(node)
        anchor = anchors_of(values, np.zeros_like(ids), 1)
        found = bounds(self._moments(node, anchor), confidence=confidence)
        return raised(found, anchor) if function is AggregateFunction.AVG else found

    def _counting(self, node: Expression | None) -> list[Stratum]:
        ids, part = self._ids(node)
        groups = self.union.groups.count
        ones, none = np.ones(groups), np.zeros(groups)
        return [
            Stratum(
                view.population,
                view.rows.num_rows,
                np.bincount(ids[part == at], minlength=groups),
                ones,
                none,
                1.0,
                1.0,
                whole=False,
            )
            for at, view in enumerate(self.views)
        ]

    def _ids(self, node: Expression | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The group and the sample of each row, or of each value of an expression."""
        if node is None:
            return self.union.groups.ids, self.part
        rows = self.union.rows.present(node).rows
        return self.union.present_ids(node), self.part if rows is None else self.part[rows]

    def _moments(self, node: Expression, anchor: NDArray[np.int64] | None) -> list[Stratum]:
        """anchor: int64 [1], what is taken off each value; None: nothing."""
        values, _ = self.union.present(node)
        floats = np.asarray(values, np.float64) if anchor is None else distances(values, anchor)
        ids, part = self._ids(node)
        finite = np.isfinite(floats)
        return [
            self._stratum(node, view, floats[mine], ids[mine], anchor)
            for at, view in enumerate(self.views)
            for mine in [(part == at) & finite]
        ]

    def _rows(self, node: Expression, strata: Sequence[Stratum]) -> list[SampledValues]:
        """The values of each stratum that skipped any."""
        values, _ = self.union.present(node)
        floats = np.asarray(values, np.float64)
        ids, part = self._ids(node)
        finite = np.isfinite(floats)
        return [
            SampledValues.by_group(
                floats[mine],
                ids=ids[mine].astype(np.int32),
                groups=self.union.groups.count,
                population=stratum.population,
                read=stratum.read,
                low=stratum.low,
                high=stratum.high,
                shuffle_seed=view.shuffle_seed,
            )
            for at, (view, stratum) in enumerate(zip(self.views, strata, strict=True))
            if stratum.skipped
            for mine in [(part == at) & finite]
        ]

    def _stratum(
        self,
        node: Expression,
        view: SampleView,
        values: NDArray[np.float64],
        ids: NDArray[np.int64],
        anchor: NDArray[np.int64] | None,
    ) -> Stratum:
        groups = self.union.groups.count
        counts = np.bincount(ids, minlength=groups)
        means = np.bincount(ids, values, minlength=groups) / np.maximum(counts, 1.0)
        away = values - means[ids]
        means += np.bincount(ids, away, minlength=groups) / np.maximum(counts, 1)
        squares = np.bincount(ids, (values - means[ids]) ** 2, minlength=groups).astype(float)
        sampled = replace(self.union, view=view)
        low, high = sampled.range(node)
        if anchor is not None:
            low, high = (float(end[0]) for end in range_of_distances(sampled, node, anchor))
        if len(values):
            low, high = min(low, float(values.min())), max(high, float(values.max()))
        whole = self.union.is_whole and isinstance(node, Column)
        population = view.population
        read = view.rows.num_rows
        if whole and isinstance(node, Column):
            # Values are a simple random sample of all values, which are counted.
            population, read = view.basics[node.name].rows, len(values)
        return Stratum(population, read, counts, means, squares, low, high, whole)


def _moments_of(bounds: Callable[..., Intervals]) -> Estimator[_Strata]:
    return Estimator(partial(_Strata._stratified, bounds=bounds))


PARTS: Final[Estimators[_Strata]] = Estimators(
    {
        AggregateFunction.COUNT: Estimator(_Strata._count, holds_if_shown=True),
        AggregateFunction.SUM: _moments_of(stratified_sum),
        AggregateFunction.AVG: _moments_of(stratified_mean),
        AggregateFunction.VAR: _moments_of(stratified_variance),
        AggregateFunction.STDDEV: _moments_of(stratified_deviation),
        AggregateFunction.MIN: Estimator(_Strata._of_union, holds_if_shown=True),
        AggregateFunction.MAX: Estimator(_Strata._of_union, holds_if_shown=True),
        AggregateFunction.QUANTILE: Estimator(_Strata._quantile),
        AggregateFunction.COUNT_DISTINCT: Estimator(_Strata._of_thinned),
        **dict.fromkeys(BY_TIME, Estimator(_Strata._of_thinned, holds_if_shown=True)),
        **dict.fromkeys(
            (*JOINS, *LISTS, *OF_PAIRS, *SET_FUNCTIONS), Estimator(_Strata._of_thinned)
        ),
    },
    refused={},
)


def _where(chosen: NDArray[np.bool_], one: Estimates, other: Estimates) -> Estimates:
    """The values of one for the groups that are chosen, those of the other for the rest."""
    value, low, high, bound, null = (
        np.where(chosen, mine, theirs)
        for mine, theirs in (
            (one.value, other.value),
            (one.low, other.low),
            (one.high, other.high),
            (one.bound, other.bound),
            (one.null, other.null),
        )
    )
    return replace(other, value=value, low=low, high=high, bound=bound, null=null)


def together(views: Sequence[SampleView]) -> SampleView:
    """All rows of all samples; no simple random sample, but all that was seen."""
    first = views[0]
    rows = pa.Table.from_batches([view.rows for view in views]).combine_chunks()
    [batch] = rows.to_batches() or [first.rows]
    basics = dict(first.basics)
    for view in views[1:]:
        basics = {name: found.merged(view.basics[name]) for name, found in basics.items()}
    population = sum(view.population for view in views)
    return replace(first, first=0, position=population, rows=batch, basics=basics)


def _thinned(union: Sampled, views: Sequence[SampleView], rng: np.random.Generator) -> SampleSource:
    """A simple random sample of all parts, with the groups of all that was seen."""
    view = thinned_together(views, rng)
    rows = union.row_filter.rows(view.rows)
    groups = replace(union.groups, ids=union.groups.of_rows(rows))
    return SampleSource(
        Sampled(union.row_filter, view, rows, groups, view.population, view.rows.num_rows)
    )


def thinned_together(views: Sequence[SampleView], rng: np.random.Generator) -> SampleView:
    """A simple random sample of all parts, out of samples of each.

    Tuples that are kept independently with one probability are, given their number, a simple
    random sample. So each part keeps a binomial number of its rows; the probability is so far
    below the smallest share read that all but one draw in 1e9 find enough rows.
    """
    shares = [view.rows.num_rows / view.population for view in views if not view.is_everything]
    if not shares:
        return together(views)
    wanted = min(view.rows.num_rows for view in views if not view.is_everything)
    share = max(0.0, min(shares) * (1.0 - _DEVIATIONS / np.sqrt(max(wanted, 1))))
    kept = []
    for view in views:
        count = min(int(rng.binomial(view.population, share)), view.rows.num_rows)
        rows = np.sort(rng.choice(view.rows.num_rows, count, replace=False))
        kept.append(replace(view, rows=view.rows.take(rows)))
    return together(kept)
