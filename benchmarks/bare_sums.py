"""Loops that do the least that sums by group can be: what moments by group are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from benchmarks.summaries import GROUPS, ROWS, rate


@njit(nogil=True)
def _plain(sums: Any, counts: Any, ids: Any, values: Any) -> None:
    for row in range(values.size):
        group = np.uint32(ids[row])
        sums[group] += values[row]
        counts[group] += 1


@njit(nogil=True)
def _compensated(sums: Any, rests: Any, counts: Any, ids: Any, values: Any) -> None:
    """Sums as unevaluated pairs (Knuth, TAOCP 2, 4.2.2, Thm B), as moments have them."""
    for row in range(values.size):
        group, x = np.uint32(ids[row]), values[row]
        before = sums[group]
        total = before + x
        part = total - before
        sums[group] = total
        rests[group] += (before - (total - part)) + (x - part)
        counts[group] += 1


def bare_sums(ids: Any, values: Any) -> str:
    """What count and sum by group take at the least, without extremes, infinities and NaN."""
    sums, rests, counts = np.zeros(GROUPS), np.zeros(GROUPS), np.zeros(GROUPS, np.int64)
    _plain(sums, counts, ids, values)
    _compensated(sums, rests, counts, ids, values)
    plain = rate(lambda: _plain(sums, counts, ids, values), 2 * ROWS, 20)
    exact = rate(lambda: _compensated(sums, rests, counts, ids, values), 2 * ROWS, 20)
    return (
        f"Bare loops over the same {GROUPS:,} groups, which know neither extremes nor infinities "
        f"nor NaN: count and sum {plain:,.0f} M tuples/s, count and compensated sum {exact:,.0f}. "
        "Least and most are two more loads and comparisons of each tuple."
    )
