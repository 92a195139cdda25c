"""KLL: ranks of the interval's ends enclose the target; the library reads the image."""

from __future__ import annotations

import datasketches
import numpy as np
import pytest

from synopses.model.binary_header import Kind, seal
from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.model.estimate import Bound
from synopses.quantiles import kll
from synopses.quantiles.kll import GroupedKll
from tests import truth


@pytest.mark.coverage_gate
@pytest.mark.parametrize("distribution", truth.distributions())
def test_the_interval_holds_the_truth_as_often_as_it_says(distribution: str) -> None:
    trials, size = 40, 3000
    values = truth.draw(distribution, 1, trials * size)
    summary = GroupedKll(trials, k=40)
    summary.update(np.repeat(np.arange(trials, dtype=np.int32), size), values)
    groups = values.reshape(trials, size)
    for q in (0.01, 0.5, 0.95):
        exact = [truth.exact_quantile(group, q) for group in groups]
        answer = summary.quantile(q, 0.95)
        held = int(np.sum((answer.low <= exact) & (exact <= answer.high)))
        assert held >= truth.gate(trials, 0.95)
        assert (answer.low <= answer.value).all()
        assert (answer.value <= answer.high).all()


def test_few_values_give_exact_quantiles() -> None:
    values = truth.draw("normal", 2, 150)
    summary = GroupedKll(1, k=200)
    summary.update(None, values)
    for q in (0.0, 0.3, 0.5, 1.0):
        answer = summary.quantile(q, 0.95)
        assert answer.value[0] == truth.exact_quantile(values, q)
        assert answer.bound[0] == Bound.EXACT


def test_the_extremes_are_exact_at_any_size() -> None:
    values = truth.draw("lognormal-2", 3, 50_000)
    summary = GroupedKll(1)
    summary.update(None, values)
    assert summary.quantile(0.0, 0.95).low[0] == values.min()
    assert summary.quantile(1.0, 0.95).high[0] == values.max()


def test_the_library_reads_the_image() -> None:
    summary = GroupedKll(2)
    summary.update(np.ones(3, np.int32), np.array([1.0, 2.0, np.nan]))
    assert datasketches.kll_doubles_sketch.deserialize(summary.image(1)).n == 2
    assert datasketches.kll_doubles_sketch.deserialize(summary.image(0)).is_empty()
    assert summary.counts().tolist() == [0, 2]


def test_rows_wait_until_there_are_enough_and_are_still_counted() -> None:
    summary = GroupedKll(3)
    for row in range(700):
        summary.update(np.array([row % 2], np.int32), np.array([float(row)]))
    assert summary.counts().tolist() == [350, 350, 0]
    assert summary.quantile(0.5, 0.95).null.tolist() == [False, False, True]


def test_another_k_does_not_merge() -> None:
    with pytest.raises(CannotMerge, match="k is 100 on the left, 200 on the right"):
        GroupedKll(1, 100).merge(GroupedKll(1, 200))


def test_the_k_for_an_error_is_the_smallest_that_gives_it() -> None:
    k = GroupedKll.profile.for_error(0.005, confidence=0.95)
    assert kll.rank_error(k, 0.95) <= 0.005 < kll.rank_error(k - 1, 0.95)
    with pytest.raises(BadParameter, match="error is 1e-09, expected >= "):
        GroupedKll.profile.for_error(1e-9, confidence=0.95)


@pytest.mark.parametrize("merge_first", [True, False])
def test_a_sketch_that_shrank_has_the_error_of_its_k(merge_first: bool) -> None:
    trials, size = 60, 4000
    values = truth.draw("lognormal-1", 4, trials * size)
    ids = np.repeat(np.arange(trials, dtype=np.int32), size)
    halves = []
    for half in (slice(0, None, 2), slice(1, None, 2)):
        summary = GroupedKll(trials, k=200)
        summary.update(ids[half], values[half])
        halves.append(summary if merge_first else summary.resize(40))
    merged = halves[0].merge(halves[1]).resize(40)
    assert merged.k == 40
    assert merged.counts().tolist() == [size] * trials
    for q in (0.1, 0.5, 0.99):
        exact = [truth.exact_quantile(group, q) for group in values.reshape(trials, size)]
        answer = merged.quantile(q, 0.95)
        held = int(np.sum((answer.low <= exact) & (exact <= answer.high)))
        assert held >= truth.gate(trials, 0.95)


def test_what_a_sketch_forgot_does_not_come_back() -> None:
    with pytest.raises(BadParameter, match="k is 400, expected 8 to 200"):
        GroupedKll(1, 200).resize(400)


@pytest.mark.parametrize("size", [0, 1, 150, 20_000])
def test_images_of_the_library_are_read_and_smaller_sketches_refused(size: int) -> None:
    values = truth.draw("lognormal-1", 6, size)
    library = datasketches.kll_doubles_sketch(400)
    library.update(values)
    read = GroupedKll.from_images([library.serialize(), GroupedKll(1).image(0)], k=200)
    assert read.counts().tolist() == [size, 0]
    answer = read.quantile(0.5, 0.999)
    if size:
        assert answer.low[0] <= truth.exact_quantile(values, 0.5) <= answer.high[0]
    with pytest.raises(CannotMerge, match="k is 800 on the left, 400 on the right"):
        GroupedKll.from_images([library.serialize()], k=800)
    with pytest.raises(CorruptSynopsis, match="of a KLL image"):
        GroupedKll.from_images([b"nothing of the kind"])


def test_a_sketch_that_took_in_a_smaller_one_is_refused() -> None:
    """Of this k by its name, it errs as the smaller one did: by 0.30 of all ranks, not 0.007."""
    poor, sketch = datasketches.kll_doubles_sketch(8), datasketches.kll_doubles_sketch(400)
    poor.update(truth.draw("uniform", 1, 100_000))
    sketch.merge(poor)
    image = bytes(sketch.serialize())
    with pytest.raises(CannotMerge, match="k is 400 on the left, 8 on the right"):
        GroupedKll.from_images([image], 400)
    waiting = [np.zeros(1, np.int64), np.zeros(0)]
    body = [np.packbits([True]), np.array([len(image)]), image, *waiting]
    with pytest.raises(CorruptSynopsis, match="k of a KLL image"):
        GroupedKll.from_bytes(seal(Kind.KLL, (1, 400), body))


@pytest.mark.parametrize("size", [0, 1, 100, 50_000])
def test_damaged_images_are_refused_or_read_but_never_crash(size: int) -> None:
    library = datasketches.kll_doubles_sketch(200)
    library.update(np.arange(float(size)))
    image, rng, refused = library.serialize(), np.random.default_rng(size), 0
    for trial in range(1500):
        end = len(image) if trial % 3 else rng.integers(0, len(image) + 1)
        damaged = bytearray(image[:end])
        for at in rng.integers(0, min(max(end, 1), 60), 2 if end else 0):
            damaged[at % end] = rng.integers(0, 256)
        try:
            read = GroupedKll.from_images([bytes(damaged)], k=8)
        except (CorruptSynopsis, CannotMerge):
            refused += 1
            continue
        read.quantile(0.5, 0.95)
    assert 0 < refused < 1500
