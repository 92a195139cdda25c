"""Moments and counts against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.model.estimate import Bound
from synopses.moments import moment_kernels as kernels
from synopses.moments.counts import GroupedCount
from synopses.moments.moments import GroupedMoments
from tests import truth

INT64 = st.integers(-(2**63), 2**63 - 1)


def of_doubles(values: list[float]) -> GroupedMoments:
    moments = GroupedMoments(1, integer=False, variance=True)
    moments.update(None, np.array(values, np.float64))
    return moments


@given(values=st.lists(INT64, min_size=1, max_size=50))
def test_integer_sums_are_exact_or_null(values: list[int]) -> None:
    moments = GroupedMoments(1, integer=True)
    moments.update(None, np.array(values, np.int64))
    answer, exact = moments.sum(), sum(values)
    assert bool(answer.null[0]) == (not -(2**63) <= exact < 2**63)
    if not answer.null[0]:
        assert answer.value[0] == exact
    else:
        assert answer.reason == "the sum is over int64"
    mean = Fraction(exact, len(values))
    assert moments.mean().value[0] == pytest.approx(float(mean), rel=1e-12)
    assert moments.minimum().value[0] == min(values)
    assert moments.maximum().value[0] == max(values)


@pytest.mark.parametrize("distribution", truth.distributions())
def test_sums_of_doubles_are_those_of_fsum(distribution: str) -> None:
    values = truth.draw(distribution, 1, 20_000)
    moments = of_doubles(values.tolist())
    assert moments.sum().value[0] == pytest.approx(truth.exact_sum(values), rel=1e-15)
    assert moments.mean().value[0] == pytest.approx(truth.exact_sum(values) / 20_000, rel=1e-15)


def test_what_cancels_leaves_no_rounding_behind() -> None:
    values = [1e16, 1.0, -1e16, 1e-3] * 1000
    assert of_doubles(values).sum().value[0] == pytest.approx(1001.0, rel=1e-12)


@pytest.mark.parametrize("rows", [255, 256, 257, 1000])
@pytest.mark.parametrize("odd", [None, np.nan, np.inf, -np.inf, 1.7e308])
def test_one_group_at_once_is_as_a_value_at_a_time(rows: int, odd: float | None) -> None:
    """Long batches are added side by side; alternating signs would overflow so, and do not."""
    values = truth.draw("lognormal-1", 3, rows)
    if odd is not None:
        values[rows // 3 :: 2] = odd
        values[rows // 3 + 1 :: 2] = -odd
    at_once, singly = (GroupedMoments(1, integer=False) for _ in range(2))
    at_once.update(None, values)
    for value in values:
        singly.update(None, np.array([value]))
    for question in ("count", "minimum", "maximum", "mean"):
        one, other = getattr(at_once, question)(), getattr(singly, question)()
        assert (one.null[0], one.value[0]) == (
            other.null[0],
            pytest.approx(other.value[0], nan_ok=True),
        )
    one, other = at_once.sum(), singly.sum()
    assert one.null[0] == other.null[0]
    if not one.null[0]:
        assert one.value[0] == pytest.approx(other.value[0], rel=1e-15)


ODD = {"nothing": [], "negative": [-1.5], "zeros": [-0.0, 0.0], "absent": [np.nan]}
ODD |= {"infinite": [np.inf, -np.inf], "infinite above": [np.inf], "extreme": [1.7e308, 5e-324]}
ODD["both signs"] = (-np.geomspace(1e-6, 1e6, 900)).tolist()


@pytest.mark.parametrize("groups", [5, 100])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("distribution", ["lognormal-2", "pareto", "constant"])
def test_many_rows_of_groups_at_once_are_as_few_at_a_time(
    distribution: str, odd: str, groups: int
) -> None:
    """Finite values are added by a shorter way, and positive ones; others are found afterwards."""
    rows = 12_000
    rng = np.random.default_rng(len(odd))
    values = np.abs(truth.draw(distribution, 4, rows)) * 10.0 ** rng.integers(-9, 9, rows)
    for value in ODD[odd]:
        values[rng.integers(rows // 2, rows, 3)] = value
    ids = rng.integers(0, groups, rows).astype(np.int32)
    at_once, by_few = (GroupedMoments(groups, integer=False) for _ in range(2))
    for batch in np.split(np.arange(rows), 3):
        at_once.update(ids[batch], values[batch])
        for few in np.array_split(batch, 400):
            by_few.update(ids[few], values[few])
    assert at_once.to_bytes() == by_few.to_bytes()
    for group in range(groups):
        mine = values[ids == group]
        assert at_once.counts()[group] == np.count_nonzero(~np.isnan(mine))
        if not odd.startswith(("inf", "ext", "abs")):
            exact = truth.exact_sum(mine)
            assert at_once.sum().value[group] == pytest.approx(exact, rel=2e-16, abs=0)


@pytest.mark.parametrize("groups", [3, 80])
@pytest.mark.parametrize("first", [1.0, np.nan, -1.0])
def test_one_bad_id_among_many_rows_is_refused_and_changes_nothing(
    groups: int, first: float
) -> None:
    ids, values = np.arange(2000, dtype=np.int32) % groups, np.full(2000, first)
    moments = GroupedMoments(groups, integer=False)
    moments.update(ids, values)
    before = moments.to_bytes()
    for bad in (groups, -1):
        ids[-1] = bad
        with pytest.raises(BadParameter, match=f"group id is {bad}, expected 0 to {groups - 1}"):
            moments.update(ids, values)
        with pytest.raises(BadParameter, match=r"shape of ids"):
            moments.update(ids[1:], values)
    assert moments.to_bytes() == before


@pytest.mark.parametrize("distribution", truth.distributions())
@pytest.mark.parametrize("shift", [0.0, 1e9])
def test_variances_by_group_are_those_of_two_passes(distribution: str, shift: float) -> None:
    values = truth.draw(distribution, 2, 5000) + shift
    ids = np.random.default_rng(2).integers(0, 7, 5000).astype(np.int32)
    moments = GroupedMoments(7, integer=False, variance=True)
    for start in range(0, 5000, 613):
        moments.update(ids[start : start + 613], values[start : start + 613])
    exact = [group.var(ddof=1) for group in truth.by_group(ids, values, 7)]
    np.testing.assert_allclose(moments.variance().value, exact, rtol=1e-9)
    np.testing.assert_allclose(moments.deviation().value, np.sqrt(exact), rtol=1e-9)


@pytest.mark.parametrize(
    "values",
    [
        [2**60, 2**60 + 1, 2**60 + 600],
        [-(2**62) - 1, -(2**62) - 3],
        [2**63 - 1, 2**63 - 2, 2**63 - 1],
        [-(2**63), 2**63 - 1, 7],
        [5, 2**53 + 1, 2**53 + 2],
        list(range(1_700_000_000_123_456_789, 1_700_000_000_123_457_789)),
    ],
)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("grouped", [True, False])
def test_variances_of_integers_beyond_2_to_53_tell_neighbours_apart(
    values: list[int], parts: int, grouped: bool
) -> None:
    moments = GroupedMoments(2, integer=True, variance=True)
    for part in range(parts):
        more = GroupedMoments(2, integer=True, variance=True)
        column = np.array(values[part::parts], np.int64)
        more.update(np.zeros(column.size, np.int32) if grouped else None, column)
        moments.merge(more)
    mean = Fraction(sum(values), len(values))
    exact = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    answer = moments.variance()
    assert answer.bound[0] == Bound.EXACT
    assert answer.value[0] == pytest.approx(float(exact), rel=1e-12)


def test_infinities_are_values_and_both_signs_have_no_sum() -> None:
    one = of_doubles([1.0, np.inf])
    assert one.sum().value[0] == np.inf
    assert one.maximum().value[0] == np.inf
    assert one.minimum().value[0] == 1.0
    assert one.count().value[0] == 2
    assert one.variance().null[0]
    both = of_doubles([np.inf, 1.0, -np.inf])
    assert both.sum().null[0]
    assert both.mean().null[0]
    assert (both.minimum().value[0], both.maximum().value[0]) == (-np.inf, np.inf)


def test_nan_is_taken_for_absent() -> None:
    moments = of_doubles([np.nan, 2.0, np.nan, 4.0])
    assert moments.count().value[0] == 2
    assert moments.sum().value[0] == 6.0
    assert moments.variance().value[0] == 2.0
    assert (moments.minimum().value[0], moments.maximum().value[0]) == (2.0, 4.0)


def test_nothing_has_a_count_and_else_only_nulls() -> None:
    moments = of_doubles([])
    assert moments.count().value.tolist() == [0]
    for answer in (
        moments.sum(),
        moments.mean(),
        moments.variance(),
        moments.minimum(),
        moments.maximum(),
    ):
        assert answer.null.tolist() == [True]


def test_one_value_has_a_mean_but_no_variance() -> None:
    moments = of_doubles([3.0])
    assert moments.mean().value[0] == 3.0
    assert moments.variance().null[0]


def test_answers_are_exact_and_do_not_change_afterwards() -> None:
    moments, counts = of_doubles([1.0]), GroupedCount(1)
    answers = [moments.count(), moments.sum(), moments.maximum(), counts.count()]
    before = [answer.value.tolist() for answer in answers]
    moments.update(None, np.array([5.0]))
    counts.update(None, 5)
    assert [answer.value.tolist() for answer in answers] == before
    assert all((answer.bound == Bound.EXACT).all() for answer in answers)


def test_integers_and_doubles_do_not_merge() -> None:
    with pytest.raises(CannotMerge, match="integer is True on the left, False on the right"):
        GroupedMoments(1, integer=True).merge(GroupedMoments(1, integer=False))


def test_a_variance_that_was_not_kept_is_refused() -> None:
    with pytest.raises(BadParameter, match="variance is False"):
        GroupedMoments(1, integer=False).variance()


def test_counts_subtract() -> None:
    left, right = GroupedCount(3), GroupedCount(2)
    left.update(np.array([0, 1, 1, 2], np.int32), 4)
    right.update(np.array([1], np.int32), 1)
    assert left.subtract(right).counts.tolist() == [1, 1, 1]


def test_sums_are_given_wider_than_one_number():
    ids = np.array([0, 0, 0, 1], np.int32)
    integers = GroupedMoments(3, integer=True)
    integers.update(ids, np.array([2**62, 2**62, 2**62, -1]))
    low, high = integers.sums()
    words = [int(h) * 2**64 + int(np.uint64(w)) for w, h in zip(low, high, strict=True)]
    assert words == [3 * 2**62, -1, 0]
    doubles = GroupedMoments(3, integer=False, variance=True)
    doubles.update(ids, np.array([1e16, 1.0, 1.0, np.inf]))
    sums, rest = doubles.sums()
    assert Fraction(sums[0]) + Fraction(rest[0]) == 10**16 + 2
    assert (sums[1], rest[1], sums[2], rest[2]) == (np.inf, 0.0, 0.0, 0.0)
    squares = doubles.squares()
    assert squares[0] == pytest.approx(2 * (1e16 - 1) ** 2 / 3)
    assert np.isnan(squares[1])
    assert squares[2] == 0.0
    with pytest.raises(BadParameter):
        GroupedMoments(1, integer=True).squares()


BEYOND = [[0.0, 1e200], [1e308, 1e308, -1e308], [-1e153, 1e153] * 50_000, [1e-170, 3e-170]]


@pytest.mark.parametrize("values", BEYOND)
def test_squares_beyond_the_range_of_doubles_leave_no_bound(values: list[float]) -> None:
    grouped = GroupedMoments(1, integer=False, variance=True)
    grouped.update(np.zeros(len(values), np.int32), np.array(values))
    merged = of_doubles(values[:1]).merge(of_doubles(values[1:]))
    for moments in (of_doubles(values), grouped, merged):
        for answer in (moments.variance(), moments.deviation()):
            assert answer.null[0]
            assert answer.bound[0] == Bound.NONE
            assert "beyond the range" in answer.reason


@pytest.mark.parametrize("constant", [0.0, 5e-324, 1e-170, 1e308])
def test_a_constant_has_no_variance_however_large_it_is(constant: float) -> None:
    variance = of_doubles([constant] * 300).variance()
    assert (variance.value[0], variance.bound[0], variance.null[0]) == (0.0, Bound.EXACT, False)


@pytest.mark.parametrize("what", ["count", "infinite values"])
def test_counts_below_zero_are_refused(what: str) -> None:
    summary = GroupedMoments(2, integer=False, variance=True)
    summary.update(np.array([0, 1], np.int32), np.array([1.0, np.inf]))
    body = unseal(summary.to_bytes(), Kind.MOMENTS)
    cells = body.array(np.int64, (2, kernels.CELLS)).copy()
    infinite = body.array(np.int64, (2, 2)).copy()
    assert seal(Kind.MOMENTS, body.parameters, [cells, infinite]) == summary.to_bytes()
    if what == "count":
        cells[1, kernels.COUNT] = -1
    else:
        infinite[0, 1] = -1
    expected = rf"{what} is -1, expected '0 or more and below 2\^62'"
    with pytest.raises(CorruptSynopsis, match=expected):
        GroupedMoments.from_bytes(seal(Kind.MOMENTS, body.parameters, [cells, infinite]))
