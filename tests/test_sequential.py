"""The sequential test of coverage: its errors and its length, computed exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tests.seeds import seed
from tests.sequential import GATES, GATES_OF_SHARES, MISSED, holds, noticed, stakes
from tests.truth import ALARM, EVALUATED, RUN_ALARM, gate

CASES = [(400, 0.95), (100, 0.8), (200, 0.99), (40, 0.95), (1_000, 0.5)]


def exact(trials: int, confidence: float, chance: float) -> tuple[float, float]:
    """Return the probability that the test passes and the expected number of trials.

    chance: probability that a trial holds. Trial by trial, the loop updates the distribution of
    hits among the paths that have not ended.
    """
    margin = noticed(trials, confidence)
    claim_bet, rival_bet = stakes(confidence, margin)
    going, passed, expected = np.ones(1), 0.0, 0.0
    for done in range(1, trials + 1):
        expected += going.sum()
        going = np.append(going * (1 - chance), 0.0) + np.append(0.0, going * chance)
        hits = np.arange(done + 1)
        against_claim = hits * math.log1p(-claim_bet * (1 - confidence))
        against_claim += (done - hits) * math.log1p(claim_bet * confidence)
        against_rival = hits * math.log1p(rival_bet * (1 - confidence + margin))
        against_rival += (done - hits) * math.log1p(-rival_bet * (confidence - margin))
        refuted, accepted = (
            against_claim >= -math.log(RUN_ALARM),
            against_rival >= -math.log(MISSED),
        )
        passed += going[accepted & ~refuted].sum()
        going = np.where(refuted | accepted, 0.0, going)
    return passed + going[fewest(trials, confidence, RUN_ALARM) :].sum(), expected


def fewest(trials: int, confidence: float, alarm: float) -> int:
    """Return the result of `gate` without counting the gate among those of the run."""
    return int(stats.binom.ppf(alarm, trials, confidence))


def of_fixed(trials: int, confidence: float, chance: float, alarm: float) -> float:
    """Return the probability that the fixed gate passes."""
    return float(stats.binom.sf(fewest(trials, confidence, alarm) - 1, trials, chance))


def one_by_one(chance: float, *names: str | int):
    """Return a trial that holds with this probability."""
    rng = np.random.default_rng(seed("sequential", *names))
    return lambda _number: bool(rng.random() < chance)


@pytest.mark.parametrize(("trials", "confidence"), CASES)
def test_an_honest_interval_is_refuted_with_twice_the_alarm_at_most(trials, confidence):
    for chance in (confidence, (1 + confidence) / 2, 1.0):
        assert 1 - exact(trials, confidence, chance)[0] <= 2 * RUN_ALARM + 1e-12


@pytest.mark.parametrize(("trials", "confidence"), CASES)
def test_a_rival_passes_hardly_more_often_than_a_gate_of_all_trials(trials, confidence):
    margin = noticed(trials, confidence)
    assert of_fixed(trials, confidence, confidence - margin, RUN_ALARM) == pytest.approx(MISSED)
    for further in (1.0, 1.2, 1.5):
        chance = max(0.0, confidence - further * margin)
        fixed = of_fixed(trials, confidence, chance, RUN_ALARM)
        assert exact(trials, confidence, chance)[0] <= fixed + MISSED


@pytest.mark.parametrize(("trials", "confidence"), CASES)
def test_a_quarter_more_trials_notice_what_a_gate_on_literal_seeds_notices(trials, confidence):
    missed = of_fixed(trials, confidence, confidence - noticed(trials * 5 // 4, confidence), ALARM)
    assert missed >= 0.9 * MISSED


@pytest.mark.parametrize(("trials", "confidence"), CASES)
def test_between_claim_and_rival_it_passes_little_more_often_than_a_gate(trials, confidence):
    margin = noticed(trials, confidence)
    for shortfall in np.linspace(0.0, 1.0, 9) * margin:
        fixed = of_fixed(trials * 4 // 5, confidence, confidence - shortfall, ALARM)
        assert exact(trials, confidence, confidence - shortfall)[0] <= fixed + 0.2


@pytest.mark.parametrize(("trials", "confidence"), CASES)
def test_an_honest_interval_takes_a_third_of_the_trials(trials, confidence):
    assert exact(trials, confidence, confidence)[1] <= trials / 3
    assert exact(trials, confidence, 1.0)[1] <= exact(trials, confidence, confidence)[1]


def test_the_bets_on_yes_and_no_are_likelihood_ratios():
    claim_bet, rival_bet = stakes(0.95, 0.05)
    assert 1 + claim_bet * 0.95 == pytest.approx(0.10 / 0.05)  # A miss, against the claim.
    assert 1 - claim_bet * 0.05 == pytest.approx(0.90 / 0.95)  # A hit.
    assert 1 + rival_bet * 0.10 == pytest.approx(0.95 / 0.90)  # A hit, against the rival.
    assert 1 - rival_bet * 0.90 == pytest.approx(0.05 / 0.10)  # A miss.


@pytest.mark.parametrize("turn", range(20))
def test_honest_intervals_hold_and_rivals_do_not(turn):
    honest = holds(one_by_one(0.95, "honest", turn), 0.95, trials=400)
    assert honest, honest
    # A rival far below the margin passes with a probability below 1e-9.
    lying = holds(one_by_one(0.6, "rival", turn), 0.95, trials=400)
    assert not lying, lying


def test_it_stops_at_the_first_certain_trial():
    always, never = (
        holds(lambda _: True, 0.95, trials=400),
        holds(lambda _: False, 0.95, trials=400),
    )
    claim_bet, rival_bet = stakes(0.95, noticed(400, 0.95))
    hits = math.log(1 / MISSED) / math.log1p(rival_bet * (0.05 + always.margin))
    misses = math.log(1 / RUN_ALARM) / math.log1p(claim_bet * 0.95)
    assert (always.holds, always.trials) == (True, math.ceil(hits))
    assert (never.holds, never.trials) == (False, math.ceil(misses))


def test_shares_of_dependent_intervals_bet_like_their_mean():
    pairs = holds(lambda number: (19, 20), 0.95, trials=400)
    assert pairs
    assert pairs.trials < 200  # Without noise the test ends early.
    assert not holds(lambda number: (17, 20), 0.95, trials=400)


def test_all_or_nothing_shares_end_like_yes_and_no():
    rng = np.random.default_rng(5)
    hits = rng.random(400) < 0.9
    alone = holds(lambda number: bool(hits[number]), 0.95, trials=400)
    groups = holds(lambda number: (7 * int(hits[number]), 7), 0.95, trials=400)
    assert (alone.holds, alone.trials) == (groups.holds, groups.trials)


def test_trials_without_intervals_are_not_counted():
    found = holds(lambda number: (3, 3) if number % 2 else (0, 0), 0.95, trials=400)
    assert found.holds
    assert found.trials == holds(lambda _: True, 0.95, trials=400).trials
    with pytest.raises(AssertionError, match="no trial asked anything"):
        holds(lambda _: (0, 0), 0.95, trials=40)


def test_at_the_last_trial_the_gate_decides():
    """Shares just below the claim, and without noise, convince neither player."""
    few = holds(lambda _: (93, 100), 0.95, trials=400, margin=0.04)
    assert few.trials == 400
    assert few.holds == (fewest(400, 0.95, RUN_ALARM) <= 372)


def test_each_test_is_counted_among_the_gates_of_the_run():
    before = EVALUATED.run
    holds(lambda _: True, 0.95, trials=40)
    assert EVALUATED.run == before + GATES
    holds(lambda _: (1, 1), 0.95, trials=40)
    assert EVALUATED.run == before + GATES + GATES_OF_SHARES


def test_a_gate_is_counted_by_the_seeds_that_it_is_for():
    literal, run = EVALUATED.literal, EVALUATED.run
    assert gate(400, 0.95) == fewest(400, 0.95, ALARM)
    assert (EVALUATED.literal, EVALUATED.run) == (literal + 1, run)
    assert gate(400, 0.95, RUN_ALARM) == fewest(400, 0.95, RUN_ALARM)
    assert (EVALUATED.literal, EVALUATED.run) == (literal + 1, run + 1)


def test_too_few_trials_to_refute_anything_are_an_error():
    with pytest.raises(AssertionError, match="refute nothing"):
        holds(lambda _: True, 0.5, trials=5)
