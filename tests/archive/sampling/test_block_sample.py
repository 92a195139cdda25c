"""Samples out of blocks: simple random ones, nested, no larger than needed, called off at once."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.archive.sampling.block_sample import BlockSample
from shedder.archive.sampling.run_sample import fewest
from shedder.archive.tasks.deadline import Deadline
from shedder.archive.tasks.progress import Progress
from shedder.errors import Cancelled, CorruptData, DeadlineExceeded
from tests.archive.dealt import DealtRuns
from tests.queries.asking import SCHEMA, rows

DATA = rows(20_000)
COLUMNS = ("ts", "bytes", "client", "domain", "ok")


def positions(view) -> np.ndarray:
    """Which tuples are in a sample: the time column numbers them."""
    return view.rows.column("ts").cast(pa.int64()).to_numpy()


def extended(dealt: DealtRuns, share: float, seed: int = 0, threads: int = 1) -> BlockSample:
    sample = dealt.sample(COLUMNS, seed, threads)
    sample.extend(sample.fitted([share] * len(sample.runs)), Deadline())
    return sample


@pytest.mark.slow
def test_every_tuple_is_as_likely_as_any_other_in_runs_of_any_size():
    data = rows(3_000)
    met = np.zeros(3_000)
    sizes = []
    for seed in range(400):
        dealt = DealtRuns(SCHEMA, data, [1_500, 700, 90, 500], 16, seed, 2)
        [view] = extended(dealt, 0.25, seed).views()
        found = positions(view)
        assert len(np.unique(found)) == len(found)
        met[found] += 1
        sizes.append(len(found))
    share = np.mean(sizes) / 3_000
    deviation = np.sqrt(400 * share * (1 - share))
    assert np.abs(met - 400 * share).max() < 6 * deviation
    for part in (slice(0, 1500), slice(1500, 2200), slice(2200, 2290), slice(2790, 3000)):
        assert met[part].mean() == pytest.approx(400 * share, abs=6 * deviation / np.sqrt(90))


@pytest.mark.slow
def test_how_many_come_from_a_run_varies_as_in_a_sample_of_all():
    """Exactly k of R blocks each would not vary at all, and be no simple random sample."""
    data = rows(4_000)
    counts = []
    for seed in range(300):
        dealt = DealtRuns(SCHEMA, data, [2_000, 2_000], 16, seed, 3)
        sample = dealt.sample(COLUMNS, seed)
        sample.extend([0.3, 0.3], Deadline())
        counts.append((positions(sample.views()[0]) < 2_000).sum())
    assert np.var(counts) == pytest.approx(2_000 * 0.3 * 0.7, rel=0.35)


def test_a_larger_share_adds_to_what_was_read():
    dealt = DealtRuns(SCHEMA, DATA, [9_000, 11_000], 32, 1)
    sample = dealt.sample(COLUMNS, 1)
    before: set[int] = set()
    for share in (0.05, 0.1, 0.4, 0.9, 1.0):
        sample.extend([share, share], Deadline())
        [view] = sample.views()
        now = set(positions(view).tolist())
        assert before <= now
        assert view.population == 20_000
        before = now
    assert len(before) == 20_000
    assert len(dealt.blocks_read) == len(set(dealt.blocks_read)) == 64


def test_a_smaller_share_changes_nothing():
    sample = extended(DealtRuns(SCHEMA, DATA, [20_000], 32, 1), 0.5)
    before = sample.rows_kept, sample.bytes_read
    sample.extend([0.1], Deadline())
    assert (sample.rows_kept, sample.bytes_read) == before


@pytest.mark.parametrize("share", [1 / 32, 0.25, 0.5, 0.9])
def test_no_more_blocks_are_read_than_the_share_takes(share):
    dealt = DealtRuns(SCHEMA, rows(200_000), [100_000, 100_000], 32, 1)
    sample = extended(dealt, share)
    assert all(each.blocks_read == np.ceil(share * 32) for each in sample.runs)
    assert sample.rows_kept >= 0.85 * share * 200_000


def test_blocks_are_read_in_an_order_of_each_samples_own():
    dealt = DealtRuns(SCHEMA, DATA, [20_000], 32, 1)
    orders = {tuple(dealt.sample(COLUMNS, seed).runs[0].unread) for seed in range(20)}
    assert len(orders) == 20


def test_runs_at_different_shares_are_samples_of_their_own_and_so_is_the_tail():
    dealt = DealtRuns(SCHEMA, DATA, [6_000, 6_000, 3_000], 16, 1)
    sample = dealt.sample(COLUMNS, 1)
    sample.extend([0.5, 0.25, 0.5], Deadline())
    quarter, half, tail = sample.views()
    assert (quarter.population, half.population, tail.population) == (6_000, 9_000, 5_000)
    assert tail.is_everything
    assert ((positions(quarter) >= 6_000) & (positions(quarter) < 12_000)).all()


def test_a_small_tail_is_thinned_into_the_one_sample():
    dealt = DealtRuns(SCHEMA, DATA, [19_000], 16, 1)
    [view] = extended(dealt, 0.25).views()
    assert view.population == 20_000
    assert 100 < (positions(view) >= 19_000).sum() < 400


def test_the_basics_are_those_of_all_tuples():
    dealt = DealtRuns(SCHEMA, DATA, [9_000, 10_000], 16, 1)
    [view] = extended(dealt, 0.1).views()
    column = DATA.column("bytes").to_numpy(zero_copy_only=False)
    known = view.basics["bytes"]
    assert known.rows == np.isfinite(column).sum()
    assert (known.low, known.high) == (np.nanmin(column), np.nanmax(column))
    assert view.basics["domain"].low is None


def test_without_runs_there_is_the_tail_and_without_both_there_is_nothing():
    [view] = extended(DealtRuns(SCHEMA, DATA, [], 16, 1), 0.1).views()
    assert view.is_everything
    assert view.population == 20_000
    [view] = extended(DealtRuns(SCHEMA, DATA.slice(0, 0), [], 16, 1), 0.1).views()
    assert view.population == view.rows.num_rows == 0


def test_a_run_of_one_block_is_read_in_full_and_kept_in_part():
    dealt = DealtRuns(SCHEMA, DATA, [19_990, 10], 1, 1)
    sample = dealt.sample(COLUMNS, 1)
    sample.extend([0.5, 0.5], Deadline())
    assert sample.rows_read == 20_000
    assert sample.rows_kept < 12_000


def test_several_threads_read_what_one_reads():
    dealt = DealtRuns(SCHEMA, DATA, [5_000] * 4, 16, 1)
    one, many = (extended(dealt, 0.3, seed=3, threads=threads).views()[0] for threads in (1, 2))
    assert np.array_equal(positions(one), positions(many))
    assert one.shuffle_seed == many.shuffle_seed


@pytest.mark.parametrize("threads", [1, 2])
def test_a_scan_that_is_called_off_ends_at_the_next_block(threads):
    dealt = DealtRuns(SCHEMA, DATA, [10_000, 10_000], 32, 1)
    progress = Progress("a scan", "tuples")
    deadline = Deadline(None, progress)

    def read(run, blocks, columns):
        for block in dealt.read(run, blocks, columns):
            yield block
            progress.cancel()

    rng = np.random.default_rng(1)
    sample = BlockSample(SCHEMA, dealt.runs, [], read, COLUMNS, rng, threads=threads)
    with pytest.raises(Cancelled, match="a scan was cancelled"):
        sample.extend([0.9, 0.9], deadline)
    assert len(dealt.blocks_read) <= 4


def test_a_deadline_that_has_passed_ends_it():
    sample = DealtRuns(SCHEMA, DATA, [20_000], 32, 1).sample(COLUMNS, 1)
    with pytest.raises(DeadlineExceeded, match="within 0 s"):
        sample.extend([0.9], Deadline(0.0))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_damaged_file_is_an_error_and_no_smaller_sample(threads):
    dealt = DealtRuns(SCHEMA, DATA, [10_000, 10_000], 32, 1)

    def read(run, blocks, columns):
        raise CorruptData(f"{run.file} fails its checksum")
        yield

    rng = np.random.default_rng(1)
    sample = BlockSample(SCHEMA, dealt.runs, [], read, COLUMNS, rng, threads=threads)
    with pytest.raises(CorruptData, match="1/0 fails"):
        sample.extend([0.5, 0.5], Deadline())


@pytest.mark.parametrize(
    ("sizes", "wanted", "found"),
    [
        ([500, 500, 1_000, 2_000], 400, [500]),
        ([500, 500, 1_000, 2_000], 900, [1_000]),
        ([500, 500, 1_000, 2_000], 2_400, [2_000, 500]),
        ([500, 500, 1_000, 2_000], 4_000, [2_000, 1_000, 500, 500]),
        ([8_000, 64_000, 64_000], 9_000, [64_000]),
        ([8_000, 8_000, 64_000], 9_000, [8_000, 8_000]),
        ([15_000, 30_000, 60_000], 44_000, [30_000, 15_000]),
        ([15_000, 30_000, 60_000], 59_000, [60_000]),
        ([15_000, 60_000, 60_000], 70_000, [60_000, 15_000]),
        ([15_000, 60_000, 60_000], 119_000, [60_000, 60_000]),
        ([1], 1, [1]),
    ],
)
def test_few_blocks_are_read_and_little_more_than_is_wanted(sizes, wanted, found):
    chosen = fewest(sizes, wanted)
    assert [sizes[at] for at in chosen] == found


@given(
    sizes=st.lists(st.integers(1, 70_000), min_size=1, max_size=7).map(sorted), part=st.floats(0, 1)
)
def test_no_choice_of_blocks_is_much_cheaper(sizes, part):
    """All choices of few blocks: the best is no less than half as dear."""
    wanted = max(1, int(part * sum(sizes)))
    chosen = fewest(sizes, wanted)
    held = [sizes[at] for at in chosen]
    assert len(set(chosen)) == len(chosen)
    assert sum(held[:-1]) < wanted <= sum(held)
    costs = [
        sum(some) + 2_000 * len(some)
        for count in range(1, len(sizes) + 1)
        for some in itertools.combinations(sizes, count)
        if sum(some) >= wanted
    ]
    assert sum(held) + 2_000 * len(held) <= 2 * min(costs)


def test_of_many_runs_little_is_read_of_each():
    """The parts of a divided block come first, so 60 tuples of 2,000 cost about as many."""
    data = rows(40_000)
    dealt = DealtRuns(SCHEMA, data, [2_000] * 20, 4, 1, halvings=5)
    whole = extended(DealtRuns(SCHEMA, data, [2_000] * 20, 4, 1), 0.03)
    divided = extended(dealt, 0.03)
    assert {block for _, block in dealt.blocks_read} <= {8, 7, 6, 5, 4, 3}
    assert len(dealt.blocks_read) == 20
    assert divided.rows_read < 3 * 0.03 * 40_000 < whole.rows_read
    assert divided.rows_kept == pytest.approx(0.03 * 40_000, rel=0.3)
    divided.extend([0.5] * 20, Deadline())
    [view] = divided.views()
    found = positions(view)
    assert len(np.unique(found)) == len(found) == divided.rows_kept
