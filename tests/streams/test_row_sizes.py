"""Row sizes: counted for all tuples, and the bytes that a random sample of them may take."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.streams.row_sizes import RowSizes, row_bytes


def texts(lengths: np.ndarray) -> pa.RecordBatch:
    """A BIGINT and a text of each of these lengths."""
    ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
    data = pa.py_buffer(bytes(int(ends[-1])))
    column = pa.StringArray.from_buffers(len(lengths), pa.py_buffer(ends), data)
    return pa.RecordBatch.from_arrays([pa.array(lengths, pa.int64()), column], names=["n", "t"])


def sizes_of(lengths: np.ndarray) -> RowSizes:
    batch = texts(lengths)
    sizes = RowSizes.of(batch.schema)
    sizes.update(batch)
    return sizes


def test_a_row_has_the_bytes_of_its_values_and_offsets() -> None:
    batch = texts(np.array([0, 5, 70_000]))
    assert row_bytes(batch).tolist() == [12, 17, 70_012]
    assert row_bytes(batch.slice(1, 2)).tolist() == [17, 70_012]
    assert row_bytes(batch.slice(1, 0)).tolist() == []


@pytest.mark.parametrize("size", [12, 13, 255, 256, 65_535, 65_536, 65_537, 16 << 20])
def test_a_row_is_counted_at_one_to_one_and_a_quarter_times_its_size(size) -> None:
    sizes = sizes_of(np.array([size - 12]))
    sizes.greatest_bytes = 1 << 30  # Known of another row.
    assert size <= sizes.bytes_of(1) <= 1.25 * size


def test_rows_of_one_size_are_counted_without_looking_at_them() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([True, None])], names=["a", "b"])
    sizes = RowSizes.of(batch.schema)
    assert sizes.update(batch) is None
    assert (sizes.rows, sizes.greatest_bytes, sizes.bytes_of(1)) == (2, 9, 9.0)


@pytest.mark.parametrize("deviation", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("rows", [3, 100, 3_000])
def test_no_random_sample_takes_more_bytes_than_foretold(deviation, rows) -> None:
    rng = np.random.default_rng(1)
    lengths = np.minimum(rng.lognormal(5.0, deviation, 20_000), 4 << 20).astype(np.int64)
    sizes = sizes_of(lengths)
    taken = [rng.choice(lengths + 12, rows, replace=False).sum() for _ in range(300)]
    assert max(taken) <= sizes.bytes_of(rows)
    if deviation < 2:  # It is no empty promise.
        assert sizes.bytes_of(rows) <= {3: 4, 100: 4, 3_000: 1.5}[rows] * max(taken)


def test_a_few_huge_rows_cost_what_they_weigh_and_no_more() -> None:
    sizes = sizes_of(np.append(np.full(100_000, 100), [16 << 20] * 2))
    foretold = sizes.bytes_of(1_000)
    assert 2 * (16 << 20) <= foretold < 2.1 * (16 << 20)


def test_the_largest_sample_that_fits_is_found() -> None:
    sizes = sizes_of(np.random.default_rng(2).integers(0, 5_000, 10_000))
    rows = sizes.rows_within(1 << 20, 9_000)
    assert sizes.bytes_of(rows) <= 1 << 20 < sizes.bytes_of(rows + 1)
    assert sizes.rows_within(1, 9_000) == 1
    assert sizes.rows_within(1 << 40, 9_000) == 9_000


def test_stored_sizes_are_the_same() -> None:
    sizes, again = sizes_of(np.arange(10_000)), sizes_of(np.arange(0))
    again.restore(sizes.to_json())
    assert again.to_json() == sizes.to_json()
    assert again.rows == 10_000


def test_sizes_of_an_old_sample_are_taken_for_those_of_all() -> None:
    made = RowSizes.like(texts(np.array([0, 1_000, 1_000])), 1_000)
    assert made.rows == 1_000
    assert made.bytes_of(1_000) == pytest.approx(333 * 12 + 667 * 1_012, rel=0.3)
