"""Inputs of kernels: one form, whatever the caller's arrays are like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.counters.join_size import join_size, self_join_size
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.array_inputs import as_input
from synopses.kernels.hashing import murmur_int64
from synopses.model.errors import BadParameter, CannotMerge, CannotSubtract
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.theta.theta_sketch import GroupedTheta
from tests.laws import Part, Subject
from tests.synopses.subjects import LINEAR, LOSSY, NOT_YET_LOSSY


def test_broadcast_arrays_are_taken_without_a_warning() -> None:
    column, _ = np.broadcast_arrays(np.array([7.0]), np.zeros(1))
    taken = as_input(column, np.float64)
    assert taken.tolist() == [7.0]
    assert not taken.flags.writeable


def test_the_callers_array_stays_writeable() -> None:
    mine = np.arange(3)
    assert not as_input(mine, np.int64).flags.writeable
    mine[0] = 5
    assert mine.tolist() == [5, 1, 2]


# A thinned stream's ids go with the hashes that are let through, so that a bad one may be left out.
KINDS = [each for each in LINEAR + LOSSY + NOT_YET_LOSSY if each.name != "theta, thinned"]
OF_EACH = pytest.mark.parametrize("subject", KINDS, ids=lambda each: each.name)
VALUES = np.array([0.5, 1.25, 7.0, 9.5])
IDS = np.array([0, 1, 1, 0], np.int32)


@OF_EACH
@pytest.mark.parametrize("bad", [-1, 2, 3, 5_000_000, 2**40, -(2**31)])
def test_ids_without_a_group_are_refused_and_change_nothing(subject: Subject, bad: int) -> None:
    summary = subject.of(Part(IDS, VALUES), 2)
    before = subject.state(summary)
    with pytest.raises(BadParameter, match=f"is {bad}, expected"):
        subject.feed(summary, Part(np.array([0, bad, 1, 1]), VALUES))
    assert subject.state(summary) == before


@OF_EACH
@pytest.mark.parametrize("rows", [0, 3, 5])
def test_other_numbers_of_ids_than_of_values_are_refused(subject: Subject, rows: int) -> None:
    with pytest.raises(BadParameter, match=r"shape of ids is \(\d,\), expected \(4,\)"):
        subject.feed(subject.empty(2), Part(np.zeros(rows, np.int32), VALUES))


@OF_EACH
def test_summaries_of_other_kinds_are_not_merged(subject: Subject) -> None:
    summary = subject.empty(1)
    other = GroupedCount(1) if summary.profile is not GroupedCount.profile else GroupedTheta(1)
    with pytest.raises(CannotMerge, match="kind is 'Grouped"):
        summary.merge(other)


LINEAR_INVERSE = [each for each in KINDS if hasattr(each.empty(1), "subtract")]


@pytest.mark.parametrize("subject", LINEAR_INVERSE, ids=lambda each: each.name)
@pytest.mark.parametrize("groups", [2, 3])
def test_what_was_not_put_in_cannot_be_taken_out(subject: Subject, groups: int) -> None:
    summary = subject.of(Part(IDS, VALUES), 2)
    before = subject.state(summary)
    more = Part(np.full(3, groups - 1, np.int32), np.array([-3.0, 100.0, 1e4]))
    with pytest.raises(CannotSubtract, match=f"of group {groups - 1} would be -"):
        summary.subtract(subject.of(more, groups))
    assert subject.state(summary) == before or groups > 2


@pytest.mark.parametrize("subject", LINEAR_INVERSE, ids=lambda each: each.name)
def test_what_was_put_in_can_be_taken_out(subject: Subject) -> None:
    summary = subject.of(Part(IDS, VALUES), 2)
    summary.merge(subject.of(Part(IDS, VALUES * 3), 2)).subtract(subject.of(Part(IDS, VALUES), 2))
    summary.subtract(subject.of(Part(IDS, VALUES * 3), 2)).subtract(subject.empty(2))
    assert subject.state(summary) == subject.state(subject.empty(2))


def test_a_count_min_table_knows_what_it_cannot_hold() -> None:
    large, other = GroupedCountMin(1, 4), GroupedCountMin(1, 4)
    large.update(None, murmur_int64(np.arange(100))[0])
    other.update(None, murmur_int64(np.arange(1000, 1400))[0])
    before = large.to_bytes()
    with pytest.raises(CannotSubtract, match="a counter of group 0 would be -"):
        large.subtract(other)
    few = GroupedCountMin(1, 4)
    few.update(None, murmur_int64(np.arange(3))[0])
    with pytest.raises(CannotSubtract, match="number of keys of group 0 would be -18"):
        few.subtract(large)
    assert large.to_bytes() == before


def test_numbers_that_the_column_has_not_are_refused() -> None:
    with pytest.raises(BadParameter, match="dtype of an array is 'float64', expected int64"):
        GroupedMoments(1, integer=True).update(None, np.array([1.7, np.nan]))
    with pytest.raises(BadParameter, match="dtype of an array is 'object', expected float64"):
        GroupedMoments(1, integer=False).update(None, np.array(["a"], object))
    with pytest.raises(BadParameter, match="a number is 18446744073709551615, expected an int64"):
        as_input(np.array([1, 2**64 - 1], np.uint64), np.int64)
    assert as_input(np.array([1, 2], np.uint64), np.int64).dtype == np.int64
    with pytest.raises(BadParameter, match="n is -1"):
        GroupedCount(1).update(None, -1)


def test_columns_of_pairs_must_be_alike() -> None:
    with pytest.raises(BadParameter, match=r"shape of second is \(3,\), expected \(4,\)"):
        GroupedCrossMoments(1).update(None, VALUES, VALUES[:3])
    with pytest.raises(BadParameter, match=r"shape of h2 is \(1,\), expected \(2,\)"):
        GroupedDistinct(1).update(None, np.zeros(2, np.uint64), np.zeros(1, np.uint64))
    with pytest.raises(BadParameter, match=r"shape of positions is"):
        GroupedFirstLast(1, integer=False).update(None, np.arange(4), np.arange(5), VALUES)


def test_weights_that_no_total_holds_are_refused() -> None:
    values, weights = np.arange(2), np.full(2, 2**61)
    frequent = GroupedFrequent(1, 16)
    frequent.update(None, murmur_int64(values)[0], values, weights)
    before = frequent.to_bytes()
    with pytest.raises(BadParameter, match=r"total of the weights is 1.38"):
        frequent.update(None, murmur_int64(values)[0], values, 2 * weights)
    with pytest.raises(BadParameter, match=r"total of the weights is 9.22"):
        frequent.merge(frequent.select(np.zeros(1, np.int64)))
    assert frequent.to_bytes() == before
    with pytest.raises(BadParameter, match="shape of weights"):
        frequent.update(None, murmur_int64(values)[0], values, weights[:1])


@pytest.mark.parametrize("confidence", [0.0, 1.0, 2.0, 95, -0.5, float("nan")])
@pytest.mark.parametrize("rows", [3, 9999])
def test_confidences_outside_their_range_are_refused(confidence: float, rows: int) -> None:
    hashes = murmur_int64(np.arange(rows))
    counts, signed = GroupedCountMin(1, 5), GroupedCountSketch(1, 5)
    distinct, theta = GroupedDistinct(1), GroupedTheta(1, lg_k=5)
    for summary in (counts, signed, theta):
        summary.update(None, hashes[0])
    distinct.update(None, *hashes)
    questions: list[Callable[[], Any]] = [
        lambda: counts.count(hashes[0], confidence),
        lambda: signed.count(hashes[0], confidence),
        lambda: signed.second_moment(confidence),
        lambda: signed.inner_product(signed, confidence),
        lambda: self_join_size(counts, confidence),
        lambda: join_size(counts, counts, confidence),
        lambda: distinct.distinct(confidence),
        lambda: theta.distinct(confidence),
    ]
    for question in questions:
        with pytest.raises(BadParameter, match=f"confidence is {confidence}"):
            question()


def test_a_column_of_two_axes_is_refused() -> None:
    for summary in (GroupedLogBuckets(1), GroupedKll(1), GroupedMoments(1, False, True)):
        with pytest.raises(BadParameter, match=r"shape of a column is \(2, 3\), expected one axis"):
            summary.update(None, np.ones((2, 3)))
