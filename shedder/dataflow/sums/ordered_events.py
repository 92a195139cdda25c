"""Events of several sorted runs in the order of their instants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US, Int64s
from shedder.dataflow.pending_events import DueEvents


class OrderedEvents(NamedTuple):
    """Events, and their order; all arrays have one entry for each event.

    ids, weight: key and copies.
    values: [events, 1 + columns]: bit i of the first is set where column i is NULL; then the
      columns, doubles by their bits; or [events, 0] if no term reads one.
    order: rows in the order of instants. sides: of `order`, 0 or 1.
    """

    instants: Int64s
    ids: NDArray[np.uint64]
    weight: Int64s
    values: NDArray[np.int64]
    order: NDArray[np.uint64]
    sides: Int64s

    @classmethod
    def of(cls, due: DueEvents) -> OrderedEvents:
        """Order the events of all runs; those of one instant come run after run."""
        instants = np.ascontiguousarray(due.events.instant_us)
        order, sides = np.empty(len(due), np.uint64), np.empty(len(due), np.int64)
        _merge_runs(instants, due.starts, due.sides, order, sides)
        return cls(
            instants,
            np.ascontiguousarray(due.events.ids).view(np.uint64),
            np.ascontiguousarray(due.events.weight),
            np.ascontiguousarray(due.events.values),
            order,
            sides,
        )


@njit("void(int64[::1], int64[::1], int64[::1], uint64[::1], int64[::1])", nogil=True, cache=True)
def _merge_runs(
    instants: Int64s, starts: Int64s, of_runs: Int64s, order: NDArray[np.uint64], sides: Int64s
) -> None:
    """Merge runs. starts: of the runs, and their end. of_runs: sides. order, sides: output."""
    heads = starts[:-1].copy()
    at = 0
    while at < order.size:
        instant = NEVER_US
        for run in range(heads.size):
            if heads[run] < starts[run + 1]:
                instant = min(instant, instants[heads[run]])
        for run in range(heads.size):
            row = heads[run]
            while row < starts[run + 1] and instants[row] == instant:
                order[at], sides[at] = row, of_runs[run]
                at += 1
                row += 1
            heads[run] = row
