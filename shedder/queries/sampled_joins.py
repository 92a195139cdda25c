"""Sizes of joins from a uniform sample: unbiased, without an interval."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expression import Aggregate, AggregateFunction, Expression
from shedder.queries.sampled import Sampled
from shedder.streams.frame import Hashes
from synopses.estimate import Bound, Estimates

_SOURCE = "sample"
_UNBOUNDED = "how far pairs of sampled rows stand for all pairs has no bound that would be useful"


def sampled_join(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """SELF_JOIN_SIZE or JOIN_SIZE of each group; exact when the sample holds all tuples.

    A tuple is with itself in the sample with probability n/N, with another one with probability
    n(n - 1) / (N(N - 1)): matches of a row with itself and of two rows are scaled by these. One
    value that the sample has not seen can hold up to (1 - n/N) N tuples, whose square is of the
    size of everything, so a bound for all streams would say nothing: none.
    """
    assert aggregate.argument is not None, aggregate
    left = _counts(sampled, aggregate.argument)
    if aggregate.function is AggregateFunction.SELF_JOIN_SIZE:
        right, same = left, _per_group(sampled, sampled.rows.hashes(aggregate.argument))
    else:
        assert aggregate.second is not None, aggregate
        right = _counts(sampled, aggregate.second)
        same = _alike(sampled, aggregate.argument, aggregate.second)
    pairs = _products(left, right, sampled.groups.count)
    if sampled.view.is_everything:
        return Estimates.exact(pairs, _SOURCE)
    share = sampled.read / sampled.population
    of_two = share * (sampled.read - 1) / (sampled.population - 1)
    value = same / share + (np.maximum(pairs - same, 0.0) / of_two if of_two > 0 else 0.0)
    groups = value.size
    return Estimates(
        value,
        np.full(groups, -np.inf),
        np.full(groups, np.inf),
        np.full(groups, Bound.NONE, np.uint8),
        np.zeros(groups, np.bool_),
        confidence,
        _SOURCE,
        _UNBOUNDED,
    )


_Counted = tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]


def _ids(sampled: Sampled, hashes: Hashes) -> NDArray[np.int64]:
    return sampled.groups.ids if hashes.rows is None else sampled.groups.ids[hashes.rows]


def _per_group(sampled: Sampled, hashes: Hashes) -> NDArray[np.float64]:
    return sampled.per_group(_ids(sampled, hashes)).astype(np.float64)


def _counts(sampled: Sampled, node: Expression) -> _Counted:
    """Groups, hashes and rows of each value of each group: shapes [values]."""
    hashes = sampled.rows.hashes(node)
    ids = _ids(sampled, hashes)
    order = np.lexsort((hashes.first, ids))
    ids, keys = ids[order], hashes.first[order]
    new = np.ones(ids.size, np.bool_)
    new[1:] = (np.diff(ids) != 0) | (keys[1:] != keys[:-1])
    first = np.flatnonzero(new)
    return ids[first], keys[first], np.diff(np.append(first, ids.size))


def _products(left: _Counted, right: _Counted, groups: int) -> NDArray[np.float64]:
    """Sum over values of rows on the left times rows on the right, per group."""
    ids, keys, rows = (np.concatenate(pair) for pair in zip(left, right, strict=True))
    order = np.lexsort((keys, ids))
    here, there = order[:-1], order[1:]  # A value of both sides stands beside itself.
    both = (ids[here] == ids[there]) & (keys[here] == keys[there])
    products = rows[here[both]].astype(np.float64) * rows[there[both]]
    return np.bincount(ids[here[both]], products, groups).astype(np.float64)


def _alike(sampled: Sampled, first: Expression, second: Expression) -> NDArray[np.float64]:
    """How many rows of each group have the same value in both."""
    sides = []
    for node in (first, second):
        hashes = sampled.rows.hashes(node)
        rows = np.arange(len(sampled.rows)) if hashes.rows is None else hashes.rows
        full, has = np.zeros(len(sampled.rows), np.uint64), np.zeros(len(sampled.rows), np.bool_)
        full[rows], has[rows] = hashes.first, True
        sides.append((full, has))
    (x, has_x), (y, has_y) = sides
    alike = has_x & has_y & (x == y)
    return sampled.per_group(sampled.groups.ids[alike]).astype(np.float64)
