"""Gates let honest intervals pass and catch dishonest ones."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from shedder.cql.expressions.expression import AggregateFunction
from shedder.queries.certification.value_verdict import Claim, judge_value
from spark_ingest.scores import CHOSEN, Judged, Made, attainments, certain, gate, pooled, scores


def judged(question: int, held: bool, *, bound="interval", confidence=0.95, source="sample"):
    truth = 100 if held else 1000
    verdict = judge_value(AggregateFunction.COUNT, Claim(100, 90, 110, bound, True), truth, None)
    return Judged(question, "", "COUNT(*)", source, confidence, verdict)


@pytest.mark.parametrize("trials", [10, 400, 2000])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_with_one_confidence_the_gate_is_the_binomial_one(trials, confidence):
    assert gate([confidence] * trials) == binom.ppf(1e-6, trials, confidence)


def test_with_mixed_confidences_the_gate_lies_between():
    mixed = gate([0.9] * 200 + [0.99] * 200)
    assert gate([0.9] * 400) < mixed < gate([0.99] * 400)


def test_intervals_that_hold_as_often_as_they_say_pass():
    rng = np.random.default_rng(5)
    rows = [judged(at, bool(held)) for at, held in enumerate(rng.random(400) < 0.95)]
    (score,) = scores(rows)
    assert score.passed
    assert score.trials == 400
    assert score.band_low < score.coverage < score.band_high


def test_intervals_that_hold_too_rarely_fail():
    rows = [judged(at, at % 5 > 0) for at in range(400)]  # 80 %
    (score,) = scores(rows)
    assert not score.passed


def test_a_question_is_one_trial_however_many_groups_it_has():
    rows = [judged(0, True)] * 9 + [judged(0, False)] + [judged(1, True)]
    (score,) = scores(rows)
    assert score.trials == 2
    assert score.values == 11
    assert score.hits == pytest.approx(1.9)


def test_values_that_claim_certainty_may_not_miss_once():
    rows = [judged(at, at > 0, bound="interval", confidence=1.0) for at in range(1000)]
    (score,) = certain(rows)
    assert not score.passed
    assert scores(rows) == []


def test_values_without_a_bound_are_no_trials():
    assert scores([judged(0, False, bound="none")]) == []
    assert pooled([judged(0, False, bound="none")]) == []


def test_pooling_goes_by_source_then_over_all():
    rows = [judged(0, True), judged(1, True, source="hll"), judged(2, False, source="hll")]
    assert [(s.source, s.trials, s.hits) for s in pooled(rows)] == [
        ("hll", 2, 1),
        ("sample", 1, 1),
        ("all", 3, 2),
    ]


def test_rows_that_limit_chose_are_pooled_apart_and_counted_with_all():
    chosen = replace(judged(1, False), made=Made(chosen=True))
    assert [(s.source, s.trials, s.hits) for s in pooled([judged(0, True), chosen])] == [
        ("sample", 2, 1),
        (CHOSEN, 1, 0),
        ("all", 2, 1),
    ]


def test_attainment_counts_claims_and_truths_apart():
    (found,) = attainments([judged(0, True), judged(1, False)])
    assert (found.values, found.met) == (2, 2)
