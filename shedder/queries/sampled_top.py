"""TOP from a uniform sample: counts that hold for all values at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.queries.sampled_rows import ValueCounts
from synopses.estimate import Bound, Estimates, TopItem
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.missing import missing_group_rows

_SOURCE = "sample"


def sampled_top(
    values: pa.Array[Any],
    pairs: ValueCounts,
    *,
    k: int,
    groups: int,
    population: int,
    read: int,
    confidence: float,
) -> Estimates:
    """The k most frequent sampled values of each group, with bounds for their counts.

    A list is chosen by looking at all values, so its bounds must hold for all values at once.
    Let g be the size from which no value can be missing (missing_group_rows at delta/2). At most
    N/g values have g rows or more, so asking each count at delta/2 * g/N covers all of them by the
    union bound. A value of K < g rows fails only when its low end comes out above K; a low end of
    g or more has, for it, at most K/g times the probability it has for g rows (the tail of a
    count grows faster than linearly below its quantile), and the K sum up to N at most. So low
    ends under g are replaced by the rows that were seen, which is certain, and high ends are at
    least g.

    Args:
      values: [matches], the rows' values. pairs: their distinct values per group.
      k: the length of the lists. groups: how many there are.
      population, read: N and n of the sample. confidence: of each list.

    Returns:
      Lists of TopItem, most frequent first; exact when everything was read.
    """
    everything = read == population
    counts = pairs.rows.astype(np.float64)
    low = high = value = counts
    least = 0.0
    if not everything:
        half = 1 - (1 - confidence) / 2
        least = missing_group_rows(population=population, read=read, confidence=half) + 1.0
        each = 1 - (1 - half) * least / population
        found = matching_count(population=population, read=read, matched=counts, confidence=each)
        low = np.where(found.low >= least, found.low, counts)
        high = np.maximum(found.high, least)
        value = np.clip(np.rint(found.value), low, high)
    lists = np.empty(groups, object)
    order = np.lexsort((pairs.row, -pairs.rows, pairs.group))
    starts = np.searchsorted(pairs.group[order], np.arange(groups + 1))
    stored = _stored(values)
    for group in range(groups):
        chosen = order[starts[group] : starts[group + 1]]
        outside = least if len(chosen) <= k else max(least, high[chosen[k:]].max())
        lists[group] = [
            TopItem(
                stored[int(pairs.row[at])].as_py(),
                int(value[at]),
                int(low[at]),
                int(high[at]),
                everything or bool(low[at] >= outside),
            )
            for at in chosen[:k]
        ]
    bound = np.full(groups, Bound.EXACT if everything else Bound.INTERVAL, np.uint8)
    null: NDArray[np.bool_] = np.zeros(groups, np.bool_)
    return Estimates(lists, lists, lists, bound, null, confidence, _SOURCE)


def _stored(values: pa.Array[Any]) -> pa.Array[Any]:
    """As TopItem holds them: microseconds and days for TIMESTAMP and DATE."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values
