"""Value indexes: they name every row group that holds a value, or say that they are of no use."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.archive.files.file_system import OsFiles
from shedder.archive.indexes.value_index import BLOCK_PAIRS, PAIR, Fences, Stale, keys_of, to_parts
from shedder.cql.expressions.column_types import ColumnType

INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)


def to_bytes(groups, run_crc: int) -> bytes:
    return b"".join(to_parts(groups, run_crc))


def opened(tmp_path, data: bytes, run_crc: int = 7):
    path = tmp_path / "x.index"
    path.write_bytes(data)
    file = OsFiles().open(path)
    return file, Fences.read(file, run_crc)


def looked_up(tmp_path, data: bytes):
    file, fences = opened(tmp_path, data)
    return fences.groups(file, [(3, 3)])


@given(st.lists(FLOATS, min_size=2, max_size=50))
def test_keys_of_doubles_are_in_the_order_of_the_doubles(values):
    keys = keys_of(pa.array(values), ColumnType.DOUBLE)
    for left, right, low, high in zip(values, values[1:], keys, keys[1:], strict=False):
        assert (left < right) == (low < high)
        assert (left == right) == (low == high)


def test_keys_of_other_types_are_equal_where_values_are():
    texts = pa.array(["", "a", "b", "a", "Straße" * 10, ""])
    keys = keys_of(texts, ColumnType.VARCHAR)
    assert (keys == keys_of(texts.slice(0), ColumnType.VARCHAR)).all()
    assert keys_of(texts.slice(3, 2), ColumnType.VARCHAR).tolist() == keys[3:5].tolist()
    assert len(set(keys.tolist())) == 4
    days = pa.array([3, -1], pa.int32()).cast(pa.date32())
    assert keys_of(days, ColumnType.DATE).tolist() == [3, -1]
    moments = pa.array([5, -9], pa.timestamp("us"))
    assert keys_of(moments, ColumnType.TIMESTAMP).tolist() == [5, -9]
    assert keys_of(pa.array([], pa.string()), ColumnType.VARCHAR).size == 0


@pytest.mark.parametrize("distinct", [1, 3, 1_000, 10**9])
@pytest.mark.parametrize("rows", [0, 1, 40, BLOCK_PAIRS, 30_000])
def test_every_group_that_holds_a_value_is_named(tmp_path, rows, distinct):
    random = np.random.default_rng(rows + distinct)
    groups = [random.integers(0, distinct, size) for size in (rows, rows // 2, 0, rows)]
    file, fences = opened(tmp_path, to_bytes(groups, 7))
    some = [*groups[0][:5].tolist(), 0, distinct, -5]
    for low, high in [(v, v) for v in some] + [(some[0], some[0] + distinct // 50), (5, 2)]:
        expected = [n for n, keys in enumerate(groups) if ((keys >= low) & (keys <= high)).any()]
        found = fences.groups(file, [(low, high)])
        assert found is None or found.tolist() == expected
        if low == high:
            assert found is not None or fences.fences.size > 2
    several = fences.groups(file, [(v, v) for v in some])
    expected = [n for n, keys in enumerate(groups) if np.isin(keys, some).any()]
    assert several is None or several.tolist() == expected
    file.close()


def test_a_range_over_most_of_the_values_is_of_no_use(tmp_path):
    file, fences = opened(tmp_path, to_bytes([np.arange(100_000)], 7))
    assert fences.groups(file, [(0, 90_000)]) is None
    assert fences.groups(file, [(500, 900)]).tolist() == [0]
    file.close()


@pytest.mark.slow
def test_any_flipped_bit_is_found_before_it_misleads(tmp_path):
    keys = np.arange(3 * BLOCK_PAIRS)
    sound = to_bytes([keys, keys[::2]], 7)
    file, fences = opened(tmp_path, sound)
    truths = [fences.groups(file, [(key, key)]).tolist() for key in (0, 5_000, 12_287)]
    file.close()
    for offset in range(0, len(sound), 97):
        rotten = bytearray(sound)
        rotten[offset] ^= 16
        try:
            file, fences = opened(tmp_path, bytes(rotten))
            found = [fences.groups(file, [(key, key)]).tolist() for key in (0, 5_000, 12_287)]
        except Stale:
            continue
        assert found == truths  # The flip is in a block that no lookup read.


def test_an_index_of_another_file_or_a_cut_one_is_stale(tmp_path):
    data = to_bytes([np.arange(10)], 7)
    with pytest.raises(Stale):
        opened(tmp_path, data, run_crc=8)
    for size in (0, 10, 40, len(data) - 1):
        with pytest.raises(Stale):
            looked_up(tmp_path, data[:size])


@pytest.mark.parametrize("high", [5, 1 << 40, (1 << 47) - 1, 1 << 47, (1 << 63) - 1])
def test_pairs_are_each_key_with_each_of_its_groups_in_order(high):
    """Keys in a narrow range are sorted together with their groups, others before."""
    random = np.random.default_rng(high)
    groups = [random.integers(-high, high, n) for n in (50, 0, 300, 1)] + [np.array([-high, high])]
    pairs = np.frombuffer(b"".join(to_parts(groups, 7)[3:]), PAIR)  # Behind head and fences.
    found = list(zip(pairs["key"].tolist(), pairs["group"].tolist(), strict=True))
    assert sorted(found) == sorted({(k, n) for n, keys in enumerate(groups) for k in keys.tolist()})
    assert pairs["key"].tolist() == sorted(pairs["key"].tolist())
