"""PREV over windows of rows that are joined with themselves, against brute force."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from shedder.cql.plans.logical_plan import WindowOf, inputs_of
from shedder.dataflow.graph_text import graph_outline
from shedder.errors import BadQuery
from tests.cql.relations import Relations
from tests.cql.relations import stream as schema_of
from tests.dataflow import brute_force as brute
from tests.dataflow.worlds import COLUMNS, NAME, K, X, dataflow, instants, run, stream

LOG = stream(91, size=160, keys=4)
RELATIONS = Relations({name: (schema_of(name, **COLUMNS), []) for name in ("s", "other")})


def bound(text):
    return RELATIONS.bound(text).plan


def chains(log, rows, length, part):
    """Chains (newest, ..., oldest) of tuples that follow each other in a partition's newest."""

    def at(e):
        parts = defaultdict(list)
        for _, _, row in brute.before(log, e):
            parts[part(row)].append(row)
        newest = [each[-rows:] for each in parts.values()]
        return [
            tuple(each[end - back] for back in range(length))
            for each in newest
            for end in range(length - 1, len(each))
        ]

    return at


def check(text, aliases, expected, log=LOG):
    made = run(bound(text), dict.fromkeys(aliases, log), seed=92)
    held = 0
    for e in instants(93):
        assert made.at(e) == Counter(expected(e)), e
        held += len(expected(e))
    return held


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize(("partition", "place"), [("k", K), ("name", NAME), (None, None)])
def test_prev_is_the_tuple_before_in_the_partition_with_null_as_one(rows, partition, place):
    by = "" if partition is None else f"PARTITION BY {partition} "
    window = f"[{by}ROWS {rows}]"
    text = f"SELECT p1.k, p1.x, p2.k, p2.x FROM s {window} p1, s {window} p2 WHERE p2 = PREV(p1)"
    source = chains(LOG, rows, 2, lambda row: None if place is None else row[place])
    pairs = brute.project(source, lambda pair: tuple(row[at] for row in pair for at in (K, X)))
    assert (check(text, ("p1", "p2"), pairs) > 0) is (rows > 1)


def test_an_equality_of_the_partitions_leaves_out_the_partition_of_null():
    window = "[PARTITION BY k ROWS 2]"
    text = (
        f"SELECT p1.k, p2.x FROM s {window} p1, s {window} p2 "
        "WHERE p1.k = p2.k AND PREV(p1) = p2 AND p1.x <> p2.x"
    )
    pairs = brute.select(chains(LOG, 2, 2, lambda row: row[K]), different)
    assert check(text, ("p1", "p2"), brute.project(pairs, lambda pair: (pair[0][K], pair[1][X])))


def different(pair):
    newer, older = pair
    known = newer[K] is not None and newer[X] is not None and older[X] is not None
    return known and newer[X] != older[X]


@pytest.mark.parametrize("rows", [3, 4])
def test_a_chain_of_four_tuples_needs_four_rows(rows):
    window = f"[PARTITION BY k ROWS {rows}]"
    relations = ", ".join(f"s {window} p{at}" for at in range(1, 5))
    text = (
        f"SELECT p1.k, p1.x, p2.x, p3.x, p4.x FROM {relations} "
        "WHERE p2 = PREV(p1) AND p3 = PREV(p2) AND p4 = PREV(p3)"
    )
    source = chains(LOG, rows, 4, lambda row: row[K])
    made = brute.project(source, lambda found: (found[0][K], *(row[X] for row in found)))
    assert (check(text, ("p1", "p2", "p3", "p4"), made) > 0) is (rows == 4)


def test_where_and_slide_of_the_window_come_before_the_numbers():
    window = "[PARTITION BY k ROWS 3 SLIDE 5 WHERE x > 0]"
    text = f"SELECT p1.x, p2.x FROM s {window} p1, s {window} p2 WHERE p2 = PREV(p1)"
    kept = [each for each in LOG if each[2][X] is not None and each[2][X] > 0]

    def pairs(e):
        seen = brute.before(kept, e)
        whole = seen[: len(seen) // 5 * 5]
        return [(newer[X], older[X]) for newer, older in chains(whole, 3, 2, lambda row: row[K])(e)]

    assert check(text, ("p1", "p2"), pairs)


def test_prev_in_a_subquery_finds_the_tuple_of_the_query_around():
    window = "[PARTITION BY k ROWS 3]"
    text = (
        f"SELECT p1.k, p1.x FROM s {window} p1 "
        f"WHERE NOT EXISTS (SELECT * FROM s {window} p2 WHERE p2 = PREV(p1))"
    )

    def oldest(e):
        parts = defaultdict(list)
        for _, _, row in brute.before(LOG, e):
            parts[row[K]].append((row[K], row[X]))
        return [each[-3:][0] for each in parts.values()]

    assert check(text, ("p1", "p2"), oldest)


def test_windows_of_prev_are_one_operator_and_show_no_number():
    window = "[PARTITION BY k ROWS 2]"
    text = f"SELECT * FROM s {window} p1, s {window} p2 WHERE p2 = PREV(p1)"
    plan = bound(text)
    assert [each.name for each in RELATIONS.bound(text).columns] == [
        *("k", "x", "name", "d", "ts"),
        *("k_2", "x_2", "name_2", "d_2", "ts_2"),
    ]
    outline = graph_outline(dataflow(plan).operators())
    assert sum("Window" in line for line in outline) == 1
    assert any("p1.#previous = p2.#number" in line for line in outline), outline


def test_a_window_without_prev_has_no_numbers():
    plan = bound("SELECT p1.k FROM s [ROWS 2] p1, other [ROWS 2] p2 WHERE p1.k = p2.k")
    assert not [each for each in windows_in(plan) if each.window.added]


def windows_in(plan):
    below = [found for each in inputs_of(plan) for found in windows_in(each)]
    return [plan, *below] if isinstance(plan, WindowOf) else below


ROWS = "[PARTITION BY k ROWS 2]"


@pytest.mark.parametrize(
    ("source", "condition", "words"),
    [
        (f"s {ROWS} p1, other {ROWS} p2", "p2 = PREV(p1)", "PREV is of one stream"),
        (f"s {ROWS} p1, s [PARTITION BY x ROWS 2] p2", "p2 = PREV(p1)", r"\[PARTITION BY x ROWS 2"),
        (f"s {ROWS} p1, s [PARTITION BY k ROWS 3] p2", "p2 = PREV(p1)", r"equal windows"),
        (f"s {ROWS} p1, s [PARTITION BY k ROWS 2 WHERE x > 1] p2", "p2 = PREV(p1)", "WHERE"),
        (f"s {ROWS} p1, s p2", "p2 = PREV(p1)", "p2 has no window"),
        (f"s {ROWS} p1, s [RANGE 1 MINUTE] p2", "p2 = PREV(p1)", "PREV is of windows of rows"),
        (f"s {ROWS} p1, (SELECT k FROM s) {ROWS} p2", "p2 = PREV(p1)", "p2 is a subquery"),
        (f"s {ROWS} p1", "p1 = PREV(p1)", "not the one before itself"),
        (f"s {ROWS} p1", "p2 = PREV(p1)", "no relation p2 in FROM"),
        (f"s {ROWS} p1, s {ROWS} p2", "p2.k = PREV(p1)", "the name of another"),
        (f"s {ROWS} p1, s {ROWS} p2", "p2 = PREV(p1, p2)", "the name of another"),
        (f"s {ROWS} p1, s {ROWS} p2", "p2 <> PREV(p1)", "the name of another"),
        (f"s {ROWS} p1, s {ROWS} p2", "p2 = PREV(PREV(p1))", "the name of another"),
    ],
)
def test_prev_of_other_relations_is_refused_with_what_is_wrong(source, condition, words):
    with pytest.raises(BadQuery, match=words):
        bound(f"SELECT p1.k FROM {source} WHERE {condition}")
