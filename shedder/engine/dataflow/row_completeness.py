"""Completeness of the rows of a sample of keys, with intervals that hold for any data.

Whether a key is in the sample of level n is decided by its salted hash: independently of the
others, with probability 2^-n. So the number of shown keys is binomial(N, 2^-n), which is inverted
in N (`distinct_by_hash`). If a key has at most M rows for certain, the number of rows has the
distribution-free interval of `bounded_key_total`. M comes from the plan (`of_plan`) or from counts
of all tuples (`rows_bound.py`).

The level follows the bytes that the sample takes, so it depends on the sample. For every level
n >= 1 the interval of that level fails with probability at most (1 - confidence) / LEVEL_MAX. So
the interval of the level that was chosen, however it was chosen, fails with probability at most
1 - confidence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shedder.engine.dataflow.thinning_levels import LEVEL_MAX, strata_of
from shedder.queries.answers.completeness import Completeness
from synopses.intervals.distinct import distinct_by_hash
from synopses.intervals.interval import Intervals
from synopses.intervals.key_totals.bounded_keys import CertainRange, bounded_key_total
from synopses.model.estimate import Bound, Estimate

CONFIDENCE = 0.95
ROWS_CERTAIN_MAX = 1e15  # More rows fit into no memory.
UNKNOWN_KEYS = "a key that is left out may have any number of rows"
CHOSEN_STRETCH = "the newest rows that find room were taken, so the stretch depends on the sample"
_SOURCE = "sample of keys"

Hashes = NDArray[np.uint64]


def of_relation(
    columns: tuple[str, ...], hashes: Hashes, level: int, certain: CertainRange | None
) -> Completeness:
    """Return what the rows of a relation at an instant say of those of the exact query.

    Args:
      columns: of the key. hashes: salted, of the key of each row; [rows].
      level: at the instant.
      certain: of the numbers of rows of the keys; None: nothing is.
    """
    share, counts = 2.0**-level, _counts(hashes)
    confidence = 1.0 - (1.0 - CONFIDENCE) / LEVEL_MAX
    found = distinct_by_hash(kept=len(counts), share=share, confidence=confidence)
    keys, reason = _estimate(found), ""
    if level == 0:
        rows = _exact(len(hashes))
    elif certain is None:
        rows, reason = _unbounded(len(hashes) / share), UNKNOWN_KEYS
    elif certain.value_max == 1.0:
        rows = keys
    else:
        rows = _estimate(bounded_key_total(counts, share, certain, confidence=confidence))
    return Completeness(columns, share, None, None, len(hashes), len(counts), rows, keys, reason)


def of_stretch(
    columns: tuple[str, ...], hashes: Hashes, level: int, start_us: int, end_us: int
) -> Completeness:
    """Return the same of rows of a stream, of which the first has start_us and the last end_us.

    level: the highest one of the stretch. Bounds are 'none' unless no key was left out.
    """
    share = 2.0**-level
    kept = hashes[strata_of(hashes) >= level]
    shown = len(_counts(kept))
    rows, keys, reason = _exact(len(hashes)), _exact(shown), ""
    if level:
        rows, keys = _unbounded(len(kept) / share), _unbounded(shown / share)
        reason = CHOSEN_STRETCH
    return Completeness(columns, share, start_us, end_us, len(hashes), shown, rows, keys, reason)


def of_plan(rows_max: int | None, counted: CertainRange | None) -> CertainRange | None:
    """Return what is certain of the rows of each key: by the plan, and by counts of tuples.

    rows_max: of one key, by the plan; None: it bounds none. counted: None: nothing is counted.
    """
    if rows_max is None:
        return counted
    planned = CertainRange(rows_max, rows_max * ROWS_CERTAIN_MAX, ROWS_CERTAIN_MAX)
    if counted is None or rows_max == 1:
        return planned
    value_max = min(rows_max, counted.value_max)
    return CertainRange(value_max, counted.squares_max, counted.total_max)


def _counts(hashes: Hashes) -> NDArray[np.float64]:
    """Return how many rows each key has. Keys are known by a hash of 64 bits."""
    return np.unique(hashes, return_counts=True)[1].astype(np.float64)


def _exact(count: int) -> Estimate:
    return Estimate(count, count, count, 1.0, Bound.EXACT, _SOURCE)


def _unbounded(value: float) -> Estimate:
    return Estimate(value, -np.inf, np.inf, CONFIDENCE, Bound.NONE, _SOURCE)


def _estimate(found: Intervals) -> Estimate:
    value, low, high = (float(each[0]) for each in (found.value, found.low, found.high))
    bound = Bound(int(found.bound[0]))
    confidence = 1.0 if bound is Bound.EXACT else CONFIDENCE
    return Estimate(value, low, high, confidence, bound, _SOURCE)
