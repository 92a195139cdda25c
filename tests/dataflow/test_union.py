"""Bag unions that take rows away leave out pairs of changes that undo each other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.union import UnionAll

AWAY = UnionAll(negates_right=True, pairs_rows_min=1)
Change = tuple[str | None, int, int, int]  # Value, first and last instant, weight.


def changes(*rows: Change) -> ChangeBatch:
    """Return changes with the event time before their birth."""
    values = pa.RecordBatch.from_pydict({"v": pa.array([row[0] for row in rows], pa.string())})
    born, expires, weight = (np.array([row[at] for row in rows], np.int64) for at in (1, 2, 3))
    return ChangeBatch(values, born - 1, born, expires, weight)


def rows_of(made: ChangeBatch) -> list[Change]:
    columns = (made.born_us, made.expires_us, made.weight)
    values = made.columns["v"].to_pylist()
    return list(zip(values, *(column.tolist() for column in columns), strict=True))


def test_rows_that_are_taken_away_at_their_birth_are_left_out() -> None:
    left = changes(("a", 1, 5, 1), (None, 1, 5, 1), ("b", 2, 5, 1))
    assert rows_of(AWAY.apply(9, left, changes(("a", 1, 5, 1), (None, 1, 5, 1)))) == [
        ("b", 2, 5, 1)
    ]


@pytest.mark.parametrize(
    "away",
    [("a", 2, 5, 1), ("a", 1, 4, 1), ("b", 1, 5, 1), ("a", 1, 5, 2)],
    ids=["later", "with another expiry", "another value", "two copies"],
)
def test_rows_that_are_taken_away_otherwise_stay(away: Change) -> None:
    value, born, expires, weight = away
    made = AWAY.apply(9, changes(("a", 1, 5, 1)), changes(away))
    assert rows_of(made) == [("a", 1, 5, 1), (value, born, expires, -weight)]


def test_equal_rows_of_which_one_is_taken_away_all_stay() -> None:
    made = AWAY.apply(9, changes(("a", 1, 5, 1), ("a", 1, 5, 1)), changes(("a", 1, 5, 1)))
    assert [weight for *_, weight in rows_of(made)] == [1, 1, -1]


def test_few_changes_and_unions_that_add_rows_stay_as_they_are() -> None:
    left, right = changes(("a", 1, 5, 1)), changes(("a", 1, 5, -1))
    assert len(UnionAll(pairs_rows_min=1).apply(9, left, right)) == 2
    assert len(UnionAll(negates_right=True, pairs_rows_min=3).apply(9, left, right.negated())) == 2
