"""REQ: ranks near one end; floats of 32 bits never make an interval miss."""

from __future__ import annotations

import datasketches
import numpy as np
import pytest

from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.model.estimate import Bound
from synopses.quantiles import req
from synopses.quantiles.req import GroupedReq
from synopses.quantiles.req_datasketches_format import read_image
from synopses.windows.sliding_merge import WindowMerges
from tests import truth
from tests.scale import in_turn, scaled


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("panes", [1, 6])
@pytest.mark.parametrize("high", [True, False], ids=["high", "low"])
@pytest.mark.parametrize("distribution", truth.distributions())
def test_the_interval_holds_the_truth_as_often_as_it_says(
    distribution: str, high: bool, panes: int
) -> None:
    trials, size = 60, 6000
    values = truth.draw(distribution, 1, trials * size)
    ids = np.repeat(np.arange(trials, dtype=np.int32), size)
    summary = GroupedReq(trials, k=12, high=high)
    for pane in range(panes):
        part = GroupedReq(trials, k=12, high=high)
        part.update(ids[pane::panes], values[pane::panes])
        summary.merge(part)
    groups = values.reshape(trials, size)
    for q in (0.5, 0.9, 0.99, 0.999, 1.0):
        share = q if high else 1 - q
        exact = [truth.exact_quantile(group, share) for group in groups]
        answer = summary.quantile(share, 0.95)
        held = int(np.sum((answer.low <= exact) & (exact <= answer.high)))
        assert held >= truth.gate(trials, 0.95), share
        assert (answer.low <= answer.value).all()
        assert (answer.value <= answer.high).all()


def rows_to(summary: GroupedReq, share: float, size: int, trials: int) -> tuple[int, np.ndarray]:
    """How often intervals hold a quantile of 0 to size - 1, and how far off the values are."""
    answer, exact = summary.quantile(share, 0.95), np.ceil(share * size - 1e-9) - 1
    assert len(answer) == trials
    held = int(np.sum((answer.low <= exact) & (exact <= answer.high)))
    return held, (answer.value - exact) / size


def merged_in_turn(panes: int, rows: int, trials: int, k: int, *, tree: bool) -> GroupedReq:
    """Permutations of 0 to panes * rows - 1, one for each group."""
    rng, parts = np.random.default_rng(panes), []
    whole = np.stack([rng.permutation(panes * rows) for _ in range(trials)]).astype(np.float64)
    ids = np.repeat(np.arange(trials, dtype=np.int32), rows)
    for pane in range(panes):
        part = GroupedReq(trials, k)
        part.update(ids, whole[:, pane * rows : (pane + 1) * rows].ravel())
        parts.append(part)
    if tree:
        window = WindowMerges(
            lambda: GroupedReq(trials, k), lambda part: np.array(part.size_bytes), panes
        )
        for number, part in enumerate(parts):
            window.add(number, part)
        merged = window.merged(0, panes)
        assert merged is not None
        return merged
    summary = GroupedReq(trials, k)
    for part in parts:
        summary.merge(part)
    return summary


@pytest.mark.coverage_gate
@pytest.mark.parametrize(
    ("panes", "rows", "k", "tree"),
    [
        (256, 200, 12, False),
        (256, 200, 12, True),
        pytest.param(300, 2_000, 50, False, marks=in_turn("merges", 0, of=3)),
        pytest.param(300, 2_000, 50, True, marks=in_turn("merges", 1, of=3)),
        pytest.param(300, 2_000, 12, False, marks=in_turn("merges", 2, of=3)),
        pytest.param(2_000, 100, 12, False, marks=in_turn("merges", 0, of=3)),
        pytest.param(2_000, 200, 24, False, marks=in_turn("merges", 1, of=3)),
        pytest.param(2_000, 200, 24, True, marks=in_turn("merges", 2, of=3)),
    ],
)
def test_many_merges_keep_the_promise_and_lean_to_no_side(
    panes: int, rows: int, k: int, tree: bool
) -> None:
    trials = 24
    summary = merged_in_turn(panes, rows, trials, k, tree=tree)
    for share in (0.5, 0.9, 0.99, 0.999):
        held, off = rows_to(summary, share, panes * rows, trials)
        assert held >= truth.gate(trials, 0.95), share
        # With the library's own merges, one after another, the mean is about the error itself.
        assert abs(off.mean()) <= 0.4 * req.rank_error(k, share, 0.95, high=True), share


def test_ranks_of_one_float_are_part_of_the_error_unless_every_value_is_a_float() -> None:
    rng = np.random.default_rng(1)
    apart, ties = rng.normal(size=20_000), np.floor(rng.exponential(size=20_000) * 4)
    lumps = 1.7e9 + rng.integers(0, 3600, 20_000)
    summary = GroupedReq(5, 50)
    for group, values in enumerate((apart, ties, lumps)):
        summary.update(np.full(20_000, group, np.int32), values)
    summary.update(np.full(2_000, 3, np.int32), np.tile([1e9 + 1, 1e9 + 2], 1_000))
    summary.update(np.full(2, 4, np.int32), np.array([1e9 + 1, 1e9 + 2]))  # Held as doubles.
    base = req.rank_error(50, 0.99, 0.95, high=True)
    for found in (summary, GroupedReq.from_bytes(summary.to_bytes()), summary.select(np.arange(5))):
        errors = found.rank_error(0.99, 0.95)
        assert errors[:2].tolist() == [base, base]
        value = found.quantile(0.99, 0.95).value[2]
        assert base < errors[2] < 0.05
        assert abs((lumps <= value).mean() - 0.99) <= errors[2]
        assert errors[3] >= 0.99
        assert errors[4] == 0
    spread = summary.scatter(np.array([4, 3, 2, 1, 0]), 6).merge(GroupedReq(6, 50))
    assert spread.rank_error(0.99, 0.95)[:5].tolist() == errors[::-1].tolist()


@pytest.mark.parametrize(
    "values",
    [
        [0.1],
        [1e300, -1e300, 0.0],
        [np.inf, 1.0, -np.inf],
        [5e-324, -5e-324, 1e-46, 3e-39],
        [2.0**53 + 2, 2.0**53 + 4, 2.0**53 + 6],
        [3.4028235677973366e38, 3.5e38, -3.5e38],
        [16_777_217.0, 16_777_218.0, 16_777_219.0],
    ],
)
@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 1.0])
def test_what_a_float_cannot_hold_is_inside_for_certain(values: list[float], q: float) -> None:
    summary = GroupedReq(1)
    summary.update(None, np.array(values))
    answer = summary.quantile(q, 0.95)
    assert answer.low[0] <= truth.exact_quantile(np.array(values), q) <= answer.high[0]
    assert answer.low[0] >= min(values)
    assert answer.high[0] <= max(values)


def test_an_interval_of_few_values_is_as_wide_as_a_float_is_coarse() -> None:
    values = truth.draw("lognormal-2", 2, 100)
    summary = GroupedReq(1)
    summary.update(None, values)
    for q in (0.1, 0.5, 0.9):
        answer = summary.quantile(q, 0.95)
        assert answer.high[0] - answer.low[0] <= 2.0**-21 * answer.value[0]


def test_a_constant_is_known_exactly_and_an_empty_group_is_null() -> None:
    summary = GroupedReq(3)
    summary.update(np.ones(4, np.int32), np.array([0.1, np.nan, 0.1, 0.1]))
    answer = summary.quantile(0.99, 0.95)
    assert answer.null.tolist() == [True, False, True]
    assert answer.bound[1] == Bound.EXACT
    assert answer.value[1] == 0.1
    assert summary.counts().tolist() == [0, 3, 0]


def test_the_tail_is_more_precise_than_the_middle() -> None:
    errors = [req.rank_error(24, q, 0.95, high=True) for q in (0.5, 0.9, 0.99, 0.999)]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < errors[0] / 20
    assert req.rank_error(24, 0.001, 0.95, high=False) == pytest.approx(errors[3])


def test_the_extremes_are_exact_at_any_size() -> None:
    values = truth.draw("lognormal-2", 3, 50_000)
    summary = GroupedReq(1, 12)
    summary.update(None, values)
    assert summary.quantile(0.0, 0.95).low[0] == values.min()
    assert summary.quantile(1.0, 0.95).high[0] == values.max()


@pytest.mark.coverage_gate
@pytest.mark.parametrize("merge_first", [True, False])
def test_a_sketch_that_shrank_has_the_error_of_its_k(merge_first: bool) -> None:
    trials, size = 60, 8000
    values = truth.draw("lognormal-1", 4, trials * size)
    ids = np.repeat(np.arange(trials, dtype=np.int32), size)
    halves = []
    for half in (slice(0, None, 2), slice(1, None, 2)):
        summary = GroupedReq(trials, k=100)
        summary.update(ids[half], values[half])
        halves.append(summary if merge_first else summary.resize(12))
    merged = halves[0].merge(halves[1]).resize(12)
    assert merged.k == 12
    assert merged.counts().tolist() == [size] * trials
    for q in (0.5, 0.95, 0.999):
        exact = [truth.exact_quantile(group, q) for group in values.reshape(trials, size)]
        answer = merged.quantile(q, 0.95)
        held = int(np.sum((answer.low <= exact) & (exact <= answer.high)))
        assert held >= truth.gate(trials, 0.95)


def test_sketches_that_differ_are_refused_with_what_differs() -> None:
    with pytest.raises(CannotMerge, match="k is 12 on the left, 20 on the right"):
        GroupedReq(1, 12).merge(GroupedReq(1, 20))
    with pytest.raises(CannotMerge, match="high is True on the left, False on the right"):
        GroupedReq(1).merge(GroupedReq(1, high=False))
    with pytest.raises(BadParameter, match="k is 13, expected even, 12 to 254"):
        GroupedReq(1, 13)
    with pytest.raises(BadParameter, match="k is 60, expected even, 12 to 50"):
        GroupedReq(1).resize(60)


@pytest.mark.parametrize("high", [True, False])
@pytest.mark.parametrize("size", [0, 1, 2, 4, 5, 60, 50_000])
def test_images_of_the_library_are_read_as_it_reads_them(size: int, high: bool) -> None:
    library = datasketches.req_floats_sketch(12, high)
    library.update(truth.draw("normal", size, size).astype(np.float32))
    read = read_image(library.serialize(), high=high)
    assert (read.n, read.k, read.num_retained) == (library.n, 12, library.num_retained)
    if size:
        for rank in (0.0, 0.4, 0.99, 1.0):
            assert read.get_quantile(rank, True) == library.get_quantile(rank, True)
    with pytest.raises(CorruptSynopsis, match="high ranks of a REQ image"):
        read_image(library.serialize(), high=not high)


@pytest.mark.slow
@pytest.mark.parametrize("k", [*range(12, 255, 2)])
def test_whatever_the_library_holds_is_read(k: int) -> None:
    values = np.random.default_rng(k).permutation(20_000 + 40 * k).astype(np.float32)
    for end in (20_000, len(values)):
        library = datasketches.req_floats_sketch(k)
        library.update(values[:end])
        assert read_image(library.serialize(), high=True).num_retained == library.num_retained


@pytest.mark.parametrize("high", [True, False])
@pytest.mark.parametrize("beyond", [np.inf, -np.inf, 1e39, -1e300])
def test_bytes_of_values_that_are_infinite_as_floats_are_read(beyond: float, high: bool) -> None:
    summary = GroupedReq(1, 12, high=high)
    for part in range(4):
        values = truth.draw("normal", part, 5_000)
        values[part::5] = beyond
        summary.update(None, values)
    read = GroupedReq.from_bytes(summary.to_bytes())
    assert read.to_bytes() == summary.to_bytes()
    for q in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert read.quantile(q, 0.95).low[0] == summary.quantile(q, 0.95).low[0]


def read_damaged(size: int, trials: int) -> int:
    """Damage an image in so many ways and use what is still read; returns how many were."""
    library = datasketches.req_floats_sketch(12)
    library.update(np.arange(size, dtype=np.float32))
    image, rng = library.serialize(), np.random.default_rng(size)
    other = datasketches.req_floats_sketch(12)
    other.update(np.arange(2_000, dtype=np.float32))
    used = 0
    for trial in range(trials):
        end = len(image) if trial % 3 else rng.integers(0, len(image) + 1)
        damaged = bytearray(image[:end])
        for at in rng.integers(0, max(end, 1), rng.integers(1, 3) if end else 0):
            damaged[at] = rng.integers(0, 256)
        try:
            read = read_image(bytes(damaged), high=True)
        except CorruptSynopsis:
            continue
        used += 1
        read.merge(other)
        read.update(np.arange(500, dtype=np.float32))
        read.get_quantile(0.5, True)
    return used


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 3, 100, 3_000, 50_000])
def test_damaged_images_are_refused_or_read_but_never_crash(size: int) -> None:
    assert 0 < read_damaged(size, 1_500) < 1_500


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 40, 400, 5_000])
def test_many_damaged_images_never_crash(size: int) -> None:
    trials = scaled(5_000, 25_000)
    assert 0 < read_damaged(size, trials) < trials


@pytest.mark.parametrize("high", [True, False])
@pytest.mark.parametrize("size", [0, 1, 150, 50_000])
def test_images_of_the_library_are_read_and_written(size: int, high: bool) -> None:
    values = truth.draw("lognormal-1", 6, size)
    library = datasketches.req_floats_sketch(50, high)
    library.update(values.astype(np.float32))
    read = GroupedReq.from_images(
        [library.serialize(), GroupedReq(1, high=high).image(0)], high=high
    )
    assert read.counts().tolist() == [size, 0]
    for q in (0.01, 0.5, 0.99):
        answer = read.quantile(q, 0.999)
        assert answer.null.tolist() == [not size, True]
        if size:
            assert answer.low[0] <= truth.exact_quantile(values, q) <= answer.high[0]
    again = datasketches.req_floats_sketch.deserialize(read.image(0))
    assert (again.n, again.is_hra()) == (size, high)
    merged = GroupedReq.from_bytes(read.to_bytes()).merge(read)
    assert merged.counts().tolist() == [2 * size, 0]
    with pytest.raises(CannotMerge, match="k is 80 on the left, 50 on the right"):
        GroupedReq.from_images([library.serialize()], k=80, high=high)
    with pytest.raises(CorruptSynopsis, match="of a REQ image"):
        GroupedReq.from_images([b"nothing of the kind"])


def test_what_was_rounded_before_an_image_was_written_is_inside_its_interval() -> None:
    values = 1.0 + np.arange(400) * 1e-10  # One float, and above it.
    library = datasketches.req_floats_sketch(50, True)
    library.update(values.astype(np.float32))
    answer = GroupedReq.from_images([library.serialize()]).quantile(1.0, 0.95)
    assert answer.low[0] <= values[-1] <= answer.high[0]
    assert values[-1] != 1.0
