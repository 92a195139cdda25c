"""One query over one sample: matching rows, their groups and values, as estimators want them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expression import Column, Expression
from shedder.queries.known_range import known_range
from shedder.queries.sampled_rows import SampledGroups, Selection, ValueCounts
from shedder.streams.frame import Frame
from shedder.streams.sample import HashedView, SampleView, WeightedView
from synopses.intervals.sampled import SampledValues
from synopses.intervals.weighted import WeightedMatches


@dataclass(frozen=True)
class Sampled:
    """One query over one sample.

    rows: the matching rows of the uniform sample. groups: the groups that they are of.
    """

    selection: Selection
    view: SampleView
    rows: Frame
    groups: SampledGroups

    @classmethod
    def of(cls, selection: Selection, view: SampleView) -> Sampled:
        """Select the rows and number their groups."""
        rows = selection.rows(view.rows)
        return cls(selection, view, rows, SampledGroups.of(selection.query.groups, rows))

    @cached_property
    def is_whole(self) -> bool:
        """Neither filtered nor grouped: what the basics know is what is asked."""
        return self.selection.is_all and not self.groups.groups

    @property
    def population(self) -> int:
        """N, the tuples that the sample is of."""
        return self.view.population

    @property
    def read(self) -> int:
        """n, the rows in the uniform sample."""
        return self.view.rows.num_rows

    def present(self, node: Expression) -> tuple[Any, NDArray[np.int64]]:
        """The non-null values (numpy, or Arrow text) and their groups."""
        return self.rows.present(node).values, self.present_ids(node)

    def present_ids(self, node: Expression) -> NDArray[np.int64]:
        """The group of each non-null value."""
        rows = self.rows.present(node).rows
        return self.groups.ids if rows is None else self.groups.ids[rows]

    def per_group(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of these rows each group has: int64 [groups]."""
        return np.bincount(ids, minlength=self.groups.count)

    def range(self, node: Expression) -> tuple[float, float]:
        """Ends that no value of the expression lies outside of."""
        return known_range(node, self.view.basics)

    def values(self, node: Expression, *, finite: bool = True) -> SampledValues:
        """The values with what is known of the rest; infinite ones only if not `finite`."""
        values, ids = self.present(node)
        floats = np.asarray(values, np.float64)
        if finite and not np.isfinite(floats).all():
            kept = np.isfinite(floats)
            floats, ids = floats[kept], ids[kept]
        population, read, everything = self.population, self.read, False
        if self.is_whole and isinstance(node, Column):
            # The rows with a value are a simple random sample of all of those, which are counted.
            population, read = self.view.basics[node.name].rows, len(values)
            everything = len(floats) == read
        low, high = self.range(node)
        return SampledValues.by_group(
            floats,
            ids=None if everything else ids.astype(np.int32),
            groups=self.groups.count,
            population=population,
            read=read,
            low=low,
            high=high,
            everything=everything,
        )

    def infinite(self, node: Expression) -> NDArray[np.bool_]:
        """Groups with an infinite value in the sample."""
        values, ids = self.present(node)
        found = np.zeros(self.groups.count, np.bool_)
        if values.dtype.kind == "f":
            found[ids[np.isinf(values)]] = True
        return found

    def value_counts(self, node: Expression) -> ValueCounts:
        """The distinct values of each group."""
        return ValueCounts.of(self.rows.hashes(node), self.groups.ids)

    def hashed_counts(self, node: Expression, view: HashedView) -> ValueCounts:
        """The distinct values of each group in a sample by the column's hash."""
        frame = self.selection.rows(view.rows)
        return ValueCounts.of(frame.hashes(node), self.groups.of_rows(frame))

    def weighted_matches(self, view: WeightedView) -> WeightedMatches:
        """What a weighted sample holds of each group."""
        frame, where = self.selection.frame_and_rows(view.rows)
        ids = self.groups.of_rows(frame)
        known = ids >= 0
        return WeightedMatches.by_group(
            view.weights[where][known],
            tau=view.tau,
            ids=ids[known].astype(np.int32),
            groups=self.groups.count,
        )
