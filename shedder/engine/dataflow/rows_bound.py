"""Certain bounds of the rows of any key, from counts of all tuples by bucket of their keys.

A key's rows are at most the pairs of its tuples, and these at most the pairs of the tuples of its
bucket. Buckets count every tuple that windows may hold, whatever the level, so the bounds do not
depend on the keys that are kept (docs/answers.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    RowsWindow,
    Scan,
    SetOperation,
    SetOperator,
    WindowOf,
)
from shedder.engine.dataflow.lookback import HISTORY, lookbacks_us
from synopses.intervals.key_totals.bounded_keys import CertainRange
from synopses.kernels.hashing import position_keys, salted

PANES = 8  # Of a window; a tuple is counted for an eighth of it after it has left.
MEMORY_SHARE = 16  # Of the bytes of a query, for the counts.
_BUCKETS_MIN, _BUCKETS_MAX = 8, 16  # Powers of 2.

Counts = NDArray[np.float64]


class RowsBound:
    """Counts of the tuples of each stream by pane of event time and by bucket."""

    def __init__(self, plan: Plan, seed: int, bytes_max: int) -> None:
        """Counts without tuples, in about bytes_max. plan: with a bound, as `has_bound` says."""
        self._plan = plan
        self._salt = position_keys(seed, 1, 1)[0]
        self._spans_us = lookbacks_us(plan)
        arrays = len(self._spans_us) * (PANES + 2)
        fits = max(1, bytes_max // (4 * arrays)).bit_length() - 1
        self._bits = min(max(fits, _BUCKETS_MIN), _BUCKETS_MAX)
        self._panes: dict[str, dict[int, NDArray[np.int32]]] = {it: {} for it in self._spans_us}

    @property
    def size_bytes(self) -> int:
        """Bytes of the counts."""
        return sum(each.nbytes for panes in self._panes.values() for each in panes.values())

    def update(self, alias: str, hashes: NDArray[np.uint64], times_us: NDArray[np.int64]) -> None:
        """Count tuples of a stream. hashes: salted, of their keys; [tuples]."""
        buckets = (salted(hashes, self._salt) >> np.uint64(64 - self._bits)).astype(np.int64)
        panes, of = self._panes[alias], times_us // pane_us(self._spans_us[alias])
        for pane in np.unique(of).tolist():
            more = np.bincount(buckets[of == pane], minlength=1 << self._bits).astype(np.int32)
            panes[pane] = panes[pane] + more if pane in panes else more

    def forget(self, as_of_us: int) -> None:
        """Forget the panes of which no window holds a tuple as of an instant and later."""
        for alias, panes in self._panes.items():
            span_us = self._spans_us[alias]
            first = (as_of_us - span_us) // pane_us(span_us)
            for pane in [each for each in panes if each < first]:
                del panes[pane]

    def certain(self) -> CertainRange:
        """Return what is certain of the rows of each key."""
        none = np.zeros(1 << self._bits, np.int32)
        counts = {
            alias: np.asarray(np.sum([none, *panes.values()], axis=0, dtype=np.float64))
            for alias, panes in self._panes.items()
        }
        rows = _rows_max(self._plan, counts)
        assert rows is not None
        return CertainRange(float(rows.max()), float(rows @ rows), float(rows.sum()))


def pane_us(span_us: int) -> int:
    """Return the length of a pane of a stream's counts."""
    return max(1, span_us // PANES)


def has_bound(plan: Plan) -> bool:
    """Return whether windows of event time bound the rows of each key of a plan."""
    spans_us = lookbacks_us(plan)
    ends = all(0 < span_us < HISTORY for span_us in spans_us.values())
    return ends and _rows_max(plan, dict.fromkeys(spans_us, np.zeros(1))) is not None


def _rows_max(plan: Plan, counts: Mapping[str, Counts]) -> Counts | None:
    """Return how many rows the keys of each bucket can have together; None: any number.

    counts: of tuples, by alias; [buckets].
    """
    match plan:
        case Scan(alias=alias):
            return counts[alias]
        case WindowOf(window=RowsWindow()):
            return None
        case Filter() | Project() | WindowOf() | Distinct() | Aggregated():
            return _rows_max(plan.input, counts)
        case Join() | SetOperation():
            left, right = _rows_max(plan.left, counts), _rows_max(plan.right, counts)
            return None if left is None or right is None else _of_two(plan, left, right)
        case _:
            return None


def _of_two(plan: Join | SetOperation, left: Counts, right: Counts) -> Counts | None:
    match plan:
        case Join(kind=JoinKind.INNER):
            return left * right
        case Join(kind=JoinKind.LEFT):
            return left * np.maximum(right, 1.0)
        case Join(kind=JoinKind.SEMI | JoinKind.ANTI):
            return left
        case SetOperation(operator=SetOperator.UNION):
            return left + right
        case SetOperation():
            return left
        case _:
            return None
