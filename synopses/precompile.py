"""Compile every kernel before the first tuple comes.

Kernels are compiled for the types they are called with, and kept on disk; what is in the cache
loads in milliseconds. The calls below are those that the engine makes, with arrays of a few rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.counters.hybrid_counters import LG_WIDTH_MIN
from synopses.counters.join_size import join_size, self_join_size
from synopses.frequent.batch_kernels import BATCH_MIN
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.dense_range import ROWS_MIN
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.intervals.covariance import sampled_correlation
from synopses.intervals.distinct import distinct_by_hash, distinct_by_rows
from synopses.intervals.from_moments import chernoff
from synopses.intervals.hypergeometric import matching_count, seen_count
from synopses.intervals.means import sampled_mean
from synopses.intervals.quantiles import sampled_quantile
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sampled_pairs import SampledPairs
from synopses.intervals.sums import sampled_sum
from synopses.intervals.variance import sampled_deviation, sampled_variance
from synopses.joins.join_totals import JoinTotals
from synopses.joins.joined_windows import JoinedWindows
from synopses.joins.pane_counts import PaneCounts, PaneRoom
from synopses.kernels.array_inputs import as_input
from synopses.kernels.group_table import GroupTable
from synopses.kernels.grouped_arrays import place_new, united
from synopses.kernels.hashing import (
    chosen_keys,
    combine,
    murmur_float64,
    murmur_int64,
    murmur_utf8,
    position_keys,
    position_start,
    salted,
    uniforms,
)
from synopses.kernels.radix_sort import distinct_pairs, sorted_floats
from synopses.kernels.small_integer_keys import SmallKeys
from synopses.model.resizing import Resizable
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.dense_moments import ROWS_MIN as PLAIN_MIN
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.samples.admission_kernels import (
    below,
    few_at_least,
    few_outside,
    parted,
    united_rows,
)
from synopses.samples.bottom_k import BottomK, WeightedBottomK
from synopses.samples.diagonal_kernels import pairs_beyond
from synopses.samples.random_partition import (
    block_sizes,
    deal,
    left_out,
    move,
    move_texts,
    number,
    places,
    undealt,
)
from synopses.samples.stratified_sample import StratifiedBottomK
from synopses.strata.joint_counts import joint_count
from synopses.strata.joint_ranks import joint_ranks
from synopses.strata.moment_bets import ratio_ends
from synopses.strata.stratified_bets import learned_total
from synopses.strata.stratum import Stratum
from synopses.strata.variance_moment_bets import StrataMoments, largest_mean, least_mean
from synopses.theta.theta_sketch import GroupedTheta

_ROWS = 100


def compile_kernels() -> None:
    """Compile (or load from the cache) all that updating, merging, asking and storing run."""
    ids = np.zeros(_ROWS, np.int32)
    keys = position_keys(0, 0, _ROWS)
    values = np.arange(1.0, _ROWS + 1)
    h1, h2 = murmur_float64(values)
    murmur_int64(np.arange(_ROWS))
    murmur_utf8(np.array([0, 1], np.int32), np.zeros(1, np.uint8))
    distinct_pairs(np.arange(_ROWS), np.zeros(_ROWS, np.uint16))
    sorted_floats(values)
    table = GroupTable(_ROWS)
    table.assign(combine(keys, h1))
    _exercise(table)
    _deal()
    _exercise(StratifiedBottomK(1, 1))
    StratifiedBottomK(1, 1).update(ids, position_start(0, 0))
    _fill_pages()
    many = GroupedDistinct(_ROWS, 7)  # Their coupons need a larger arena.
    many.update(np.arange(_ROWS, dtype=np.int32), h1, h2)
    _merge(many)
    dense = GroupedDistinct(1, 7)
    for _ in range(2):
        dense.update(ids, h1, h2)
    _look_up_keys(ids, keys, values)
    for grouped in (ids, None):
        for summary, columns in (
            (GroupedCount(1), (_ROWS,)),
            (GroupedMoments(1, integer=False, variance=True), (values,)),
            (GroupedMoments(1, integer=True, variance=True), (np.arange(_ROWS),)),
            (GroupedCrossMoments(1), (values, values)),
            (GroupedFirstLast(1, integer=False), (np.arange(_ROWS), np.arange(_ROWS), values)),
            (GroupedLogBuckets(1), (values,)),
            (GroupedDistinct(1, 7), (h1, h2)),
            (GroupedTheta(1, 5), (h1,)),
            (GroupedFrequent(1, 8), (keys, np.arange(_ROWS))),
            (GroupedCountMin(1, LG_WIDTH_MIN), (keys,)),
            (GroupedKll(1, 8), (values,)),
        ):
            summary.update(grouped, *columns)
            _exercise(summary)
            _merge(summary)
    pairs = GroupedCrossMoments(1), GroupedCrossMoments(1)
    pairs[0].update_with_squares(pairs[1], np.ones(4), ids, values, values)
    _count(keys)
    _join_panes(keys)
    many_rows = np.zeros(PLAIN_MIN, np.int32)
    GroupedMoments(1, integer=False).update(many_rows, np.ones(many_rows.size))


def _join_panes(keys: NDArray[np.uint64]) -> None:
    """What panes of a join run."""
    secrets = keys[:2].copy()
    pane = PaneCounts(PaneRoom(heavy=2, keys=1, buckets=4), secrets, keys[:2].copy())
    pane.update(keys)
    pane.holds(keys)
    pane.shrink(PaneRoom(heavy=1, keys=1, buckets=4))
    closed = [pane.closed()]
    JoinTotals(JoinedWindows([closed, closed], secrets)).pairs(confidence=0.95)


def _count(keys: NDArray[np.uint64]) -> None:
    """What only a group that is large from the start, or small for good, runs."""
    for kind in (GroupedCountMin, GroupedCountSketch):
        summary: Any = kind(1, LG_WIDTH_MIN)
        summary.update(None, keys)
        summary.update(None, keys)
        summary.count(keys, 0.95)
        summary.subtract(kind(1, LG_WIDTH_MIN))
    batch = np.arange(2 * BATCH_MIN)
    GroupedFrequent(1, 8).update(None, murmur_int64(batch)[0], batch)
    small = GroupedCountMin(1, 8)
    small.update(None, keys)
    self_join_size(small, 0.95)
    join_size(GroupedCountMin(1, 8), small, 0.95)


def _fill_pages() -> None:
    """Log buckets of many values, of one group and of several."""
    values = np.geomspace(1.0, 1e3, 20 * _ROWS)  # More than are counted one by one.
    ids = np.zeros(values.size, np.int32)
    one, many = GroupedLogBuckets(1), GroupedLogBuckets(2)
    for _ in range(2):
        one.update(None, values)
        many.update(ids, values)
    one.merge(many).subtract(many)
    many.merge(one).quantile(0.5)
    rows = np.arange(64 * values.size, dtype=np.int32)
    for groups in (4, 80):  # Of many groups the first batch says where their counters will be.
        runs = GroupedLogBuckets(groups)
        for _ in range(2):
            runs.update(rows % groups, np.tile(values, 64))
    GroupedLogBuckets(1).update(None, np.ones(ROWS_MIN))
    few = GroupedLogBuckets(_ROWS)
    few.update(np.arange(_ROWS, dtype=np.int32), values[:_ROWS])


def _look_up_keys(
    ids: NDArray[np.int32], keys: NDArray[np.uint64], values: NDArray[np.float64]
) -> None:
    """What finds the rows that enter samples, and the groups of small integers."""
    held = as_input(salted(keys, np.uint64(0)), np.uint64)
    chosen_keys(position_start(0, 0), below(held, np.uint64(0)))
    few_at_least(as_input(values, np.float64), 1.0, held, 1.0)
    few_outside(as_input(values, np.float64), 0.0, 1.0)
    few_outside(as_input(np.arange(_ROWS), np.int64), 0.0, 1.0)
    pair = as_input(values, np.float64)
    pairs_beyond(pair, pair, np.ones(4), np.ones(4))
    parted(np.arange(_ROWS), np.arange(_ROWS))
    united_rows(np.arange(_ROWS), np.arange(_ROWS))
    BottomK(1).update(keys)
    WeightedBottomK(1).update(values, uniforms(keys))
    small = SmallKeys()
    small.learn(np.arange(_ROWS), ids)
    small.ids(np.arange(_ROWS))
    united(ids[:1], ids[:1])
    place_new(np.full(1, -1, np.int32), ids, 0)


def _exercise(summary: Any) -> None:
    type(summary).from_bytes(summary.to_bytes())


def _merge(summary: Any) -> None:
    type(summary).from_bytes(summary.to_bytes()).merge(summary)
    one = summary.select(np.zeros(1, np.int64))
    one.scatter(np.zeros(1, np.int64), summary.groups + 1).merge(summary)
    if isinstance(summary, Resizable):
        summary.resize(summary.size)
    if isinstance(summary, GroupedDistinct):
        summary.distinct(0.95)
    if isinstance(summary, GroupedTheta):
        summary.thin(1)


def _deal() -> None:
    sizes = block_sizes(_ROWS, 3)
    dealt = deal(0, 0, sizes)
    to = places(dealt, None, sizes)
    places(dealt, np.arange(_ROWS), sizes)
    undealt(np.arange(_ROWS), 0, _ROWS)
    number(0, to, np.empty(_ROWS, np.int64))
    left_out(np.zeros(1, np.uint64), sizes[:1], np.ones(1, np.int64))
    for width in (1, 4, 8):
        values = np.zeros(_ROWS, f"u{width}")
        move(values, to, np.empty_like(values))
    ends = np.arange(_ROWS + 1)
    move_texts(
        ends.astype(np.int32), np.zeros(_ROWS, np.uint8), to, ends, np.empty(_ROWS, np.uint8)
    )


def compile_question_kernels() -> None:
    """Compile (or load from the cache) what intervals of sampled answers run."""
    values = np.geomspace(1.0, 1e6, _ROWS)  # Skewed: nothing here is certified normal.
    size, read = 100 * _ROWS, 2 * _ROWS
    for ids in (None, (np.arange(_ROWS) % 2).astype(np.int32)):
        sample = SampledValues.by_group(
            values, ids=ids, groups=2, population=size, read=read, low=0.0, high=1e9
        )
        for question in (sampled_sum, sampled_mean, sampled_variance, sampled_deviation):
            question(sample, confidence=0.95)
        sampled_quantile(sample, rank_share=0.5, confidence=0.95)
        sampled_correlation(SampledPairs(sample, sample), confidence=0.95)
    chernoff(np.linspace(0.0, 1.0, 5), np.full(5, 9.0), tail=0.05)
    one = np.ones((1, 1, _ROWS))
    moments = StrataMoments(
        np.ones((2, 1, _ROWS)), np.full(1, 2.0), one[0], one, one, 0.0 * one, 9.0 * one
    )
    largest_mean(moments, 9.0, 9.0 * one[0, 0], tail=0.05)
    least_mean(moments, 0.0 * one[0, 0], 0.05)
    matching_count(population=size, read=read, matched=_ROWS, confidence=0.95)
    sizes, reads = np.full(2, float(size)), np.full(2, float(read))
    joint_count(sizes, reads, np.full((2, 1), float(_ROWS)), confidence=0.95)
    joint_ranks(
        sizes, reads, starts=np.array([0, 1]), below=np.full((2, 1), float(_ROWS)),
        rank_share=0.5, confidence=0.95,
    )  # fmt: skip
    stratum = Stratum(size, read, np.array([_ROWS]), sizes[:1], reads[:1], 0.0, 1e9, whole=False)
    ratio_ends([stratum], delta=0.05)
    wanted = np.ones(sample.groups, np.bool_)
    learned_total([stratum, stratum], [sample, sample], wanted=wanted, delta=0.05)
    seen_count(population=size, read=read, matched=_ROWS, confidence=0.95)
    distinct_by_hash(kept=_ROWS, share=0.5, confidence=0.95)
    distinct_by_rows(seen=9, once=3, matched=_ROWS, population=size, read=read, confidence=0.95)


if __name__ == "__main__":
    compile_kernels()
    compile_question_kernels()
