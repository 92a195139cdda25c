"""Levels of row queries that hold too much together: the weighted FN + FP of all is least.

Each query with ON OVERLOAD SHED has bytes and a predicted precision at every level that it may
rise to. `best_levels` chooses among them within the bytes that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from allocator.plan_precision.plan_levels import best_levels
from shedder.engine.dataflow.row_precision import losses
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.thinning_levels import LEVEL_MAX


def reliefs(queries: Sequence[RowQuery], excess_bytes: int) -> Iterator[tuple[RowQuery, int]]:
    """Yield the bytes that each of some queries is to free, so that all free excess_bytes.

    Nothing, if all of them together cannot free so much. Strata that read along are given up
    before, those of the least weight first, because no row is missed for them.

    Args:
      queries: with `thinning`, not failed, without a long step.
    """
    for query in sorted(queries, key=lambda it: it.weight):
        growing_bytes = query.thinned.growing_bytes
        if growing_bytes and excess_bytes > 0:
            excess_bytes -= growing_bytes
            yield query, growing_bytes
    if excess_bytes <= 0:
        return
    sizes = np.zeros((len(queries), LEVEL_MAX + 1), np.int64)
    loss, of_level = np.full(sizes.shape, np.inf), losses()
    for row, query in enumerate(queries):
        found = query.thinned.bytes_by_level
        first = LEVEL_MAX + 1 - len(found)
        sizes[row, first:], loss[row, first:] = found, of_level[first:]
    present = sizes.max(axis=1)
    budget_bytes = int(present.sum()) - excess_bytes
    if budget_bytes < int(sizes[:, -1].sum()):
        return
    weight = np.array([query.weight for query in queries])
    chosen = best_levels(sizes, loss, weight, budget_bytes)
    freed = present - sizes[np.arange(len(queries)), chosen]
    for query, size in zip(queries, freed.tolist(), strict=True):
        if size:
            yield query, size
