"""DISTINCT_BOTH, DISTINCT_ONLY and JACCARD from a sample: two sets, told by conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column, inputs
from shedder.queries.sampling.interval_columns import SOURCE
from shedder.queries.sampling.sampled_distinct import values_max
from shedder.queries.sampling.sampled_query import Sampled
from shedder.streams.frame import Frame
from synopses.intervals.distinct import distinct_by_rows
from synopses.model.estimate import Bound, Estimates
from synopses.theta.set_operations import Compared

_LEFT, _RIGHT = np.uint8(1), np.uint8(2)
_UNSEEN = "no value of either set was seen, and there may be some"


def sampled_sets(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """One estimate per group, from the best sample there is.

    A sample by the hash of the column holds all rows of the values that it holds: they fall into
    the sets as they do in the stream (set_operations.py; its threshold, too, is a boundary that
    only falls). Rows drawn at random show some rows of a value and hide others, see _by_rows.

    Args:
      sampled: the query over the sample.
      aggregate: of one of SET_FUNCTIONS.
      confidence: of each interval, in (0, 1).
    """
    node, view = aggregate.argument, None
    assert node is not None, aggregate
    if isinstance(node, Column) and not sampled.is_everything:
        view = sampled.view.hashed.get(node.name)
    if view is not None:
        frame = sampled.row_filter.rows(view.rows)
        found = _found(sampled, aggregate, frame, sampled.groups.of_rows(frame), view.share)
        return replace(_answer(found, aggregate.function, confidence), source="hash sample")
    found = _found(sampled, aggregate, sampled.rows, sampled.groups.ids, 1.0)
    if sampled.is_everything:
        return replace(_answer(found, aggregate.function, confidence), source=SOURCE)
    half = 1.0 - (1.0 - confidence) / 2.0
    highs = _most(sampled, aggregate, found, values_max(node, sampled), half)
    return _by_rows(found, aggregate.function, highs, confidence)


def _found(
    sampled: Sampled, aggregate: Aggregate, frame: Frame, ids: NDArray[np.int64], share: float
) -> Compared:
    """Return how many values of each group the rows show in both sets, and in one of them."""
    hashes, groups, sides = [], [], []
    for side, node in zip((_LEFT, _RIGHT), inputs(aggregate), strict=True):
        mine = frame.hashes(node)
        owners = ids if mine.rows is None else ids[mine.rows]
        known = owners >= 0
        hashes.append(mine.first[known])
        groups.append(owners[known])
        sides.append(np.full(int(known.sum()), side))
    keys, owners = np.concatenate(hashes), np.concatenate(groups)
    order = np.lexsort((keys, owners))
    keys, owners, labels = keys[order], owners[order], np.concatenate(sides)[order]
    new = np.ones(len(keys), np.bool_)
    new[1:] = (keys[1:] != keys[:-1]) | (owners[1:] != owners[:-1])
    starts = np.flatnonzero(new)
    label = np.bitwise_or.reduceat(labels, starts) if len(starts) else labels
    count = sampled.groups.count
    both, left, right = (
        np.bincount(owners[starts][label == wanted], minlength=count)
        for wanted in (_LEFT | _RIGHT, _LEFT, _RIGHT)
    )
    unknown = np.full(count, -1)
    return Compared(np.full(count, share), both, left, right, unknown, unknown)


def _answer(found: Compared, function: AggregateFunction, confidence: float) -> Estimates:
    match function:
        case AggregateFunction.DISTINCT_BOTH:
            return found.intersection(confidence)
        case AggregateFunction.DISTINCT_ONLY:
            return found.difference(confidence)
        case _:
            return found.jaccard(confidence)


def _most(
    sampled: Sampled, aggregate: Aggregate, found: Compared, most: float, confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The most values that each set can have, as far as is believable."""
    left, right = (
        distinct_by_rows(
            seen=found.both + alone,
            once=0,
            matched=sampled.per_group(sampled.present_ids(node)),
            population=sampled.population,
            read=sampled.read,
            values_max=most,
            confidence=confidence,
        ).high
        for node, alone in zip(inputs(aggregate), (found.left_only, found.right_only), strict=True)
    )
    return left, right


def _by_rows(
    found: Compared,
    function: AggregateFunction,
    highs: tuple[NDArray[np.float64], NDArray[np.float64]],
    confidence: float,
) -> Estimates:
    """What a random part of the rows can say: what was seen in both sets is in both, for certain.

    Of a value that was seen in one set only nothing certain is known of the other; how many more
    there may be, distinct_by_rows says of each set, at delta/2. Values are those of the sample.
    """
    both, either = found.both.astype(np.float64), found.found
    left, right = highs
    null = np.zeros(len(both), np.bool_)
    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    match function:
        case AggregateFunction.DISTINCT_BOTH:
            value, low, high = both, both, np.minimum(left, right)
        case AggregateFunction.DISTINCT_ONLY:
            value, low, high = found.left_only.astype(np.float64), np.zeros(len(both)), left - both
        case _:
            null = either == 0
            value = both / np.maximum(either, 1)
            low = both / np.maximum(left + right - both, 1.0)
            high = np.minimum(np.minimum(left, right) / np.maximum(either, 1), 1.0)
    bound = np.where(null, Bound.NONE, Bound.INTERVAL).astype(np.uint8)
    dtype = np.float64 if function is AggregateFunction.JACCARD else np.int64
    value, low, high = (x.astype(dtype) for x in (np.clip(value, low, high), low, high))
    return Estimates(
        value, low, high, bound, null, confidence, SOURCE, _UNSEEN if null.any() else ""
    )
