"""A flood of refused calls writes a few log lines, which say how many were left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shedder.server.log_limit import LogLimit


def test_lines_above_the_limit_are_left_out_and_counted_by_the_next_one():
    now = [0.0]
    limit = LogLimit(3, lambda: now[0])
    assert [limit.allow() for _ in range(5)] == [0, 0, 0, None, None]
    now[0] = 0.9
    assert limit.allow() is None
    now[0] = 1.0
    assert [limit.allow() for _ in range(4)] == [3, 0, 0, None]
    now[0] = 9.0
    assert limit.allow() == 1


@given(st.lists(st.sampled_from((0.0, 0.125, 0.25, 0.625)), max_size=60), st.integers(1, 4))
def test_no_line_is_forgotten_and_no_second_has_more_than_twice_the_limit(pauses_s, most):
    now = [0.0]
    limit = LogLimit(most, lambda: now[0])
    written_s, reported = [], 0
    for pause_s in pauses_s:
        now[0] += pause_s
        left_out = limit.allow()
        if left_out is not None:
            written_s.append(now[0])
            reported += left_out
    assert len(written_s) + reported <= len(pauses_s)
    for at_s in written_s:
        assert sum(at_s <= each < at_s + 1.0 for each in written_s) <= 2 * most
    now[0] += 1.0
    last = limit.allow()
    assert last is not None
    assert len(written_s) + reported + last == len(pauses_s)
