"""Distinct counts: DataSketches reads our registers, and the intervals hold the truth."""

from __future__ import annotations

import datasketches
import numpy as np
import pytest

from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_int64
from synopses.model import cardinality_error as cardinality
from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.model.estimate import Bound
from tests import truth


def hashed(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, 2**64, size, np.uint64), rng.integers(0, 2**64, size, np.uint64)


def of_integers(values: np.ndarray, lg_k: int = 12) -> GroupedDistinct:
    summary = GroupedDistinct(1, lg_k)
    summary.update(None, *murmur_int64(values))
    return summary


@pytest.mark.parametrize("size", [0, 1, 50, 3000, 100_000])
def test_datasketches_reads_our_image_and_says_about_the_same(size: int) -> None:
    ours = of_integers(np.tile(np.arange(size) * 7919, 2))
    theirs = datasketches.hll_sketch.deserialize(ours.image(0))
    answer = ours.distinct(0.95)
    # Its estimator is another one: it interpolates in tables, so the two differ by a deviation.
    assert theirs.get_estimate() == pytest.approx(answer.value[0], rel=0.015, abs=1.0)
    assert theirs.get_lower_bound(2) == pytest.approx(answer.low[0], rel=0.02, abs=1.0)
    assert theirs.get_upper_bound(2) == pytest.approx(answer.high[0], rel=0.02, abs=2.0)


@pytest.mark.parametrize("size", [500, 20_000])
def test_our_image_merges_with_a_sketch_of_the_library(size: int) -> None:
    library = datasketches.hll_sketch(12, datasketches.HLL_8)
    for value in range(size // 2, 2 * size):
        library.update(value)
    union = datasketches.hll_union(12)
    union.update(library)
    union.update(datasketches.hll_sketch.deserialize(of_integers(np.arange(size)).image(0)))
    merged = union.get_result(datasketches.HLL_8)
    assert merged.get_estimate() == pytest.approx(
        of_integers(np.tile(np.arange(2 * size), 2)).distinct(0.95).value[0], rel=0.015
    )


@pytest.mark.parametrize("batch", [300, 5_000])
def test_where_most_groups_are_dense_each_is_what_it_would_be_alone(batch: int) -> None:
    """Hashes of dense groups go past the lists, those of the others into them."""
    rng = np.random.default_rng(2)
    groups, lg_k = 9, 8
    ids = rng.choice(groups, 40_000, p=[0.1666] * 6 + [0.0002] * 2 + [0.0]).astype(np.int32)
    hashes = murmur_int64(rng.integers(0, 5_000, ids.size))
    together = GroupedDistinct(groups, lg_k)
    for start in range(0, ids.size, batch):
        rows = slice(start, start + batch)
        together.update(ids[rows], *(half[rows] for half in hashes))
    found = together.distinct(0.95)
    for group in range(groups):
        alone = GroupedDistinct(1, lg_k)
        alone.update(None, *(half[ids == group] for half in hashes))
        assert together.select(np.array([group])).to_bytes() == alone.to_bytes()
        assert found[group] == alone.distinct(0.95)[0]


def test_sparse_and_dense_groups_have_the_registers_of_the_library() -> None:
    rng = np.random.default_rng(1)
    ids = np.minimum(rng.geometric(0.3, 30_000) - 1, 9).astype(np.int32)
    values = rng.integers(0, 2**62, 30_000)
    summary = GroupedDistinct(10, 12)
    for start in range(0, 30_000, 997):
        rows = slice(start, start + 997)
        summary.update(ids[rows], *murmur_int64(values[rows]))
    for group, inside in enumerate(truth.by_group(ids, values, 10)):
        library = datasketches.hll_sketch(12, datasketches.HLL_8, True)
        for value in inside.tolist():
            library.update(value)
        expected = np.frombuffer(library.serialize_updatable(), np.uint8)[40:]
        np.testing.assert_array_equal(summary.registers(group), expected)


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("lg_k", [7, 10, 12])
@pytest.mark.parametrize("load", [0.003, 0.01, 0.05, 0.3, 1.0, 1.4, 1.6, 2.5, 6.0])
def test_the_interval_holds_the_truth_as_often_as_it_says(lg_k: int, load: float) -> None:
    distinct = max(1, int(load * 2**lg_k))
    trials = max(40, min(400, 300_000 // distinct))
    rng = np.random.default_rng([lg_k, int(load * 1000)])
    ids = np.repeat(np.arange(trials, dtype=np.int32), distinct)
    h1, h2 = hashed(rng, trials * distinct)
    summary = GroupedDistinct(trials, lg_k)
    for _ in range(2):  # Every value twice: the number taken in is no help.
        summary.update(ids, h1, h2)
    for confidence in (0.8, 0.95, 0.99):
        answer = summary.distinct(confidence)
        held = int(np.sum((answer.low <= distinct) & (distinct <= answer.high)))
        assert held >= truth.gate(trials, confidence)
        widths = (answer.high - answer.low) / 2
        ideal = (
            cardinality.z_of(confidence) * cardinality.RELATIVE_ERROR * distinct / 2 ** (lg_k / 2)
        )
        assert widths.mean() <= 1.5 * ideal + 1.5


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_merged_panes_hold_the_truth_as_often_as_one_pass() -> None:
    trials, confidence = 200, 0.95
    rng = np.random.default_rng(5)
    pool1, pool2 = hashed(rng, trials * 3000)
    merged = GroupedDistinct(0, 10)
    for _ in range(6):
        rows = rng.permutation(trials * 3000)[: trials * 2000]
        pane = GroupedDistinct(trials, 10)
        pane.update((rows // 3000).astype(np.int32), pool1[rows], pool2[rows])
        merged.merge(pane)
    seen = np.zeros(trials * 3000, bool)
    rng = np.random.default_rng(5)
    hashed(rng, trials * 3000)
    for _ in range(6):
        seen[rng.permutation(trials * 3000)[: trials * 2000]] = True
    exact = seen.reshape(trials, 3000).sum(axis=1)
    answer = merged.distinct(confidence)
    held = int(np.sum((answer.low <= exact) & (exact <= answer.high)))
    assert held >= truth.gate(trials, confidence)


def test_few_different_rows_are_counted_exactly() -> None:
    answer = of_integers(np.array([5, 6])).distinct(0.95)
    assert (answer.value[0], answer.low[0], answer.high[0]) == (2, 2, 2)
    assert answer.bound[0] == Bound.EXACT


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_values_crafted_to_fool_the_hashes_are_never_called_exact(
    times: int, confidence: float
) -> None:
    """The seed is public: values that are picked by their hashes raise any register at will."""
    values = np.arange(1_000_000)
    crafted = values[murmur_int64(values)[1] < np.uint64(2**56)]
    summary = GroupedDistinct(1, 9)
    for _ in range(times):
        summary.update(None, *murmur_int64(crafted))
    answer = summary.distinct(confidence)[0]
    assert answer.bound is Bound.INTERVAL
    assert answer.low <= 512 < crafted.size <= answer.high == times * crafted.size


@pytest.mark.parametrize("values", [513, 600, 5_000])
def test_registers_say_exact_only_where_each_value_has_one_of_its_own(values: int) -> None:
    once = GroupedDistinct(64, 9)
    ids = np.repeat(np.arange(64, dtype=np.int32), values)
    once.update(ids, *murmur_int64(np.arange(ids.size)))
    answer = once.distinct(0.95)
    assert (answer.bound == Bound.INTERVAL).all()
    assert (answer.low <= values).all()
    assert (answer.high == values).mean() > 0.4  # No more than were taken in.


def test_nothing_is_exactly_zero() -> None:
    answer = GroupedDistinct(2, 12).distinct(0.95)
    assert answer.value.tolist() == [0, 0]
    assert answer.high.tolist() == [0, 0]
    assert (answer.bound == Bound.EXACT).all()


def test_a_lone_value_repeated_is_nearly_sure_to_be_one() -> None:
    answer = of_integers(np.full(1000, 3)).distinct(0.95)
    assert answer.low[0] == answer.value[0] == 1
    assert answer.high[0] <= 2


def test_registers_in_another_number_do_not_merge() -> None:
    with pytest.raises(CannotMerge, match="lg_k is 10 on the left, 12 on the right"):
        GroupedDistinct(1, 10).merge(GroupedDistinct(1, 12))


def test_a_confidence_of_one_is_refused() -> None:
    with pytest.raises(BadParameter, match=r"confidence is 1\.0"):
        GroupedDistinct(1).distinct(1.0)


def test_small_groups_stay_small() -> None:
    summary = GroupedDistinct(10_000, 12)
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 10_000, 50_000).astype(np.int32)
    summary.update(ids, *hashed(rng, 50_000))
    assert summary.size_bytes < 10_000 * 200  # Dense it would be 41 MB.


def test_registers_that_were_folded_do_not_unfold() -> None:
    with pytest.raises(BadParameter, match="lg_k is 13, expected 7 to 12"):
        GroupedDistinct(1, 12).resize(13)


@pytest.mark.parametrize("target", [datasketches.HLL_4, datasketches.HLL_6, datasketches.HLL_8])
@pytest.mark.parametrize("size", [0, 1, 5, 100, 300, 40_000])
@pytest.mark.parametrize("lg_k", [9, 12])
def test_images_of_the_library_are_read_register_by_register(
    size: int, lg_k: int, target: datasketches.tgt_hll_type
) -> None:
    library = datasketches.hll_sketch(12, target)
    for value in range(size):
        library.update(value)
    for image in (library.serialize_compact(), library.serialize_updatable()):
        read = GroupedDistinct.from_images([image, GroupedDistinct(1, lg_k).image(0)], lg_k)
        ours = of_integers(np.arange(size), lg_k)
        assert read.registers(0).tobytes() == ours.registers(0).tobytes()
        assert read.distinct(0.95)[1].high == 0
        answer = read.merge(ours).distinct(0.999)[0]
        assert answer.holds(size)


def test_images_with_fewer_registers_and_other_bytes_are_refused() -> None:
    with pytest.raises(BadParameter, match="lg_k is 12, expected <= 9, that of the image"):
        GroupedDistinct.from_images([of_integers(np.arange(9), 9).image(0)], 12)
    with pytest.raises(CorruptSynopsis, match="HLL image"):
        GroupedDistinct.from_images([b"nothing of the kind"])


@pytest.mark.parametrize("target", [datasketches.HLL_4, datasketches.HLL_6, datasketches.HLL_8])
@pytest.mark.parametrize("size", [3, 100, 5000])
def test_damaged_images_are_refused_or_read_but_never_crash(
    size: int, target: datasketches.tgt_hll_type
) -> None:
    library = datasketches.hll_sketch(9, target)
    for value in range(size):
        library.update(value)
    image, rng = library.serialize_compact(), np.random.default_rng(size)
    for _ in range(300):
        damaged = bytearray(image[: rng.integers(0, len(image) + 1)])
        for at in rng.integers(0, min(max(len(damaged), 1), 48), 2 if damaged else 0):
            damaged[at % len(damaged)] = rng.integers(0, 256)
        try:
            read = GroupedDistinct.from_images([bytes(damaged)], 9)
        except (CorruptSynopsis, BadParameter):
            continue
        assert len(read.registers(0)) == 512
        assert read.registers(0).max() <= 63
