"""The precision of plans: formulas against plans that were run, and memory against all choices."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from allocator.errors import BadPrecision, NothingFits
from allocator.plan_precision.memory import OperatorSizes, best_sizes, losses
from allocator.plan_precision.operators import (
    Difference,
    DuplicateElimination,
    Selection,
    Union,
    WindowedJoin,
)
from allocator.plan_precision.precision import EXACT, Precision
from allocator.plan_precision.query_plan import Step, precision_of
from allocator.plan_precision.reference_solver import solved_sizes, whole_sizes
from allocator.plan_precision.value_errors import (
    SummedValues,
    average_error,
    scaled_total_error,
    total_error,
)
from tests.allocator.plan_world import PlanMaker, observed, own_precisions
from tests.scale import scaled
from tests.seeds import seed

WINDOWS = 60
BELOW_OFF = {0.1: 0.06, 0.5: 0.1, 0.9: 0.06}  # of 400 windows, four standard errors
DEVIATIONS = 5.5  # one comparison in 25 million is farther off by chance


def distances(number):
    """How far recall and spurious tuples of a simulated random plan are from what is predicted,
    in standard errors of the simulation."""
    rng = np.random.default_rng(number)
    maker = PlanMaker(rng)
    node = maker.plan(int(rng.integers(1, 4)))
    own = own_precisions(node.step, rng)
    predicted = precision_of(node.step, own)
    correct, produced, spurious = observed(node, maker.bases, own, rng, WINDOWS).T
    return [
        _distance(produced, correct, float(predicted.recall)),
        _distance(spurious, correct, float(predicted.spurious)),
    ]


def _distance(part, whole, predicted):
    """Of a ratio of means over windows, by linearisation."""
    left = part - predicted * whole
    error = left.std(ddof=1) / np.sqrt(len(left))
    return abs(left.mean()) / max(error, 0.1 / len(left))


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(scaled(1, 5)))
def test_two_hundred_random_plans_are_as_precise_as_predicted(turn):
    """A per-change run tests one of five parts of the same 1,000 plans; a nightly run tests all."""
    first = 1_000 + (seed("random plans") + turn) % 5 * 200
    off = np.array([distances(number) for number in range(first, first + 200)])
    assert off.max() < DEVIATIONS
    assert np.mean(off < 2) > 0.93  # as standard errors go: 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_recall_varies_from_window_to_window_as_predicted(seed):
    rng = np.random.default_rng(500 + seed)
    maker = PlanMaker(rng)
    node = maker.joined(*(maker.plan(1, one_by_one=True) for _ in range(2)))
    own = own_precisions(node.step, rng)
    predicted = precision_of(node.step, own)
    windows = 400
    correct, produced, _ = observed(node, maker.bases, own, rng, windows).T
    deviation = (produced / correct).std(ddof=1)
    assert deviation == pytest.approx(float(predicted.recall_deviation(node.size)), rel=0.25)
    for share, off in BELOW_OFF.items():
        below = (produced / correct < float(predicted.recall_quantile(share, node.size))).mean()
        assert below == pytest.approx(share, abs=off)


PLANS = {
    "select": lambda its: its.selected(its.base(), 0.8),
    "select twice": lambda its: its.selected(its.selected(its.base(), 0.9), 0.3),
    "union": lambda its: its.united(its.base(), its.base()),
    "union of unlike": lambda its: its.united(its.selected(its.base(), 0.5), its.base()),
    "join": lambda its: its.joined(its.simple(1), its.simple(1)),
    "join of joins": lambda its: its.joined(its.joined(its.base(), its.base()), its.base()),
    "distinct": lambda its: its.distinct(its.simple(1)),
    "difference": lambda its: its.without(its.base(), its.simple(1)),
    "select of a difference": lambda its: its.selected(its.without(its.base(), its.base()), 0.6),
    "difference and more": lambda its: its.united(its.without(its.base(), its.base()), its.base()),
    "join of a difference": lambda its: its.joined(its.without(its.base(), its.base()), its.base()),
    "difference of a join": lambda its: its.without(its.joined(its.base(), its.base()), its.base()),
    "difference twice": lambda its: its.without(its.without(its.base(), its.base()), its.base()),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("seed", range(3))
def test_false_positives_vary_from_window_to_window_as_predicted(kind, seed):
    rng = np.random.default_rng([800, seed])
    maker = PlanMaker(rng)
    node = PLANS[kind](maker)
    own = own_precisions(node.step, rng)
    predicted = precision_of(node.step, own)
    correct, produced, spurious = observed(node, maker.bases, own, rng, 400).T
    rates = spurious / (produced + spurious)
    mean = float(predicted.false_positives)
    assert rates.mean() == pytest.approx(mean, abs=5 * rates.std() / 20 + 0.01)
    deviation = float(predicted.false_positives_deviation(node.size))
    assert rates.std(ddof=1) == pytest.approx(deviation, rel=0.2)
    of_recall = float(predicted.recall_deviation(node.size))
    assert (produced / correct).std(ddof=1) == pytest.approx(of_recall, rel=0.2)
    for share, off in BELOW_OFF.items():
        below = (rates < float(predicted.false_positives_quantile(share, node.size))).mean()
        assert below == pytest.approx(share, abs=off)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["difference", "select of a difference", "join of a difference"])
@pytest.mark.parametrize("seed", range(2))
def test_a_count_above_a_difference_errs_as_predicted(kind, seed):
    rng = np.random.default_rng([900, seed])
    maker = PlanMaker(rng)
    node = PLANS[kind](maker)
    own = own_precisions(node.step, rng)
    it = precision_of(node.step, own)
    correct, produced, spurious = observed(node, maker.bases, own, rng, 400).T
    off = (produced + spurious) / float(it.produced) - correct
    predicted = scaled_total_error(SummedValues(node.size), it)
    assert off.mean() == pytest.approx(0.0, abs=5 * off.std() / 20)
    assert off.std() == pytest.approx(float(np.sqrt(predicted.variance)), rel=0.2)
    for distance in np.array([0.5, 1.0, 1.5]) * off.std():
        held = (np.abs(off) <= distance).mean()
        assert float(predicted.within(distance)) == pytest.approx(held, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("results", [800, 8])
def test_what_a_join_invents_varies_with_the_pairs_that_arrive_whatever_their_keys(results):
    rng = np.random.default_rng([810, results])
    maker = PlanMaker(rng)
    left, right = maker.base(), maker.base()
    keys = int(left.size * right.size / results)
    join, size = WindowedJoin(1 / left.size, 1 / right.size), left.size * right.size / keys
    node = maker.node("join", join, (left, right), size, False, keys=keys)
    own = {node.step.name: Precision.of(0.9, 0.6)}
    it = precision_of(node.step, own)
    correct, produced, spurious = observed(node, maker.bases, own, rng, 1_500).T
    found = np.cov([correct, produced, produced + spurious]) / node.size**2
    assert found == pytest.approx(it.covariances(node.size), rel=0.15)
    if results > 100:
        deviation = (spurious / (produced + spurious)).std()
        assert deviation == pytest.approx(float(it.false_positives_deviation(size)), rel=0.08)


def test_spurious_results_come_together_where_a_join_multiplies_them():
    invented = Precision.of(1.0, 0.25)
    found = WindowedJoin(0.01, 0.01).output(EXACT, (invented, EXACT))
    # A quarter as many of the left are spurious; of 100 there, 25 in the mean, which come or do not
    # with all of their results: their number varies by 5, so FP by 0.05 / 1.25^2.
    correct, kept, _ = found.covariances(1e12)
    assert kept[1:] == pytest.approx(float(found.produced) ** np.arange(2) * correct[0], abs=1e-4)
    assert float(found.false_positives_deviation(1e12)) == pytest.approx(0.05 / 1.25**2, rel=0.03)
    assert float(invented.false_positives_deviation(1e12)) < 1e-5


def test_clustering_is_what_a_join_adds():
    thinned = Precision.of(0.8, 0.0)
    joined = WindowedJoin(0.01, 0.01).output(EXACT, (thinned, EXACT))
    # Each result is there with probability 0.8; two of one left tuple (1 % of the pairs) together.
    assert float(joined.recall_deviation(1e12)) ** 2 == pytest.approx(0.01 * (0.8 - 0.64))


def test_the_operators_formulas_worked_out_by_hand():
    half = Precision.of(0.5, 0.25)
    assert rates_of(Selection().output(Precision.of(0.5, 0.1), (half,))) == (0.25, 0.2)
    assert rates_of(Union(0.75).output(EXACT, (half, EXACT))) == (0.625, 0.1875)
    # 0.5 * 0.5 pairs of correct ones; 0.75 * 0.75 arrive.
    assert rates_of(WindowedJoin(0, 0).output(EXACT, (half, half))) == (0.25, 0.3125)
    # One or two copies: both are missed with 0.25, and spurious values are all new.
    twice = DuplicateElimination(np.array([0.5, 0.5]), 1.0, 1e12)
    assert rates_of(twice.output(EXACT, (half,))) == pytest.approx((0.625, 0.375))
    # Half of the left have a match, which is missed in half of the cases: 0.25 per 0.5 of result.
    negation = Difference(np.array([0.5, 0.5]), 0.0)
    assert rates_of(negation.output(EXACT, (EXACT, Precision.of(0.5, 0.0)))) == (1.0, 0.5)


def rates_of(it):
    return float(it.recall), float(it.spurious)


def test_the_literatures_rates_and_ours_are_the_same_thing():
    it = Precision.of_rates(0.2, 0.1)
    assert float(it.false_positives) == pytest.approx(0.2)
    assert float(it.false_negatives) == pytest.approx(0.1)
    nothing = Precision.of(0.0, 0.0)
    assert float(nothing.false_positives) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_total_errs_as_predicted(seed):
    rng = np.random.default_rng(seed)
    it = Precision.of(rng.uniform(0.5, 1), rng.uniform(0, 0.5))
    tuples, trials = 200, 4_000
    values = rng.lognormal(size=tuples)
    known = SummedValues(tuples, values.mean(), np.square(values).mean())
    kept = rng.random((trials, tuples)) < it.recall
    invented = rng.poisson(float(it.spurious), (trials, tuples))
    totals = (kept * values + invented * values).sum(1)
    off = totals - values.sum()
    predicted = total_error(known, it)
    assert off.mean() == pytest.approx(float(predicted.bias), abs=6 * off.std() / trials**0.5)
    assert off.var() == pytest.approx(float(predicted.variance), rel=0.2)
    scaled = totals / float(it.recall + it.spurious) - values.sum()
    assert scaled.std() == pytest.approx(
        float(scaled_total_error(known, it).root_mean_square), rel=0.1
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_an_average_errs_as_predicted_and_is_as_often_near_as_is_said(seed):
    rng = np.random.default_rng(40 + seed)
    it = Precision.of(rng.uniform(0.5, 1), rng.uniform(0, 0.5))
    tuples, trials = 300, 4_000
    values = rng.gamma(3.0, size=(trials, tuples))
    known = SummedValues(tuples, 3.0, 12.0)
    kept = rng.random((trials, tuples)) < it.recall
    invented = rng.poisson(float(it.spurious) * tuples, trials)
    added = rng.gamma(3.0 * invented)  # The sum of so many values.
    off = (np.where(kept, values, 0).sum(1) + added) / (kept.sum(1) + invented) - values.mean(1)
    predicted = average_error(known, it)
    assert off.mean() == pytest.approx(0.0, abs=6 * off.std() / trials**0.5)
    assert off.var() == pytest.approx(float(predicted.variance), rel=0.15)
    for distance in (0.02, 0.05, 0.1):
        near = (np.abs(off) <= distance).mean()
        assert near == pytest.approx(float(predicted.within(distance)), abs=0.03)


def test_a_total_is_as_often_near_as_is_said():
    rng = np.random.default_rng(9)
    it = Precision.of(0.9, 0.05)
    known = SummedValues(400.0)
    off = rng.binomial(400, 0.9, 20_000) + rng.poisson(20, 20_000) - 400
    for distance in (10, 20, 30):
        near = (np.abs(off) <= distance + 0.5).mean()  # Counts are whole.
        assert near == pytest.approx(float(total_error(known, it).within(distance + 0.5)), abs=0.02)
    with pytest.raises(BadPrecision, match="distance must be > 0, got 0"):
        total_error(known, it).within(0)


SIZES = 100 * 2 ** np.arange(6)


def drawn_sizes(plan, rng, size=SIZES):
    """For each operator a curve from bytes to precision."""
    found = []
    for step in plan.walk():
        if step.operator is not None:
            lost = rng.uniform(0.05, 0.6) * (size / 100) ** -rng.uniform(0.3, 1.5)
            invented = rng.uniform(0, 0.5) * (size / 100) ** -rng.uniform(0.3, 1.5)
            found.append(OperatorSizes(step.name, size, Precision.of(1 - lost, invented)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_memory_goes_where_it_makes_the_plan_most_precise(seed):
    rng = np.random.default_rng(900 + seed)
    plan = PlanMaker(rng).plan(3).step
    sizes = drawn_sizes(plan, rng)
    if not 2 <= len(sizes) <= 6:
        sizes = sizes[:6]
    choices = np.array(list(product(range(6), repeat=len(sizes))))
    used = sum(it.size_bytes[choices[:, at]] for at, it in enumerate(sizes))
    budget = int(rng.uniform(1.5, 10) * 100 * len(sizes))
    best = losses(plan, sizes, choices[used <= budget]).min()
    choice = best_sizes(plan, sizes, budget)
    assert sum(it.size_bytes[i] for it, i in zip(sizes, choice, strict=True)) <= budget
    assert losses(plan, sizes, choice[None])[0] <= best * 1.01


@pytest.mark.parametrize("seed", range(8))
def test_memory_is_within_a_percent_of_a_packaged_solvers_optimum(seed):
    rng = np.random.default_rng(700 + seed)
    plan = PlanMaker(rng).plan(3).step
    sizes = drawn_sizes(plan, rng, np.unique(np.geomspace(100, 3_200, 96).astype(np.int64)))[:6]
    if len(sizes) < 2:
        return  # Between two sizes of one operator there is nothing to share out.
    budget = int(rng.uniform(2, 10) * 100 * len(sizes))
    given, least = solved_sizes(plan, sizes, budget)
    assert given.sum() <= budget * (1 + 1e-6)
    found = losses(plan, sizes, best_sizes(plan, sizes, budget)[None])[0]
    assert least * 0.999 <= found <= least * 1.01
    assert found <= losses(plan, sizes, whole_sizes(sizes, given)[None])[0] * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_many_sizes_are_within_a_percent_of_the_best_of_them(seed):
    """Where memory is tight, whole sizes may be further than that from continuous ones."""
    rng = np.random.default_rng(5_000 + seed)
    size = np.unique(np.geomspace(100, 3_200, 96).astype(np.int64))
    plan, sizes = None, []
    while len(sizes) < 2:
        plan = PlanMaker(rng).plan(2).step
        sizes = drawn_sizes(plan, rng, size)[:2]
    budget = int(rng.uniform(1.1, 3) * 200)
    choices = np.array(list(product(range(len(size)), repeat=2)))
    fits = size[choices].sum(1) <= budget
    best = losses(plan, sizes, choices[fits]).min()
    assert losses(plan, sizes, best_sizes(plan, sizes, budget)[None])[0] <= best * 1.01


@pytest.mark.parametrize("error", [average_error, scaled_total_error])
def test_of_what_does_not_arrive_no_value_is_known(error):
    found = error(SummedValues(10.0, 1.0, 2.0), Precision.of(np.array([0.0, 0.5]), 0.0))
    assert found.variance[0] == np.inf
    assert np.isfinite(found.variance[1])
    assert found.within(1.0)[0] == 0.0


def test_nearly_all_windows_have_the_recall_of_a_certain_share():
    steady = Precision.of(np.array([0.0, 0.4, 1.0]), 0.0)
    assert steady.recall_quantile(0.1, 1e15) == pytest.approx([0.0, 0.4, 1.0], abs=1e-6)
    assert float(Precision.of(0.5, 0).recall_quantile(0.025, 100)) == pytest.approx(0.403, abs=2e-3)
    with pytest.raises(BadPrecision, match=r"share must be in \(0, 1\), got 1.5"):
        steady.recall_quantile(1.5, 10)


SELECTED = Step("s", Selection(), (Step("a"),))


def test_a_plan_without_a_choice_is_as_it_is():
    assert best_sizes(SELECTED, [], 0).tolist() == []


def test_a_plan_whose_operators_do_not_fit_says_so():
    step = Step("select", Selection(), (Step("base"),))
    sizes = [
        OperatorSizes("select", np.array([100, 200]), Precision.of(np.array([0.9, 1]), np.zeros(2)))
    ]
    with pytest.raises(NothingFits, match="100 of 99"):
        best_sizes(step, sizes, 99)
    with pytest.raises(NothingFits, match="100 of 99"):
        solved_sizes(step, sizes, 99)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Precision.of(1.5, 0), r"recall must be in \[0, 1\], got 1.5"),
        (lambda: Precision.of(float("nan"), 0), "recall must be .* got nan"),
        (lambda: Precision.of(1, -1), "spurious must be >= 0 and finite, got -1.0"),
        (lambda: Precision.of_rates(1.0, 0), r"FP must be in \[0, 1\), got 1.0"),
        (lambda: Precision.of_rates([0.0, 0.2], 1.0), "FP must be 0 where FN is 1, got 0.2"),
        (lambda: Step("j", WindowedJoin(0.1, 0.1), (Step("a"),)), "inputs of j must be 2, got 1"),
        (lambda: Step("s", inputs=(Step("a"),)), "inputs of s must be 0, got 1"),
        (
            lambda: Step("j", WindowedJoin(0.1, 0.1), (Step("a"), Step("a"))),
            "once in a plan, got 'a'",
        ),
        (
            lambda: best_sizes(Step("a"), drawn_sizes(SELECTED, np.random.default_rng(1)), 999),
            "got 's'",
        ),
        (lambda: Union(2.0), r"left_share must be in \[0, 1\], got 2.0"),
        (lambda: Difference(np.array([0.0, 1.0]), 0), r"matches\[0\] must be > 0, got 0.0"),
        (lambda: DuplicateElimination(np.array([0.5]), 1, 1), "add up to 1, got"),
    ],
)
def test_what_no_plan_can_have_is_refused(make, message):
    with pytest.raises(BadPrecision, match=message):
        make()
