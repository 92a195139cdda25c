"""First and last values against the plainest code there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synopses.model.errors import CannotMerge, CorruptSynopsis
from synopses.moments.first_last import GroupedFirstLast

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.booleans()
    ),
    max_size=30,
)


def of_rows(rows: list[tuple[int, int, int, int]]) -> GroupedFirstLast:
    """rows: (group, time, value, position)."""
    summary = GroupedFirstLast(3, integer=True)
    ids, times, values, positions = (np.array([row[at] for row in rows]) for at in range(4))
    summary.update(
        ids.astype(np.int32), times.astype(np.int64), positions.astype(np.int64),
        values.astype(np.int64),
    )  # fmt: skip
    return summary


@pytest.mark.slow
@given(drawn=ROWS, seed=st.integers(0, 2**32))
def test_the_order_of_arrival_does_not_matter(
    drawn: list[tuple[int, int, int, bool]], seed: int
) -> None:
    rows = [(group, time, value, at) for at, (group, time, value, _) in enumerate(drawn)]
    left = [row for row, (_, _, _, to_left) in zip(rows, drawn, strict=True) if to_left]
    right = [row for row in rows if row not in left]
    order = np.random.default_rng(seed).permutation(len(rows))
    summary = of_rows([rows[at] for at in order])
    assert of_rows(right).merge(of_rows(left)).to_bytes() == summary.to_bytes()
    for group in range(3):
        mine = sorted((time, at, value) for of, time, value, at in rows if of == group)
        for answer, end in ((summary.first(), 0), (summary.last(), -1)):
            assert bool(answer.null[group]) == (not mine)
            if mine:
                assert answer.value[group] == mine[end][2]
        if mine:
            assert summary.first_times()[group] == mine[0][0]
            assert summary.last_times()[group] == mine[-1][0]


def test_doubles_keep_every_bit() -> None:
    values = np.array([-0.0, 5e-324, np.inf, -np.inf, 1e308])
    for value in values:
        summary = GroupedFirstLast(1, integer=False)
        summary.update(None, np.array([7]), np.array([0]), np.array([value]))
        back = GroupedFirstLast.from_bytes(summary.to_bytes())
        assert back.first().value.tobytes() == back.last().value.tobytes() == value.tobytes()


def test_integers_and_doubles_do_not_mix() -> None:
    with pytest.raises(CannotMerge):
        GroupedFirstLast(1, integer=True).merge(GroupedFirstLast(1, integer=False))


def test_damaged_bytes_are_refused() -> None:
    data = of_rows([(0, 1, 2, 0), (2, 3, 4, 1)]).to_bytes()
    rng = np.random.default_rng(11)
    for _ in range(500):
        damaged = bytearray(data)
        damaged[rng.integers(len(data))] ^= int(rng.integers(1, 256))
        with pytest.raises(CorruptSynopsis):
            GroupedFirstLast.from_bytes(bytes(damaged))
    for end in range(len(data)):
        with pytest.raises(CorruptSynopsis):
            GroupedFirstLast.from_bytes(data[:end])
