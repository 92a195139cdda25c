"""TOP and FREQUENT from a uniform sample: counts that hold for all values at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate
from shedder.queries.sampling.interval_columns import SOURCE
from shedder.queries.sampling.sampled_counts import count_rows
from shedder.queries.sampling.sampled_query import Sampled
from shedder.queries.sampling.sampled_rows import ValueCounts
from synopses.frequent.heavy_share import Promise, choose, reason_of
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.unseen_groups import missing_group_rows
from synopses.model.estimate import Bound, Estimates, TopItem


def sampled_list(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """The list of an aggregate of LISTS, from a sample that is no stratified one."""
    node, population, read = aggregate.argument, sampled.population, sampled.read
    assert node is not None, aggregate
    assert aggregate.parameter is not None, aggregate
    assert isinstance(population, int), "strata are not asked for lists"
    assert isinstance(read, int), "strata are not asked for lists"
    values, pairs = sampled.rows.evaluate(node), sampled.value_counts(node)
    known = {"population": population, "read": read}
    if aggregate.promise is None:
        groups, k = sampled.groups.count, int(aggregate.parameter)
        return sampled_top(values, pairs, k=k, groups=groups, confidence=confidence, **known)
    return sampled_frequent(
        values,
        pairs,
        share=aggregate.parameter,
        promise=aggregate.promise,
        totals=count_rows(sampled, node, split_confidence(confidence, 2)),
        confidence=confidence,
        **known,
    )


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
    counts = _Counts.of(pairs.rows, population, read, confidence)
    lists = np.empty(groups, object)
    order = np.lexsort((pairs.row, -pairs.rows, pairs.group))
    starts = np.searchsorted(pairs.group[order], np.arange(groups + 1))
    stored = _stored(values)
    for group in range(groups):
        chosen = order[starts[group] : starts[group + 1]]
        outside = max([counts.least, *counts.high[chosen[k:]]])
        lists[group] = [
            counts.item(stored, pairs, at, sure=everything or counts.low[at] >= outside)
            for at in chosen[:k].tolist()
        ]
    bound = np.full(groups, Bound.EXACT if everything else Bound.INTERVAL, np.uint8)
    null: NDArray[np.bool_] = np.zeros(groups, np.bool_)
    return Estimates(lists, lists, lists, bound, null, confidence, SOURCE)


def sampled_frequent(
    values: pa.Array[Any],
    pairs: ValueCounts,
    *,
    share: float,
    promise: Promise,
    totals: Estimates,
    population: int,
    read: int,
    confidence: float,
) -> Estimates:
    """The values that make up a share of their group.

    Args:
      values, pairs, population, read: as above.
      share, promise: as in `synopses.frequent.heavy_share.choose`.
      totals: how many values each group has, at half of the confidence's delta or certain.
      confidence: of each list; its counts are asked at half of delta.

    Returns:
      Lists of TopItem, most frequent first; exact when everything was read.
    """
    groups = len(totals)
    counts = _Counts.of(pairs.rows, population, read, split_confidence(confidence, 2))
    ends = [np.asarray(each, np.float64) for each in (totals.low, totals.high)]
    least, most = np.floor(ends[0]), np.ceil(np.minimum(ends[1], population))
    outside = np.full(groups, counts.least)
    chosen = choose(
        pairs.group,
        _whole(counts.low),
        _whole(counts.high),
        outside=_whole(outside),
        totals=(_whole(least), _whole(most)),
        share=share,
        promise=promise,
    )
    lists = np.empty(groups, object)
    lists[:] = [[] for _ in range(groups)]
    stored = _stored(values)
    order = np.lexsort((pairs.row[chosen.rows], -pairs.rows[chosen.rows]))
    for at, sure in zip(chosen.rows[order].tolist(), chosen.sure[order].tolist(), strict=True):
        lists[pairs.group[at]].append(counts.item(stored, pairs, at, sure=sure))
    null: NDArray[np.bool_] = np.zeros(groups, np.bool_)
    reason = reason_of(chosen.bound, share)
    return Estimates(lists, lists, lists, chosen.bound, null, confidence, SOURCE, reason)


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """How often each sampled value occurs in all, with ends that hold for all values at once.

    value, low, high: float64 [pairs]. least: an unseen value has no more.
    """

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    least: float

    @classmethod
    def of(cls, rows: NDArray[np.int64], population: int, read: int, confidence: float) -> Self:
        """From the rows that were seen of each, by the argument in `sampled_top`."""
        counts = rows.astype(np.float64)
        if read == population:
            return cls(counts, counts, counts, 0.0)
        half = 1 - (1 - confidence) / 2
        least = missing_group_rows(population=population, read=read, confidence=half) + 1.0
        each = 1 - (1 - half) * least / population
        found = matching_count(population=population, read=read, matched=counts, confidence=each)
        low = np.where(found.low >= least, found.low, counts)
        high = np.maximum(found.high, least)
        return cls(np.clip(np.rint(found.value), low, high), low, high, least)

    def item(self, stored: pa.Array[Any], pairs: ValueCounts, at: int, *, sure: bool) -> TopItem:
        """The value of a pair as a list holds it."""
        value = stored[int(pairs.row[at])].as_py()
        count, low, high = (int(column[at]) for column in (self.value, self.low, self.high))
        return TopItem(value, count, low, high, bool(sure))


def _whole(ends: NDArray[np.float64]) -> NDArray[np.int64]:
    return ends.astype(np.int64)


def _stored(values: pa.Array[Any]) -> pa.Array[Any]:
    """As TopItem holds them: microseconds and days for TIMESTAMP and DATE."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values
