"""Certification: a query that misses more than it promised loses it, and can regain it."""

import math

import numpy as np
import pytest
from hypothesis import given as cases
from hypothesis import strategies as st

from shedder.queries.certification.certification import (
    ALARM,
    AuditSample,
    Certification,
    after,
    broken_share,
)
from tests.truth import gate


def look(missed: int, of: int = 1, delta: float = 0.05, refuted: str = "") -> AuditSample:
    return AuditSample(of, missed, of, missed, delta, refuted)


def audited(rng: np.random.Generator, share: float, looks: int, of: int = 1) -> Certification:
    found = Certification()
    for missed in rng.binomial(of, share, looks).tolist():
        found = after(found, look(missed, of))
        if found.lost:
            break
    return found


def test_nothing_is_known_before_the_first_look():
    assert Certification().certified is None
    assert after(Certification(), look(0)).certified is True


@pytest.mark.slow
@pytest.mark.parametrize("of", [1, 7])
def test_intervals_that_miss_as_often_as_they_say_keep_it_over_many_seeds(of):
    # ALARM / 2 of 1,000 worlds is half a one; four or more are seen once in six hundred times.
    rng = np.random.default_rng(11)
    lost = sum(bool(audited(rng, 0.05, 250, of).lost) for _ in range(1_000))
    assert lost < 4


@pytest.mark.slow
def test_the_alarm_is_ville_s_bound_on_the_wealth():
    rng = np.random.default_rng(3)
    highest = []
    for _ in range(300):
        found, most = Certification(), 1.0
        for missed in (rng.random(200) < 0.05).tolist():
            found = after(found, look(int(missed)))
            most = max(most, found.evidence)
        highest.append(most)
    for rich in (3.0, 10.0):
        assert np.mean(np.array(highest) >= rich) <= 1 / rich


@pytest.mark.parametrize(("share", "most"), [(1.0, 4), (0.5, 25), (0.2, 150)])
def test_intervals_that_miss_too_often_lose_it_soon(share, most):
    needed = [audited(np.random.default_rng(seed), share, 1_000) for seed in range(20)]
    assert all(found.lost for found in needed)
    assert np.median([found.looks for found in needed]) <= most
    assert "outside of their intervals, more than chance allows" in needed[0].lost


def test_what_cannot_be_chance_takes_it_at_once_and_says_why():
    found = after(after(Certification(), look(0)), look(1, refuted="n was said to be 4, and is 5"))
    assert found.certified is False
    assert found.lost == "n was said to be 4, and is 5"
    assert found.losses == 1


def test_it_comes_back_when_the_answers_hold_again_and_not_before():
    found = after(Certification(), look(1, refuted="wrong"))
    needed = 0
    while found.lost:
        found = after(found, look(0))
        needed += 1
    assert needed == 32  # log(100) / log(1 + 0.9 / 0.85 * 0.15) is 31.3
    assert found.certified
    assert found.evidence == 1.0


def test_who_still_misses_too_often_does_not_get_it_back():
    kept = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = after(Certification(), look(1, refuted="wrong"))
        for missed in (rng.random(60) < broken_share(0.05)).tolist():
            found = after(found, look(int(missed)))
            if not found.lost:
                break
        kept += bool(found.lost)
    assert kept >= 180


def test_a_refutation_while_it_is_lost_begins_the_count_anew():
    found = after(Certification(), look(1, refuted="wrong"))
    for _ in range(31):
        found = after(found, look(0))
    found = after(found, look(1, refuted="wrong again"))
    assert found.log_trust == 0.0
    assert found.lost == "wrong again"
    assert found.losses == 1


def test_misses_of_looks_that_share_their_randomness_are_not_bet_on():
    found = Certification()
    for _ in range(50):
        found = after(found, AuditSample(10, 10, 0, 0, 0.05))
    assert found.certified
    assert (found.looks, found.values, found.missed) == (50, 500, 500)


SHOWN_AND_MISSED = AuditSample(1, 1, 1, 1, 0.05, chosen=True)
NOTHING_SHOWN = AuditSample(0, 0, 0, 0, 0.05, chosen=True)


@pytest.mark.slow
def test_a_condition_that_hardly_any_group_passes_keeps_it_though_all_that_is_shown_misses():
    """One window in 25 showed a row by chance, which missed: it was lost after four of these."""
    lost = 0
    for shown in np.random.default_rng(6).random((100, 250)) < 0.04:
        found = Certification()
        for one in shown.tolist():
            found = after(found, SHOWN_AND_MISSED if one else NOTHING_SHOWN)
        lost += bool(found.lost)
    assert lost == 0
    assert found.looks == 250
    assert found.values == found.missed == int(shown.sum())


def test_chosen_rows_that_miss_in_more_windows_than_they_may_lose_it():
    found = Certification()
    for one in (np.random.default_rng(7).random(100) < 0.3).tolist():
        found = after(found, SHOWN_AND_MISSED if one else NOTHING_SHOWN)
    assert "more than chance allows" in found.lost


def test_windows_that_show_nothing_do_not_give_it_back():
    found = after(Certification(), look(1, refuted="wrong"))
    for _ in range(50):
        found = after(found, NOTHING_SHOWN)
    assert found.lost == "wrong"
    assert (found.looks, found.log_trust) == (51, 0.0)


def test_windows_that_overlap_and_show_nothing_are_not_bet_on():
    assert after(Certification(), NOTHING_SHOWN).evidence < 1.0
    assert after(Certification(), NOTHING_SHOWN.overlapping).evidence == 1.0


@pytest.mark.slow
@cases(st.integers(0, 10_000), st.integers(1, 10_000))
def test_what_all_looks_may_give_away_is_half_of_the_alarm(looks, intervals):
    given_away = sum(given(at, intervals) for at in range(min(looks, 500)))
    assert given_away <= ALARM / 2 * (1 + 1e-6)
    assert 0 <= given(looks, intervals) <= ALARM / 2
    assert math.isfinite(Certification(looks=looks).evidence)


def given(looks: int, intervals: int) -> float:
    """What one look may give away: the sum over its intervals."""
    confidence = Certification(looks=looks).strict_confidence(intervals)
    return 0.0 if confidence is None else intervals * (1 - confidence)


@pytest.mark.parametrize("intervals", [1, 43, 5_000])
def test_a_life_of_looks_at_intervals_that_hold_as_they_say_refutes_one_in_two_thousand(intervals):
    # Of values that are independent: each look has its worst one, the least of so many shares.
    rng, worlds, looks = np.random.default_rng(43), 20_000, 100
    refuted = np.zeros(worlds, np.bool_)
    for at in range(looks):
        confidence = Certification(looks=at).strict_confidence(intervals)
        assert confidence is not None
        worst = -np.expm1(np.log(rng.random(worlds)) / intervals)  # 1 - u^(1/n)
        refuted |= worst < 1 - confidence
    assert worlds - refuted.sum() >= gate(worlds, 1 - ALARM / 2)


def test_of_intervals_that_would_have_to_be_all_but_certain_none_refutes():
    assert Certification(looks=10**9).strict_confidence(1) is None
    assert Certification().strict_confidence(10**9) is None
    assert Certification(looks=1_000).strict_confidence(100) is not None
