"""The extreme rows of a stream as a stratum of their own, beside the sampled rows of all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Expression
from shedder.queries.evidence.known_range import known_range
from shedder.queries.sampling.sampled_rows import RowFilter, SampledGroups
from shedder.streams.basics import ColumnBasics
from shedder.streams.extreme_rows import ExtremesView
from shedder.streams.frame import Frame
from shedder.streams.live_sample import SampleView


@dataclass(frozen=True, slots=True, eq=False)
class ExtremeStratum:
    """One query over rows that are held for certain, and over the sample without them.

    rows: the held rows that match, of groups that the sample has seen. ids: int64 [rows], their
      groups. rows_held: how many are held, matching or not.
    are_others: bool [matches], which matching rows of the sample are not held rows.
    population, read: N and n of the others, a simple random sample without replacement.
    basics: of all rows, with the ranges of the others.
    """

    rows: Frame
    ids: NDArray[np.int64]
    rows_held: int
    are_others: NDArray[np.bool_]
    population: int
    read: int
    basics: Mapping[str, ColumnBasics]

    @classmethod
    def of(
        cls,
        row_filter: RowFilter,
        view: SampleView,
        extremes: ExtremesView,
        sampled: Frame,
        groups: SampledGroups,
    ) -> Self:
        """Split the rows of a sample. sampled: those that match; groups: theirs."""
        time_column = row_filter.query.schema.time_column
        held = extremes.rows.num_rows
        drawn = int(np.count_nonzero(extremes.has(Frame(view.rows, time_column))))
        frame = row_filter.rows(extremes.rows)
        ids = groups.of_rows(frame)
        if (ids < 0).any():
            frame, ids = frame.rows_where(ids >= 0), ids[ids >= 0]
        return cls(
            frame,
            ids,
            held,
            ~extremes.has(sampled),
            view.population - held,
            view.rows.num_rows - drawn,
            extremes.of_others(view.basics),
        )

    def present(self, node: Expression) -> tuple[Any, NDArray[np.int64]]:
        """The non-null values of the matching held rows, and their groups."""
        found = self.rows.present(node)
        return found.values, self.ids if found.rows is None else self.ids[found.rows]

    def range(self, node: Expression) -> tuple[float, float]:
        """Ends that no value of another row lies outside of."""
        return known_range(node, self.basics)


def view_of_matches(row_filter: RowFilter, view: SampleView) -> SampleView | None:
    """Return a sample of everything that can match; None: other rows than the held ones can.

    A filter such as `latency > 5000` passes extreme rows only, if no other row has such a value.
    """
    where, extremes = row_filter.query.where, view.extremes
    if where is None or extremes is None or view.is_everything:
        return None
    if known_range(where, extremes.of_others(view.basics))[1] >= 1.0:  # It can be true.
        return None
    return SampleView(
        view.schema,
        view.position - extremes.rows.num_rows,
        view.position,
        extremes.rows,
        view.basics,
        weighted={},
        hashed={},
    )
