"""One query over one sample: matching rows, their groups and values, as estimators want them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column, Expression
from shedder.queries.evidence.known_range import known_range
from shedder.queries.sampling.extreme_stratum import ExtremeStratum
from shedder.queries.sampling.sampled_rows import RowFilter, SampledGroups, ValueCounts
from shedder.queries.sampling.stratified import stratified_for
from shedder.streams.frame import Frame
from shedder.streams.live_sample import HashedView, SampleView, WeightedView
from shedder.streams.stratified_sample import StratifiedView
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.seen_groups import shown_delta
from synopses.intervals.weighted import WeightedMatches
from synopses.model.estimate import Estimates
from synopses.moments.moments import GroupedMoments


@dataclass(frozen=True)
class Sampled:
    """One query over one sample.

    rows: the matching rows of the uniform sample, or of the stratified one. groups: the groups that
    they are of. population, read: N, the tuples that the sample is of, and n of them that are in
    it; of a stratified sample int64 [groups], those of each group's stratum.
    """

    row_filter: RowFilter
    view: SampleView
    rows: Frame
    groups: SampledGroups
    population: int | NDArray[np.int64]
    read: int | NDArray[np.int64]
    stratified: StratifiedView | None = None
    owners: NDArray[np.int64] | None = None  # The stratum of each group, of a stratified sample.

    @classmethod
    def of(cls, row_filter: RowFilter, view: SampleView) -> Sampled:
        """Select the rows and number their groups."""
        stratified = stratified_for(row_filter.query, view)
        if stratified is not None:
            return cls._of_strata(row_filter, view, stratified)
        rows = row_filter.rows(view.rows)
        groups = SampledGroups.of(row_filter.query.groups, rows)
        return cls(row_filter, view, rows, groups, view.population, view.rows.num_rows)

    @classmethod
    def _of_strata(
        cls, row_filter: RowFilter, view: SampleView, stratified: StratifiedView
    ) -> Sampled:
        rows, where = row_filter.frame_and_rows(stratified.rows)
        groups = SampledGroups.of(row_filter.query.groups, rows)
        owners = np.zeros(groups.count, np.int64)  # A group lies in one stratum.
        owners[groups.ids] = stratified.strata[where]
        population, read = stratified.population[owners], stratified.read[owners]
        return cls(row_filter, view, rows, groups, population, read, stratified, owners)

    def only(self, groups: NDArray[np.int64]) -> Sampled:
        """The same of some groups, in this order."""
        some, kept = self.groups.only(groups)
        population, read, owners = self.population, self.read, self.owners
        return replace(
            self,
            rows=self.rows.rows_where(kept),
            groups=some,
            population=population if isinstance(population, int) else population[groups],
            read=read if isinstance(read, int) else read[groups],
            owners=None if owners is None else owners[groups],
        )

    @property
    def is_everything(self) -> bool:
        """Return whether every tuple was read."""
        if self.stratified is not None:
            return self.stratified.is_everything
        return self.view.is_everything

    @property
    def is_complete(self) -> NDArray[np.bool_]:
        """bool [] or [groups], whether all tuples that can be of the group were read."""
        complete: NDArray[np.bool_] = np.equal(self.read, self.population)
        return complete

    @property
    def are_strata(self) -> bool:
        """Return whether each group is all of its stratum: it is known how many tuples it has."""
        stratified = self.stratified
        if stratified is None or not self.row_filter.is_all or stratified.has_others:
            return False
        return len(self.row_filter.query.groups) == len(stratified.columns)

    def known(self, aggregate: Aggregate) -> Estimates | None:
        """What the moments of all tuples say exactly; None: nothing."""
        node = aggregate.argument
        moments = self.moments(node) if self.are_strata and node is not None else None
        if moments is None:
            return None
        match aggregate.function:
            case AggregateFunction.COUNT:
                return moments.count()
            case AggregateFunction.SUM:
                return moments.sum()
            case AggregateFunction.AVG:
                return moments.mean()
            case AggregateFunction.MIN:
                return moments.minimum()
            case AggregateFunction.MAX:
                return moments.maximum()
            case _:
                return None

    def knows_count(self, node: Expression | None) -> bool:
        """Return whether the number of all tuples, or of an expression's values, is known."""
        if self.is_everything or (self.are_strata and node is None):
            return True
        if self.are_strata and node is not None and self.moments(node) is not None:
            return True
        return self.is_whole and (node is None or isinstance(node, Column))

    @cached_property
    def is_whole(self) -> bool:
        """Neither filtered nor grouped: what the basics know is what is asked."""
        return self.row_filter.is_all and not self.groups.groups

    def present(self, node: Expression) -> tuple[Any, NDArray[np.int64]]:
        """The non-null values (numpy, or Arrow text) and their groups."""
        return self.rows.present(node).values, self.present_ids(node)

    def present_ids(self, node: Expression) -> NDArray[np.int64]:
        """The group of each non-null value."""
        rows = self.rows.present(node).rows
        return self.groups.ids if rows is None else self.groups.ids[rows]

    def shown_delta(self, confidence: float) -> NDArray[np.float64] | None:
        """The part of delta at which each group is asked, so that it holds if the group is shown.

        None: whether a group is shown does not depend on the tuples that were read.
        """
        if not self.groups.groups or self.is_everything or self.are_strata:
            return None
        shares = np.divide(self.read, np.maximum(self.population, 1))
        return shown_delta(self.per_group(self.groups.ids), shares, confidence=confidence)

    def other_ids(self, node: Expression | None) -> NDArray[np.int64]:
        """The group of each sampled row, or of each with a value, that is no extreme row."""
        assert self.extremes is not None
        others = self.extremes.are_others
        if node is None:
            return self.groups.ids[others]
        rows = self.rows.present(node).rows
        return self.present_ids(node)[others if rows is None else others[rows]]

    def per_group(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many of these rows each group has: int64 [groups]."""
        return np.bincount(ids, minlength=self.groups.count)

    def range(self, node: Expression) -> tuple[float, float]:
        """Ends that no value of the expression lies outside of."""
        return known_range(node, self.view.basics)

    def moments(self, node: Expression) -> GroupedMoments | None:
        """Return moments of all values of each group's stratum; None: they were not measured."""
        if self.stratified is None or self.owners is None or not isinstance(node, Column):
            return None
        moments = self.stratified.moments.get(node.name)
        return None if moments is None else moments.select(self.owners)

    def ranges(self, node: Expression) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same by group: [groups] each, or [] where they are those of the stream."""
        low, high = (np.asarray(end, np.float64) for end in self.range(node))
        moments = self.moments(node)
        if moments is None:
            return low, high
        least, most = moments.minimum(), moments.maximum()
        return np.where(least.null, low, least.value), np.where(most.null, high, most.value)

    @cached_property
    def extremes(self) -> ExtremeStratum | None:
        """The extreme rows beside a uniform sample of the others; None: nothing is to be gained."""
        extremes = self.view.extremes
        if extremes is None or self.stratified is not None or self.is_everything:
            return None
        found = ExtremeStratum.of(self.row_filter, self.view, extremes, self.rows, self.groups)
        return found if 0 < found.read < found.population and found.rows_held else None

    def values(self, node: Expression, *, finite: bool = True) -> SampledValues:
        """The values with what is known of the rest; infinite ones only if not `finite`."""
        values, ids = self.present(node)
        floats = np.asarray(values, np.float64)
        if finite and not np.isfinite(floats).all():
            kept = np.isfinite(floats)
            floats, ids = floats[kept], ids[kept]
        return self.sample_of(node, floats, ids, *self.ranges(node))

    def sample_of(
        self,
        node: Expression,
        floats: NDArray[np.float64],
        ids: NDArray[np.int64],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
    ) -> SampledValues:
        """Numbers that stand for the values of an expression, with their groups and their range."""
        population, read, everything = self.population, self.read, False
        if self.is_whole and isinstance(node, Column):
            # The rows with a value are a simple random sample of all of those, which are counted.
            population, read = self.view.basics[node.name].rows, len(self.present_ids(node))
            everything = len(floats) == read
        return SampledValues.by_group(
            floats,
            ids=None if everything else ids.astype(np.int32),
            groups=self.groups.count,
            population=population,
            read=read,
            low=low,
            high=high,
            everything=everything,
            whole_numbers=node.type is not ColumnType.DOUBLE,
            shuffle_seed=self.view.shuffle_seed,
        )

    def infinite(self, node: Expression) -> NDArray[np.bool_]:
        """Groups with an infinite value in the sample, or among the extreme rows."""
        found = np.zeros(self.groups.count, np.bool_)
        seen = [self.present(node)]
        if self.extremes is not None:
            seen.append(self.extremes.present(node))
        for values, ids in seen:
            if values.dtype.kind == "f":
                found[ids[np.isinf(values)]] = True
        return found

    def value_counts(self, node: Expression) -> ValueCounts:
        """The distinct values of each group."""
        return ValueCounts.of(self.rows.hashes(node), self.groups.ids)

    def hashed_counts(self, node: Expression, view: HashedView) -> ValueCounts:
        """The distinct values of each group in a sample by the column's hash."""
        frame = self.row_filter.rows(view.rows)
        return ValueCounts.of(frame.hashes(node), self.groups.of_rows(frame))

    def weighted_matches(self, view: WeightedView) -> WeightedMatches:
        """What a weighted sample holds of each group."""
        frame, where = self.row_filter.frame_and_rows(view.rows)
        ids = self.groups.of_rows(frame)
        known = ids >= 0
        return WeightedMatches.by_group(
            view.weights[where][known],
            tau=view.tau,
            ids=ids[known].astype(np.int32),
            groups=self.groups.count,
        )
