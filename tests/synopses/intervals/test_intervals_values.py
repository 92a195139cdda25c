"""Sums, means, variances, quantiles and weighted sums: by hand where a reader can follow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher
from scipy import stats

from synopses.intervals import betting, hypergeometric, quantiles
from synopses.intervals import sample_values as sampled_module
from synopses.intervals.betting import mean_of_tuples
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.interval import Intervals
from synopses.intervals.learned_bets import bet_against, learned_wealth, make_plan, mirrored
from synopses.intervals.means import sampled_mean
from synopses.intervals.normal import rho_max
from synopses.intervals.poisson import garwood
from synopses.intervals.quantiles import rank_bounds, sampled_quantile
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sums import sampled_sum
from synopses.intervals.variance import sampled_deviation, sampled_variance
from synopses.intervals.weighted import WeightedMatches, signed_sum, weighted_sum
from synopses.model.errors import BadParameter
from synopses.model.estimate import Bound
from synopses.precompile import compile_question_kernels
from synopses.samples.bottom_k import WeightedBottomK
from tests.truth import draw

ANSWERS = {
    "sum": sampled_sum,
    "mean": sampled_mean,
    "variance": sampled_variance,
    "deviation": sampled_deviation,
    "median": lambda sample, *, confidence: sampled_quantile(
        sample, rank_share=0.5, confidence=confidence
    ),
}


def sampled(values, *, population, read, low=0.0, high=10.0, ids=None, groups=1, everything=False):
    return SampledValues.by_group(
        np.asarray(values, np.float64),
        ids=None if ids is None else np.asarray(ids, np.int32),
        groups=groups, population=population, read=read, low=low, high=high, everything=everything,
    )  # fmt: skip


def test_values_are_sorted_by_group_and_keep_their_order():
    sample = sampled([5, 1, 7, 2], population=9, read=6, ids=[2, 0, 2, 0], groups=4)
    assert sample.starts.tolist() == [0, 2, 2, 4, 4]
    assert sample.values.tolist() == [1, 2, 5, 7]
    mean, squares = sample.moments()
    np.testing.assert_array_equal(mean, [1.5, np.nan, 6, np.nan])
    np.testing.assert_array_equal(squares, [0.5, 0, 2, 0])


def test_more_matches_than_rows_read_are_refused():
    with pytest.raises(BadParameter, match="m <= n <= N"):
        sampled([1, 2, 3], population=9, read=2)


def test_a_certified_sum_is_the_textbook_interval():
    rng = np.random.default_rng(1)
    values = rng.uniform(0, 1, 4000)
    sample = sampled(values, population=10_000, read=4000, high=1.0, everything=True)
    found = sampled_sum(sample, confidence=0.95)
    error = 10_000 * values.std(ddof=1) * math.sqrt((1 - 0.4) / 4000)
    assert found.certified.tolist() == [True]
    assert found.value[0] == pytest.approx(2.5 * values.sum())
    assert found.high[0] - found.value[0] == pytest.approx(stats.t.ppf(0.975, 3999) * error)
    assert found.variance[0] == pytest.approx(error**2)
    mean = sampled_mean(sample, confidence=0.95)
    assert mean.high[0] * 10_000 == pytest.approx(found.high[0])


def test_a_filtered_sum_counts_the_rows_that_do_not_match_as_zeros():
    rng = np.random.default_rng(2)
    values = rng.uniform(5, 6, 800)
    sample = sampled(values, population=50_000, read=5000, low=5.0, high=6.0)
    found = sampled_sum(sample, confidence=0.95)
    padded = np.concatenate([values, np.zeros(4200)])
    error = 50_000 * padded.std(ddof=1) * math.sqrt(0.9 / 5000)
    assert found.certified.all()
    assert found.variance[0] == pytest.approx(error**2)


def test_a_tail_that_the_sample_has_not_seen_takes_the_certificate_away():
    values = np.random.default_rng(3).normal(0, 1, 1000)
    seen = sampled_sum(
        sampled(values, population=10**5, read=1000, low=-5.0, high=5.0, everything=True),
        confidence=0.95,
    )
    unseen = sampled_sum(
        sampled(values, population=10**5, read=1000, low=-5.0, high=1e6, everything=True),
        confidence=0.95,
    )
    assert seen.certified[0]
    assert not unseen.certified[0]
    # Ten in 10^5 may be a million each, unseen with probability e^-0.1: the interval must allow it.
    assert unseen.high[0] > 10 * 1e6


def test_certificates_become_rarer_with_the_confidence():
    assert rho_max(0.95) == pytest.approx(0.3)
    assert rho_max(0.99) == pytest.approx(0.15)
    assert rho_max(0.5) == pytest.approx(0.3)
    assert rho_max(0.999) < 0.1


@pytest.mark.parametrize("name", list(ANSWERS))
def test_what_was_read_in_full_is_exact(name):
    values = [4.0, 1.0, 7.0, 4.0, 9.0]
    found = ANSWERS[name](sampled(values, population=8, read=8), confidence=0.95)
    truth = {
        "sum": 25.0, "mean": 5.0, "variance": 9.5, "deviation": math.sqrt(9.5), "median": 4.0
    }[name]  # fmt: skip
    assert found.bound[0] == Bound.EXACT
    assert found.low[0] == found.high[0] == pytest.approx(truth)


@pytest.mark.parametrize("name", list(ANSWERS))
def test_a_group_that_nobody_saw_has_no_value_and_wide_ends(name):
    sample = sampled([5.0, 6.0], population=1000, read=20, ids=[0, 0], groups=2)
    found = ANSWERS[name](sample, confidence=0.95)
    if name == "sum":
        assert found.value[1] == 0.0
    else:
        assert math.isnan(found.value[1])
    assert found.low[1] <= 0.0
    assert found.high[1] > (100.0 if name == "sum" else 4.0)
    assert found.bound[1] == Bound.INTERVAL


@pytest.mark.parametrize("name", list(ANSWERS))
def test_nothing_read_at_all_promises_no_more_than_the_range(name):
    found = ANSWERS[name](sampled([], population=1000, read=0), confidence=0.95)
    assert math.isnan(found.value[0])
    assert found.low[0] <= 0.0
    assert found.high[0] >= {"sum": 10_000.0, "deviation": 5.0}.get(name, 10.0)


@pytest.mark.parametrize("name", ["sum", "mean", "variance", "deviation"])
def test_an_infinite_range_promises_nothing_above(name):
    sample = sampled([1.0, 2.0, 3.0] * 20, population=1000, read=100, low=-np.inf, high=np.inf)
    found = ANSWERS[name](sample, confidence=0.95)
    assert found.high[0] == np.inf
    assert not found.certified[0]


@pytest.mark.parametrize("name", list(ANSWERS))
def test_groups_are_answered_as_if_each_were_alone(name):
    rng = np.random.default_rng(4)
    ids = rng.integers(0, 3, 300)
    values = rng.lognormal(0, 1, 300)
    together = ANSWERS[name](
        sampled(values, population=9000, read=900, high=80.0, ids=ids, groups=4), confidence=0.9
    )
    for group in range(3):
        alone = ANSWERS[name](
            sampled(values[ids == group], population=9000, read=900, high=80.0), confidence=0.9
        )
        np.testing.assert_allclose(
            [together.value[group], together.low[group], together.high[group]],
            [alone.value[0], alone.low[0], alone.high[0]],
        )


@pytest.mark.slow
@given(
    values=st.lists(st.floats(-100, 100), min_size=1, max_size=30),
    extra=st.integers(0, 50),
    skipped=st.integers(0, 500),
    confidence=st.sampled_from([0.5, 0.95, 0.999]),
)
def test_ends_enclose_the_value_and_stay_within_what_is_certain(values, extra, skipped, confidence):
    read = len(values) + extra
    sample = sampled(values, population=read + skipped, read=read, low=-100.0, high=100.0)
    for answer in ANSWERS.values():
        found = answer(sample, confidence=confidence)
        if not math.isnan(found.value[0]):
            assert found.low[0] <= found.value[0] <= found.high[0]
    total = sampled_sum(sample, confidence=confidence)
    slack = 1e-9 * (1 + np.abs(values).sum())
    assert total.low[0] >= math.fsum(values) - 100.0 * skipped - slack
    assert total.high[0] <= math.fsum(values) + 100.0 * skipped + slack
    mean = sampled_mean(sample, confidence=confidence)
    assert -100.0 <= mean.low[0] <= mean.high[0] <= 100.0


def test_betting_on_zeros_alone_is_nearly_the_exact_bound():
    # Of 1000 rows none matched: with all of delta at one end the exact bound is 1 - 0.05^(1/1000).
    sample = sampled([], population=10**6, read=1000, high=1.0)
    one = np.ones(1)
    low, high = mean_of_tuples(sample, low=0 * one, high=one, wanted=one > 0, confidence=0.95)
    exact = 1 - 0.05 ** (1 / 1000)
    assert low[0] == 0.0
    assert exact <= high[0] <= 1.1 * exact


@pytest.mark.parametrize("share", [0.5, 0.01])
def test_betting_on_coins_is_not_much_wider_than_the_exact_interval(share):
    heads = int(4000 * share)
    sample = sampled(np.ones(heads), population=10**9, read=4000, high=1.0)
    one = np.ones(1)
    low, high = mean_of_tuples(sample, low=0 * one, high=one, wanted=one > 0, confidence=0.95)
    exact = matching_count(population=10**9, read=4000, matched=heads, confidence=0.95)
    # Delta is not split evenly: no end is nearer than one that has all of it.
    nearest = matching_count(population=10**9, read=4000, matched=heads, confidence=0.9)
    assert low[0] <= nearest.low[0] / 1e9
    assert high[0] >= nearest.high[0] / 1e9
    assert (high[0] - low[0]) * 1e9 <= 1.65 * (exact.high[0] - exact.low[0])


def test_a_constant_column_sums_like_a_count():
    found = sampled_sum(
        sampled([7.25] * 3, population=10_000, read=100, low=7.25, high=7.25), confidence=0.95
    )
    count = matching_count(population=10_000, read=100, matched=3, confidence=0.95)
    np.testing.assert_allclose(
        [found.low[0], found.high[0]], [7.25 * count.low[0], 7.25 * count.high[0]]
    )


@pytest.mark.parametrize(("matched", "share"), [(1, 0.5), (10, 0.5), (200, 0.99), (57, 0.07)])
def test_ranks_are_the_binomial_ones(matched, share):
    first, last = rank_bounds(
        np.array([matched]), members=np.array([0]), members_known=False, rank_share=share,
        confidence=0.95,
    )  # fmt: skip
    ranks = np.arange(matched + 2)
    assert first[0] == ranks[stats.binom.cdf(ranks - 1, matched, share) <= 0.025].max()
    assert last[0] == ranks[stats.binom.sf(ranks - 1, matched, share) <= 0.025].min()


@pytest.mark.parametrize(("members", "matched", "share"), [(40, 20, 0.5), (100, 90, 0.25)])
def test_ranks_in_a_known_population_cover_as_claimed(members, matched, share):
    first, last = rank_bounds(
        np.array([matched]), members=np.array([members]), members_known=True, rank_share=share,
        confidence=0.95,
    )  # fmt: skip
    rank = max(1, math.ceil(share * members))
    too_high = stats.hypergeom.cdf(first[0] - 1, members, rank, matched)
    too_low = stats.hypergeom.sf(last[0] - 1, members, rank - 1, matched)
    assert too_high <= 0.025
    assert too_low <= 0.025


@pytest.mark.parametrize("tail", [0.05, 0.005])
@pytest.mark.parametrize("members_max", [0, 40, 23])
@pytest.mark.parametrize("share", [0.03, 0.1, 1 / 3, 0.5, 0.9])
def test_ranks_under_a_bound_are_safe_for_every_smaller_population(members_max, share, tail):
    for members in range(1, (members_max or 40) + 1):
        rank = max(1, math.ceil(share * members - 1e-12))
        matched = np.arange(1, members + 1)
        first, last = rank_bounds(
            matched, members=np.full(members, members_max), members_known=False,
            rank_share=share, confidence=1 - 2 * tail,
        )  # fmt: skip
        assert (stats.hypergeom.cdf(first - 1, members, rank, matched) <= tail + 1e-12).all()
        assert (stats.hypergeom.sf(last - 1, members, rank - 1, matched) <= tail + 1e-12).all()


@pytest.mark.parametrize("share", [0.07, 0.29, 0.57])
def test_a_rank_that_is_whole_is_not_rounded_up(share):
    sample = sampled(np.arange(1.0, 101.0), population=100, read=100, high=100.0)
    found = sampled_quantile(sample, rank_share=share, confidence=0.95)
    assert found.value[0] == round(100 * share)


def test_a_rank_share_outside_its_range_is_refused():
    with pytest.raises(BadParameter, match=r"1\.5"):
        sampled_quantile(sampled([1.0], population=9, read=3), rank_share=1.5, confidence=0.95)


def test_a_weighted_sum_is_the_certain_part_and_garwood_times_tau():
    found = weighted_sum(
        WeightedMatches(np.array([100.0, 0.0]), np.array([10, 0]), 3.0), confidence=0.95
    )
    low, high = garwood([10, 0], confidence=0.95)
    np.testing.assert_allclose(found.value, [130, 0])
    np.testing.assert_allclose(found.low, [100 + 3 * low[0], 0])
    np.testing.assert_allclose(found.high, [100 + 3 * high[0], 3 * high[1]])


def test_a_weighted_sample_that_left_nothing_out_is_exact():
    sample = WeightedBottomK(10)
    sample.update(np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.1, 0.9]))
    matches = WeightedMatches.by_group(
        sample.weights, tau=sample.tau, ids=np.array([0, 1, 0], np.int32), groups=3
    )
    found = weighted_sum(matches, confidence=0.95)
    assert found.value.tolist() == found.low.tolist() == found.high.tolist() == [5, 2, 0]
    assert found.bound.tolist() == [Bound.EXACT] * 3


def test_a_weighted_sample_without_end_says_nothing_of_what_it_has_no_row_of():
    matches = WeightedMatches(np.zeros(1), np.zeros(1, np.int64), np.inf)
    found = weighted_sum(matches, confidence=0.95)
    assert (found.low[0], found.high[0], found.bound[0]) == (-np.inf, np.inf, Bound.NONE)


@pytest.mark.parametrize(
    ("certain", "light", "tau", "known"),
    [
        ([1.7e308, 1.7e308, 5.0], [0, 0], 0.0, [False, True]),
        ([1e308], [2, 0], 1e308, [False, True]),
        ([], [0, 1], 1e308, [True, True]),
    ],
)
def test_a_weighted_sum_beyond_the_range_of_doubles_has_no_bound(certain, light, tau, known):
    weights = np.array([*certain, *[tau / 2] * sum(light)])
    ids = [0, 0, 1][: len(certain)] + [at for at, each in enumerate(light) for _ in range(each)]
    matches = WeightedMatches.by_group(
        weights, tau=tau, ids=np.array(ids, np.int32).reshape(-1), groups=2
    )
    zero = WeightedMatches(np.zeros(2), np.zeros(2, np.int64), 0.0)
    for found in (
        weighted_sum(matches, confidence=0.95),
        signed_sum(matches, zero, confidence=0.95),
        signed_sum(zero, matches, confidence=0.95),
        signed_sum(matches, matches, confidence=0.95),
    ):
        assert np.isfinite(found.value).tolist() == known
        for at, it_is in enumerate(known):
            if not it_is:
                assert (found.low[at], found.high[at]) == (-np.inf, np.inf)
                assert found.bound[at] == Bound.NONE
    assert weighted_sum(matches, confidence=0.95).low[1] >= 0.0


def test_a_signed_sum_takes_each_part_at_half_delta():
    plus = WeightedMatches(np.array([9.0]), np.array([4]), 2.0)
    minus = WeightedMatches(np.array([1.0]), np.array([0]), 0.0)
    found = signed_sum(plus, minus, confidence=0.9)
    half = weighted_sum(plus, confidence=0.95)
    assert found.low[0] == half.low[0] - 1.0
    assert found.high[0] == half.high[0] - 1.0
    assert found.value[0] == 9.0 + 8.0 - 1.0


def test_the_union_bound_divides_delta():
    assert split_confidence(0.95, 5) == pytest.approx(0.99)
    with pytest.raises(BadParameter, match="0"):
        split_confidence(0.95, 0)


def test_intervals_become_a_column_of_an_answer():
    found = Intervals.of(np.array([1.0, np.nan]), np.array([0.0, 0.0]), np.array([2.0, 9.0]))
    column = found.scaled(-2.0).estimates(confidence=0.9, source="sample")
    assert (column.low[0], column.value[0], column.high[0]) == (-4.0, -2.0, 0.0)
    assert column.null.tolist() == [False, True]
    assert column.confidence == 0.9


def test_after_warming_no_kernel_is_compiled_anew_whatever_the_arrays_are():
    compile_question_kernels()
    modules = [betting, hypergeometric, quantiles, sampled_module]
    kernels = [k for module in modules for k in vars(module).values() if isinstance(k, Dispatcher)]
    assert len(kernels) >= len(modules)
    forms = [len(kernel.signatures) for kernel in kernels]
    values = np.arange(12.0)
    frozen = values.copy()
    frozen.setflags(write=False)
    for given_values in (values, frozen, values[::2], values.astype(np.float32)):
        sample = sampled(given_values, population=99, read=20, high=11.0)
        for answer in ANSWERS.values():
            answer(sample, confidence=0.9)
    matching_count(population=np.array([9, 9])[::-1], read=4, matched=frozen[:2], confidence=0.9)
    assert [len(kernel.signatures) for kernel in kernels] == forms


def empirical_bernstein_half_width(y, population, width, confidence):
    """Bardenet & Maillard 2015, Bernoulli 21(3), Thm 4.3, without replacement."""
    read, delta = len(y), 1 - confidence
    share = read / population
    rho = 1 - (read - 1) / population if share <= 0.5 else (1 - share) * (1 + 1 / read)
    log = math.log(5 / delta)
    kappa = 7 / 3 + 3 / math.sqrt(2)
    return y.std() * math.sqrt(2 * rho * log / read) + kappa * width * log / read


@pytest.mark.parametrize("name", ["exponential", "lognormal-1", "lognormal-2", "pareto", "spike"])
@pytest.mark.parametrize("selectivity", [1.0, 0.01])
def test_betting_beats_empirical_bernstein_up_to_half_of_the_population(name, selectivity):
    population = draw(name, 1, 20_000)
    rng = np.random.default_rng(2)
    y = np.where(rng.random(len(population)) < selectivity, population, 0.0)
    for read in (40, 2500, 10_000):
        seen = rng.permutation(y)[:read]
        low, high = np.array([y.min()]), np.array([y.max()])
        sample = sampled(seen, population=20_000, read=read, low=low, high=high)
        wanted = np.ones(1, np.bool_)
        ends = mean_of_tuples(sample, low=low, high=high, wanted=wanted, confidence=0.95)
        other = empirical_bernstein_half_width(seen, 20_000, float(high[0] - low[0]), 0.95)
        free = min(high[0], seen.mean() + other) - max(low[0], seen.mean() - other)
        assert ends[1][0] - ends[0][0] <= free


@pytest.mark.slow
@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("others_count", [True, False])
def test_betting_against_the_truth_does_not_pay(everything, others_count):
    # A population of 128 where 64 or all match: skewed, one value far out.
    rng = np.random.default_rng(7)
    values = np.minimum(rng.lognormal(0, 1.5, 128) / 60, 1.0)
    values[5] = 1.0
    match = np.arange(128) % 2 == 0 if not everything else np.ones(128, np.bool_)
    zero = 0.0
    truth = np.where(match, values, zero).mean() if others_count else values[match].mean()
    wealth = []
    for _ in range(4000):
        rows = rng.permutation(128)[:100]
        seen = values[rows][match[rows]]
        absent = 100 - len(seen)
        plan = make_plan(seen, (absent, 128, others_count and absent > 0, zero, np.uint64(0)))
        for each, none, mean in (
            (plan, zero, truth),
            (mirrored(plan), 1.0 - zero, 1.0 - truth),
        ):
            bets = np.zeros(len(each.before))
            bet_against(each, none, 0.9 * mean, 3.0, bets)  # As of a cell from there on.
            wealth.append(math.exp(learned_wealth(each, none, mean, 3.0, bets)))
    for side in (np.array(wealth[::2]), np.array(wealth[1::2])):
        assert side.std() > 0.05  # It does bet,
        assert side.mean() <= 1.0 + 4 * side.std() / math.sqrt(len(side))  # and does not win.
