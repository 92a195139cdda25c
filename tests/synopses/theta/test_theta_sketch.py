"""Theta sketches: DataSketches' own images, thinning that stays honest, intervals that hold."""

from __future__ import annotations

import datasketches
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synopses.kernels.hashing import murmur_int64, murmur_utf8
from synopses.model.binary_header import Kind, seal
from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.model.estimate import Bound
from synopses.model.profile import TYPICAL
from synopses.theta.datasketches_format import THRESHOLD_MAX, read_image
from synopses.theta.set_operations import Compared
from synopses.theta.theta_sketch import GroupedTheta
from tests import truth

CONFIDENCES = (0.68, 0.95, 0.99)


def of_integers(values: np.ndarray, lg_k: int = 12) -> GroupedTheta:
    summary = GroupedTheta(1, lg_k)
    summary.update(None, murmur_int64(values)[0])
    return summary


def of_library(values: range, lg_k: int = 12) -> datasketches.update_theta_sketch:
    sketch = datasketches.update_theta_sketch(lg_k)
    for value in values:
        sketch.update(value)
    return sketch


def random_hashes(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.integers(0, 2**64, size, np.uint64)


# --- what it holds ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 47, 48, 49, 1000])
def test_the_k_smallest_hashes_are_held_and_the_next_is_theta(size: int) -> None:
    values = np.arange(size) * 7919
    summary = of_integers(np.tile(values, 3), lg_k=5)
    expected = np.sort(murmur_int64(values)[0] >> np.uint64(1))
    hashes, ends = summary.hashes()
    assert hashes.tolist() == expected[:32].tolist()
    assert ends.tolist() == [min(size, 32)]
    share = 1.0 if size <= 32 else int(expected[32]) / 2**63
    assert summary.shares.tolist() == [share]


@pytest.mark.parametrize("size", [0, 1, 2, 500, 4096])
def test_up_to_k_values_are_counted_exactly(size: int) -> None:
    answer = of_integers(np.tile(np.arange(size), 2)).distinct(0.95)
    assert (answer.value[0], answer.low[0], answer.high[0]) == (size, size, size)
    assert answer.bound[0] == Bound.EXACT


@pytest.mark.slow
def test_the_order_of_arrival_and_the_batches_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 3000, 20_000)
    ids = rng.integers(0, 20, 20_000).astype(np.int32)
    ours = GroupedTheta(20, 6)
    ours.update(ids, murmur_int64(values)[0])
    other = GroupedTheta(0, 6)
    for rows in np.array_split(rng.permutation(20_000), 77):
        pane = GroupedTheta(20, 6)
        pane.update(ids[rows], murmur_int64(values[rows])[0])
        other.merge(pane)
    assert ours.to_bytes() == other.to_bytes()


def test_small_groups_stay_small_and_large_ones_are_bounded() -> None:
    rng = np.random.default_rng(2)
    summary = GroupedTheta(10_000, 12)
    summary.update(rng.integers(0, 10_000, 50_000).astype(np.int32), random_hashes(rng, 50_000))
    assert summary.size_bytes < 10_000 * 250
    large = GroupedTheta(1, 12)
    large.update(None, random_hashes(rng, 1_000_000))
    assert large.size_bytes < GroupedTheta.profile.bytes_of(12, TYPICAL) + 100


# --- DataSketches ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 100, 4096, 100_000])
def test_datasketches_reads_our_image_and_says_the_same(size: int) -> None:
    ours = of_integers(np.tile(np.arange(size), 2))
    theirs = datasketches.compact_theta_sketch.deserialize(ours.image(0))
    answer = ours.distinct(0.95)
    assert round(theirs.get_estimate()) == answer.value[0]
    assert theirs.is_empty() == (size == 0)
    assert theirs.is_ordered()
    assert theirs.get_lower_bound(2) == pytest.approx(answer.low[0], rel=0.002)
    assert theirs.get_upper_bound(2) == pytest.approx(answer.high[0], rel=0.002)


@pytest.mark.parametrize("size", [0, 1, 2, 100, 4096])
def test_our_image_of_few_values_is_the_librarys_byte_for_byte(size: int) -> None:
    library = of_library(range(size)).compact(ordered=True)
    assert of_integers(np.arange(size)).image(0) == library.serialize()


@pytest.mark.parametrize("size", [0, 1, 3, 4000, 5000, 100_000])
def test_images_of_the_library_are_read_and_are_then_our_own(size: int) -> None:
    image = of_library(range(size)).compact().serialize()
    ours = GroupedTheta.from_images([image, image], 12)
    again = of_integers(np.arange(size))
    assert ours.select(np.array([1])).to_bytes() == again.to_bytes()


def test_texts_have_the_hashes_of_the_library() -> None:
    library = datasketches.update_theta_sketch(12)
    texts = [f"client-{number}" for number in range(1000)]
    for text in texts:
        library.update(text)
    raw = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, raw)]).astype(np.int32)
    ours = GroupedTheta(1)
    ours.update(None, murmur_utf8(offsets, np.frombuffer(b"".join(raw), np.uint8))[0])
    assert ours.image(0) == library.compact(ordered=True).serialize()


@pytest.mark.parametrize("size", [300, 30_000])
def test_our_image_joins_a_union_of_the_library(size: int) -> None:
    union = datasketches.theta_union(12)
    union.update(of_library(range(size, 2 * size)))
    image = of_integers(np.arange(size)).image(0)
    union.update(datasketches.compact_theta_sketch.deserialize(image))
    ours = of_integers(np.arange(2 * size)).distinct(0.95)
    assert union.get_result().get_estimate() == pytest.approx(ours.value[0], rel=0.05)


def test_a_thinned_group_that_holds_nothing_is_not_empty_for_the_library() -> None:
    summary = GroupedTheta(1)
    summary.thin(3)
    theirs = datasketches.compact_theta_sketch.deserialize(summary.image(0))
    assert (theirs.is_empty(), theirs.theta, theirs.num_retained) == (False, 0.125, 0)
    assert GroupedTheta.from_images([summary.image(0)]).to_bytes() == summary.to_bytes()


def test_damaged_images_are_refused_or_read() -> None:
    image = bytearray(of_integers(np.arange(100_000)).image(0))
    for size in (0, 7, 20, len(image) - 1):
        with pytest.raises(CorruptSynopsis):
            GroupedTheta.from_images([bytes(image[:size])])
    rng = np.random.default_rng(8)
    for _ in range(2000):
        damaged = bytearray(image[:40])
        damaged[rng.integers(0, 40)] = rng.integers(0, 256)
        try:
            read = GroupedTheta.from_images([bytes(damaged)])
        except CorruptSynopsis:
            continue
        assert GroupedTheta.from_bytes(read.to_bytes()).groups == 1


# --- thinning --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("values", [0, 3, 50_000])
def test_what_is_merged_into_nothing_stands_apart(values: int, level: int) -> None:
    full, nothing = GroupedTheta(1, 8), GroupedTheta(3, 8)
    full.update(None, murmur_int64(np.arange(values))[0])
    before = full.to_bytes()
    nothing.thin(level)
    nothing.merge(full)
    full.thin(level)
    assert nothing.select(np.array([0])).to_bytes() == full.to_bytes()
    nothing.update(np.full(40_000, 2, np.int32), murmur_int64(np.arange(40_000))[0])
    nothing.update(np.zeros(10_000, np.int32), murmur_int64(-1 - np.arange(10_000))[0])
    assert level or full.to_bytes() == before
    assert nothing.distinct(0.999)[0].holds(values + 10_000)
    assert nothing.distinct(0.999)[1].holds(0)
    assert nothing.distinct(0.999)[2].holds(40_000)


def test_thinning_before_or_after_is_the_same() -> None:
    hashes = random_hashes(np.random.default_rng(4), 5000)
    late = GroupedTheta(1, 8)
    late.update(None, hashes)
    late.thin(4)
    early = GroupedTheta(1, 8)
    early.thin(4)
    early.update(None, hashes)
    kept = GroupedTheta(1, 8)
    kept.update(None, hashes[hashes < np.uint64(1 << 60)])
    kept.thin(4)
    assert late.to_bytes() == early.to_bytes() == kept.to_bytes()


def test_a_window_of_panes_at_several_levels_is_cut_to_the_thinnest() -> None:
    rng = np.random.default_rng(5)
    pool, levels = random_hashes(rng, 20_000), (0, 3, 1, 3, 0)
    window = GroupedTheta(1, 14)
    seen = []
    for level in levels:
        arrived = pool[rng.integers(0, pool.size, 8000)]
        seen.append(arrived)
        pane = GroupedTheta(1, 14)
        pane.update(None, arrived[(arrived >> np.uint64(1)) < np.uint64(1 << (63 - level))])
        pane.thin(level)
        window.merge(pane)
    whole = GroupedTheta(1, 14)
    whole.update(None, np.concatenate(seen))
    whole.thin(3)
    assert window.to_bytes() == whole.to_bytes()
    assert window.distinct(0.99)[0].holds(truth.exact_distinct(np.concatenate(seen)))


def test_what_was_thinned_and_holds_nothing_may_hold_something() -> None:
    summary = GroupedTheta(1)
    summary.thin(3)
    answer = summary.distinct(0.95)
    # (7/8)^27 > 0.025 >= (7/8)^28: so many values can all have been left out.
    assert (answer.value[0], answer.low[0], answer.high[0]) == (0, 0, 27)
    assert answer.bound[0] == Bound.INTERVAL


@pytest.mark.coverage_gate
@pytest.mark.parametrize("level", [1, 3, 6])
@pytest.mark.parametrize("distinct", [1, 10, 300, 3000])
def test_thinned_counts_hold_the_truth_as_often_as_they_say(level: int, distinct: int) -> None:
    trials = 600
    hashes = random_hashes(np.random.default_rng([level, distinct]), trials * distinct)
    ids = np.repeat(np.arange(trials, dtype=np.int32), distinct)
    kept = hashes < np.uint64(1 << (64 - level))
    summary = GroupedTheta(trials, 7)
    summary.update(ids[kept], hashes[kept])
    summary.thin(level)
    for confidence in CONFIDENCES:
        answer = summary.distinct(confidence)
        held = int(np.sum((answer.low <= distinct) & (distinct <= answer.high)))
        assert held >= truth.gate(trials, confidence)


@pytest.mark.coverage_gate
@pytest.mark.parametrize("lg_k", [5, 9])
@pytest.mark.parametrize("load", [0.5, 1.0, 1.03, 1.3, 3.0, 20.0])
def test_counts_hold_the_truth_as_often_as_they_say_and_are_no_wider(
    lg_k: int, load: float
) -> None:
    distinct, trials = int(load * 2**lg_k), 400
    hashes = random_hashes(np.random.default_rng([lg_k, distinct]), trials * distinct)
    ids = np.repeat(np.arange(trials, dtype=np.int32), distinct)
    summary = GroupedTheta(trials, lg_k)
    summary.update(ids, hashes)
    for confidence in CONFIDENCES:
        answer = summary.distinct(confidence)
        held = int(np.sum((answer.low <= distinct) & (distinct <= answer.high)))
        assert held >= truth.gate(trials, confidence)
        half = (answer.high - answer.low).mean() / 2
        assert (
            half <= 1.2 * GroupedTheta.profile.error_of(lg_k, TYPICAL, confidence) * distinct + 1.5
        )


# --- parameters and bytes --------------------------------------------------------------------


def test_parameters_outside_their_range_are_refused() -> None:
    for wrong in (4, 27):
        with pytest.raises(BadParameter, match=f"lg_k is {wrong}, expected 5 to 26"):
            GroupedTheta(1, wrong)
    with pytest.raises(BadParameter, match="level is 63, expected 0 to 62"):
        GroupedTheta(1).thin(63)
    with pytest.raises(CannotMerge, match="lg_k is 10 on the left, 12 on the right"):
        GroupedTheta(1, 10).merge(GroupedTheta(1, 12))


@pytest.mark.slow
@given(
    thresholds=st.lists(st.integers(0, 2**64 - 1), max_size=3),
    held=st.lists(st.integers(-3, 40), max_size=3),
    hashes=st.lists(st.integers(0, 2**63), max_size=40),
)
def test_sealed_bytes_that_are_no_sketch_are_refused(
    thresholds: list[int], held: list[int], hashes: list[int]
) -> None:
    body = [np.array(thresholds, np.uint64), np.array(held, np.int64), np.array(hashes, np.uint64)]
    data = seal(Kind.THETA, (len(held), 5), body)
    try:
        read = GroupedTheta.from_bytes(data)
    except CorruptSynopsis:
        return
    assert read.to_bytes() == data
    assert max(thresholds, default=1) <= THRESHOLD_MAX


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 100, 4_096, 50_000, 200_000])
def test_compressed_images_hold_the_same(size: int) -> None:
    whole = datasketches.update_theta_sketch(18)
    for number in range(size):
        whole.update(number)
    sketch = whole.compact()
    plain, packed = read_image(sketch.serialize()), read_image(sketch.serialize(compress=True))
    assert plain[0].tolist() == packed[0].tolist()
    assert plain[1] == packed[1]


def test_an_image_that_claims_more_than_any_sketch_holds_is_refused() -> None:
    sketch = of_library(range(100)).compact().serialize(compress=True)
    count = (1 << 26) + 8
    claim = bytes([sketch[0], 4, 3, 1, 4]) + sketch[5:8] + count.to_bytes(4, "little")
    with pytest.raises(CorruptSynopsis, match="67108872"):
        read_image(claim + bytes(count // 8))


@pytest.mark.parametrize("seed", range(4))
def test_hostile_images_end_in_an_error_or_a_sketch(seed: int) -> None:
    """The library's own reader goes past the end of some of these, and the process dies."""
    rng = np.random.default_rng(seed)
    sketches = [of_library(range(size)).compact() for size in (0, 1, 2, 100, 10_000)]
    images = [s.serialize() for s in sketches] + [s.serialize(compress=True) for s in sketches]
    refused = 0
    for number in range(2_500):
        damaged = bytearray(images[number % len(images)])
        for _ in range(int(rng.integers(1, 4))):
            match int(rng.integers(0, 4)):
                case 0 if damaged:
                    damaged[int(rng.integers(0, min(len(damaged), 32)))] = int(rng.integers(0, 256))
                case 1:
                    damaged = damaged[: int(rng.integers(0, len(damaged) + 1))]
                case 2:
                    damaged += rng.bytes(8)
                case _ if damaged:
                    damaged[int(rng.integers(0, len(damaged)))] ^= 1 << int(rng.integers(0, 8))
        try:
            hashes, threshold = read_image(bytes(damaged))
        except CorruptSynopsis:
            refused += 1
        else:
            assert np.all(hashes[:-1] < hashes[1:])
            assert np.all(hashes < threshold)
    assert 1_000 < refused < 2_500


@pytest.mark.timeout(300, method="thread")
@pytest.mark.parametrize("level", [52, 55, 62])
def test_what_is_thinned_to_almost_nothing_says_that_it_knows_almost_nothing(level: int) -> None:
    thinned = GroupedTheta(1, 5)
    thinned.thin(level)
    answer = thinned.distinct(0.95)[0]
    assert (answer.value, answer.low) == (0, 0)
    assert answer.high == pytest.approx(min(2.0**63, 3.689 * 2.0**level), rel=1e-3)


def test_values_that_were_put_out_by_the_largest_hash_are_not_forgotten() -> None:
    """Theta would round to 1, which says that all values are held."""
    hashes = np.uint64(2**63 - 2) - 2 * np.arange(40, dtype=np.uint64)
    summary = GroupedTheta(1, 5)
    summary.update(None, hashes << np.uint64(1))
    assert summary.held.tolist() == [32]
    assert summary.shares[0] < 1
    assert summary.distinct(0.95).bound.tolist() == [Bound.INTERVAL]
    compared = Compared.of(summary, summary)
    assert compared.union(0.95).bound.tolist() == [Bound.INTERVAL]
    assert compared.jaccard(0.95).bound.tolist() == [Bound.INTERVAL]
