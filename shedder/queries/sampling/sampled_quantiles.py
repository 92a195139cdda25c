"""Quantiles from a sample, and how far in rank they may lie from the share that was asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from shedder.cql.expressions.expression import Aggregate
from shedder.queries.sampling.anchored_values import RankedValues, is_beyond_doubles
from shedder.queries.sampling.interval_columns import as_estimates
from shedder.queries.sampling.sampled_query import Sampled
from synopses.intervals.quantiles import sampled_quantile
from synopses.model.estimate import Estimates


def sampled_ranks(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """Estimate the discrete quantile of each group."""
    node, share = aggregate.argument, aggregate.parameter
    assert node is not None, aggregate
    assert share is not None, aggregate
    if not is_beyond_doubles(sampled, node):
        values = sampled.values(node, finite=False)
        intervals = sampled_quantile(values, rank_share=share, confidence=confidence)
        return as_estimates(intervals, confidence)
    ranked = RankedValues.of(sampled, node)
    intervals = sampled_quantile(ranked.sample, rank_share=share, confidence=confidence)
    found = as_estimates(intervals, confidence)
    value, low, high = (
        ranked.valued(part) for part in (intervals.value, intervals.low, intervals.high)
    )
    return replace(found, value=value, low=low, high=high)


def rank_error(sampled: Sampled, aggregate: Aggregate, confidence: float) -> NDArray[np.float64]:
    """Return how far in rank the sampled quantile may lie from q, as a fraction, per group.

    The rank of the r-th smallest of m values drawn at random is Beta(r, m - r + 1).
    Source: David & Nagaraja 2003, Order Statistics, 2.1.
    """
    assert aggregate.argument is not None, aggregate
    assert aggregate.parameter is not None, aggregate
    rows = sampled.per_group(sampled.present_ids(aggregate.argument))
    share, tail = aggregate.parameter, (1 - confidence) / 2
    rank = np.clip(np.ceil(share * rows), 1, np.maximum(rows, 1))
    low, high = (betaincinv(rank, np.maximum(rows, 1) - rank + 1, x) for x in (tail, 1 - tail))
    return np.where(rows > 0, np.maximum(share - low, high - share), 1.0)
