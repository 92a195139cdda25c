"""Compile every kernel before the first tuple comes.

Kernels are compiled for the types they are called with, and kept on disk; what is in the cache
loads in milliseconds. Each call below is one that the hot path makes, with arrays of a few rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from synopses.counts import GroupedCount
from synopses.distinct import GroupedDistinct
from synopses.frequent import GroupedFrequent
from synopses.group_table import GroupTable
from synopses.hashing import combine, murmur_float64, murmur_int64, murmur_utf8, position_keys
from synopses.log_buckets import GroupedLogBuckets
from synopses.moments import GroupedMoments

_ROWS = 100


def compile_kernels() -> None:
    """Compile (or load from the cache) all that updating, merging, asking and storing run."""
    ids = np.zeros(_ROWS, np.int32)
    keys = position_keys(0, 0, _ROWS)
    values = np.arange(1.0, _ROWS + 1)
    h1, h2 = murmur_float64(values)
    murmur_int64(np.arange(_ROWS))
    murmur_utf8(np.array([0, 1], np.int32), np.zeros(1, np.uint8))
    table = GroupTable(_ROWS)
    table.assign(combine(keys, h1))
    _exercise(table)
    for grouped in (ids, None):
        for summary, columns in (
            (GroupedCount(1), (_ROWS,)),
            (GroupedMoments(1, integer=False, variance=True), (values,)),
            (GroupedMoments(1, integer=True, variance=True), (np.arange(_ROWS),)),
            (GroupedLogBuckets(1), (values,)),
            (GroupedDistinct(1, 7), (h1, h2)),
            (GroupedFrequent(1, 8), (keys, np.arange(_ROWS))),
        ):
            summary.update(grouped, *columns)
            _exercise(summary)
            _merge(summary)


def _exercise(summary: Any) -> None:
    type(summary).from_bytes(summary.to_bytes())


def _merge(summary: Any) -> None:
    type(summary).from_bytes(summary.to_bytes()).merge(summary)
    summary.select(np.zeros(1, np.int64)).scatter(np.zeros(1, np.int64), 2).merge(summary)
    if isinstance(summary, GroupedDistinct):
        summary.distinct(0.95)
