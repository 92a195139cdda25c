"""Extreme rows of a stream: all rows beyond the ends of a column, and no row besides."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shedder.streams.extreme_rows import ExtremeRows
from shedder.streams.frame import Frame
from shedder.streams.live_sample import StreamSample
from tests.queries.asking import ARROW, SCHEMA
from tests.truth import DISTRIBUTIONS

ROWS = 1_024  # Of the sample: 16 rows at each end of the two numeric columns.
K = 16


def batch_of(client: np.ndarray, size: np.ndarray) -> pa.RecordBatch:
    """Requests with these values; NaN is NULL in one of two columns."""
    rows = len(size)
    columns = [
        pa.array(np.arange(rows), pa.timestamp("us")),
        pa.array([f"d{at % 3}" for at in range(rows)]),
        pa.array(client, pa.int64()),
        pa.array(size, pa.float64()),
        pa.nulls(rows, pa.bool_()),
        pa.nulls(rows, pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def held_of(data: pa.RecordBatch, batch_rows: int) -> ExtremeRows:
    extremes = ExtremeRows(SCHEMA, ROWS)
    names = data.schema.names
    for first in range(0, data.num_rows, batch_rows):
        frame = Frame(data.slice(first, batch_rows), SCHEMA.time_column)
        extremes.update(frame, {name: frame.basics(name) for name in names})
    return extremes


def beyond(values: np.ndarray, k: int = K) -> tuple[np.ndarray, float, float]:
    """Which values lie beyond the (k+1)-th ones, and these two."""
    there = np.sort(values[~np.isnan(values)])
    low, high = (there[k], there[-k - 1]) if len(there) > k else (np.inf, -np.inf)
    return (values < low) | (values > high), low, high


@pytest.mark.parametrize("batch_rows", [1, 97, 1_200])
@pytest.mark.parametrize("name", ["lognormal-2", "zipf", "constant", "adversarial"])
def test_held_rows_are_those_beyond_the_ends_however_they_were_batched(name, batch_rows):
    rng = np.random.default_rng(5)
    size = DISTRIBUTIONS[name](rng, 1_200)
    size[rng.random(1_200) < 0.1] = np.nan
    size[[17, 900]] = np.inf, -np.inf
    client = np.minimum(rng.zipf(1.3, 1_200), 10**9)
    found = held_of(batch_of(client, size), batch_rows).view()
    extreme = np.zeros(1_200, np.bool_)
    for column, values in (("client", client.astype(float)), ("bytes", size)):
        chosen, low, high = beyond(values)
        assert found.ends[column] == (low, high)
        extreme |= chosen
    places = found.rows["ts"].cast(pa.int64()).to_numpy()
    assert places.tolist() == np.flatnonzero(extreme).tolist()
    assert found.has(Frame(found.rows, "ts")).all()


@pytest.mark.parametrize("rows", [0, 1, K, K + 1])
def test_few_rows_are_held_up_to_k_at_an_end(rows):
    found = held_of(batch_of(np.arange(rows), np.arange(rows) * 1.0), 5).view()
    assert found.rows.num_rows == rows


def test_values_that_rise_with_time_are_given_up_and_the_range_stays_true():
    rows = 300_000
    size = np.random.default_rng(1).lognormal(0, 2, rows)
    extremes = held_of(batch_of(np.arange(rows), size), 5_000)
    found = extremes.view()
    assert found.ends["client"] == (K, rows - 1)  # Given up, but for the smallest ones.
    assert found.ends["bytes"] == beyond(size)[1:]
    assert found.rows.num_rows == 3 * K


def test_ends_of_whole_numbers_beyond_doubles_are_rounded_outward():
    client = 2**53 + 2 * np.arange(60) + 1
    data = batch_of(client, np.zeros(60))
    extremes = held_of(data, 60)
    frame = Frame(data, "ts")
    basics = {name: frame.basics(name) for name in data.schema.names}
    view = extremes.view()
    others = client[~view.has(frame)]
    known = view.of_others(basics)["client"]
    assert len(others) >= 60 - 2 * K
    assert known.low <= others.min()
    assert others.max() <= known.high


def test_a_column_without_other_values_keeps_its_range():
    size = np.full(3_000, np.nan)
    size[:5] = [1.0, 2.0, 3.0, 4.0, 5.0]
    data = batch_of(np.zeros(3_000, int), size)
    frame = Frame(data, "ts")
    basics = {name: frame.basics(name) for name in data.schema.names}
    found = held_of(data, 100).view()
    assert found.rows.num_rows == 5
    assert found.of_others(basics)["bytes"] == basics["bytes"]


def sample_of(data: pa.RecordBatch, sample: StreamSample | None = None) -> StreamSample:
    sample = sample or StreamSample(SCHEMA, rows=ROWS)
    for first in range(0, data.num_rows, 500):
        sample.update(sample.position, Frame(data.slice(first, 500), SCHEMA.time_column))
    return sample


def drawn(seed: int, rows: int = 4_000) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    return batch_of(rng.integers(0, 10**6, rows), rng.lognormal(0, 2, rows))


def test_a_restored_sample_goes_on_with_the_same_rows():
    first, second = drawn(1), drawn(2)
    back = StreamSample.from_bytes(SCHEMA, sample_of(first).to_bytes())
    found = sample_of(second, back).view().extremes
    expected = sample_of(second, sample_of(first)).view().extremes
    assert found.rows.equals(expected.rows)
    assert found.ends == expected.ends


def without_extremes(image: bytes) -> bytes:
    """The state as a version wrote it that kept no extreme rows."""
    sections, at = [], 0
    while at < len(image):
        size = struct.unpack_from("<Q", image, at)[0]
        sections.append(image[at + 8 : at + 8 + size])
        at += 8 + size
    head = json.loads(sections[0])
    del head["extremes"]
    sections = [json.dumps(head).encode(), *sections[1:-1]]
    return b"".join(struct.pack("<Q", len(each)) + each for each in sections)


def test_after_a_state_without_them_only_values_beyond_its_range_are_held():
    old = StreamSample.from_bytes(SCHEMA, without_extremes(sample_of(drawn(1)).to_bytes()))
    known = old.basics["bytes"]
    assert old.view().extremes.rows.num_rows == 0
    later = drawn(2)
    size = later["bytes"].to_numpy().copy()
    size[[3, 700]] = 1e9, 2e9
    later = later.set_column(3, "bytes", pa.array(size))
    found = sample_of(later, old).view().extremes
    low, high = found.ends["bytes"]
    assert known.low >= low
    assert known.high <= high
    where = np.flatnonzero((size < low) | (size > high))
    assert {3, 700} <= set(where)
    client = later["client"].to_numpy()
    first, last = found.ends["client"]
    where = np.union1d(where, np.flatnonzero((client < first) | (client > last)))
    assert found.rows["ts"].cast(pa.int64()).to_pylist() == where.tolist()


@pytest.mark.parametrize("size_bytes", [1 << 16, 1 << 18, 1 << 20])
def test_their_bytes_are_a_part_of_those_of_the_sample(size_bytes):
    rng = np.random.default_rng(4)
    sample = StreamSample(replace(SCHEMA), rows=ROWS, size_bytes_max=size_bytes)
    for first in range(0, 4_000, 100):
        part = batch_of(rng.integers(0, 10**6, 100), rng.lognormal(0, 2, 100))
        part = part.set_column(1, "domain", pa.array(["x" * 2_000] * 100))
        sample.update(first, Frame(part, SCHEMA.time_column))
        view = sample.view()
        assert view.extremes is not None
        assert view.extremes.rows.nbytes <= size_bytes / 16
        assert view.rows.nbytes + view.extremes.rows.nbytes <= size_bytes
    assert view.extremes.has(Frame(view.extremes.rows, "ts")).all()
    assert view.extremes.rows.num_rows > (0 if size_bytes > 1 << 16 else -1)


def test_batches_do_not_decide_which_ends_are_given_up():
    rows = 70_000
    data = batch_of(np.arange(rows), np.random.default_rng(1).lognormal(0, 2, rows))
    states = [held_of(data, batch_rows).state() for batch_rows in (1_000, 33_333, rows)]
    assert all(state == states[0][0] for state, _ in states)
    assert all(held.equals(states[0][1]) for _, held in states)
