"""Verdicts agree with what a reader would say by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.statements.statement import Target, TargetKind
from shedder.queries.certification.value_verdict import (
    Claim,
    Ranks,
    judge_items,
    judge_listed,
    judge_quantile,
    judge_value,
)

COUNT, SUM, MIN = AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.MIN
TEN_PERCENT = Target(TargetKind.RELATIVE, 0.1)


def claim(value, low=None, high=None, bound="interval", met=None) -> Claim:
    return Claim(value, low, high, bound, met)


def test_a_truth_between_the_ends_is_held_and_its_error_is_relative_to_the_truth():
    verdict = judge_value(COUNT, claim(110, 90, 120), 100, None)
    assert verdict.held
    assert verdict.error == pytest.approx(0.1)
    assert verdict.half_width == pytest.approx(0.2)
    assert verdict.place == pytest.approx(-0.5)  # 10 below the value, which reaches 20 down


def test_a_truth_outside_is_a_miss():
    assert not judge_value(COUNT, claim(110, 105, 120), 100, None).held


def test_an_end_that_is_null_is_open():
    assert judge_value(COUNT, claim(110, 90, None), 10**9, None).held


def test_an_exact_value_must_be_the_truth():
    assert judge_value(COUNT, claim(100, None, None, "exact"), 100, None).held
    assert not judge_value(COUNT, claim(100, 0, 200, "exact"), 101, None).held


def test_sums_of_floats_may_differ_in_the_last_bits_and_no_more():
    values = np.linspace(0.1, 1.0, 1000)
    total = float(values.sum())
    nearly = total * (1 + 2**-50)
    args = {"absolute_sum": total, "rows": 1000}
    assert judge_value(SUM, claim(nearly, bound="exact"), total, None, **args).held
    assert not judge_value(SUM, claim(total * 1.000001, bound="exact"), total, None, **args).held


def test_null_is_held_by_null_only():
    assert judge_value(SUM, claim(None, bound="exact"), None, None).held
    assert not judge_value(SUM, claim(None, bound="exact"), 3.0, None).held
    assert not judge_value(SUM, claim(3.0, 2.0, 4.0), None, None).held


def test_text_is_between_its_ends_by_its_bytes():
    assert judge_value(MIN, claim("b", "a", "b"), "aé", None).held
    assert not judge_value(MIN, claim("b", "ab", "b"), "aa", None).held


def test_a_target_is_attained_by_the_true_error_not_by_the_claim():
    near = judge_value(COUNT, claim(105, 50, 200, met=False), 100, TEN_PERCENT)
    far = judge_value(COUNT, claim(120, 115, 125, met=True), 100, TEN_PERCENT)
    assert near.attained
    assert not far.attained


@pytest.mark.slow
@given(
    st.lists(st.integers(-50, 50), min_size=1, max_size=60),
    st.floats(0, 1),
    st.integers(-60, 60),
    st.integers(0, 40),
)
def test_counting_ranks_tells_the_same_as_sorting(values, q, low, width):
    array = np.sort(np.array(values))
    truth = array[max(1, math.ceil(q * len(array))) - 1]
    ranks = Ranks(
        n=len(array),
        below_low=int((array < low).sum()),
        to_high=int((array <= low + width).sum()),
        below=int((array < low).sum()),
        upto=int((array <= low).sum()),
    )
    verdict = judge_quantile(claim(low, low, low + width), q, ranks, None)
    assert verdict.held == (low <= truth <= low + width)
    assert (verdict.error == 0) == (low == truth)


def test_items_are_judged_by_the_count_of_their_value():
    items = [
        {"value": "a", "count": 10, "low": 10, "high": 10, "guaranteed": True},
        {"value": "b", "count": 8, "low": 7, "high": 9, "guaranteed": False},
        {"value": "c", "count": 5, "low": 4, "high": 5, "guaranteed": False},
    ]
    verdicts = judge_items(claim(items), {"a": 10, "b": 9, "c": 6}, None)
    assert [v.held for v in verdicts] == [True, True, False]
    assert [v.claim.bound for v in verdicts] == ["exact", "interval", "interval"]


def test_an_item_that_is_not_in_the_exact_list_occurs_at_most_as_often_as_its_last():
    items = [
        {"value": value, "count": 5, "low": low, "high": 6, "guaranteed": False}
        for value, low in (("a", 5), ("b", 3), ("c", 4))
    ]
    exactly = {"a": 5, "x": 3}
    held = [one.held for one in judge_listed(claim(items), exactly, complete=False)]
    assert held == [True, True, False]
    held = [one.held for one in judge_listed(claim(items), exactly, complete=True)]
    assert held == [True, False, False]
    assert judge_listed(claim(items), {}, complete=False) == []


@pytest.mark.parametrize(
    ("below", "upto", "said"), [(4, 7, "5–7"), (4, 5, "5"), (4, 4, "none, between 4 and 5")]
)
def test_the_ranks_of_a_claimed_quantile_are_said_as_people_count(below, upto, said):
    ranks = Ranks(n=10, below=below, upto=upto, below_low=0, to_high=10)
    verdict = judge_quantile(claim(3.0, 1.0, 5.0), 0.5, ranks, None)
    assert verdict.truth == f"rank 5 of 10; claimed value has {said}"


@pytest.mark.parametrize(
    ("function", "true", "mean", "off", "holds"),
    [
        (AggregateFunction.VAR, 1e-4, 1.7e9, 5.6e-6, True),  # As Spark errs there.
        (AggregateFunction.STDDEV, 1e-2, 1.7e9, 2.8e-6, True),
        (AggregateFunction.VAR, 1e-4, 1.7e9, 1e-3, False),
        (AggregateFunction.VAR, 1e-4, 1.0, 5.6e-6, False),
        (AggregateFunction.STDDEV, 1e-2, 1.0, 2.8e-6, False),
        (AggregateFunction.VAR, 0.0, 1.7e9, 0.0, True),
    ],
)
def test_a_variance_is_known_as_well_as_its_condition_allows(function, true, mean, off, holds):
    said = true * (1 + off)
    exact = Claim(said, said, said, "exact", None)
    assert judge_value(function, exact, true, None, mean).held == holds
