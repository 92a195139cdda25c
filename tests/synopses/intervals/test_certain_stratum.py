"""Sums, means and variances with values that are known for certain, against exact truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from synopses.intervals.certain_stratum import (
    CertainValues,
    mean_with_certain,
    sum_with_certain,
    variance_with_certain,
)
from synopses.intervals.means import sampled_mean
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sums import sampled_sum
from synopses.intervals.variance import sampled_variance
from synopses.model.estimate import Bound
from tests.truth import DISTRIBUTIONS, gate

ANSWERS = {
    "sum": (sum_with_certain, sampled_sum),
    "mean": (mean_with_certain, sampled_mean),
    "variance": (variance_with_certain, sampled_variance),
}
GROUPS = 3


class Column:
    """A column in groups, the rows of it beyond two ends, and a sample of the others."""

    def __init__(self, values, ids, *, k, read, rng) -> None:
        self.values, self.ids = values, ids
        ranked = np.sort(values)
        self.low, self.high = ranked[k], ranked[-k - 1]
        self.is_extreme = (values < self.low) | (values > self.high)
        self.rows = rng.choice(len(values), read, replace=False)
        self.groups = int(ids.max()) + 1
        self.seed = int(rng.integers(1 << 62))

    @property
    def certain(self) -> CertainValues:
        chosen = self.is_extreme
        return CertainValues.of(self.values[chosen], ids=self.ids[chosen], groups=self.groups)

    @property
    def others(self) -> SampledValues:
        rows = self.rows[~self.is_extreme[self.rows]]
        size = len(self.values) - int(self.is_extreme.sum())
        return self._sample(rows, size, self.low, self.high)

    @property
    def whole(self) -> SampledValues:
        ends = self.values.min(), self.values.max()
        return self._sample(self.rows, len(self.values), *ends)

    def _sample(self, rows, size, low, high) -> SampledValues:
        return SampledValues.by_group(
            self.values[rows],
            ids=None if self.groups == 1 else self.ids[rows].astype(np.int32),
            groups=self.groups, population=size, read=len(rows), low=low, high=high,
            everything=self.groups == 1, shuffle_seed=self.seed,
        )  # fmt: skip

    def truths(self, name) -> list[float]:
        each = [self.values[self.ids == group] for group in range(self.groups)]
        of = {"sum": np.sum, "mean": np.mean, "variance": lambda part: part.var(ddof=1)}[name]
        return [float(of(part)) for part in each]


def drawn(name, seed, *, size=1_200, k=15, read=200, groups=GROUPS) -> Column:
    rng = np.random.default_rng([seed, groups])
    ids = rng.integers(0, groups, size)
    return Column(DISTRIBUTIONS[name](rng, size), ids, k=k, read=read, rng=rng)


def first_groups(columns: list[Column]) -> tuple[SampledValues, CertainValues]:
    """The first group of each column: groups of one sample are no independent trials."""
    first = np.arange(columns[0].groups) == 0
    others = [column.others.of_groups(first) for column in columns]
    certain = [column.certain.of_groups(first) for column in columns]
    joined = SampledValues(
        population=np.array([sample.population for sample in others]),
        read=np.array([sample.read for sample in others]),
        starts=np.cumsum([0, *(len(sample.values) for sample in others)]),
        values=np.concatenate([sample.values for sample in others]),
        low=np.concatenate([sample.low for sample in others]),
        high=np.concatenate([sample.high for sample in others]),
        everything=others[0].everything,
        shuffle_seed=others[0].shuffle_seed,
    )
    names = ("counts", "means", "squares", "greatest")
    parts = (np.concatenate([getattr(each, name) for each in certain]) for name in names)
    return joined, CertainValues(*parts)


@pytest.mark.parametrize("groups", [1, GROUPS])
@pytest.mark.parametrize("name", list(ANSWERS))
def test_with_all_others_read_the_answer_is_that_of_all_values(name, groups):
    column = drawn("lognormal-2", 1, read=1_200, groups=groups)
    found = ANSWERS[name][0](column.others, column.certain, confidence=0.95)
    for end in (found.value, found.low, found.high):
        np.testing.assert_allclose(end, column.truths(name), rtol=1e-9)


@pytest.mark.parametrize("name", list(ANSWERS))
def test_groups_without_a_certain_value_are_those_of_the_sample(name):
    column = drawn("normal", 2)
    nothing = CertainValues.of(np.zeros(0), ids=np.zeros(0, np.int64), groups=GROUPS)
    found = ANSWERS[name][0](column.others, nothing, confidence=0.95)
    expected = ANSWERS[name][1](column.others, confidence=0.95)
    for part in ("value", "low", "high", "bound", "variance"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))


@pytest.mark.parametrize("name", list(ANSWERS))
def test_a_group_with_certain_values_only_holds_theirs(name):
    """No other value of the group was seen, and there may be some in [0, 1]."""
    certain = CertainValues.of(np.array([5.0, 9.0]), ids=np.array([1, 1]), groups=2)
    others = SampledValues.by_group(
        np.full(50, 0.5), ids=np.zeros(50, np.int32), groups=2, population=500, read=50,
        low=0.0, high=1.0,
    )  # fmt: skip
    found = ANSWERS[name][0](others, certain, confidence=0.95)
    seen = {"sum": 14.0, "mean": 7.0, "variance": 8.0}[name]
    assert found.value[1] == pytest.approx(seen)
    assert found.low[1] <= seen <= found.high[1]
    for zeros in (0, 10, 25):  # That no row of 25 in 500 was read has a probability of 0.07.
        values = np.concatenate([[5.0, 9.0], np.zeros(zeros)])
        truth = {"sum": 14.0, "mean": values.mean(), "variance": values.var(ddof=1)}[name]
        assert found.low[1] <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= found.high[1]
    assert found.bound[1] == Bound.INTERVAL


@pytest.mark.parametrize("certain", [1, 2, 3])
@pytest.mark.parametrize("others", [1, 2, 25])
def test_a_variance_allows_for_others_far_from_the_certain_values(others, certain):
    """None of them was seen; with one certain value their distance from it is all there is."""
    known = CertainValues.of(np.full(certain, 1e6), ids=np.zeros(certain, np.int64), groups=1)
    nothing = SampledValues.by_group(
        np.zeros(0), ids=np.zeros(0, np.int32), groups=1, population=500, read=50,
        low=0.0, high=1.0,
    )  # fmt: skip
    found = variance_with_certain(nothing, known, confidence=0.95)
    truth = np.concatenate([np.full(certain, 1e6), np.zeros(others)]).var(ddof=1)
    assert found.low[0] <= truth <= found.high[0] * (1 + 1e-9)


def test_neither_a_certain_nor_a_sampled_value_is_no_mean():
    certain = CertainValues.of(np.array([5.0]), ids=np.array([0]), groups=2)
    others = SampledValues.by_group(
        np.full(9, 0.5), ids=np.zeros(9, np.int32), groups=2, population=500, read=50,
        low=0.0, high=1.0,
    )  # fmt: skip
    found = mean_with_certain(others, certain, confidence=0.95)
    assert math.isnan(found.value[1])
    assert (found.low[1], found.high[1]) == (0.0, 1.0)


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("groups", [1, GROUPS])
@pytest.mark.parametrize("name", ["lognormal-1", "pareto", "spike", "zipf", "normal"])
def test_intervals_hold_the_truth_as_often_as_they_say(name, groups):
    trials = 60
    columns = [drawn(name, seed, groups=groups) for seed in range(trials)]
    # A sample of a whole column has one group.
    at_once = [columns] if groups > 1 else [[column] for column in columns]
    held = dict.fromkeys(ANSWERS, 0)
    for some in at_once:
        others, certain = first_groups(some)
        for answer, (with_certain, _) in ANSWERS.items():
            found = with_certain(others, certain, confidence=0.95)
            truth = np.array([column.truths(answer)[0] for column in some])
            slack = 1e-9 * np.abs(truth)
            held[answer] += int(
                ((found.low - slack <= truth) & (truth <= found.high + slack)).sum()
            )
    for answer, count in held.items():
        assert count >= gate(trials, 0.95), (answer, count)


@pytest.mark.parametrize("answer", list(ANSWERS))
@pytest.mark.parametrize("groups", [1, GROUPS])
def test_intervals_are_at_most_half_as_wide_where_the_tail_is_known(groups, answer):
    for name in ("lognormal-2", "pareto"):
        column = drawn(name, 3, groups=groups)
        with_certain, without = ANSWERS[answer]
        found = with_certain(column.others, column.certain, confidence=0.95)
        wide = without(column.whole, confidence=0.95)
        assert (2.0 * (found.high - found.low) < wide.high - wide.low).all(), name


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_what_doubles_round_off_a_large_value_is_allowed_for(name):
    rng = np.random.default_rng(4)
    values = rng.uniform(0.0, 1.0, 1_200)
    values[:10] = 1e17 * rng.uniform(1.0, 2.0, 10)
    column = Column(values, np.zeros(1_200, np.int64), k=15, read=200, rng=rng)
    found = ANSWERS[name][0](column.others, column.certain, confidence=0.95)
    exact = math.fsum(values) / (1 if name == "sum" else len(values))
    assert found.low[0] <= exact <= found.high[0]
