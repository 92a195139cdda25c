"""Sizes of joins from a uniform sample: products of vectors of counts, near the true ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column, Expression
from shedder.queries.sampling.interval_columns import SOURCE
from shedder.queries.sampling.sampled_query import Sampled
from shedder.streams.frame import Hashes
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.count_vector_products import vector_error
from synopses.intervals.hypergeometric import matching_count
from synopses.model.estimate import Bound, Estimates

_UNREAD = "too little was read: one key may have all that was skipped"

Floats = NDArray[np.float64]


def sampled_join(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """SELF_JOIN_SIZE or JOIN_SIZE of each group; exact when the sample holds all tuples.

    The value is unbiased: a tuple is with itself in the sample with probability n/N, with another
    one with probability n(n - 1) / (N(N - 1)), and matches are scaled by these. The interval is of
    all keys at once, seen or not: a group's counts of the rows read, scaled up, are near its true
    ones in Euclidean distance (`vector_error`), however many keys there are, and the size of a join
    is the product of two such vectors; |<a', b'> - <a, b>| <= |a' - a| |b'| + |a| |b' - b|
    (Cauchy and Schwarz). Half of delta is for how many rows there are, where that is not known.
    """
    assert aggregate.argument is not None, aggregate
    nodes = [aggregate.argument]
    counts = [_counts(sampled, aggregate.argument)]
    if aggregate.function is AggregateFunction.SELF_JOIN_SIZE:
        same = _per_group(sampled, sampled.rows.hashes(aggregate.argument))
    else:
        assert aggregate.second is not None, aggregate
        nodes.append(aggregate.second)
        counts.append(_counts(sampled, aggregate.second))
        same = _alike(sampled, aggregate.argument, aggregate.second)
    groups = sampled.groups.count
    pairs = _products(counts[0], counts[-1], groups)
    if sampled.is_everything:
        return Estimates.exact(pairs, SOURCE)
    share = sampled.read / sampled.population
    of_two = share * (sampled.read - 1) / (sampled.population - 1)
    value = same / share + (np.maximum(pairs - same, 0.0) / of_two if of_two > 0 else 0.0)
    each = split_confidence(confidence, 2 * len(nodes))
    sides = [
        _Side.of(sampled, node, np.sqrt(_products(counted, counted, groups)), each)
        for node, counted in zip(nodes, counts, strict=True)
    ]
    low, high = _self_ends(sides[0], pairs) if len(sides) == 1 else _ends(sides[0], sides[1], pairs)
    return whole_sizes(value, low, np.maximum(low, high), confidence, SOURCE)


def whole_sizes(
    value: Floats, low: Floats, high: Floats, confidence: float, source: str
) -> Estimates:
    """Sizes of joins, one for each group, between whole numbers; no bound where high is inf."""
    low = np.floor(low)
    high = np.maximum(low, np.ceil(high))
    none = ~np.isfinite(high)
    return Estimates(
        np.clip(np.where(np.isnan(value), low, value), low, high),  # Of nothing read: the fewest.
        low,
        high,
        np.where(none, np.uint8(Bound.NONE), np.uint8(Bound.INTERVAL)),
        np.zeros(len(value), np.bool_),
        confidence,
        source,
        _UNREAD if none.any() else "",
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The counts of one column's keys, per group: float64 [groups] each.

    read: values that were read, norm: of the vector of their counts. fewest, most: between how
    many values there are. error: how far the scaled counts are from the true ones.
    """

    read: Floats
    norm: Floats
    fewest: Floats
    most: Floats
    error: Floats

    @classmethod
    def of(cls, sampled: Sampled, node: Expression, norm: Floats, confidence: float) -> _Side:
        """Both the number of values and the error hold with this confidence."""
        read = sampled.per_group(sampled.present_ids(node))
        if sampled.is_whole and isinstance(node, Column):
            fewest = most = np.array([sampled.view.basics[node.name].rows], np.float64)
        else:
            found = matching_count(
                population=sampled.population,
                read=sampled.read,
                matched=read,
                confidence=confidence,
            )
            fewest, most = found.low, found.high
        floats = read.astype(np.float64)
        error = vector_error(floats[None], most[None], confidence=confidence)
        return cls(floats, norm, fewest, most, error)

    @property
    def least(self) -> Floats:
        """The norm of the true counts is not less."""
        scale = self.fewest / np.maximum(self.read, 1.0)
        return np.maximum(self.norm * scale - self.error, 0.0)

    @property
    def scaled(self) -> Floats:
        """The norm of the scaled counts, at most."""
        return self.norm * self.most / np.maximum(self.read, 1.0)


def _self_ends(side: _Side, pairs: Floats) -> tuple[Floats, Floats]:
    """Each skipped value is alike to itself at least, and to no more than all that were read."""
    certain = pairs + side.fewest - side.read, (side.norm + side.most - side.read) ** 2
    high = (side.scaled + side.error) ** 2
    return np.maximum(side.least**2, certain[0]), np.minimum(high, certain[1])


def _ends(left: _Side, right: _Side, pairs: Floats) -> tuple[Floats, Floats]:
    with np.errstate(invalid="ignore"):  # An infinite error of an empty side.
        away = left.error * right.scaled + (left.scaled + left.error) * right.error
    away = np.where(np.isnan(away), np.inf, away)
    read = np.maximum(left.read, 1.0) * np.maximum(right.read, 1.0)
    low = pairs * left.fewest * right.fewest / read - away
    high = pairs * left.most * right.most / read + away
    return np.maximum(low, pairs), np.minimum(high, left.most * right.most)


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
    """Return how many rows of each group have the same value in both."""
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
