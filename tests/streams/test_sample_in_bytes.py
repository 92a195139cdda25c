"""Samples of wide rows: bounded in bytes, and as fair as samples of narrow ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from shedder.queries.evidence.answer_builder import finish
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.streams.frame import Frame
from shedder.streams.live_sample import StreamSample
from tests.queries.asking import ARROW, SCHEMA, ask
from tests.truth import gate

ROWS = 4_096
MIB = 1 << 20
KINDS = {"weighted": ["bytes"], "hashed": ["client"], "strata": {("ok",): ("bytes",)}}


def wide(values: np.ndarray, lengths: np.ndarray, first: int = 0) -> pa.RecordBatch:
    """Requests with these bytes, whose domains have these lengths."""
    count = len(values)
    ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
    text = pa.py_buffer(b"x" * int(ends[-1]))
    columns = [
        pa.array(np.arange(first, first + count), pa.timestamp("us")),
        pa.StringArray.from_buffers(count, pa.py_buffer(ends), text),
        pa.array(np.arange(first, first + count) % 997),
        pa.array(values, pa.float64()),
        pa.array(np.arange(count) % 3 == 0),
        pa.array(np.zeros(count, np.int32)).view(pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def correlated(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Values of a heavy tail, and lengths that follow them: the widest rows weigh most."""
    values = np.random.default_rng(seed).lognormal(3.0, 1.2, count)
    return values, np.minimum(40.0 * values, 200_000).astype(np.int64)


def batches(values: np.ndarray, lengths: np.ndarray, rows: int = 500) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(values), rows):
        part = slice(first, first + rows)
        yield wide(values[part], lengths[part], first)


def sample_of(limit: int, seed: int = 0, rows: int = ROWS, **kinds) -> StreamSample:
    return StreamSample(replace(SCHEMA, seed=seed), rows=rows, size_bytes_max=limit, **kinds)


def offer(sample: StreamSample, batch: pa.RecordBatch) -> None:
    sample.update(sample.position, Frame(batch, SCHEMA.time_column))


def held_rows(sample: StreamSample) -> list[int]:
    """The places of the uniform sample's rows in the stream."""
    return sample.view().rows.column("ts").cast(pa.int64()).to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 8_000, 200_000])
@pytest.mark.parametrize("kinds", [{}, KINDS])
def test_rows_take_no_more_bytes_than_allowed(length, kinds) -> None:
    limit, count = 4 * MIB, 4_000 if length < 100_000 else 400
    sample = sample_of(limit, **kinds)
    for batch in batches(np.arange(1.0, count + 1), np.full(count, length), rows=100):
        offer(sample, batch)
        view = sample.view()
        held = [view.rows, *(each.rows for each in view.hashed.values())]
        held += [each.rows for two in view.weighted.values() for each in two]
        held += [view.extremes.rows, *(each.rows for each in view.stratified)]
        assert sum(each.nbytes for each in held) <= limit
        assert sample.size_bytes <= limit + 64 * 1_024 * (1 + len(kinds)) + 16 * 2 * 4 * ROWS
    assert view.rows.num_rows >= min(count, 0.2 * limit / (length + 60) / (8 if kinds else 1), ROWS)


def test_narrow_rows_are_kept_as_if_there_were_no_limit() -> None:
    values = np.arange(1.0, 20_001)
    limited, free = sample_of(8 * MIB, **KINDS), sample_of(1 << 62, **KINDS)
    for batch in batches(values, values.astype(np.int64) % 9, rows=5_000):
        offer(limited, batch)
        offer(free, batch)
    assert limited.to_bytes() == free.to_bytes()


def test_how_many_rows_are_kept_follows_from_the_stream_and_not_from_the_keys() -> None:
    samples = [sample_of(2 * MIB, seed) for seed in range(6)]
    for batch in batches(*correlated(6_000, seed=1)):
        for sample in samples:
            offer(sample, batch)
        assert len({sample.view().rows.num_rows for sample in samples}) == 1
    assert samples[0].view().rows.num_rows < 1_000


@pytest.mark.slow
def test_wide_rows_are_kept_as_often_as_narrow_ones() -> None:
    values, lengths = correlated(3_000, seed=2)
    kept = np.zeros(len(values))
    for seed in range(120):
        sample = sample_of(1 * MIB, seed)
        for batch in batches(values, lengths):
            offer(sample, batch)
        rows = held_rows(sample)
        kept[rows] += 1
    by_size = kept[np.argsort(lengths)].reshape(20, -1).sum(axis=1)  # From narrow to wide.
    assert len(rows) < 600
    assert stats.chisquare(by_size).pvalue > 1e-6
    assert by_size.sum() == 120 * len(rows)


OUTPUTS = "AVG(bytes) AS mean, SUM(bytes) AS total, QUANTILE(bytes, 0.5) AS half FROM requests"


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("kinds", [{}, KINDS])
def test_intervals_of_wide_rows_hold_the_truth_as_often_as_they_say(kinds) -> None:
    """Values and sizes go together: a sample that avoids wide rows answers too low."""
    values, lengths = correlated(3_000, seed=3)
    truths = {"mean": values.mean(), "total": values.sum(), "half": np.sort(values)[1_499]}
    truths["large"] = values[values > 30].sum()
    queries = [ask(OUTPUTS), ask("SUM(bytes) AS large FROM requests WHERE bytes > 30")]
    trials, held, tried = 60, dict.fromkeys(truths, 0), dict.fromkeys(truths, 0)
    for seed in range(trials):
        sample = sample_of(1 * MIB, 1_000 + seed, **kinds)
        for batch in batches(values, lengths):
            offer(sample, batch)
        view = sample.view()
        assert view.rows.num_rows < 600
        for query in queries:
            [row] = finish(query, evidence_from_sample(query, view)).rows()
            for name in truths.keys() & row.keys():
                if row[f"{name}_bound"] not in {"none", "exact"}:
                    tried[name] += 1
                    held[name] += row[f"{name}_low"] <= truths[name] <= row[f"{name}_high"]
    for name, count in tried.items():
        assert count >= 0.9 * trials, name
        assert held[name] >= gate(count, 0.95), (name, held[name], count)


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_groups_of_wide_rows_are_as_fair_and_hold_the_truth() -> None:
    values, lengths = correlated(3_000, seed=4)
    query = ask("ok, AVG(bytes) AS mean FROM requests GROUP BY ok")
    truth = {True: values[np.arange(3_000) % 500 % 3 == 0].mean()}
    truth[False] = values[np.arange(3_000) % 500 % 3 != 0].mean()
    held = tried = 0
    for seed in range(60):
        sample = sample_of(3 * MIB, seed, strata={("ok",): ("bytes",)})
        for batch in batches(values, lengths):
            offer(sample, batch)
        [strata] = sample.view().stratified
        assert strata.rows.num_rows < 1_500
        for row in finish(query, evidence_from_sample(query, sample.view())).rows():
            tried += 1
            held += row["mean_low"] <= truth[row["ok"]] <= row["mean_high"]
    assert tried == 120
    assert held >= gate(tried, 0.95)


def test_a_sample_by_group_that_would_know_too_little_is_dropped() -> None:
    sample = sample_of(1 * MIB, strata={("client",): ("bytes",)})
    for batch in batches(np.ones(1_000), np.full(1_000, 8_000)):
        offer(sample, batch)
    assert not sample.strata
    assert not sample.view().stratified


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [1_000, 30_000, 200_000])
def test_a_sample_grows_again_when_rows_get_narrow(narrow) -> None:
    """While it grows it is fair: old rows are in it in proportion."""
    kept, shares = [], []
    for seed in range(40):
        sample = sample_of(1 * MIB, seed, rows=512)
        for batch in batches(np.ones(1_000), np.full(1_000, 8_000)):
            offer(sample, batch)
        before = sample.view().rows.num_rows
        for first in range(0, narrow, 10_000):
            rows = min(10_000, narrow - first)
            offer(sample, wide(np.zeros(rows), np.zeros(rows, np.int64), first))
        found = sample.view().rows
        kept.append(found.num_rows)
        shares.append(found["bytes"].to_numpy().sum())
    assert len(set(kept)) == 1
    assert before < 120
    assert kept[0] >= {1_000: 1, 30_000: 1, 200_000: 4}[narrow] * before
    old, trials = 1_000 / (1_000 + narrow), 40 * kept[0]
    assert stats.binomtest(int(sum(shares)), trials, old).pvalue > 1e-6


def test_a_row_larger_than_all_that_may_be_held_is_kept_alone_or_not() -> None:
    sample = sample_of(8 * MIB, **KINDS)
    offer(sample, wide(np.array([5.0]), np.array([16 * MIB])))
    assert sample.view().rows.num_rows == 1
    for batch in batches(np.ones(2_000), np.full(2_000, 100)):
        offer(sample, batch)
    assert 1 <= sample.view().rows.num_rows <= 2_000
    assert sample.size_bytes < 40 * MIB


@pytest.mark.parametrize("kinds", [{}, KINDS])
def test_a_stored_sample_of_wide_rows_goes_on_as_if_it_had_not_stopped(kinds) -> None:
    values, lengths = correlated(4_000, seed=5)
    lengths[2_000:] //= 50  # It grows again, in the middle of which it is stored.
    parts = list(batches(values, lengths))
    whole, half = sample_of(2 * MIB, **kinds), sample_of(2 * MIB, **kinds)
    for batch in parts:
        offer(whole, batch)
    for batch in parts[:5]:
        offer(half, batch)
    resumed = StreamSample.from_bytes(replace(SCHEMA, seed=0), half.to_bytes())
    resumed.limit(2 * MIB)
    for batch in parts[5:]:
        offer(resumed, batch)
    assert resumed.to_bytes() == whole.to_bytes()


def test_an_image_stays_as_it_was_while_the_sample_goes_on() -> None:
    sample = sample_of(1 * MIB, **KINDS)
    parts = list(batches(*correlated(2_000, seed=6)))
    for batch in parts[:2]:
        offer(sample, batch)
    image, before = sample.image(), sample.to_bytes()
    for batch in parts[2:]:
        offer(sample, batch)
    assert image.to_bytes() == before != sample.to_bytes()


def test_a_lower_limit_holds_at_once() -> None:
    sample = sample_of(64 * MIB, **KINDS)
    for batch in batches(np.arange(1.0, 2_001), np.full(2_000, 8_000)):
        offer(sample, batch)
    assert sample.size_bytes > 16 * MIB
    sample.limit(2 * MIB)
    assert sample.size_bytes < 2.5 * MIB
