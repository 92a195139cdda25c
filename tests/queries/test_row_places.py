"""Rows that are `certain` are compared with the places that exact values give them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from shedder.queries.answers.answer import CERTAIN, Answer
from shedder.queries.certification.audit import look_at
from shedder.queries.certification.certification import ALARM, AuditSample, Certification, after
from shedder.queries.certification.claims import Case
from shedder.queries.certification.row_places import places_hold, placing_query
from tests.queries.certified import bound
from tests.spark_ingest.archives import answer

TEXT = "SELECT k, AVG(x) AS m FROM r GROUP BY k "


def shown(rows: str, keys: list[int | None]) -> Answer:
    """Groups in the order in which they are shown: c certain, d doubtful, e exact and certain."""
    cells = [(1.0, 0.0, 9.0, "exact" if row == "e" else "interval") for row in rows]
    said = answer({"k": keys}, {"m": cells})
    return replace(
        said, table=said.table.append_column(CERTAIN, pa.array([r != "d" for r in rows]))
    )


def exactly(order: dict[int, Any], kind: pa.DataType) -> Answer:
    """The exact answer to `placing_query`: groups that pass HAVING, and their sort keys."""
    said = answer({"k": list(order)}, {"m": [(1.0, 1.0, 1.0, "exact")] * len(order)})
    key = pa.array(list(order.values()), kind)
    return replace(said, table=said.table.append_column("__order", key))


@pytest.mark.parametrize(
    ("rows", "shows", "places", "choice", "holds"),
    [
        # HAVING alone: the group must pass it.
        ("cc", [1, 2], {1: 0, 2: 0}, "HAVING m > 1", True),
        ("cc", [1, 3], {1: 0, 2: 0}, "HAVING m > 1", False),
        ("dd", [1, 3], {1: 0, 2: 0}, "HAVING m > 1", None),
        ("ce", [1, 3], {1: 0, 2: 0}, "HAVING m > 1", True),
        ("", [], {1: 0}, "HAVING m > 1", None),
        # LIMIT: fewer groups than the limit come before.
        ("cc", [1, 2], {1: 9, 2: 8, 3: 7}, "ORDER BY m DESC LIMIT 2", True),
        ("cc", [2, 1], {1: 9, 2: 8, 3: 7}, "ORDER BY m DESC LIMIT 2", True),
        ("cc", [1, 3], {1: 9, 2: 8, 3: 7}, "ORDER BY m DESC LIMIT 2", False),
        ("cd", [1, 3], {1: 9, 2: 8, 3: 7}, "ORDER BY m DESC LIMIT 2", True),
        ("cc", [1, 3], {1: 9, 2: 8, 3: 8}, "ORDER BY m DESC LIMIT 2", True),
        ("c", [3], {1: 9, 2: 8, 3: 7}, "ORDER BY m LIMIT 1", True),
        ("c", [1], {1: 9, 2: 8, 3: 7}, "ORDER BY m LIMIT 1", False),
        ("c", [1], {1: None, 2: 8}, "ORDER BY m DESC LIMIT 1", False),
        # ORDER BY alone: the rows before and after it are those that should be.
        ("cdd", [1, 2, 3], {1: 7, 2: 9, 3: 8}, "ORDER BY m", True),
        ("ddc", [1, 2, 3], {1: 7, 2: 9, 3: 8}, "ORDER BY m", False),
        ("ddc", [2, 1, 3], {1: 7, 2: 6, 3: 8}, "ORDER BY m", True),
        ("cdd", [4, 2, 3], {2: 9, 3: 8, 4: 7}, "ORDER BY m", True),
        ("ccd", [1, 2, 4], {1: 7, 2: 9}, "ORDER BY m", True),
    ],
)
def test_a_row_that_is_certain_is_in_its_place(rows, shows, places, choice, holds):
    """A doubtful row may be anywhere, and a group without a value is the last."""
    query = bound(TEXT + choice)
    said = shown(rows, shows)
    assert places_hold(query, said, exactly(places, pa.int64())) is holds
    as_texts = {k: None if v is None else f"{v}" for k, v in places.items()}
    assert places_hold(query, said, exactly(as_texts, pa.string())) is holds


@pytest.mark.parametrize(
    ("places", "holds"),
    [
        ({1: 1.0, 2: 1.0 - 1e-12}, True),
        ({1: 1.0, 2: 1.0 - 1e-6}, False),
        ({1: math.inf, 2: math.inf}, True),
        ({1: math.inf, 2: -math.inf}, False),
        ({1: math.nan, 2: 5.0}, False),
    ],
)
def test_doubles_may_be_in_either_order_when_rounding_decides(places, holds):
    query = bound(TEXT + "ORDER BY m LIMIT 1")
    assert places_hold(query, shown("c", [1]), exactly(places, pa.float64())) is holds


@pytest.mark.parametrize("order", ["", " ORDER BY m"])
def test_a_row_without_groups_is_in_its_place_if_it_passes(order):
    query = bound("SELECT AVG(x) AS m FROM r HAVING m > 1" + order)
    row = answer({}, {"m": [(2.0, 1.0, 3.0, "interval")]})
    said = replace(row, table=row.table.append_column(CERTAIN, pa.array([True])))
    passes = replace(row, table=row.table.append_column("__order", pa.array([1.5])))
    assert places_hold(query, said, passes) is True
    none = replace(passes, table=passes.table.slice(0, 0))
    assert places_hold(query, said, none) is False
    assert list(Case(0, query, none).claims("m")) == []


def test_places_that_exact_values_decide_are_not_judged():
    query = bound("SELECT k, SUM(x) AS s, AVG(x) AS m FROM r GROUP BY k HAVING s > 0.3")
    cells = {"s": [(0.3, 0.3, 0.3, "exact")], "m": [(1.0, 0.0, 9.0, "interval")]}
    said = answer({"k": [1]}, cells)
    said = replace(said, table=said.table.append_column(CERTAIN, pa.array([True])))
    assert places_hold(query, said, exactly({2: 0}, pa.int64())) is None
    assert (
        places_hold(bound(query.text.replace("s >", "m >")), said, exactly({2: 0}, pa.int64()))
        is False
    )


def test_the_row_of_groups_without_room_has_no_place():
    query = bound(TEXT + "HAVING m > 1")
    said = replace(shown("cd", [1, None]), others=1)
    assert places_hold(query, said, exactly({1: 0}, pa.int64())) is True


def test_places_that_hashes_decide_are_not_judged():
    query = bound("SELECT k, COUNT(DISTINCT x) AS m FROM r GROUP BY k ORDER BY m LIMIT 1")
    assert places_hold(query, shown("c", [1]), exactly({2: 1}, pa.int64())) is None


def test_the_query_for_places_has_every_group_that_passes_and_its_sort_key():
    query = bound(TEXT + "HAVING m > 1 ORDER BY m DESC, k LIMIT 3 WITHIN 1 PERCENT")
    found = placing_query(query)
    assert (found.having, found.order, found.limit, found.target) == (query.having, (), None, None)
    assert found.outputs[-1].expression == query.order[0].expression
    assert placing_query(bound(TEXT)).outputs[0].name == "k"


def test_an_answer_with_one_wrong_place_bets_half_of_its_look():
    found = look_at([], [], 0.95, chosen=True, placed=False)
    assert found == AuditSample(1, 1, 0, 0, pytest.approx(0.05), chosen=True, placed=False)
    assert found.missed_share == 0.5
    assert found.overlapping.missed_share is None
    assert look_at([], [], 0.95, placed=None) is None
    assert AuditSample(3, 0, 3, 0, 0.05).missed_share == 0.0
    assert AuditSample(3, 0, 0, 0, 0.05).missed_share is None


def test_places_that_are_often_wrong_take_the_certification():
    found, looks = Certification(), 0
    while not found.lost:
        found, looks = (
            after(found, AuditSample(6, 1, 5, 0, 0.05, chosen=True, placed=False)),
            looks + 1,
        )
    assert looks < 10
    for right in range(200):  # One of twenty may be wrong.
        found = after(
            Certification() if not right else found, AuditSample(6, 0, 5, 0, 0.05, placed=True)
        )
    assert not found.lost
    assert found.evidence < 2.0 / ALARM
