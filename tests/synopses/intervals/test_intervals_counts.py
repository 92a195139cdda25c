"""Counts, Poisson bounds, distinct counts and missing groups against sums over all outcomes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from synopses.intervals.distinct import distinct_by_hash, distinct_by_rows
from synopses.intervals.hypergeometric import matching_count, matching_count_max
from synopses.intervals.poisson import garwood
from synopses.intervals.tail_probabilities import (
    binomial_at_least,
    binomial_at_most,
    hypergeometric_at_least,
    hypergeometric_at_most,
)
from synopses.intervals.unseen_groups import missing_group_rows
from synopses.model.errors import BadParameter
from synopses.model.estimate import Bound


@pytest.mark.parametrize(
    ("population", "marked", "read"), [(50, 7, 20), (1000, 300, 400), (10**5, 10, 777), (9, 9, 4)]
)
def test_hypergeometric_tails_are_scipys(population, marked, read):
    for x in {0, 1, 3, min(marked, read) // 2, min(marked, read)}:
        law = stats.hypergeom(population, marked, read)
        below = hypergeometric_at_most(float(x), float(population), float(marked), float(read))
        above = hypergeometric_at_least(float(x), float(population), float(marked), float(read))
        assert below == pytest.approx(law.cdf(x), rel=1e-9, abs=1e-300)
        assert above == pytest.approx(law.sf(x - 1), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (30, 0.01), (5000, 0.3), (10**6, 0.999)])
def test_binomial_tails_are_scipys(n, p):
    for x in {0, 1, int(n * p), int(n * p * 0.97), min(n, int(n * p * 1.03) + 1), n}:
        assert binomial_at_most(float(x), float(n), p) == pytest.approx(
            stats.binom.cdf(x, n, p), rel=1e-8, abs=1e-300
        )
        assert binomial_at_least(float(x), float(n), p) == pytest.approx(
            stats.binom.sf(x - 1, n, p), rel=1e-8, abs=1e-300
        )


@pytest.mark.parametrize(("population", "read"), [(12, 5), (40, 39), (300, 60)])
def test_count_bounds_are_the_inverted_hypergeometric(population, read):
    for matched in range(0, read + 1, max(1, read // 5)):
        counts = np.arange(matched, population - read + matched + 1)
        high = counts[stats.hypergeom.cdf(matched, population, counts, read) > 0.025].max()
        low = counts[stats.hypergeom.sf(matched - 1, population, counts, read) > 0.025].min()
        found = matching_count(population=population, read=read, matched=matched, confidence=0.95)
        assert (found.low[0], found.high[0]) == (low, high)


@pytest.mark.parametrize(("population", "read"), [(30, 11), (80, 8)])
def test_every_count_is_covered_as_often_as_claimed(population, read):
    found = matching_count(
        population=population, read=read, matched=np.arange(read + 1), confidence=0.9
    )
    for truth in range(population + 1):
        chances = stats.hypergeom.pmf(np.arange(read + 1), population, truth, read)
        held = (found.low <= truth) & (truth <= found.high)
        assert chances[held].sum() >= 0.9 - 1e-12


def test_a_count_over_everything_is_exact_and_over_nothing_is_unknown():
    found = matching_count(population=[9, 9], read=[9, 0], matched=[4, 0], confidence=0.95)
    assert found.bound.tolist() == [Bound.EXACT, Bound.INTERVAL]
    assert (found.low[0], found.value[0], found.high[0]) == (4, 4, 4)
    assert (found.low[1], found.high[1]) == (0, 9)
    assert math.isnan(found.value[1])


def test_a_one_sided_count_spends_all_of_delta_there():
    both = matching_count(population=10**6, read=5000, matched=[0, 40], confidence=0.9)
    one = matching_count_max(population=10**6, read=5000, matched=[0, 40], confidence=0.95)
    np.testing.assert_array_equal(one, both.high)


def test_counts_stay_right_at_a_trillion_tuples():
    found = matching_count(population=10**12, read=65_536, matched=[0, 655], confidence=0.95)
    # So large a population leaves the binomial: Clopper and Pearson's bounds.
    high = stats.beta.ppf(0.975, [1, 656], [65_536, 65_536 - 655])
    np.testing.assert_allclose(found.high, high * 1e12, rtol=1e-4)
    assert found.low[0] == 0
    np.testing.assert_allclose(found.low[1], stats.beta.ppf(0.025, 655, 64_882) * 1e12, rtol=1e-4)


@pytest.mark.timeout(300, method="thread")
def test_counts_that_are_no_doubles_any_more_end_outside_of_the_truth():
    """Above 2^53 halves never come one apart, and a tail had more terms than can be summed."""
    found = matching_count(
        population=[2.0**54, 2.0**60, 2.0**62, 2.0**62], read=[10, 10, 2.0**61, 2.0**62 - 4096],
        matched=[3, 3, 2.0**60, 2.0**60], confidence=0.95,
    )  # fmt: skip
    few = stats.beta.ppf([0.025, 0.975], [3, 4], [8, 7])  # Clopper and Pearson's bounds.
    np.testing.assert_allclose(found.low[:2], few[0] * np.array([2.0**54, 2.0**60]), rtol=1e-9)
    np.testing.assert_allclose(found.high[:2], few[1] * np.array([2.0**54, 2.0**60]), rtol=1e-9)
    deviation = 2.0**30  # Of 2^61 read, half match and half are read: sqrt(2^61 / 4 / 2) * 2.
    reach = (found.high[2] - 2.0**61) / deviation
    assert 1.96 <= reach <= 2.05
    assert 2.0**60 * (1 + 2.0**-52) <= found.high[3] <= 2.0**60 + 4096


@pytest.mark.parametrize("read", [10**9, 10**11])
def test_a_tail_that_is_only_bounded_is_never_less_than_the_tail(read):
    """The law of 10^12 tuples is wider than the terms that are summed; scipy has the binomial's."""
    share = 0.3
    deviation = math.sqrt(read * share * (1 - share))
    for off in (0.5, 2.0, 3.0):
        x = math.floor(read * share - off * deviation)
        exact = stats.binom.cdf(x, read, share)
        assert exact <= binomial_at_most(float(x), float(read), share) * (1 + 1e-9)
        mirrored = binomial_at_least(float(read - x), float(read), 1 - share)
        assert exact <= mirrored * (1 + 1e-9)
        if off >= 2:
            assert mirrored <= 1.25 * exact
    above = math.floor(read * share + deviation)
    assert stats.binom.cdf(above, read, share) <= binomial_at_most(float(above), float(read), share)


@pytest.mark.timeout(300, method="thread")
def test_of_very_small_shares_little_is_known():
    found = distinct_by_hash(kept=[0, 3, 0], share=[1e-16, 1e-18, 0.0], confidence=0.95)
    np.testing.assert_allclose(found.high[:2], stats.chi2.ppf(0.975, [2, 8]) / 2 * [1e16, 1e18])
    np.testing.assert_allclose(found.low[:2], [0, stats.chi2.ppf(0.025, 6) / 2 * 1e18])
    assert math.isnan(found.value[2])
    assert (found.low[2], found.high[2]) == (0, math.inf)


@pytest.mark.parametrize("bad", [(5, 6, 1), (5, 3, 4), (5, 3, -1)])
def test_impossible_counts_are_refused(bad):
    population, read, matched = bad
    with pytest.raises(BadParameter, match="0 <= m <= n <= N"):
        matching_count(population=population, read=read, matched=matched, confidence=0.95)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, -0.1, math.nan])
def test_a_confidence_outside_its_range_is_refused(confidence):
    with pytest.raises(BadParameter, match="confidence"):
        matching_count(population=10, read=5, matched=1, confidence=confidence)


def test_garwood_is_the_chi_square_of_the_table():
    low, high = garwood([0, 1, 10, 1000], confidence=0.95)
    # Ulm 1990, table of exact limits: 0 events 0..3.689, 1 event 0.0253..5.572, 10: 4.795..18.39.
    np.testing.assert_allclose(low[:3], [0, 0.0253, 4.795], atol=1e-3)
    np.testing.assert_allclose(high[:3], [3.689, 5.572, 18.39], atol=1e-2)
    assert stats.poisson.sf(999, low[3]) == pytest.approx(0.025)
    assert stats.poisson.cdf(1000, high[3]) == pytest.approx(0.025)


@pytest.mark.parametrize("share", [0.5, 0.125, 0.01])
def test_distinct_bounds_are_the_inverted_binomial(share):
    kept = np.array([0, 1, 7, 60])
    found = distinct_by_hash(kept=kept, share=share, confidence=0.95)
    candidates = np.arange(0, 20_000)
    for held, low, high in zip(kept, found.low, found.high, strict=True):
        some = candidates[candidates >= held]
        assert low == some[stats.binom.sf(held - 1, some, share) > 0.025].min()
        assert high == some[stats.binom.cdf(held, some, share) > 0.025].max()


def test_distinct_at_full_share_is_exact():
    found = distinct_by_hash(kept=[5, 0], share=1.0, confidence=0.95)
    assert found.low.tolist() == found.high.tolist() == [5, 0]
    assert found.bound.tolist() == [Bound.EXACT, Bound.EXACT]


def test_rows_say_about_distinct_values_only_what_is_certain_or_marked():
    found = distinct_by_rows(
        seen=[10, 10, 2], once=[0, 0, 0], matched=500, population=1000, read=500,
        values_max=[math.inf, 12, 2], confidence=0.95,
    )  # fmt: skip
    assert found.low.tolist() == [10, 10, 2]
    assert found.high[0] < 40  # Certainty alone would say 510.
    assert found.high.tolist()[1:] == [12, 2]
    unread = distinct_by_rows(seen=0, once=0, matched=0, population=1000, read=0, confidence=0.95)
    assert (unread.low[0], unread.high[0]) == (0, 1000)


def test_missing_groups_are_as_large_as_the_formula_says():
    size = missing_group_rows(population=10**6, read=10**4, confidence=0.95)
    # By hand: (N/g) e^(-g n/N) = 0.05 at N = 10^6, n = 10^4 gives g = 9.9 N/n.
    assert size == pytest.approx(9.9 * 100, rel=0.02)
    for rows, missed in ((size, True), (size + 1, False)):
        chance = min((1 - rows / 10**6) ** 10**4, (1 - 1e-2) ** rows)
        assert (10**6 / rows * chance > 0.05) is missed


def test_no_group_is_missing_when_everything_was_read():
    assert missing_group_rows(population=100, read=100, confidence=0.95) == 0
    assert missing_group_rows(population=100, read=0, confidence=0.95) == 100
    assert missing_group_rows(population=0, read=0, confidence=0.95) == 0
