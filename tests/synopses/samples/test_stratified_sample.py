"""Stratified samples: fair parts of each stratum in the sizes that Neyman gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synopses.intervals.means import sampled_mean
from synopses.intervals.sample_values import SampledValues
from synopses.kernels.hashing import position_keys, position_start
from synopses.model.errors import BadParameter, CorruptSynopsis
from synopses.samples.neyman_allocation import neyman
from synopses.samples.stratified_sample import StratifiedBottomK
from tests.truth import gate


def fed(
    sample: StratifiedBottomK,
    ids: np.ndarray,
    deviation: np.ndarray,
    seed: int,
    before: np.ndarray | None = None,
    first: int = 0,
) -> list[np.ndarray]:
    """The held positions after each batch; cuts when the sample says so."""
    held = np.zeros(0, np.int64) if before is None else before
    after = []
    for start in range(first, len(ids), 250):
        part = ids[start : start + 250]
        kept = sample.update(part, position_start(seed, start))
        held = np.concatenate([held, start + kept.new])
        if sample.is_full:
            stay = sample.cut(deviation).old
            assert stay is not None
            held = held[stay]
        after.append(held)
    return after


def skewed(size: int, groups: int = 12, seed: int = 1) -> np.ndarray:
    """The large come first, and every tenth tuple is of one that drifts in late."""
    ids = np.minimum(np.random.default_rng(seed).zipf(1.5, size), groups - 1).astype(np.int32)
    late = np.arange(size) > 0.7 * size
    ids[late & (np.arange(size) % 3 == 0)] = groups - 1
    return ids


def test_sizes_are_neymans_by_hand() -> None:
    """Half of 100 evenly: 25 each; the other half as 1000 * 1 to 1000 * 4."""
    found = neyman(
        100,
        population=np.array([1000, 1000]),
        deviation=np.array([1.0, 4.0]),
        most=np.array([1000, 1000]),
        floor_share=0.5,
    )
    assert found.tolist() == [35, 65]


def test_what_small_strata_cannot_take_goes_to_the_others() -> None:
    found = neyman(
        100,
        population=np.array([10, 1000, 1000, 0]),
        deviation=np.array([9.0, 0.0, 1.0, 1.0]),
        most=np.array([10, 1000, 1000, 0]),
        floor_share=0.3,
    )
    assert found.tolist() == [10, 10, 80, 0]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 5_000),
    floor=st.floats(0, 1),
    strata=st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1e6)), max_size=40),
)
def test_sizes_fit_their_strata_and_use_what_there_is(rows, floor, strata) -> None:
    population = np.array([n for n, _ in strata], np.int64)
    deviation = np.array([s for _, s in strata])
    found = neyman(
        rows, population=population, deviation=deviation, most=population, floor_share=floor
    )
    assert (found >= 0).all()
    assert (found <= population).all()
    assert found.sum() <= rows
    assert found.sum() >= min(rows, int(population.sum())) - len(strata)


def test_a_floor_is_a_share() -> None:
    with pytest.raises(BadParameter, match=r"floor_share is 1\.5"):
        neyman(
            1,
            population=np.ones(1, int),
            deviation=np.ones(1),
            most=np.ones(1, int),
            floor_share=1.5,
        )


def test_the_rows_of_a_stratum_are_those_with_the_smallest_keys() -> None:
    ids, seed = skewed(20_000), 7
    sample = StratifiedBottomK(12, 600)
    held = fed(sample, ids, np.ones(12), seed)[-1]
    chosen = sample.chosen()
    keys = position_keys(seed, 0, len(ids))
    assert chosen.population.tolist() == np.bincount(ids, minlength=12).tolist()
    for stratum in range(12):
        positions = np.sort(held[chosen.rows[chosen.ids == stratum]])
        mine = np.flatnonzero(ids == stratum)
        smallest = mine[np.argsort(keys[mine])[: chosen.read[stratum]]]
        assert positions.tolist() == np.sort(smallest).tolist()
        assert chosen.read[stratum] >= min(len(mine), 15)


def test_small_strata_are_whole_and_large_ones_share_the_rest() -> None:
    ids = skewed(30_000)
    ids[::1000] = 11
    sample = StratifiedBottomK(12, 800)
    fed(sample, ids, np.ones(12), 3)
    chosen = sample.chosen()
    assert chosen.read.sum() <= 4 * 800
    sizes = chosen.population.argsort()
    assert (chosen.read[sizes[:3]] >= np.minimum(chosen.population[sizes[:3]], 25)).all()


def test_a_stratum_grows_with_what_comes() -> None:
    """One of two has a tenth at first, then nine tenths."""
    rng = np.random.default_rng(2)
    ids = (rng.random(200_000) < np.repeat([0.1, 0.9], 100_000)).astype(np.int32)
    sample = StratifiedBottomK(2, 1_000)
    steps = fed(sample, ids[:100_000], np.ones(2), 5)
    before = sample.chosen().read[1]
    assert len(steps) == 400
    fed(sample, ids, np.ones(2), 5, before=steps[-1], first=100_000)
    assert sample.chosen().read[1] > 1.5 * before


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_every_tuple_of_a_stratum_is_as_likely_to_be_kept() -> None:
    """Of early and late ones alike, whatever was cut on the way; by group, over seeds."""
    ids = skewed(6_000, groups=5)
    early = np.arange(6_000) < 3_000
    shares, errors = [], []
    for seed in range(150):
        sample = StratifiedBottomK(5, 200)
        held = fed(sample, ids, np.array([1.0, 1.0, 3.0, 1.0, 1.0]), seed)[-1]
        chosen = sample.chosen()
        positions = held[chosen.rows]
        for stratum in (1, 2, 4):
            mine = positions[ids[positions] == stratum]
            true = early[ids == stratum].mean()
            shares.append(early[mine].mean() - true)
            errors.append(np.sqrt(true * (1 - true) / len(mine)) + 1e-9)
    z = np.array(shares) / np.array(errors)
    assert abs(z.mean()) < 6 / np.sqrt(len(z))
    assert z.std() < 1.2


@pytest.mark.coverage_gate
def test_what_is_available_is_held() -> None:
    ids = skewed(9_000, groups=6)
    for seed in range(60):
        sample = StratifiedBottomK(6, 150)
        fed(sample, ids, np.ones(6), seed)
        chosen = sample.chosen()
        assert (chosen.read == sample.available()).all(), seed


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_means_of_strata_are_inside_as_often_as_they_say(confidence: float) -> None:
    """A trend in time: a sample that favoured early tuples would be off."""
    ids = skewed(8_000, groups=5)
    values = np.linspace(0, 10, 8_000) + np.random.default_rng(3).exponential(1, 8_000)
    truth = np.array([values[ids == g].mean() if (ids == g).any() else np.nan for g in range(5)])
    held, trials = 0, 0
    for seed in range(120):
        sample = StratifiedBottomK(5, 300)
        positions = fed(sample, ids, np.ones(5), seed)[-1]
        chosen = sample.chosen()
        taken = SampledValues.by_group(
            values[positions[chosen.rows]],
            ids=chosen.ids,
            groups=5,
            population=chosen.population,
            read=chosen.read,
            low=values.min(),
            high=values.max(),
        )
        found = sampled_mean(taken, confidence=confidence)
        for g in range(1, 5):
            held += bool(found.low[g] - 1e-9 <= truth[g] <= found.high[g] + 1e-9)
            trials += 1
    assert held >= gate(trials, confidence)


def test_a_stored_sample_goes_on_as_if_it_had_not_stopped() -> None:
    ids = skewed(10_000)
    whole, half = StratifiedBottomK(12, 300), StratifiedBottomK(12, 300)
    fed(whole, ids, np.ones(12), 9)
    held = fed(half, ids[:5_000], np.ones(12), 9)[-1]
    resumed = StratifiedBottomK.from_bytes(half.to_bytes())
    assert resumed.to_bytes() == half.to_bytes()
    fed(resumed, ids, np.ones(12), 9, before=held, first=5_000)
    assert resumed.to_bytes() == whole.to_bytes()


def test_damaged_bytes_are_refused() -> None:
    sample = StratifiedBottomK(3, 50)
    fed(sample, skewed(3_000, groups=3), np.ones(3), 1)
    image, rng = sample.to_bytes(), np.random.default_rng(1)
    for _ in range(2_000):
        damaged = bytearray(image[: rng.integers(1, len(image) + 1)])
        damaged[rng.integers(0, len(damaged))] ^= int(rng.integers(1, 256))
        with pytest.raises(CorruptSynopsis):
            StratifiedBottomK.from_bytes(bytes(damaged))


@pytest.mark.parametrize("stratum", [2, -1])
def test_a_stratum_that_is_none_is_refused(stratum: int) -> None:
    sample = StratifiedBottomK(2, 4)
    with pytest.raises(BadParameter, match="group id"):
        sample.update(np.array([0, stratum], np.int32), position_start(1, 0))
    assert sample.population.tolist() == [0, 0]


def test_an_empty_sample_is_of_nothing() -> None:
    sample = StratifiedBottomK(0, 5)
    assert sample.chosen().read.tolist() == []
    assert StratifiedBottomK.from_bytes(sample.to_bytes()).groups == 0
    assert not sample.is_full
    with pytest.raises(BadParameter, match="k is 0"):
        StratifiedBottomK(1, 0)


def test_what_it_holds_is_counted_and_bounded() -> None:
    ids = skewed(60_000, groups=20)
    sample = StratifiedBottomK(20, 1_000)
    most = max(len(held) for held in fed(sample, ids, np.ones(20), 4))
    assert most < 3 * 1_000
    assert sample.size_bytes < 2 * 12 * 3 * 1_000 + 20 * 40


@pytest.mark.parametrize("cut", [(900, 3_000), (8_000, 9_000), (8_000, 40)])
def test_merged_samples_have_the_smallest_keys_of_both(cut: tuple[int, int]) -> None:
    seed, sizes = 6, cut
    ids = skewed(sum(sizes), groups=5)
    halves = [StratifiedBottomK(5, 500) for _ in sizes]
    held = [
        fed(halves[0], ids[: sizes[0]], np.ones(5), seed)[-1],
        fed(halves[1], ids, np.ones(5), seed, first=sizes[0])[-1],
    ]
    kept = halves[0].merge(halves[1])
    assert kept.old is not None
    positions = np.concatenate([held[0][kept.old], held[1][kept.new]])
    chosen = halves[0].chosen()
    assert chosen.population.tolist() == np.bincount(ids, minlength=5).tolist()
    keys = position_keys(seed, 0, len(ids))
    for stratum in range(5):
        mine = np.flatnonzero(ids == stratum)
        smallest = mine[np.argsort(keys[mine])[: chosen.read[stratum]]]
        found = positions[chosen.rows[chosen.ids == stratum]]
        assert np.sort(found).tolist() == np.sort(smallest).tolist()
        assert chosen.read[stratum] >= min(len(mine), 20)


def test_a_smaller_size_is_kept_at_once_and_a_larger_one_with_what_comes() -> None:
    ids = skewed(20_000, groups=5)
    sample = StratifiedBottomK(5, 6_000)
    held = fed(sample, ids[:10_000], np.ones(5), 2)[-1]
    kept = sample.resize(1_000)
    assert kept.old is not None
    assert sample.chosen().read.sum() <= 1_000
    assert sample.resize(6_000).old is None
    fed(sample, ids, np.ones(5), 2, before=held[kept.old], first=10_000)
    assert sample.chosen().read.sum() > 1_000
    with pytest.raises(BadParameter, match="k is 0"):
        sample.resize(0)
