"""Set operations over theta sketches: exact where they say so, and intervals that hold."""

from __future__ import annotations

from dataclasses import dataclass

import datasketches
import numpy as np
import pytest

from synopses.intervals.proportions import binomial_share
from synopses.kernels.hashing import murmur_int64
from synopses.model.errors import BadParameter
from synopses.model.estimate import Bound, Estimates
from synopses.theta.set_operations import Compared
from synopses.theta.theta_sketch import GroupedTheta
from tests import truth

CONFIDENCES = (0.68, 0.95, 0.99)
LG_K = 6


@dataclass(frozen=True)
class Sizes:
    """How many values two sets have in common, and each alone."""

    both: int
    left: int
    right: int

    @property
    def jaccard(self) -> float:
        return self.both / (self.both + self.left + self.right)


def of_values(values: np.ndarray, lg_k: int = LG_K) -> GroupedTheta:
    summary = GroupedTheta(1, lg_k)
    summary.update(None, murmur_int64(values)[0])
    return summary


def drawn(sizes: Sizes, trials: int, level: int = 0) -> Compared:
    """Many pairs of sets of these sizes, as groups; their hashes are random."""
    rng = np.random.default_rng([sizes.both, sizes.left, sizes.right, level])
    sketches = GroupedTheta(trials, LG_K), GroupedTheta(trials, LG_K)
    for size, members in zip(
        (sizes.both, sizes.left, sizes.right), ((0, 1), (0,), (1,)), strict=True
    ):
        hashes = rng.integers(0, 2**64, trials * size, np.uint64)
        ids = np.repeat(np.arange(trials, dtype=np.int32), size)
        for member in members:
            sketches[member].update(ids, hashes)
    for sketch in sketches:
        sketch.thin(level)
    return Compared.of(*sketches)


SIZES = [
    Sizes(0, 1, 1),
    Sizes(1, 0, 0),
    Sizes(1, 0, 500),
    Sizes(20, 30, 0),
    Sizes(40, 40, 40),
    Sizes(0, 3000, 3000),
    Sizes(1, 3000, 3000),
    Sizes(10, 3000, 3000),
    Sizes(100, 3000, 3000),
    Sizes(1500, 1500, 1500),
    Sizes(3000, 0, 0),
    Sizes(3000, 5, 5),
    Sizes(3000, 1, 0),
    Sizes(300, 3000, 0),
    Sizes(20, 3000, 20),
    Sizes(60, 8000, 4),
    Sizes(30, 70, 3000),
]


def questions(
    compared: Compared, sizes: Sizes, confidence: float
) -> list[tuple[str, Estimates, float]]:
    everything = sizes.both + sizes.left + sizes.right
    return [
        ("intersection", compared.intersection(confidence), sizes.both),
        ("difference", compared.difference(confidence), sizes.left),
        ("union", compared.union(confidence), everything),
        ("jaccard", compared.jaccard(confidence), sizes.jaccard),
    ]


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_set_operations_hold_the_truth_as_often_as_they_say(sizes: Sizes, level: int) -> None:
    trials = 300
    compared = drawn(sizes, trials, level)
    for confidence in CONFIDENCES:
        for name, answer, exact in questions(compared, sizes, confidence):
            held = (answer.low <= exact) & (exact <= answer.high)
            assert int(held.sum()) >= truth.gate(trials, confidence), (name, confidence)
            certain = answer.bound == Bound.EXACT
            assert (answer.value[certain] == exact).all()
            assert ((answer.low <= answer.value) & (answer.value <= answer.high)).all()


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_intervals_are_not_much_wider_than_the_spread_of_the_values() -> None:
    sizes = Sizes(1500, 1500, 1500)
    compared = drawn(sizes, 2000)
    for confidence, z in ((0.68, 1.0), (0.95, 1.96), (0.99, 2.58)):
        for name, answer, _ in questions(compared, sizes, confidence):
            ideal = z * float(np.std(answer.value))
            half = float(np.mean(answer.high - answer.low)) / 2
            # A binomial is inverted: about one value found is given away at either end.
            assert half <= 1.3 * ideal * (1 + 1 / z / 3), (name, confidence)


def test_few_values_are_compared_exactly() -> None:
    left, right = of_values(np.arange(0, 40)), of_values(np.arange(30, 60))
    compared = Compared.of(left, right)
    counts = (compared.union(0.95), compared.intersection(0.95), compared.difference(0.95))
    assert [int(answer.value[0]) for answer in counts] == [60, 10, 30]
    assert all(answer.bound[0] == Bound.EXACT for answer in counts)
    assert compared.jaccard(0.95).value[0] == 10 / 60
    assert compared.jaccard(0.95).bound[0] == Bound.EXACT


def test_nothing_has_nothing_in_common_and_no_jaccard() -> None:
    compared = Compared.of(GroupedTheta(2), GroupedTheta(1))
    assert compared.intersection(0.95).high.tolist() == [0, 0]
    jaccard = compared.jaccard(0.95)
    assert jaccard.null.tolist() == [True, True]
    assert (jaccard.bound == Bound.EXACT).all()


def test_of_what_thinning_may_have_left_out_no_jaccard_is_claimed() -> None:
    left, right = GroupedTheta(1), GroupedTheta(1)
    left.thin(2)
    compared = Compared.of(left, right)
    jaccard = compared.jaccard(0.95)
    assert (jaccard.null[0], jaccard.bound[0]) == (True, Bound.NONE)
    assert jaccard.reason == "no value of either set was kept"
    # The right set is known to be empty, whatever the left one is.
    assert compared.intersection(0.95).high[0] == 0
    assert compared.difference(0.95).high[0] > 0


def test_what_a_small_set_is_known_to_be_limits_what_it_shares_with_a_large_one() -> None:
    small, large = of_values(np.arange(50)), of_values(np.arange(25, 100_000))
    compared = Compared.of(small, large)
    assert compared.intersection(0.95).high[0] <= 50
    assert compared.difference(0.95).high[0] <= 50


def test_groups_are_compared_one_by_one_whatever_their_order() -> None:
    rng = np.random.default_rng(7)
    ids, values = rng.integers(0, 5, 4000).astype(np.int32), rng.integers(0, 900, 4000)
    half = rng.random(4000) < 0.5
    left, right = GroupedTheta(5, LG_K), GroupedTheta(5, LG_K)
    left.update(ids[half], murmur_int64(values[half])[0])
    right.update(ids[~half], murmur_int64(values[~half])[0])
    whole = Compared.of(left, right).intersection(0.95)
    for group in range(5):
        alone = np.array([group])
        one = Compared.of(left.select(alone), right.select(alone)).intersection(0.95)
        assert (one.value[0], one.low[0], one.high[0]) == (
            whole.value[group],
            whole.low[group],
            whole.high[group],
        )


def test_the_library_finds_the_same_values_in_common() -> None:
    left, right = of_values(np.arange(0, 9000), 10), of_values(np.arange(5000, 20_000), 10)
    compared = Compared.of(left, right)
    images = [
        datasketches.compact_theta_sketch.deserialize(each.image(0)) for each in (left, right)
    ]
    intersection = datasketches.theta_intersection()
    for image in images:
        intersection.update(image)
    found = intersection.get_result()
    assert (found.num_retained, found.theta) == (compared.both[0], compared.shares[0])
    without = datasketches.theta_a_not_b().compute(*images)
    assert (without.num_retained, without.theta) == (compared.left_only[0], compared.shares[0])


def test_the_librarys_jaccard_bounds_miss_where_ours_hold() -> None:
    """Sets that are nearly equal: mostly all values found are common, and it is then certain."""
    sizes, trials, theirs, ours = Sizes(1280, 5, 5), 150, 0, 0
    for trial in range(trials):
        values = np.arange(1290) + 10_000 * trial
        left, right = of_values(values[:1285]), of_values(np.delete(values, np.arange(1280, 1285)))
        images = [
            datasketches.compact_theta_sketch.deserialize(each.image(0)) for each in (left, right)
        ]
        low, _, high = datasketches.theta_jaccard_similarity.jaccard(*images)
        theirs += low <= sizes.jaccard <= high
        ours += Compared.of(left, right).jaccard(0.954)[0].holds(sizes.jaccard)
    assert theirs < 0.75 * trials
    assert ours >= truth.gate(trials, 0.954)


def test_shares_invert_the_binomial() -> None:
    # Clopper and Pearson's own tables: 3 of 10 at 95 %; none and all of 5.
    found = binomial_share(drawn=[10, 5, 5, 0], matched=[3, 0, 5, 0], confidence=0.95)
    np.testing.assert_allclose(found.low, [0.0667, 0, 0.4782, 0], atol=1e-4)
    np.testing.assert_allclose(found.high, [0.6525, 0.5218, 1, 1], atol=1e-4)
    assert np.isnan(found.value[3])
    with pytest.raises(BadParameter, match="confidence"):
        binomial_share(drawn=1, matched=1, confidence=1.0)
