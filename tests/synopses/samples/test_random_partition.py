"""Dealing: blocks of equal size, every deal equally probable, and nothing lost on the way."""

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from synopses.samples.random_partition import (
    block_sizes,
    deal,
    left_out,
    move,
    move_texts,
    number,
    places,
    undealt,
)


@given(rows=st.integers(0, 3000), blocks=st.integers(1, 70), seed=st.integers(0, 2**64 - 1))
def test_every_block_has_its_size(rows: int, blocks: int, seed: int) -> None:
    sizes = block_sizes(rows, blocks)
    assert sizes.sum() == rows
    assert sizes.max() - sizes.min() <= 1
    assert np.bincount(deal(seed, 5, sizes), minlength=blocks).tolist() == sizes.tolist()


def test_the_last_block_is_halved_again_and_again() -> None:
    assert block_sizes(400, 4, 3).tolist() == [100, 100, 100, 50, 25, 13, 12]
    assert block_sizes(403, 4, 0).tolist() == [101, 101, 101, 100]


@given(rows=st.integers(0, 3000), blocks=st.integers(1, 20), halvings=st.integers(0, 9))
def test_divided_blocks_have_their_sizes(rows: int, blocks: int, halvings: int) -> None:
    sizes = block_sizes(rows, blocks, halvings)
    assert (sizes.sum(), sizes.min() >= 0) == (rows, True)
    dealt = deal(7, 5, sizes)
    assert np.bincount(dealt, minlength=blocks + halvings).tolist() == sizes.tolist()


def test_a_deal_is_a_function_of_seed_and_position() -> None:
    one = deal(1, 100, block_sizes(1000, 8))
    assert (one == deal(1, 100, block_sizes(1000, 8))).all()
    assert (one != deal(2, 100, block_sizes(1000, 8))).any()
    assert (one != deal(1, 101, block_sizes(1000, 8))).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "blocks", "halvings"), [(4, 2, 0), (5, 2, 0), (5, 3, 0), (6, 2, 1)]
)
def test_all_deals_are_equally_probable(rows: int, blocks: int, halvings: int) -> None:
    """Every possible deal of a few rows, over 60,000 seeds: a chi-square that noise would pass."""
    trials, sizes = 60_000, block_sizes(rows, blocks, halvings)
    seen = Counter(tuple(deal(seed, 0, sizes).tolist()) for seed in range(trials))
    deals = int(
        np.prod(np.arange(1, rows + 1))
        / np.prod([np.prod(np.arange(1, size + 1)) for size in sizes])
    )
    assert len(seen) == deals
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6


@pytest.mark.slow
def test_two_of_four_blocks_are_any_pairs_of_rows_alike() -> None:
    trials, rows = 30_000, 6
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(trials):
        dealt = deal(seed, 9, block_sizes(rows, 3))
        seen[tuple(np.flatnonzero(dealt == 1).tolist())] += 1
    assert seen.keys() == set(combinations(range(rows), 2))
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6


def test_large_blocks_leave_no_trace_of_time() -> None:
    """The mean position of a block of a large run is that of a random sample."""
    rows, blocks = 1 << 20, 64
    dealt = deal(7, 0, block_sizes(rows, blocks))
    size = rows // blocks
    means = np.bincount(dealt, weights=np.arange(rows)) / size
    deviation = np.sqrt((rows**2 / 12) / size * (1 - 1 / blocks))
    assert (np.abs(means - (rows - 1) / 2) < 6 * deviation).all()


@given(rows=st.integers(1, 500), blocks=st.integers(1, 20), ordered=st.booleans())
def test_places_keep_the_order_within_blocks(rows: int, blocks: int, ordered: bool) -> None:
    sizes = block_sizes(rows, blocks)
    dealt = deal(3, 0, sizes)
    order = None if ordered else np.random.default_rng(rows).permutation(rows)
    to = places(dealt, order, sizes)
    assert sorted(to.tolist()) == list(range(rows))
    at = np.empty(rows, np.int64)
    move(np.arange(rows), to, at)
    assert (dealt[at] == np.repeat(np.arange(blocks), sizes)).all()
    numbers = np.empty(rows, np.int64)
    number(-7, to, numbers)
    assert (numbers == at - 7).all()
    rank = np.empty(rows, np.int64)
    rank[np.arange(rows) if order is None else order] = np.arange(rows)
    ends = np.cumsum(sizes)
    for begin, end in zip(ends - sizes, ends, strict=True):
        assert (np.diff(rank[at[begin:end]]) > 0).all()


@given(st.lists(st.text(max_size=20), min_size=1, max_size=60))
def test_texts_arrive_where_they_were_sent(texts: list[str]) -> None:
    data = [text.encode() for text in texts]
    to = np.random.default_rng(len(data)).permutation(len(data)).astype(np.int32)
    offsets = np.cumsum([0, *map(len, data)]).astype(np.int32)
    lengths = np.zeros(len(data) + 1, np.int64)
    lengths[1:][to] = [len(text) for text in data]
    ends = np.cumsum(lengths)
    out = np.empty(int(ends[-1]), np.uint8)
    move_texts(offsets, np.frombuffer(b"".join(data), np.uint8), to, ends, out)
    moved = [out[a:b].tobytes() for a, b in pairwise(ends)]
    assert [moved[place] for place in to] == data


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_as_many_rows_of_each_block_are_left_out_as_is_said(shapes: list[tuple[int, int]]) -> None:
    sizes, counts = (np.array(each) for each in zip(*shapes, strict=True))
    counts = np.minimum(sizes, counts)
    keys = np.random.default_rng(len(shapes)).integers(0, 1 << 64, len(shapes), np.uint64)
    parts = np.split(left_out(keys, sizes, counts), np.cumsum(sizes)[:-1])
    assert [part.sum() for part in parts] == counts.tolist()
    fewer = np.split(left_out(keys, sizes, counts // 2), np.cumsum(sizes)[:-1])
    assert all((part | less == part).all() for part, less in zip(parts, fewer, strict=True))


def test_every_set_of_rows_is_as_likely_to_be_left_out() -> None:
    """The 20 sets of 3 rows of 6, over 40,000 keys: a chi-square that noise would pass."""
    keys = np.random.default_rng(5).integers(0, 1 << 64, 40_000, np.uint64)
    each = np.full(keys.size, 6)
    rows = left_out(keys, each, each // 2).reshape(-1, 6)
    _, met = np.unique(rows @ (1 << np.arange(6)), return_counts=True)
    assert met.size == 20
    assert stats.chisquare(met).pvalue > 1e-6


@pytest.mark.slow
@given(st.sets(st.integers(0, 60), max_size=40), st.randoms())
def test_rows_are_found_by_their_positions(positions, random) -> None:
    mixed = sorted(positions)
    random.shuffle(mixed)
    rows = undealt(np.array(mixed, np.int64) + 7, 7, 61)
    assert rows is not None
    assert [mixed[row] for row in rows] == sorted(positions)


@pytest.mark.parametrize("positions", [[6, 8], [8, 7, 8], [7, 10]])
def test_positions_that_are_not_each_once_in_the_stretch_are_told(positions: list[int]) -> None:
    assert undealt(np.array(positions, np.int64), 7, 3) is None
