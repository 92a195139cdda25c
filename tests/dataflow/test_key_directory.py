"""Ids of keys by value: NULLs, NaN, -0.0, and keys whose hashes collide."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from shedder.dataflow.key_directory import KeyDirectory, hash_columns, keys_of_hashes

COLUMNS = {
    "whole": pa.array([5, None, -5, 5, 0, None]),
    "double": pa.array([0.0, None, -0.0, float("nan"), 1.5, -1.5]),
    "text": pa.array(["", None, "a", "", "aa", "a"]),
    "bool": pa.array([True, False, None, True, None, False]),
    "day": pa.array([date(2026, 1, 1), None, date(2026, 1, 2), date(1960, 1, 1), None, None]),
    "time": pa.array([1, None, 2, 1, -7, 0], pa.timestamp("us")),
}


def by_value(columns: list[pa.Array]) -> list[int]:
    """Ids in the order of first sight, by a dictionary of Python values."""
    seen: dict = {}
    rows = zip(*([None if v != v else v for v in c.to_pylist()] for c in columns), strict=True)
    return [seen.setdefault(row, len(seen)) for row in rows]


def same_groups(ids: np.ndarray, expected: list[int]) -> bool:
    pairs = set(zip(ids.tolist(), expected, strict=True))
    return len(pairs) == len(set(ids.tolist())) == len(set(expected))


@pytest.mark.parametrize(
    "names",
    [*((name,) for name in COLUMNS), ("whole", "text"), ("text", "double"), tuple(COLUMNS)],
)
@pytest.mark.parametrize(
    "hashed", [hash_columns, lambda columns: np.zeros(6, np.uint64)[: len(columns[0])]]
)
def test_ids_are_equal_where_values_are_equal(names, hashed):
    columns = [COLUMNS[name] for name in names]
    schema = pa.schema([(name, COLUMNS[name].type) for name in names])
    directory = KeyDirectory(schema, hashed)
    ids = directory.assign(columns)
    assert same_groups(ids, by_value(columns))
    assert (directory.assign(columns) == ids).all()
    known = KeyDirectory(schema, hashed)
    first = known.assign([column[:3] for column in columns])
    later = by_value(columns)
    expected = [int(first[later.index(key)]) if key in later[:3] else 0 for key in later]
    assert known.find(columns).tolist() == expected
    assert known.size == int(first.max()) + 1
    kept = directory.keys(ids)
    assert (KeyDirectory(schema).assign(kept.columns) == KeyDirectory(schema).assign(columns)).all()


def test_kept_keys_are_numbered_anew():
    directory = KeyDirectory(pa.schema([("k", pa.string())]))
    ids = directory.assign([pa.array(["a", "b", "c", None])])
    directory.keep(ids[[2, 0]])
    assert directory.assign([pa.array(["c", "a", "b", None])]).tolist() == [1, 2, 3, 0]
    assert directory.keys(np.array([1, 2])).column(0).to_pylist() == ["c", "a"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, -1, 2**63 - 1, -(2**63)]),
        pa.array([0.0, -1.5, 1e300]),
        pa.array([3, -7], pa.int32()),
        pa.array([True, False]),
        pa.array([0, -5, 2**61], pa.timestamp("us")),
        pa.array([1, 20_000], pa.date32()),
    ],
    ids=str,
)
def test_values_of_one_column_of_fixed_width_are_read_from_their_hashes(column):
    hashes = hash_columns([column])
    nulls = np.zeros(len(column), np.bool_)
    assert keys_of_hashes(hashes, column.type, nulls).equals(column)
    nulls[0] = True
    assert keys_of_hashes(hashes, column.type, nulls).null_count == 1
