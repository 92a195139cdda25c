"""Keys of groups as columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column
from shedder.streams.frame import Frame
from shedder.streams.group_keys import GroupKeys


@pytest.mark.parametrize(
    ("ids", "is_copied"),
    [([1, 2, 3], False), ([2, 3], False), ([3, 1], True), ([1, 3], True), ([], True)],
)
def test_keys_of_consecutive_groups_are_not_copied(ids: list[int], is_copied: bool) -> None:
    keys = GroupKeys((Column("t", ColumnType.VARCHAR),), 10)
    for texts in (["a", "b"], ["b", "c"]):  # The second batch adds one group.
        times = pa.array(np.arange(len(texts)), pa.timestamp("us"))
        batch = pa.record_batch({"ts": times, "t": pa.array(texts)})
        keys.assign(Frame(batch, "ts"))
    [every] = keys.keys(np.arange(4))
    [found] = keys.keys(np.array(ids, np.int64))
    assert every.to_pylist() == [None, "a", "b", "c"]  # The first one is of the others.
    assert found.to_pylist() == [every.to_pylist()[number] for number in ids]
    texts_at = [array.buffers()[2].address for array in (every, found) if array.buffers()[2]]
    assert (len(set(texts_at)) > 1 or not ids) == is_copied
