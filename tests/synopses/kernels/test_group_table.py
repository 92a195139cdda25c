"""Dense group ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synopses.kernels.group_table import GroupTable
from synopses.kernels.hashing import murmur_int64
from synopses.model.errors import BadParameter


def hashes_of(keys: list[int]) -> np.ndarray:
    return murmur_int64(np.array(keys, np.int64))[0]


@pytest.mark.slow
@given(batches=st.lists(st.lists(st.integers(0, 300), max_size=80), max_size=6))
def test_a_hash_keeps_the_id_it_got_first(batches: list[list[int]]) -> None:
    table = GroupTable(1000)
    first_seen: dict[int, int] = {}
    for batch in batches:
        hashes = hashes_of(batch)
        old = table.size
        ids, rows = table.assign(hashes)
        for key in batch:
            first_seen.setdefault(key, len(first_seen) + 1)
        assert ids.tolist() == [first_seen[key] for key in batch]
        assert table.size == len(first_seen) + 1
        assert rows.tolist() == [batch.index(batch[row]) for row in rows.tolist()]
        np.testing.assert_array_equal(table.hashes[old:], hashes[rows])


def test_groups_without_room_are_others() -> None:
    table = GroupTable(2)
    ids, rows = table.assign(hashes_of([5, 6, 7, 5, 8, 6]))
    assert ids.tolist() == [1, 2, 0, 1, 0, 2]
    assert rows.tolist() == [0, 1]
    assert table.assign(hashes_of([7, 6]))[0].tolist() == [0, 2]


def test_a_table_without_room_knows_only_others() -> None:
    ids, rows = GroupTable(0).assign(hashes_of([1, 2]))
    assert ids.tolist() == [0, 0]
    assert rows.size == 0


def test_a_hash_of_zero_is_a_group_like_any_other() -> None:
    table = GroupTable(5)
    assert table.assign(np.array([0, 3, 0], np.uint64))[0].tolist() == [1, 2, 1]


def test_kept_groups_get_the_first_ids_and_the_rest_is_forgotten() -> None:
    table = GroupTable(10)
    hashes = hashes_of([10, 11, 12, 13])
    table.assign(hashes)
    table.keep(np.array([4, 2], np.int64))
    assert table.size == 3
    assert table.assign(hashes)[0].tolist() == [3, 2, 4, 1]


def test_a_table_comes_back_from_its_bytes() -> None:
    table = GroupTable(100_000)
    hashes = hashes_of(list(range(5000)))
    ids, _ = table.assign(hashes)
    back = GroupTable.from_bytes(table.to_bytes())
    assert back.groups_max == 100_000
    np.testing.assert_array_equal(back.assign(hashes)[0], ids)
    assert back.to_bytes() == table.to_bytes()


def test_memory_follows_the_groups_not_the_limit() -> None:
    table = GroupTable(2**29)
    assert table.size_bytes < 10_000
    table.assign(hashes_of(list(range(1000))))
    assert table.size_bytes < 100_000


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(BadParameter, match="groups_max is -1"):
        GroupTable(-1)
