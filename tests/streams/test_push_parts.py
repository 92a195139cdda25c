"""The batches of a push have their places in it, whatever happens in the middle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.streams.push_parts import WHOLE, Part, in_parts
from tests.streams.streams import trades


@given(sizes=st.lists(st.integers(1, 5), max_size=6))
def test_places_are_consecutive_and_the_last_batch_is_the_last(sizes):
    batches = [trades(size, seed) for seed, size in enumerate(sizes)]
    parts = list(in_parts(batches, trades(0), ends_at_error=False))
    assert [batch for _, batch in parts] == (batches or [trades(0)])
    assert [part.is_last for part, _ in parts] == [False] * (len(parts) - 1) + [True]
    rows = 0
    for part, batch in parts:
        assert part.first_row == rows
        rows += batch.num_rows


@pytest.mark.parametrize("ends", [False, True])
def test_batches_before_an_error_are_handed_over_first(ends):
    def failing():
        yield trades(3)
        yield trades(4)
        raise ValueError("bad")

    parts = in_parts(failing(), trades(0), ends_at_error=ends)
    assert [next(parts)[0], next(parts)[0]] == [Part(0, False), Part(3, ends)]
    with pytest.raises(ValueError, match="bad"):
        next(parts)


def test_one_batch_is_a_whole_push():
    assert [part for part, _ in in_parts([trades(2)], trades(0), ends_at_error=True)] == [WHOLE]
