"""Warming: every kernel of the intervals compiled before the first question needs it."""

from __future__ import annotations

import numpy as np

from synopses.bottom_k import BottomK, WeightedBottomK
from synopses.intervals.distinct import distinct_by_hash
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.quantiles import sampled_quantile
from synopses.intervals.ratios import sampled_mean
from synopses.intervals.sampled import SampledValues
from synopses.intervals.totals import sampled_sum
from synopses.intervals.variance import sampled_variance


def compile_kernels() -> None:
    """Ask every question once of a tiny sample: some seconds the first time, then from the cache.

    Call it when an engine opens, so that no answer and no tuple waits for a compiler.
    """
    BottomK(1).update(np.ones(1, np.uint64))
    WeightedBottomK(1).update(np.ones(1), np.full(1, 0.5))
    matching_count(population=9, read=5, matched=2, confidence=0.9)
    distinct_by_hash(kept=2, share=0.5, confidence=0.9)
    sample = SampledValues.by_group(
        np.array([1.0, 3.0]), ids=None, groups=1, population=9, read=5, low=0.0, high=9.0
    )
    sampled_quantile(sample, rank_share=0.5, confidence=0.9)
    for question in (sampled_sum, sampled_mean, sampled_variance):
        question(sample, confidence=0.9)
