"""Scans of dealt runs in memory: one question, one reduction, no files."""

from __future__ import annotations

import numpy as np

from shedder.archive.reductions.reduction import Reduction
from shedder.archive.reductions.registry import NamedReduction
from shedder.archive.reductions.until_error import UntilError
from shedder.archive.tasks.deadline import Deadline
from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.one_time_queries.progressive_scan import ProgressiveScan
from shedder.queries.one_time.plan import TimeRange
from shedder.streams.extreme_rows import ExtremesView
from tests.archive.dealt import DealtRuns


def scan_of(
    query: BoundQuery,
    dealt: DealtRuns,
    reduction: Reduction | None = None,
    *,
    seed: int = 0,
    stretch: TimeRange | None = None,
    deadline: Deadline | None = None,
    extremes: ExtremesView | None = None,
) -> ProgressiveScan:
    """A scan of all runs and the tail. extremes: of the columns that are read."""
    columns = sorted({*query.columns, query.schema.time_column})
    return ProgressiveScan(
        query,
        dealt.sample(columns, seed),
        NamedReduction("test()", reduction or UntilError(1_000)),
        stretch or TimeRange(),
        narrow=stretch is not None,
        position=dealt.data.num_rows,
        deadline=deadline or Deadline(),
        rng=np.random.default_rng([seed, 5]),
        extremes=extremes,
    )
