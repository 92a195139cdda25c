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
    owed = ExpectedRows()
    for is_promise, name, rows in turns:
        if is_promise:
            owed.promise(name, rows)
            truth[name] += rows
        elif rows <= truth[name]:
            owed.check(rows_name(name), rows)
            assert owed.settle(rows_name(name), rows) == rows
            truth[name] -= rows
        else:
            with pytest.raises(BadBatch, match=f"it owes {truth[name]}"):
                owed.check(rows_name(name), rows)
        assert owed.rows == truth.total()
        assert owed.to_json() == dict(+truth)
        owed = ExpectedRows.from_json(owed.to_json(), owed.rows)


def test_what_a_version_owed_that_told_no_producers_apart_may_come_from_any() -> None:
    owed = ExpectedRows.from_json(None, 10)
    owed.promise("a", 5)
    owed.check("b+rows", 10)
    assert owed.settle("b+rows", 4) == 4
    owed.check("a+rows", 11)
    with pytest.raises(BadBatch, match="it owes 6"):
        owed.check("b+rows", 7)
    assert owed.settle("any-name", 12) == 11  # As its log has it; one more than all owed.
    assert (owed.rows, owed.to_json()) == (0, {})
    assert ExpectedRows.from_json(None, 0).to_json() == {}


def test_only_so_many_producers_are_waited_for() -> None:
    owed = ExpectedRows({f"p{number}": 1 for number in range(PRODUCERS_MAX)})
    owed.check_promise("p0")
    with pytest.raises(BadBatch, match=f"tuples of {PRODUCERS_MAX:,} producers are waited for al"):
        owed.check_promise("c")
    owed.settle("p1+rows", 1)
    owed.check_promise("c")
