"""Profiles: the precision curve is what is measured, the bytes are what is held."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import synopses
from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.counters.hybrid_counters import GroupedHashedCounters
from synopses.counters.join_size import self_join_size
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import combine, murmur_int64, position_keys, position_start, uniforms
from synopses.model.errors import BadParameter
from synopses.model.profile import TYPICAL, Profile, Statistics, Thinning
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.rank_sketches import RankSketches
from synopses.quantiles.req import GroupedReq
from synopses.samples.bottom_k import BottomK, HashSample, WeightedBottomK
from synopses.samples.stratified_sample import StratifiedBottomK
from synopses.theta.theta_sketch import GroupedTheta
from tests import truth

CLASSES = [
    GroupedCount,
    GroupedMoments,
    GroupedCrossMoments,
    GroupedFirstLast,
    GroupedDistinct,
    GroupedTheta,
    GroupedLogBuckets,
    GroupedKll,
    GroupedReq,
    GroupedFrequent,
    GroupedCountMin,
    GroupedCountSketch,
    BottomK,
    StratifiedBottomK,
    HashSample,
    WeightedBottomK,
]
SIZED = [kind for kind in CLASSES if kind.profile.size]


def name(kind: Any) -> str:
    return kind.__name__


def test_no_summary_is_without_a_profile() -> None:
    found = set()
    for module in pkgutil.walk_packages(synopses.__path__, "synopses."):
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and kind.__module__ == module.name:
                found |= {kind} if hasattr(kind, "to_bytes") and hasattr(kind, "update") else set()
    bases = {GroupedHashedCounters, RankSketches}
    assert found - bases == set(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=name)
def test_every_kind_says_what_it_is(kind: Any) -> None:
    profile = kind.profile
    assert profile.question
    assert profile.thinned.startswith("none") == (profile.thinning is Thinning.NEVER)
    assert hasattr(kind, "subtract") == profile.linear
    assert hasattr(kind, "resize") == bool(profile.size)
    assert profile.default in profile.sizes
    for word in ("update", "merge", "to_bytes", "from_bytes", "size_bytes"):
        assert hasattr(kind, word), word


@pytest.mark.parametrize("kind", CLASSES, ids=name)
def test_the_page_says_of_every_kind_what_its_profile_says(kind: Any) -> None:
    page = (Path(__file__).parents[2] / "docs/synopses.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{kind.__name__}` |")]
    _, answers, _, _, linear, thinned = row.strip("| ").split(" | ")
    assert answers.replace("`", "") == kind.profile.question
    assert linear == ("yes" if kind.profile.linear else "no")
    assert thinned == kind.profile.thinning.value


@pytest.mark.parametrize("confidence", [0.68, 0.95, 0.99])
@pytest.mark.parametrize("kind", SIZED, ids=name)
def test_the_size_for_an_error_is_the_smallest_that_has_it(kind: Any, confidence: float) -> None:
    profile: Profile = kind.profile
    statistics = Statistics(tuples=10**9)
    best = profile.error_of(profile.sizes[-1], statistics, confidence)
    worst = profile.error_of(profile.sizes[0], statistics, confidence)
    for error in (min(0.05, 0.9 * worst), min(0.01, 0.5 * worst), max(0.003, best)):
        size = profile.for_error(error, confidence=confidence, statistics=statistics)
        smaller = profile.sizes[profile.sizes.index(size) - 1]
        assert profile.error_of(size, statistics, confidence) <= error
        assert profile.error_of(smaller, statistics, confidence) > error
        held = profile.bytes_of(size, statistics)
        assert profile.size_within(held, statistics) == size
        assert profile.error_at(held, statistics, confidence=confidence) <= error
        assert profile.error_at(held - 1, statistics, confidence=confidence) > error


@pytest.mark.parametrize("kind", SIZED, ids=name)
def test_the_default_size_has_an_error_at_any_confidence(kind: Any) -> None:
    profile: Profile = kind.profile
    errors = [
        profile.error_of(profile.default, TYPICAL, 1 - 10.0**-nines) for nines in range(1, 16)
    ]
    assert np.isfinite(errors).all()
    assert errors == sorted(errors)


@pytest.mark.parametrize("kind", SIZED, ids=name)
def test_what_is_no_error_and_no_confidence_is_refused(kind: Any) -> None:
    with pytest.raises(BadParameter, match="error is nan"):
        kind.profile.for_error(math.nan, confidence=0.95)
    for confidence in (0.0, 1.0, 1.5, -1.0, math.nan):
        with pytest.raises(BadParameter, match="confidence is"):
            kind.profile.for_error(0.01, confidence=confidence)
        with pytest.raises(BadParameter, match="confidence is"):
            kind.profile.error_at(10**6, confidence=confidence)


@pytest.mark.parametrize("kind", SIZED, ids=name)
def test_more_bytes_never_make_a_summary_worse(kind: Any) -> None:
    profile: Profile = kind.profile
    some = profile.sizes[:: max(1, len(profile.sizes) // 500)]
    held = [profile.bytes_of(size, Statistics(tuples=10**12)) for size in some]
    errors = [profile.error_of(size, Statistics(tuples=10**12), 0.95) for size in some]
    assert held == sorted(set(held))
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("kind", SIZED, ids=name)
def test_what_no_size_can_do_is_refused(kind: Any) -> None:
    with pytest.raises(BadParameter, match=r"error is -1\.0, expected >= "):
        kind.profile.for_error(-1.0, confidence=0.95)
    least = kind.profile.bytes_of(kind.profile.sizes[0], Statistics())
    with pytest.raises(BadParameter, match=f"size_bytes is {least - 1}, expected >= {least}"):
        kind.profile.size_within(least - 1)


@dataclass(frozen=True)
class Trial:
    """Summaries of many streams at once.

    errors: shape [trials, questions], distance from value to truth in the profile's share.
    held: bytes of one of them. tightness: how much of the curve is used at the least; a worst
      case over all streams is not met by every stream.
    """

    kind: Any
    size: int
    statistics: Statistics
    errors: NDArray[np.float64]
    held: float
    tightness: float


def shares_off(values: NDArray[Any], answers: NDArray[Any], q: float) -> NDArray[np.float64]:
    """How far the rank of each answer is from q; values [trials, n] sorted."""
    below = (values < answers[:, None]).mean(axis=1)
    within = (values <= answers[:, None]).mean(axis=1)
    return np.maximum(0.0, np.maximum(below - q, q - within))


def distinct(size: int) -> Trial:
    trials, values = 200, 20_000
    summary = GroupedDistinct(trials, size)
    keys = np.random.default_rng(1).integers(0, 2**62, trials * values)
    ids, hashes = np.repeat(np.arange(trials, dtype=np.int32), values), murmur_int64(keys)
    for _ in range(2):  # Else the number of values taken in would tell the truth.
        summary.update(ids, *hashes)
    errors = np.abs(summary.distinct(0.95).value / values - 1)
    held = summary.size_bytes / trials
    return Trial(GroupedDistinct, size, Statistics(values), errors[:, None], held, 0.75)


def theta(size: int) -> Trial:
    trials, values = 200, 20_000
    summary = GroupedTheta(trials, size)
    keys = np.random.default_rng(5).integers(0, 2**62, trials * values)
    ids = np.repeat(np.arange(trials, dtype=np.int32), values)
    summary.update(ids, murmur_int64(keys)[0])
    errors = np.abs(summary.distinct(0.95).value / values - 1)
    held = summary.size_bytes / trials
    return Trial(GroupedTheta, size, Statistics(values), errors[:, None], held, 0.65)


def kll(size: int) -> Trial:
    trials, n = 100, 20_000
    values = truth.draw("normal", 2, trials * n).reshape(trials, n)
    summary = GroupedKll(trials, size)
    for start in range(0, n, size):  # Batches that pass all compactors; large ones err less.
        batch = values[:, start : start + size]
        summary.update(np.repeat(np.arange(trials, dtype=np.int32), batch.shape[1]), batch.ravel())
        summary.counts()
    values = np.sort(values)
    questions = [0.05, 0.25, 0.5, 0.75, 0.95]
    errors = [shares_off(values, summary.quantile(q, 0.95).value, q) for q in questions]
    held = summary.size_bytes / trials
    # 0.25 to 0.32 of the curve: the library's coins are its own, and fall otherwise each time.
    return Trial(GroupedKll, size, Statistics(n), np.stack(errors, axis=1), held, 0.2)


def req(size: int) -> Trial:
    trials, n = 100, 60_000
    values = np.random.default_rng(7).permuted(np.tile(np.arange(float(n)), (trials, 1)), axis=1)
    summary = GroupedReq(trials, size)
    summary.update(np.repeat(np.arange(trials, dtype=np.int32), n), values.ravel())
    values = np.sort(values)
    questions = [0.7, 0.8, 0.9]
    errors = [shares_off(values, summary.quantile(q, 0.95).value, q) / (1 - q) for q in questions]
    held = summary.size_bytes / trials
    return Trial(GroupedReq, size, Statistics(n), np.stack(errors, axis=1), held, 0.25)


def frequent(size: int) -> Trial:
    keys = np.arange(100_000)  # Every value once: nothing can be forgotten more often.
    summary = GroupedFrequent(1, size)
    for first in range(0, keys.size, 1_000):  # Of large batches less is forgotten.
        part = keys[first : first + 1_000]
        summary.update(None, murmur_int64(part)[0], part)
    errors = summary.error / summary.totals
    held = summary.size_bytes
    return Trial(GroupedFrequent, size, Statistics(len(keys)), errors[:, None], held, 0.4)


def _pairs(summary: Any) -> tuple[Any, int]:
    """200 groups of 2,000 values, each four times; returns how many pairs each has, too."""
    groups, values = 200, 2_000
    keys = np.random.default_rng(5).integers(0, 2**62, groups * values)
    ids = np.repeat(np.arange(groups, dtype=np.int32), values)
    for _ in range(4):
        summary.update(ids, murmur_int64(keys)[0])
    return summary, 16 * values


def joined(size: int) -> Trial:
    summary, pairs = _pairs(GroupedCountMin(200, size))
    errors = np.abs(self_join_size(summary, 0.95).value / pairs - 1)
    statistics, held = Statistics(8_000), summary.size_bytes / 200
    return Trial(GroupedCountMin, size, statistics, errors[:, None], held, 0.2)


def squared(size: int) -> Trial:
    summary, pairs = _pairs(GroupedCountSketch(200, size))
    errors = np.abs(summary.second_moment(0.95).value / pairs - 1)
    statistics, held = Statistics(8_000), summary.size_bytes / 200
    return Trial(GroupedCountSketch, size, statistics, errors[:, None], held, 0.2)


def uniform(size: int) -> Trial:
    trials, n = 300, 4 * size
    errors = np.zeros((trials, 1))
    for trial in range(trials):
        sample = BottomK(size)
        keys = position_keys(trial, 0, n)
        kept = sample.update(keys).new[sample.settle().old]
        errors[trial] = abs((kept % 2 == 0).mean() - 0.5)  # A filter that half of the rows pass.
    return Trial(BottomK, size, Statistics(n), errors, 2 * sample.size_bytes, 0.75)


def stratified(size: int) -> Trial:
    """Of all tuples the half that pass a filter, from four strata of which each is as large."""
    trials, n, strata = 300, 4 * size, 4
    ids = np.arange(n, dtype=np.int32) % strata
    errors = np.zeros((trials, 1))
    for trial in range(trials):
        sample = StratifiedBottomK(strata, size)
        kept = sample.update(ids, position_start(trial, 0)).new
        stay = sample.cut(np.ones(strata)).old
        assert stay is not None
        read = sample.chosen()
        passed = kept[stay][read.rows] // strata % 2 == 0
        shares = np.bincount(read.ids, passed, strata) / read.read
        errors[trial] = abs(shares.mean() - 0.5)
    return Trial(StratifiedBottomK, size, Statistics(n), errors, 2 * sample.size_bytes, 0.75)


def hashed(size: int) -> Trial:
    trials, n = 300, 50 * size
    errors = np.zeros((trials, 1))
    for trial in range(trials):
        sample = HashSample(size)
        sample.update(combine(murmur_int64(np.arange(n))[0], np.full(n, trial, np.uint64)))
        sample.settle()
        errors[trial] = abs(len(sample.hashes) / sample.share / n - 1)
    return Trial(HashSample, size, Statistics(n), errors, 2 * sample.size_bytes, 0.75)


def weighted(size: int) -> Trial:
    trials, n = 300, 50 * size
    weights = 1.0 + np.random.default_rng(3).random(n)
    errors = np.zeros((trials, 1))
    for trial in range(trials):
        sample = WeightedBottomK(size)
        sample.update(weights, uniforms(position_keys(trial, 0, n)))
        sample.settle()
        errors[trial] = abs(np.maximum(sample.weights, sample.tau).sum() / weights.sum() - 1)
    return Trial(WeightedBottomK, size, Statistics(n), errors, 2 * sample.size_bytes, 0.75)


MEASURES: list[tuple[Callable[[int], Trial], int]] = [
    (distinct, 9),
    (distinct, 11),
    (theta, 8),
    (theta, 10),
    (kll, 50),
    (kll, 200),
    (req, 12),
    (req, 50),
    (frequent, 64),
    (frequent, 1024),
    (joined, 8),
    (squared, 8),
    (uniform, 1000),
    (stratified, 1000),
    (hashed, 256),
    (weighted, 256),
]


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize(
    ("measure", "size"), MEASURES, ids=[f"{measure.__name__}-{size}" for measure, size in MEASURES]
)
def test_the_precision_curve_is_what_is_measured(
    measure: Callable[[int], Trial], size: int
) -> None:
    trial = measure(size)
    profile = trial.kind.profile
    for confidence in (0.68, 0.95, 0.99):
        curve = profile.error_of(size, trial.statistics, confidence)
        for errors in trial.errors.T:
            assert (errors <= curve).sum() >= truth.gate(len(errors), confidence)
            assert np.quantile(errors, confidence) >= trial.tightness * curve
    predicted = profile.bytes_of(size, trial.statistics)
    assert 0.5 * predicted <= trial.held <= 1.25 * predicted  # Rows grow by a quarter.


@pytest.mark.slow
@pytest.mark.parametrize("lg_k", [7, 9, 10, 12])
@pytest.mark.parametrize("groups", [100, 1_000, 3_000])
def test_open_groups_of_many_distinct_values_take_the_bytes_of_their_profile(
    groups: int, lg_k: int
) -> None:
    """Groups come one after the other, so that there is room for more of them."""
    rng = np.random.default_rng(groups + lg_k)
    summary = GroupedDistinct(0, lg_k)
    for number in range(16):
        known = min(groups, (number + 1) * groups // 8)
        ids = np.repeat(np.arange(known, dtype=np.int32), (1 << lg_k) // 8)
        first, second = rng.integers(0, 1 << 63, (2, ids.size)).astype(np.uint64)
        summary.grow(known)
        summary.update(ids, first, second)
    predicted = groups * GroupedDistinct.profile.bytes_of(lg_k, TYPICAL)
    assert 0.9 * predicted <= summary.size_bytes <= 1.1 * predicted


@pytest.mark.slow
@pytest.mark.parametrize("bits", [7, 5, 2])
@pytest.mark.parametrize("decades", [2, 6])
def test_log_buckets_take_the_bytes_and_have_the_error_of_their_profile(
    decades: int, bits: int
) -> None:
    values = 10.0 ** np.random.default_rng(4).uniform(0, decades, 200_000)
    summary = GroupedLogBuckets(1)
    summary.update(None, values)
    summary.resize(bits)
    statistics = Statistics(len(values), decades)
    predicted = GroupedLogBuckets.profile.bytes_of(bits, statistics)
    assert 0.4 * predicted <= summary.size_bytes <= predicted
    curve = GroupedLogBuckets.profile.error_of(bits, statistics, 0.95)
    questions = np.linspace(0.001, 0.999, 200)
    answers = np.array([summary.quantile(q).value[0] for q in questions])
    exact = truth.exact_quantiles(values, questions)
    errors = np.abs(answers / exact - 1)
    assert curve / 2 < errors.max() <= curve


@pytest.mark.parametrize("kind", [GroupedCount, GroupedMoments])
def test_exact_summaries_have_no_error_and_the_bytes_of_their_profile(kind: Any) -> None:
    summary = kind(1000) if kind is GroupedCount else kind(1000, integer=False)
    assert kind.profile.error_at(10**6, confidence=0.95) == 0.0
    assert summary.size_bytes == 1000 * kind.profile.bytes_of(0, Statistics())
