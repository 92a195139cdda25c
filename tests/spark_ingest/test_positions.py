"""Positions that are given out on executors: no two tuples of a stream have the same one."""

from __future__ import annotations

import pytest

from shedder.engine.remote_summaries.validation import ROWS_MAX
from spark_ingest.executors import first_position
from synopses.kernels.hashing import position_keys

LAST = (1 << 23) - 1  # Then numbers of micro-batches begin anew.


@pytest.mark.parametrize("partitions", [1, 2, 7, 200, 1 << 16])
def test_partitions_and_micro_batches_have_positions_of_their_own(partitions: int) -> None:
    firsts = [
        first_position(batch, partition, partitions)
        for batch in (0, 1, 2, LAST)
        for partition in range(partitions)
    ]
    room = ROWS_MAX // partitions
    assert firsts == sorted(firsts)
    assert min(b - a for a, b in zip(firsts, [*firsts[1:], 1 << 63], strict=True)) >= room
    assert room >= 1 << 24


def test_large_partitions_are_thinned_independently() -> None:
    """From its 2^24th tuple on, a partition once kept the ranks that the next one had."""
    large, rows = 1 << 24, 1_000
    kept = [
        position_keys(0, first_position(0, partition, 8) + at, rows) >> 60 == 0
        for partition, at in ((0, large), (1, 0))
    ]
    assert (kept[0] != kept[1]).any()
