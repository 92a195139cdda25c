"""Runs of events as arrays for the kernels of aggregates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from shedder.dataflow.pending_events import Events


class OrderedEvents(NamedTuple):
    """A run of events in the order of instants; all arrays have one entry for each event.

    ids, weight: key and copies.
    values: [events, 1 + columns]: bit i of the first is set where column i is NULL; then the
      columns, doubles by their bits; or [events, 0] if no term reads one.
    """

    instants: Int64s
    ids: NDArray[np.uint64]
    weight: Int64s
    values: NDArray[np.int64]

    @classmethod
    def of(cls, run: Events) -> OrderedEvents:
        """The events of a run."""
        instants, ids, weight, values = run.arrays
        return cls(instants, ids.view(np.uint64), weight, values)
