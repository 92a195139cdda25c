"""The live sample of a stream: the same for the same tuples, a fair part of them, and honest."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from shedder.errors import CorruptData
from shedder.streams.basics import ColumnBasics
from shedder.streams.frame import Frame
from shedder.streams.live_sample import StreamSample
from synopses.kernels.hashing import position_keys
from tests.queries.asking import SCHEMA, rows

ROWS = 256


def sample_of(data: pa.RecordBatch, *, batch_rows: int = 1000, **kinds) -> StreamSample:
    sample = StreamSample(SCHEMA, rows=ROWS, **kinds)
    return fed(sample, data, batch_rows)


def fed(sample: StreamSample, data: pa.RecordBatch, batch_rows: int = 1000) -> StreamSample:
    for first in range(0, data.num_rows, batch_rows):
        sample.update(sample.position, Frame(data.slice(first, batch_rows), SCHEMA.time_column))
    return sample


def texts(batch: pa.RecordBatch) -> str:
    """The rows, NaN equal to itself."""
    return str(batch.to_pylist())


KINDS = {"weighted": ["bytes"], "hashed": ["client"]}


def test_the_rows_are_those_with_the_smallest_keys():
    data = rows(5000)
    keys = position_keys(SCHEMA.seed, 0, 5000)
    chosen = np.sort(np.argsort(keys)[:ROWS])
    held = sample_of(data).view().rows
    assert held.column("ts").cast(pa.int64()).to_pylist() == chosen.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("batch_rows", [1, 97, 5000])
def test_how_the_tuples_were_batched_does_not_matter(batch_rows):
    data = rows(1500)
    assert (
        sample_of(data, batch_rows=batch_rows, **KINDS).to_bytes()
        == sample_of(data, **KINDS).to_bytes()
    )


def test_a_stored_sample_goes_on_as_if_it_had_not_stopped():
    data = rows(4000)
    half = sample_of(data.slice(0, 2000), **KINDS)
    resumed = fed(StreamSample.from_bytes(SCHEMA, half.to_bytes()), data.slice(2000))
    assert resumed.to_bytes() == sample_of(data, **KINDS).to_bytes()
    found, expected = resumed.view(), sample_of(data, batch_rows=97, **KINDS).view()
    assert texts(found.rows) == texts(expected.rows)
    assert found.shuffle_seed == expected.shuffle_seed != half.view().shuffle_seed


def test_looking_changes_nothing():
    data = rows(3000)
    looked = StreamSample(SCHEMA, rows=ROWS, **KINDS)
    for first in range(0, 3000, 500):
        looked.update(first, Frame(data.slice(first, 500), SCHEMA.time_column))
        looked.view()
        looked.to_bytes()
    assert looked.to_bytes() == sample_of(data, **KINDS).to_bytes()


def test_a_view_stays_as_it_was():
    data = rows(4000)
    sample = sample_of(data.slice(0, 2000))
    view = sample.view()
    before = texts(view.rows)
    fed(sample, data.slice(2000))
    assert texts(view.rows) == before
    assert (view.population, sample.view().population) == (2000, 4000)


def test_fewer_tuples_than_rows_are_all_there():
    view = sample_of(rows(100), **KINDS).view()
    assert view.is_everything
    assert view.rows.num_rows == 100


def test_all_rows_of_a_held_value_are_held():
    data = rows(3000)
    held = Counter(sample_of(data, **KINDS).view().hashed["client"].rows["client"].to_pylist())
    counts = Counter(data.column("client").to_pylist())
    assert held
    assert all(counts[value] == count for value, count in held.items())
    assert len(held) < len(counts)


def test_the_heaviest_rows_are_in_the_weighted_sample():
    data = rows(3000)
    positive, negative = sample_of(data, **KINDS).view().weighted["bytes"]
    values = data.column("bytes").to_numpy(zero_copy_only=False)
    largest = np.sort(values[~np.isnan(values)])[-10:]
    assert np.isin(largest, positive.weights).all()
    assert negative.rows.num_rows == 0


def test_basics_count_nan_as_null_and_know_the_range():
    values = pa.array([1.5, None, float("nan"), -2.0])
    assert ColumnBasics.of(values) == ColumnBasics(2, 2, -2.0, 1.5)
    infinite = ColumnBasics.of(pa.array([float("inf"), float("-inf"), None]))
    assert infinite == ColumnBasics(2, 1, float("-inf"), float("inf"))
    times = pa.array([5, None], pa.timestamp("us"))
    assert ColumnBasics.of(times) == ColumnBasics(1, 1, 5, 5)
    assert ColumnBasics.of(pa.array([None], pa.date32())) == ColumnBasics(0, 1, None, None)
    assert ColumnBasics.of(pa.array(["a", None])) == ColumnBasics(1, 1)
    assert ColumnBasics.of(pa.array([], pa.float64())) == ColumnBasics()
    nothing = ColumnBasics.of(pa.array([float("nan"), None]))
    assert nothing == ColumnBasics(0, 2)


def test_basics_of_the_sample_are_those_of_all_tuples():
    data = rows(5000)
    basics = sample_of(data).basics
    for name in data.schema.names:
        assert basics[name] == ColumnBasics.of(data.column(name)), name


def test_ends_beyond_float_are_rounded_outward():
    big = 2**53 + 1
    low, high = ColumnBasics(1, 0, big, big).ends
    assert low < big < high


def test_a_sample_cut_short_is_corrupt():
    image = sample_of(rows(500), **KINDS).to_bytes()
    for length in (0, 3, len(image) - 1):
        with pytest.raises(CorruptData):
            StreamSample.from_bytes(SCHEMA, image[:length])
