"""What is owed, by producer: as an exact count has it, whatever comes and goes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.engine.ingest.expected_rows import PRODUCERS_MAX, ExpectedRows, rows_name
from shedder.errors import BadBatch

NAMES = st.sampled_from(["a", "b", "b+rows", "+rows"])
TURNS = st.lists(st.tuples(st.booleans(), NAMES, st.integers(0, 9)))


@pytest.mark.slow
@given(turns=TURNS)
def test_what_is_let_in_is_never_more_than_was_promised_by_the_same(turns) -> None:
    truth: Counter[str] = Counter()
    expected = ExpectedRows()
    for is_promise, name, rows in turns:
        if is_promise:
            expected.promise(name, rows)
            truth[name] += rows
        elif rows <= truth[name]:
            expected.check(rows_name(name), rows)
            assert expected.settle(rows_name(name), rows) == rows
            truth[name] -= rows
        else:
            with pytest.raises(BadBatch, match=f"{truth[name]} are expected"):
                expected.check(rows_name(name), rows)
        assert expected.rows == truth.total()
        assert expected.to_json() == dict(+truth)
        expected = ExpectedRows.from_json(expected.to_json(), expected.rows)


def test_what_a_version_owed_that_told_no_producers_apart_may_come_from_any() -> None:
    expected = ExpectedRows.from_json(None, 10)
    expected.promise("a", 5)
    expected.check("b+rows", 10)
    assert expected.settle("b+rows", 4) == 4
    expected.check("a+rows", 11)
    with pytest.raises(BadBatch, match="follow: 6 are expected"):
        expected.check("b+rows", 7)
    assert expected.settle("any-name", 12) == 11  # As its log has it; one more than all owed.
    assert (expected.rows, expected.to_json()) == (0, {})
    assert ExpectedRows.from_json(None, 0).to_json() == {}


def test_only_so_many_producers_are_waited_for() -> None:
    expected = ExpectedRows({f"p{number}": 1 for number in range(PRODUCERS_MAX)})
    expected.check_promise("p0")
    with pytest.raises(BadBatch, match=f"tuples of {PRODUCERS_MAX:,} producers are waited for al"):
        expected.check_promise("c")
    expected.settle("p1+rows", 1)
    expected.check_promise("c")
